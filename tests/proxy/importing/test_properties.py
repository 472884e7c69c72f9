"""Java's properties syntax; the cases were compared with java.util.Properties itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.importing import broker_conf
from proxy.importing.broker_conf import MalformedEscape, Property, read_properties


def pairs(content: bytes) -> list[tuple[str, str]]:
    return [(property_.key, property_.value) for property_ in read_properties(content)]


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (b"a=b", "a", "b"),
        (b"a:b", "a", "b"),
        (b"a b", "a", "b"),
        (b" \t\f a \t = \f b ", "a", "b "),
        (b"a : b", "a", "b"),
        (b"a = = b", "a", "= b"),
        (b"a b = c", "a", "b = c"),
        (b"a", "a", ""),
        (b"a=", "a", ""),
        (b"=a", "", "a"),
        (rb"a\=b\:c\ d=e", "a=b:c d", "e"),
        (rb"a=\t\n\r\f\q\\", "a", "\t\n\r\fq\\"),
        (rb"\u0061=\u00E9\ud83d\ude00", "a", "é😀"),
        (b"a=\xe9", "a", "é"),
        (b"a=# no comment", "a", "# no comment"),
        (b"a=b\x85c\x0bd", "a", "b\x85c\x0bd"),
    ],
)
def test_a_line_is_a_key_and_a_value(line: bytes, key: str, value: str) -> None:
    assert pairs(line) == [(key, value)]


@pytest.mark.parametrize("content", [b"", b"\n\r\n \t\f\n", b"# a=b", b"  ! a=b\n#", b"#a=b\\\n"])
def test_blank_lines_and_comments_hold_nothing(content: bytes) -> None:
    assert pairs(content) == []


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_as_on_any_system(end: bytes) -> None:
    assert read_properties(end.join([b"a=1", b"# x", b"", b"b=2"])) == [Property("a", "1", 1), Property("b", "2", 4)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a=one,\\\n  two", [("a", "one,two")]),
        (b"a=one\\\r\n\t two\\\r\n three\nb=1", [("a", "onetwothree"), ("b", "1")]),
        (b"a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        (b"a=1\\\\\\\nb=2", [("a", "1\\b=2")]),
        (b"a=1\\\n# goes on", [("a", "1# goes on")]),
        (b"a=1\\\n\nb=2", [("a", "1"), ("b", "2")]),
        (b"a=1\\", [("a", "1")]),
        (b"a\\\n  =1", [("a", "1")]),
        (b"\\\n# a comment\na=1", [("a", "1")]),
    ],
)
def test_a_backslash_at_the_end_continues_a_line(content: bytes, expected: list[tuple[str, str]]) -> None:
    assert pairs(content) == expected


def test_however_many_lines_continue_one_each_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def is_continued(line: str) -> bool:
        looked_at.append(line)
        return line.endswith("\\")

    monkeypatch.setattr(broker_conf, "_is_continued", is_continued)

    assert pairs(b"a=\\\n" + b"12345\\\n" * 100 + b"6") == [("a", "12345" * 100 + "6")]
    assert looked_at == ["a=\\", *["12345\\"] * 100, "6"]


def test_a_comment_is_not_continued() -> None:
    assert pairs(b"# a \\\nb=1") == [("b", "1")]


def test_keys_that_stand_twice_are_all_there_with_their_lines() -> None:
    assert read_properties(b"a=1\n\na=2\\\n  2\na=3") == [
        Property("a", "1", 1),
        Property("a", "22", 3),
        Property("a", "3", 5),
    ]


@pytest.mark.parametrize("escape", [rb"\u", rb"\u12", rb"\u00g0", rb"\uu0041"])
def test_an_escape_that_java_refuses_the_file_for_is_refused_with_its_line(escape: bytes) -> None:
    with pytest.raises(MalformedEscape) as refused:
        read_properties(b"a=1\nb=" + escape)
    assert refused.value.line == 2


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SPECIAL = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}


def written(text: str, *, is_key: bool) -> str:
    """The plain way: what could mean anything is escaped."""
    parts = []
    for index, character in enumerate(text):
        if character in SPECIAL:
            parts.append(SPECIAL[character])
        elif character in "\\=:#!" or (character == " " and (is_key or index == 0)):
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be")
            parts += [f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2)]
    return "".join(parts)


@given(
    st.lists(st.tuples(TEXT.filter(bool), TEXT), max_size=5),
    st.sampled_from([" = ", "=", ":", " : "]),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n# not = this\n"]),
)
def test_what_is_written_is_read(entries: list[tuple[str, str]], between: str, end: str) -> None:
    text = "".join(f"{written(key, is_key=True)}{between}{written(value, is_key=False)}{end}" for key, value in entries)
    assert pairs(text.encode("ascii")) == entries


@given(st.lists(st.sampled_from(["a", "1", "=", ":", " ", "\t", "\\", "#", "!", "\n", "\r", "é", "\\u0041", "\\u1"])))
def test_anything_is_read_or_refused_and_the_lines_rise(parts: list[str]) -> None:
    content = "".join(parts).encode("latin-1")
    try:
        lines = [property_.line for property_ in read_properties(content)]
    except MalformedEscape as refused:
        lines = [refused.line]
    assert lines == sorted(set(lines))
    assert all(1 <= line <= len(parts) + 1 for line in lines)
