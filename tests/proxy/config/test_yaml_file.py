"""What PyYAML reads is read as it reads it, but for keys that stand twice and for types that no configuration needs."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.sources import cut, parse_yaml, why_not_yaml


def test_a_key_stands_once_at_every_depth() -> None:
    with pytest.raises(yaml.YAMLError, match="the key 'b' stands twice"):
        parse_yaml("a: [{b: 1, c: 2, b: 3}]")
    assert parse_yaml("a: {b: 1}\nc: {b: 1}\n") == {"a": {"b": 1}, "c": {"b": 1}}


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates()


@settings(deadline=None)  # the first example waits for the machine
@given(st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_what_can_be_written_is_read_back(value: Any) -> None:
    text = yaml.safe_dump(value)
    assert parse_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "# nothing", "---", "a", "'5'", "5", "007", "0x1F", "1_000", "+5", "1.5", ".5", "5.", "1e3", ".inf", "~"),
        *("yes", "off", "null", "2024-01-02", "12:30:45", "'<<'", "!!str 5", "!!int '5'", "!!float 5", "! 5"),
        *("a: {m: 1}\nb: &x {n: 1}\nc: [*x, *x]", "a: &x 5\nb: *x", "a: |\n  b\n  c\n", "'5': 5", "5: a"),
        *("a: &x {m: 1, n: 2}\nb: {<<: *x, n: 3}", "a: &x {m: 1}\nb: &y {m: 2, n: 2}\nc: {<<: [*x, *y], k: 1}"),
        *("a: &x {m: 1}\nb: {m: 2, <<: *x}", "'<<': 1", "!!map {a: 1}", "!!seq [1]", "--- a\n...\n"),
        *("\ufeffa: 1", "a: \U0001f389", "a: '\u0663'", "\u0663"),
    ],
)
def test_a_text_is_read_as_pyyaml_reads_it(text: str) -> None:
    assert repr(parse_yaml(text)) == repr(yaml.safe_load(text))
    assert repr(parse_yaml(text.encode())) == repr(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: *x", "*x stands for nothing above it"),
        ("a: &x [*x]", "*x stands for nothing above it"),
        ("[a]: 1", "a list or a section cannot be a key"),
        ("{a: 1}: 1", "a list or a section cannot be a key"),
        ("1: a\n1: b", "the key 1 stands twice"),
        ("<<: 5", "<< takes in a section"),
        ("<<: [5]", "<< takes in a section"),
        ("a: !!set {b}", "is no type that is read here"),
        ("a: !!python/object:os.system {}", "is no type that is read here"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
        ("a\n---\nb", "a second document begins here"),
        ("a: [", "expected"),
        ("\x00", ""),
    ],
)
def test_anything_else_is_told(text: str, told: str) -> None:
    with pytest.raises(yaml.YAMLError) as refused:
        parse_yaml(text)
    assert told in why_not_yaml(refused.value)


@pytest.mark.parametrize("error", [RecursionError(), yaml.YAMLError("a\n  b")])
def test_an_error_is_one_line(error: yaml.YAMLError | RecursionError) -> None:
    assert "\n" not in why_not_yaml(error)


def test_a_long_value_is_cut() -> None:
    assert cut("x" * 200) == "x" * 200
    assert cut("x" * 201) == "x" * 200 + "…"


@pytest.mark.parametrize("tag", ["", "!!int ", "!!float "])
def test_no_number_is_built_from_more_than_some_thousand_characters(tag: str) -> None:
    assert parse_yaml(f"a: 1{':1' * 3}") == {"a": 219661}
    with pytest.raises(yaml.YAMLError, match="put text in quotes"):
        parse_yaml(f"a: {tag}1{':1' * 2500}")


def test_text_of_any_length_is_read() -> None:
    assert parse_yaml(f"a: 1{'x' * 5000}\nb: '1{':1' * 2500}'") == {"a": "1" + "x" * 5000, "b": "1" + ":1" * 2500}
