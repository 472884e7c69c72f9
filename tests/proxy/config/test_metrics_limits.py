"""`metrics_limits`: the limits that always have metrics."""

from typing import Any

import pytest
from pydantic import ValidationError

from proxy.config.model import MOST_METRICS_LIMITS, Config


def problem(entries: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        Config.model_validate({"metrics_limits": entries})
    (error,) = refused.value.errors()
    return str(error["msg"])


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        ("tenant acme", "tenant acme"),
        ("  namespace   acme/* ", "namespace acme/*"),
        ("topic acme/shop/orders", "topic persistent://acme/shop/orders"),
        ("topic non-persistent://acme/shop/*", "topic non-persistent://acme/shop/*"),
        ("partitioned_topic *", "partitioned_topic *"),
        ("subscription audit@persistent://acme/shop/orders", "subscription audit@persistent://acme/shop/orders"),
        ("proxy", "proxy"),
        ("exempt *", "exempt *"),
        ("exempt acme/shop/__change_events", "exempt persistent://acme/shop/__change_events"),
    ],
)
def test_an_entry_is_a_level_and_a_name_or_pattern(entry: str, kept: str) -> None:
    assert Config.model_validate({"metrics_limits": [entry]}).metrics_limits == (kept,)


@pytest.mark.parametrize(
    ("entry", "remedy"),
    [
        ("tenat acme", "'tenat' is no level: write a level and a name as `tenant acme`"),
        ("role billing", "role limits are named after clients, which /metrics never shows"),
        ("tenant", "name the tenant, or write `tenant *` for all"),
        ("exempt", "name the topic, or write `exempt *` for all"),
        ("proxy one", "the limit of proxy has no name: write `proxy` alone"),
        ("namespace a*b*/c", "write one * at most in each part between slashes"),
        (f"tenant {'x' * 301}", "metrics show names in one line of 300 characters at most"),
        ("tenant a\x1b[2J", "metrics show names in one line of 300 characters at most"),
        (7, "write a level and a name as `tenant acme`"),
    ],
)
def test_a_wrong_entry_has_its_remedy(entry: Any, remedy: str) -> None:
    assert remedy in problem([entry])


def test_entries_are_few_and_different() -> None:
    most = [f"tenant t{number}" for number in range(MOST_METRICS_LIMITS)]
    assert len(Config.model_validate({"metrics_limits": most}).metrics_limits) == MOST_METRICS_LIMITS
    assert "at most 100 may be: use patterns" in problem([*most, "proxy"])
    assert "'topic persistent://a/b/c' occurs twice" in problem(["topic a/b/c", "topic persistent://a/b/c"])
    assert "have 17 forms, and at most 16" in problem([f"tenant {'a' * number}*" for number in range(1, 18)])
