"""YAML is read as text: what YAML would turn into something else stays as it is written, or is refused."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.sources import cut
from proxy.config.yaml_reader import YamlError, YamlProblem, lines_of, parse_yaml

_LITERAL = (
    *("5", "007", "010", "0x1F", "0b11", "1_000", "+5", "-0", "1.10", ".5", "5.", "1e3", ".inf", "1,000"),
    *("yes", "no", "on", "off", "true", "2026-11-28", "12:30", "1:30:00", "=", "\u0661"),
)


def problems_of(text: str | bytes) -> tuple[YamlProblem, ...]:
    with pytest.raises(YamlError) as refused:
        parse_yaml(text)
    return refused.value.problems


@pytest.mark.parametrize("text", _LITERAL)
def test_a_scalar_is_the_text_that_stands_there(text: str) -> None:
    assert parse_yaml(f"{text}: {text}\nb: ['{text}', {text!r}]\n") == {text: text, "b": [text, text]} or "," in text
    assert parse_yaml(f"a: {text}") == {"a": text}
    assert parse_yaml(f"a: !!str {text}\nb: ! {text}") == {"a": text, "b": text}


_TREES = st.recursive(
    st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=30), inner), max_leaves=20
)


@settings(deadline=None)  # the first example waits for the machine
@given(_TREES)
def test_what_is_written_as_text_is_read_back(value: Any) -> None:
    assert parse_yaml(yaml.safe_dump(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("", None), ("# nothing", None), ("---", None), ("--- a\n...\n", "a"), ("\ufeffa: b", {"a": "b"})),
        ("a: &x {m: 1, n: 2}\nb: {<<: *x, n: 3}", {"a": {"m": "1", "n": "2"}, "b": {"m": "1", "n": "3"}}),
        ("a: &x {m: 1}\nb: &y {m: 2}\nc: {<<: [*x, *y]}", {"a": {"m": "1"}, "b": {"m": "2"}, "c": {"m": "1"}}),
        ("'<<': 1", {"<<": "1"}),
        ("a: &x no\n? *x\n: *x", {"a": "no", "no": "no"}),
        ("a: |\n  b\n  c\n", {"a": "b\nc\n"}),
        ("!!map {a: !!seq [b]}", {"a": ["b"]}),
        ("a: ''\nb: 'null'\nc: \"~\"", {"a": "", "b": "null", "c": "~"}),
        ("null: {}\n~: []", {"null": {}, "~": []}),
    ],
)
def test_sections_lists_and_references_are_those_of_yaml(text: str, value: Any) -> None:
    assert parse_yaml(text) == value
    assert parse_yaml(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a:", 1, "nothing is written here; leave the key out"),
        ("a: null", 1, "this is nothing to YAML; leave the key out for its default, or put it in quotes"),
        ("a:\n  b: ~", 2, "this is nothing to YAML"),
        ("a: [b,\n Null]", 2, "this is nothing to YAML"),
        ("{m: 1,000}", 1, "write a number without commas"),
        ("a: !!int 5", 1, "the tag !!int is not read here"),
        ("a: !!binary YQ==", 1, "the tag !!binary"),
        ("a: !!python/name:os.system x", 1, "the tag !!python/name:os.system is not read here"),
        ("a: !!set {b: c}", 1, "the tag !!set"),
        ("a: 1\nb: {a: 1}\na: 2", 3, "this key stands in line 1, too"),
        ("a: [{b: 1, b: 3}]", 1, "this key stands in line 1, too"),
        ("[a]: 1", 1, "a list or a section cannot be a key"),
        ("{a: 1}: 1", 1, "a list or a section cannot be a key"),
        ("? \n: 1", 1, "no key stands before this colon"),
        ("a: 1\nb: *x", 2, "*x stands for nothing above it"),
        ("a: &x [*x]", 1, "*x stands for nothing above it"),
        ("<<: 5", 1, "<< takes in a section"),
        ("<<: [5]", 1, "<< takes in a section"),
        ("a\n---\nb", 2, "a second document begins here"),
    ],
)
def test_what_is_no_value_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    (problem,) = problems_of(text)
    assert (problem.line, problem.is_of_syntax) == (line, False)
    assert reason in problem.text


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("a:\n\tb: 1", (2, 1), "a tab stands where blanks indent"),
        ("a:\n  b: 1\n\tc: 2", (3, 1), "a tab stands where blanks indent"),
        ("a: >\n x\n\ty", (3, 1), "a tab stands where blanks indent"),
        ("a: @x", (1, 4), "put it in quotes"),
        ("a: b: c", (1, 5), "put text with a colon and a blank in quotes"),
        ("a: 1\n b: 2", (2, 3), "align the keys"),
        ("a: {b: 1\nc: 2}", (1, 4), "the bracket that opens here is not closed"),
        ("x: 1\na: [1\nb: 2", (2, 4), "the bracket that opens here is not closed"),
        ("a: 'x\nb: 1", (1, 4), "a quote that begins here does not end"),
        ('a: "\\d"', (1, 5), "in double quotes"),
        ("tenants: {*: 1}", (1, 12), "put a name with them in quotes"),
        ("x: 1\na:\n  b: 1\n c: 2", (4, 2), "the section that begins in line 1"),
        ("- a\nb: 1", (2, 1), "begin with -"),
        ("a: - b", (1, 4), "write [a, b]"),
        ("a: [", (2, 1), "a closing bracket is missing here"),
        ("a: ]", (1, 4), "put it in quotes"),
        ("a: |x", (1, 5), "put text that begins with them in quotes"),
        ("a: !<x", (1, 7), "! begins a tag"),
        ("%YAML 3\n", (1, 8), "leave the line out"),
        ("a: 1\nb: \x01", (2, 4), "a control character"),
        (b"a: 1\nb: \xff", (2, 4), "save the file as UTF-8"),
        ("a: [" * 5000, (1, 1), "nested too deeply"),
    ],
)
def test_a_mistake_of_the_syntax_has_its_place_and_remedy(
    text: str | bytes, place: tuple[int, int], remedy: str
) -> None:
    (problem,) = problems_of(text)
    assert (problem.line, problem.column) == place
    assert problem.is_of_syntax
    assert remedy in problem.text


def test_all_mistakes_are_found_at_once_beside_the_values() -> None:
    with pytest.raises(YamlError) as refused:
        parse_yaml("a: null\nb: {c: d, e: }\nf: !!int 5\nb: 2\n")
    assert [(each.line, each.key) for each in refused.value.problems] == [
        *((1, ("a",)), (2, ("b", "e")), (3, ("f",)), (4, ("b",)))
    ]
    assert refused.value.values == {"b": {"c": "d"}}


def test_mistakes_before_one_of_the_syntax_are_found_too() -> None:
    assert [each.line for each in problems_of("a: null\nb: @")] == [1, 2]


def test_no_mistake_shows_content_but_as_its_value() -> None:
    secret = "sekret-0123456789"
    for text in (f"a: !!int {secret}", f"a: {secret}\na: {secret}", f"a: @{secret}", f"a: '{secret}", f"[{secret}]: x"):
        assert all(secret not in each.text for each in problems_of(text)), text


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=4).map(tuple))
def test_a_line_is_that_of_the_key_or_of_the_nearest_around_it(path: tuple[str, ...]) -> None:
    text = "a:\n  b:\n    c: x\n  c: &y\n    b:\n    - z\nb: *y\n"
    lines = {("a",): 1, ("a", "b"): 2, ("a", "b", "c"): 3, ("a", "c"): 4, ("a", "c", "b"): 5, ("b",): 7}
    around = [path[:length] for length in range(len(path), 0, -1)]
    nearest = next((lines[each] for each in around if each in lines), None)
    assert lines_of(text, [path]) == ({path: nearest} if nearest else {})
    assert lines_of(text, [("a", "c", "b", "0")]) == {("a", "c", "b", "0"): 6}


@pytest.mark.parametrize("doubled", ["[*{0}, *{0}]", "{{a: *{0}, b: *{0}}}", "{{<<: *{0}, a: *{0}}}"])
def test_aliases_stand_for_a_bounded_number_of_values(doubled: str) -> None:
    """Each line doubles the one before it; the values of the last one would take hours to check."""
    lines = [f"v{number}: &v{number} {doubled.format(f'v{number - 1}')}" for number in range(1, 60)]
    with pytest.raises(YamlError) as refused:
        parse_yaml("\n".join(["v0: &v0 {x: 1, y: 2}", *lines]))
    first = refused.value.problems[0]
    assert first.text == "aliases (*) stand for more than 2000000 values; write some out, or use a plan"
    assert 15 < first.line < 25
    few = parse_yaml("\n".join(["v0: &v0 {x: 1, y: 2}", *lines[:10]]))
    assert len(few) == 11


def test_aliases_within_aliases_are_no_deeper_than_can_be_walked() -> None:
    text = "v0: &v0 [1]\n" + "".join(f"v{number}: &v{number} [*v{number - 1}]\n" for number in range(1, 1500))
    with pytest.raises(YamlError) as raised:
        parse_yaml(text)
    assert raised.value.problems[0].text.startswith("sections are nested too deeply")


def test_a_text_that_cannot_be_read_has_no_lines() -> None:
    assert lines_of("a: [", [("a",)]) == {}


def test_a_long_value_is_cut() -> None:
    assert cut("x" * 200) == "x" * 200
    assert cut("x" * 201) == "x" * 200 + "…"
