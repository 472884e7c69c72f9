"""Whom a change can concern."""

from typing import get_args

import pytest

from limiter.levels import LEVEL_OF_SETTING, NAMESPACE, PARTITIONED_TOPIC, TENANT, About, Setting
from limiter.limiter import Scope
from limiter.policies import Change, Value, change_of
from limiter.token_bucket import Limit, Mode, rate

X = "persistent://t/n/x"
PLACE: tuple[About, Setting, str] = ("publish", Setting.TOPIC_OF_NAMESPACE, "t/n")


def value(messages: int | None, mode: Mode = "enforce") -> Value:
    return Value(Limit(rate(messages) if messages else None, mode=mode), "file")


def test_every_setting_has_its_level() -> None:
    assert set(LEVEL_OF_SETTING) == set(Setting)


@pytest.mark.parametrize(
    ("before", "after", "only_tunes"),
    [
        (value(1), value(2), True),
        (value(1), value(2, "reject"), True),
        (value(1, "observe"), value(2, "observe"), True),
        (value(1), value(1, "observe"), False),
        (None, value(1), False),
        (value(1), None, False),
        (value(1), value(None), False),
        (value(None), value(1), False),
    ],
)
def test_limits_neither_appear_nor_go_where_there_was_one_and_is_one(
    before: Value | None, after: Value | None, *, only_tunes: bool
) -> None:
    assert change_of(PLACE, before, after) == Change(*PLACE, only_tunes=only_tunes)


def test_the_same_value_is_no_change_and_another_origin_is() -> None:
    assert len(get_args(Mode)) == 3, "each is tried above"
    assert change_of(PLACE, value(1), value(1)) is None
    assert change_of(PLACE, value(1), Value(Limit(rate(1)), "rest")) == Change(*PLACE, only_tunes=True)


@pytest.mark.parametrize(
    ("change", "scope", "may"),
    [
        (Change(*PLACE), Scope("publish", "topic", X, "t", "n"), True),
        (Change(*PLACE), Scope("dispatch", "topic", X, "t", "n"), False),
        (Change(*PLACE), Scope("publish", "topic", X, "t", "m"), False),
        (Change(*PLACE), Scope("publish", "namespace", "t/n", "t", "n"), False),
        (Change("publish", Setting.TENANT, "*"), Scope("publish", "tenant", "t", "t", ""), True),
        (Change("publish", Setting.PROXY, ""), Scope("publish", "proxy", "", "", ""), True),
    ],
)
def test_a_value_is_for_limiters_of_its_level_direction_and_namespace(change: Change, scope: Scope, may: bool) -> None:  # noqa: FBT001
    assert change.may_tune(scope) == may


@pytest.mark.parametrize(
    ("setting", "name", "found_by"),
    [
        (Setting.TOPIC, f"{X}@y", (PARTITIONED_TOPIC, (f"{X}@y",))),
        (Setting.SUBSCRIPTION, f"s@{X}", (PARTITIONED_TOPIC, (X,))),
        (Setting.SUBSCRIPTION, f"a@b@{X}@y", (PARTITIONED_TOPIC, (f"b@{X}@y", f"{X}@y", "y"))),
        (Setting.TOPIC_OF_NAMESPACE, "t/n", (NAMESPACE, ("t/n",))),
        (Setting.TENANT, "t", (TENANT, ("t",))),
        (Setting.TENANT, "*", None),
        (Setting.ROLE, "t", None),
        (Setting.PROXY, "", None),
    ],
)
def test_a_setting_names_the_streams_that_it_concerns(setting: Setting, name: str, found_by: object) -> None:
    assert setting.record.streams_of(name) == found_by
