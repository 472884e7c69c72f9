"""JSON of any size is read as the standard library reads it, in calls over a bounded part of it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policies import large_json
from proxy.policies.large_json import TwiceError, read

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6), inner, max_size=6),
    max_leaves=60,
)
MANY = {f"persistent://acme/shop/{number}": {"publish": {"messages": number}} for number in range(500)}
TEXT = json.dumps({"limits": {"topics": MANY}}).encode()


def outcome(reading: Callable[[], Any]) -> Any:
    try:
        return reading()
    except TwiceError:
        return "twice"
    except ValueError:
        return "no JSON"


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(large_json, "WINDOW", 64)
    return 64


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The characters that each call of the standard library may read."""
    lengths: list[int] = []
    make = large_json._Reader.__init__

    def counting(self: Any, data: bytes) -> None:
        make(self, data)
        scan = self._scan

        def counted(text: str, at: int) -> Any:
            lengths.append(len(text))
            return scan(text, at)

        self._scan = counted

    monkeypatch.setattr(large_json._Reader, "__init__", counting)
    yield lengths
    assert lengths


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_a_text_is_read_as_by_the_standard_library(value: Any, indent: Any, ascii_only: bool) -> None:  # noqa: FBT001
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_json, "WINDOW", 120)
        assert read(json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=60) | st.text('{}[]",:1 etrunalfs\\').map(str.encode))
def test_what_is_no_json_is_refused_as_by_the_standard_library(text: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_json, "WINDOW", 64)
        assert outcome(lambda: read(text)) == outcome(
            lambda: json.JSONDecoder(**large_json.HOOKS).decode(text.decode())
        )


@pytest.mark.usefixtures("small_window")
def test_no_call_reads_more_than_two_windows(sizes: list[int]) -> None:
    assert read(TEXT) == {"limits": {"topics": MANY}}
    assert max(sizes) <= 2 * 64
    assert len(sizes) > 2 * len(MANY)


def test_a_small_text_is_read_in_one_call(sizes: list[int]) -> None:
    assert read(b' {"limits": {"topics": {"a": {}}}}\n') == {"limits": {"topics": {"a": {}}}}
    assert len(sizes) == 1


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize(
    "text",
    [
        b'["' + b"a" * 200 + b'"]',
        b"[" + b"1" * 200 + b"]",
        b'{"' + b"a" * 200 + b'":1}',
        b"[" * 20 + b"1," * 100 + b"1" + b"]" * 20,
        TEXT[:-1],
        TEXT + b"1",
        TEXT[:-3] + b",}}}",
        TEXT.replace(b'499": {', b'499" {'),
        TEXT.replace(b'"messages": 499', b'"messages": NaN'),
        TEXT.replace(b"acme/shop/400", b"acme/\xff"),
    ],
    ids=[
        "long text",
        "long number",
        "long key",
        "deep",
        "no end",
        "after the end",
        "comma too many",
        "no colon",
        "no number",
        "no UTF-8",
    ],
)
def test_a_large_text_that_is_wrong_is_refused(text: bytes) -> None:
    assert outcome(lambda: read(text)) == "no JSON"


@pytest.mark.usefixtures("small_window")
def test_a_key_that_occurs_twice_far_apart_is_named() -> None:
    text = TEXT.replace(b"shop/499", b"shop/7")
    with pytest.raises(TwiceError) as refused:
        read(text)
    assert refused.value.key == "persistent://acme/shop/7"


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("text", [TEXT, json.dumps([0] * 600).encode()], ids=["object", "array"])
def test_members_of_one_container_are_bounded(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "MOST_MEMBERS", 499)
    with pytest.raises(ValueError, match="more than 499 members"):
        read(text)


@pytest.mark.usefixtures("small_window")
def test_what_was_read_of_a_wrong_text_is_let_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[Any] = []
    monkeypatch.setattr(large_json, "let_go", freed.append)
    with pytest.raises(ValueError, match="comma"):
        read(TEXT[:-3])
    assert [len(container) for container in freed] == [0, 0, len(MANY)]
