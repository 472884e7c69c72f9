"""The configuration's limits as values; what each key means is in `test_limits.py`."""

from typing import Any

import pytest
from pydantic import ValidationError

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, rate
from proxy.config.limits import Limits
from proxy.policies.layers import FilePolicies, file_policies

_TOPIC = "persistent://acme/shop/orders"


def read(limits: dict[str, Any], subscribe: tuple[int, int] | None = None) -> FilePolicies:
    return file_policies(Limits.model_validate(limits), subscribe)


def test_nothing_written_is_no_value() -> None:
    assert read({}) == FilePolicies({}, {}, {})


def test_each_value_stands_at_its_place() -> None:
    limits = {"topics": {_TOPIC: {"publish": {"messages": 5}, "subscriptions": {"s": {"dispatch": {"messages": 6}}}}}}
    assert read(limits, (3, 10**9)).values == {
        ("subscribe", Setting.TOPIC_OF_BROKER, ""): Value(Limit(rate(3, burst=3)), "file"),
        ("publish", Setting.TOPIC, _TOPIC): Value(Limit(rate(5)), "file"),
        ("dispatch", Setting.SUBSCRIPTION, f"s@{_TOPIC}"): Value(Limit(rate(6)), "file"),
    }


def test_equal_sections_are_one_value() -> None:
    topics = {f"{_TOPIC}-{number}": {"publish": {"messages": "30/min"}} for number in range(3)}
    values = read({"topics": topics}).values
    assert len(values) == 3
    assert len({id(value) for value in values.values()}) == 1


def test_groups_are_named_and_attached() -> None:
    file = read({"resource_groups": {"gold": {"tenants": ["acme"], "namespaces": ["web/shop"]}}})
    assert (file.groups_of_tenants, file.groups_of_namespaces) == ({"acme": "gold"}, {"web/shop": "gold"})


def test_what_only_looks_like_another_section_is_not_taken_for_it() -> None:
    """1 and true are equal in Python, and not in a configuration."""
    topics = {"a": {"publish": {"messages": 1}}, "b": {"publish": {"messages": True}}}
    with pytest.raises(ValidationError, match=r"topics\.b\.publish\.messages"):
        read({"topics": topics})
