from typing import Any

import pytest
from rich.console import Console

from proxy.cli.policy_tables import applied, audit_lines


def _audited(**more: Any) -> dict[str, Any]:
    return {
        "at": "2026-01-01T00:00:00.123+00:00",
        "who": "ops",
        "address": "192.0.2.7",
        "kind": "publish",
        "setting": "topic",
        "name": "persistent://acme/shop/a-topic-with-a-rather-long-name-that-fits-no-line-of-a-table",
        "origin": "rest",
        "before": None,
        "after": {"publishThrottlingRateInMsg": 5},
        "words": "messages 5 (rest)",
        **more,
    }


_HELD = {"kind": "publish", "setting": "topic_of_namespace", "name": "acme/*", "words": "messages 9 (file, plan gold)"}


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (_audited(held=[]), ["from no limit", "to messages 5 (rest)"]),
        (_audited(held=None, words=""), ["from not recorded to not recorded"]),
        (_audited(held=[_HELD]), ["from messages 9 (file, plan gold), as topic_of_namespace acme/*"]),
        (
            _audited(held=[{**_HELD, "name": "shop"}], name="shop", after=None, words="taken back"),
            ["gold) to taken back"],
        ),
        (
            _audited(
                held=[], after=None, words="taken back; since then: messages 9 (file, plan gold), as tenant free-*"
            ),
            ["to taken back; since then: messages 9 (file, plan gold), as tenant free-*"],
        ),
        (
            _audited(kind="group", name="g", held=[{**_HELD, "name": "g"}, {**_HELD, "name": "g", "kind": "d"}]),
            ["from publish: messages 9 (file, plan gold); d: messages 9"],
        ),
        (_audited(kind="block", setting="", name="role 'r'", held=[]), ["from not blocked"]),
        (_audited(kind="attachment", setting="tenant", name="t", held=[]), ["from in no group"]),
        (
            _audited(kind="drain", setting="", name="", origin="", words="began to drain: 5 connections", held=None),
            ["2026-01-01 00:00:00 drain by ops (192.0.2.7) did began to drain: 5 connections"],
        ),
    ],
)
def test_audit_has_room_in_eighty_columns(
    change: dict[str, Any], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for part in audit_lines([change]):
        Console(width=80).print(part)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for line in lines:
        assert line in " ".join(shown.split())


def test_of_many_changes_the_rest_is_counted() -> None:
    change = {"key": "limits.proxy.publish", "wanted": "messages 5", "held": "", "origin": ""}
    lines = list(applied({"applied": True, "changes": [change], "more_changes": 7, "hidden": []}))
    assert lines == ["changed: limits.proxy.publish: - -> messages 5", "and 7 more"]
