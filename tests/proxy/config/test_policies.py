from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.config.model import Config


def test_what_is_set_at_run_time_is_kept_nowhere_unless_a_file_is_named() -> None:
    assert Config().policies.store is None
    assert Config.model_validate({"policies": {"store": "p.db"}}).policies.store == Path("p.db")


TOPIC = "persistent://public/sluice/front-policies"


@pytest.mark.parametrize(
    ("topic", "fleet", "policy_topic"),
    [
        (None, None, None),
        (None, {}, TOPIC),
        (TOPIC, None, TOPIC),
        ("none", {}, None),
        ("acme/shop/p", {}, "persistent://acme/shop/p"),
    ],
)
def test_a_fleet_has_a_topic_for_its_policies(
    topic: str | None, fleet: dict[str, Any] | None, policy_topic: str | None
) -> None:
    section = None if fleet is None else {"name": "front", **fleet}
    assert Config.model_validate({"policies": {"topic": topic}, "fleet": section}).policy_topic == policy_topic


@pytest.mark.parametrize("topic", ["non-persistent://a/b/c", "a/b/c-partition-1", "a/b", ""])
def test_a_topic_that_keeps_nothing_is_refused(topic: str) -> None:
    with pytest.raises(ValidationError, match=r"policies\.topic"):
        Config.model_validate({"policies": {"topic": topic}})


def test_the_audit_log_remembers_something() -> None:
    with pytest.raises(ValidationError, match="greater than 0"):
        Config.model_validate({"policies": {"audit_changes": 0}})
