"""The configuration as text."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.yaml_text import Taken, yaml_text


def test_each_value_stands_in_its_section_with_its_origin_behind_it() -> None:
    values = [
        Taken(("limits", "each_topic", "publish", "messages"), 500, "maxPublishRatePerTopicInMessages=500"),
        Taken(("max_connections",), 7, "brokerMaxConnections=7"),
        Taken(("limits", "each_topic", "dispatch", "messages"), "5/2s", "x"),
        Taken(("dispatch", "preciseDispatcherFlowControl"), value=True, origin="y"),
        Taken(("limits", "resource_groups", "gold", "namespaces"), ("a/b", "c/d"), "z"),
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
    assert yaml.safe_load(yaml_text("", [Taken((name, "a"), (name,), "o")])) == {name: {"a": [name]}}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300))
def test_any_name_is_read_back_as_it_is(name: str) -> None:
    assert yaml.safe_load(yaml_text("", [Taken((name, "a"), 1, "o")])) == {name: {"a": 1}}
