"""The configuration as text."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import showing as yaml_text_module
from proxy.config.showing import TakenValue, yaml_text
from proxy.config.yaml_reader import parse_yaml


def test_each_value_stands_in_its_section_with_its_origin_behind_it() -> None:
    values = [
        TakenValue(("limits", "each_topic", "publish", "messages"), 500, "maxPublishRatePerTopicInMessages=500"),
        TakenValue(("max_connections",), 7, "brokerMaxConnections=7"),
        TakenValue(("limits", "each_topic", "dispatch", "messages"), "5/2s", "x"),
        TakenValue(("dispatch", "preciseDispatcherFlowControl"), value=True, origin="y"),
        TakenValue(("limits", "resource_groups", "gold", "namespaces"), ("a/b", "c/d"), "z"),
    ]
    assert yaml_text("Made here.\nFor you.", values) == (
        "# Made here.\n"
        "# For you.\n"
        "limits:\n"
        "  each_topic:\n"
        "    publish:\n"
        "      messages: 500  # maxPublishRatePerTopicInMessages=500\n"
        "    dispatch:\n"
        "      messages: 5/2s  # x\n"
        "  resource_groups:\n"
        "    gold:\n"
        '      namespaces: ["a/b", "c/d"]  # z\n'
        "max_connections: 7  # brokerMaxConnections=7\n"
        "dispatch:\n"
        "  preciseDispatcherFlowControl: true  # y\n"
    )


def test_without_values_there_is_the_heading() -> None:
    assert yaml.safe_load(yaml_text("Made here.", [])) is None


@pytest.mark.parametrize(
    "name", ["on", "no", "null", "true", "persistent://a/b/c", "a: b", "#", "'", '"', "x\ny", "é😀"]
)
def test_names_are_read_back_as_they_are(name: str) -> None:
    assert yaml.safe_load(yaml_text("", [TakenValue((name, "a"), (name,), "o")])) == {name: {"a": [name]}}


_SCALARS = (
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: "e" not in str(number))
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    | st.sampled_from(["500/s", "127.0.0.1:6650", "::1", "1:30", "2001-01-01", "0x10", "~", "=", "<<", "1e3", "."])
)


def _as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_text(inner) for inner in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(
    st.recursive(
        _SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="ascii")), inner, max_size=3)
        ),
    )
)
def test_any_value_is_read_back_as_it_is(value: Any) -> None:
    read = parse_yaml(yaml_text("", [TakenValue(("a", "b"), value, "o")]))
    assert read == {"a": {"b": _as_text(value)}}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300))
def test_any_name_is_read_back_as_it_is(name: str) -> None:
    assert yaml.safe_load(yaml_text("", [TakenValue((name, "a"), 1, "o")])) == {name: {"a": 1}}


@pytest.mark.parametrize("name", ["x" * 997, "x" * 998, "x" * 5000, "\x01" * 1000, "é" * 1023, "a b" * 400])
def test_a_name_of_any_length_is_read_back_as_a_key(name: str) -> None:
    values = [TakenValue(("a", name, "b", "c"), 1, "o"), TakenValue(("a", name, "d"), {name: [{name: 2}]}, "o")]
    expected = {"a": {name: {"b": {"c": "1"}, "d": {name: [{name: "2"}]}}}}
    assert parse_yaml(yaml_text("", values)) == expected


def test_long_texts_are_not_remembered() -> None:
    calls: list[str] = []

    @yaml_text_module._remembered
    def write(text: str) -> str:
        calls.append(text)
        return text

    for text in ("x" * 4096, "x" * 4097):
        assert (write(text), write(text)) == (text, text)
    assert [len(text) for text in calls] == [4096, 4097, 4097]
