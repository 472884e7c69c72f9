import pytest

from proxy.cli.policy_tables import applied, audit_table


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (None, "-"),
        ("", "attached to none"),
        ("gold", "gold"),
        ("7", "7"),
        ('{"form":"sluice","body":{"messages":"30/min","relativeToPublishRate":true}}', "messages 30/min, relative"),
        ('{"form":"sluice","body":{"publish":{"messages":5},"dispatch":null}}', "publish (messages 5), dispatch null"),
        ('{"publishRateInMsgs":5}', "publishRateInMsgs 5"),
        ("{}", "nothing limited"),
    ],
)
def test_kept_bodies_are_told_as_people_write_them(kept: str | None, told: str) -> None:
    change = dict.fromkeys(("at", "who", "address", "kind", "setting", "name", "origin"), "x")
    (cell,) = audit_table([{**change, "before": None, "after": kept}]).columns[5].cells
    assert str(cell).startswith(told)


def test_of_many_changes_the_rest_is_counted() -> None:
    change = {"key": "limits.proxy.publish", "wanted": "messages 5", "held": "", "origin": ""}
    told = list(applied({"applied": True, "changes": [change], "more_changes": 7, "hidden": []}))
    assert told == ["changed: limits.proxy.publish: - -> messages 5", "and 7 more"]
