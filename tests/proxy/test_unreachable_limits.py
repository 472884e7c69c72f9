"""Limits that no stream can reach, as a wider one is lower."""

import sys
from typing import Any

import pytest

from limiter.levels import SHAREABLE, Setting
from limiter.names import MOST_FORMS
from limiter.policies import Policies, Value
from limiter.token_bucket import Limit, rate
from proxy.checkup import Finding, of_limits
from proxy.config.model import Config
from proxy.slices import AT_ONCE, Work
from proxy.unreachable_limits import MOST_LISTED, UnreachableLimits
from tests.proxy.file_limits import policies_of

MOST_CALLS = 20_000
"""Calls in one turn: some 2 ms, without the hook."""
TENANT = {"tenants": {"acme": {"publish": {"messages": 100, "bytes": "1MB"}}}}
TOPIC = "persistent://acme/shop/orders"


def found_in(policies: Policies, **fleet: Any) -> list[Finding]:
    looking = UnreachableLimits(policies, **fleet)
    for _ in looking.looking():
        pass
    return of_limits(looking)


def unreachable(limits: dict[str, Any], **fleet: Any) -> list[Finding]:
    return found_in(policies_of(Config.model_validate({"limits": limits}).limits), **fleet)


def told(limits: dict[str, Any], **fleet: Any) -> list[str]:
    return [each.text for each in unreachable(limits, **fleet) if each.severity != "ok"]


def publish(messages: int, **more: Any) -> dict[str, Any]:
    return {"publish": {"messages": messages, **more}}


def test_limit_above_a_wider_one_is_found() -> None:
    (finding,) = unreachable({**TENANT, "topics": {TOPIC: publish(500, bytes="1kB")}})
    assert finding.severity == "warning"
    assert finding.text == (
        f"publish limit of topic {TOPIC} (file), 500 messages/s, is above that of tenant acme (file), 100 messages/s"
    )


@pytest.mark.parametrize(
    "limits",
    [
        {**TENANT, "topics": {TOPIC: publish(100)}},
        {**TENANT, "topics": {"persistent://other/shop/orders": publish(500)}},
        {**TENANT, "topics": {TOPIC: {"dispatch": {"messages": 500}}}},
        {"tenants": {"acme": publish(100, mode="observe")}, "topics": {TOPIC: publish(500)}},
        {**TENANT, "namespaces": {"*/shop": {"publish_total": {"messages": 500}}}},
        {**TENANT, "each_topic": publish(500)},
        {
            "topics": {
                TOPIC: {
                    "dispatch": {"messages": 10, "relativeToPublishRate": True},
                    "subscriptions": {"s": {"dispatch": {"messages": 50}}},
                }
            }
        },
        {**TENANT, "roles": {"app": publish(500)}},
        {"tenants": {"*": publish(100), "acme": publish(600)}, "each_topic": publish(500)},
        {"tenants": {"*": publish(100), "acme": {"publish": {"bytes": "1MB"}}}, "each_topic": publish(500)},
        {"tenants": {"*": publish(100), "acme": publish(9, mode="observe")}, "each_topic": publish(500)},
        {"tenants": {"free-*": publish(100), "free-1*": publish(600)}, "namespaces": {"free-*/web": publish(500)}},
        {
            "tenants": {"a*": publish(20), "*zzz": publish(500)},
            "namespaces": {"a*/*": {"publish_total": {"messages": 100}}},
        },
        {
            "namespaces": {
                "acme/a*": {"publish_total": {"messages": 20}},
                "acme/*zzz": {"publish_total": {"messages": 500}},
                "acme/ab*": publish(100),
            },
        },
        {
            "tenants": {"a*": publish(20), "*zzz": {"publish": {"bytes": "1MB"}}},
            "namespaces": {"a*/*": {"publish_total": {"messages": 100}}},
        },
        {
            "namespaces": {
                "acme/*": {"publish_total": {"messages": 10}, **publish(50)},
                "acme/big": {"publish_total": {"messages": 90}},
            },
        },
        {
            "resource_groups": {
                "few": {"tenants": ["acme"], **publish(10)},
                "more": {"namespaces": ["acme/big"], **publish(100)},
            },
            "namespaces": {"acme/*": publish(50)},
        },
    ],
)
def test_limit_that_can_be_reached_is_not(limits: dict[str, Any]) -> None:
    assert told(limits) == []


@pytest.mark.parametrize(
    ("limits", "texts"),
    [
        (
            {
                "tenants": {"shop": publish(50)},
                "plans": {"gold": publish(2000)},
                "namespaces": {"shop/*": {"plan": "gold"}},
            },
            ["topic of namespace shop/* (file, plan gold), 2000 messages/s, is above that of tenant shop (file), 50"],
        ),
        (
            {
                "proxy": publish(90),
                "plans": {"free": publish(100)},
                "tenants": {"loner": publish(500), "free-*": {"plan": "free"}, "small": publish(9)},
            },
            [
                "tenant loner (file), 500 messages/s, is above that of proxy (file), 90",
                "tenant free-* (file, plan free), 100 messages/s, is above that of proxy (file), 90",
            ],
        ),
        (
            {
                "tenants": {"a*": publish(20), "*zzz": publish(30), "*ccc": publish(9, mode="observe")},
                "namespaces": {"ab*zzz/*": {"publish_total": {"messages": 100}}},
            },
            ["namespace ab*zzz/* (file), 100 messages/s, is above that of tenant *zzz (file), 30"],
        ),
        (
            {
                "tenants": {"abc*": publish(20), "*zz": publish(500)},
                "namespaces": {"abc*/*": {"publish_total": {"messages": 100}}},
            },
            ["namespace abc*/* (file), 100 messages/s, is above that of tenant abc* (file), 20"],
        ),
        (
            {"tenants": {"*": publish(100), "acme": publish(200)}, "each_topic": publish(500)},
            ["topic of broker (file), 500 messages/s, is above that of tenant * (file), 100"],
        ),
        (
            {"tenants": {"free-*": publish(100)}, "namespaces": {"free-1*/*": {"publish_total": {"messages": 500}}}},
            ["namespace free-1*/* (file), 500 messages/s, is above that of tenant free-* (file), 100"],
        ),
        (
            {"namespaces": {"acme/*": {"publish_total": {"messages": 10}, **publish(50)}}},
            ["topic of namespace acme/* (file), 50 messages/s, is above that of namespace acme/* (file), 10"],
        ),
        (
            {"topics": {TOPIC: {"publish_total": {"messages": 10}, **publish(50)}}},
            [f"topic {TOPIC} (file), 50 messages/s, is above that of partitioned topic {TOPIC} (file), 10"],
        ),
        (
            {
                "resource_groups": {"few": {"tenants": ["acme"], **publish(10)}},
                "namespaces": {"acme/*": {"publish_total": {"messages": 50}}},
            },
            ["namespace acme/* (file), 50 messages/s, is above that of resource group few (file), 10"],
        ),
        (
            {"proxy": publish(90), "roles": {"app": publish(91)}, "producers": {"*": publish(92)}},
            [
                "producer * (file), 92 messages/s, is above that of proxy (file), 90",
                "role app (file), 91 messages/s, is above that of proxy (file), 90",
            ],
        ),
        (
            {"proxy": publish(90), **TENANT, "topics": {TOPIC: publish(500)}},
            [
                "tenant acme (file), 100 messages/s, is above that of proxy (file), 90",
                f"topic {TOPIC} (file), 500 messages/s, is above that of proxy (file), 90",
            ],
        ),
        (
            {**TENANT, "namespaces": {"acme/shop": {"publish_total": {"bytes": "2MB"}}}},
            ["namespace acme/shop (file), 2000000 bytes/s, is above that of tenant acme (file), 1000000 bytes/s"],
        ),
    ],
)
def test_limit_is_named_as_it_is_written_at_each_level(limits: dict[str, Any], texts: list[str]) -> None:
    lines = told(limits)
    assert [each.startswith(f"publish limit of {text}") for each, text in zip(lines, texts, strict=True)] == [
        True for _ in texts
    ], lines


def test_subscription_is_compared_with_its_topic() -> None:
    topic = {"dispatch": {"messages": 10}, "subscriptions": {"s": {"dispatch": {"messages": 50}}}}
    (text,) = told({"topics": {TOPIC: topic}})
    assert text.startswith(
        f"dispatch limit of subscription s@{TOPIC} (file), 50 messages/s, is above that of topic {TOPIC}"
    )


def test_limit_that_a_fleet_shares_is_of_all_members() -> None:
    limits = {
        "proxy": publish(90),
        "tenants": {"a": publish(170), "b": publish(190)},
        "addresses": {"10.0.0.0/8": publish(91)},
    }
    tenant, address = told(limits, shared=SHAREABLE, members=2)
    assert tenant.endswith(
        "tenant b (file), 190 messages/s, is above that of proxy (file), 90 messages/s in each of 2 members"
    )
    assert address.endswith("address 10.0.0.0/8 (file), 91 messages/s, is above that of proxy (file), 90 messages/s")


def test_tenants_own_narrower_value_is_taken_into_account() -> None:
    policies = policies_of(Config.model_validate({"limits": {}}).limits)
    for setting, name, most in (
        (Setting.NAMESPACE, "acme/*", 10),
        (Setting.NAMESPACE, "acme/big", 90),
        (Setting.TOPIC_OF_NAMESPACE, "acme/*", 50),
    ):
        policies.put_tenants("publish", setting, name, Value(Limit(rate(most)), "tenant"))
    assert [each.severity for each in found_in(policies)] == ["ok"]


def test_limit_of_a_tenant_for_itself_is_looked_at() -> None:
    policies = policies_of(Config.model_validate({"limits": TENANT}).limits)
    policies.put_tenants("publish", Setting.TOPIC, TOPIC, Value(Limit(rate(500)), "tenant"))
    (finding,) = found_in(policies)
    assert finding.text.startswith(
        f"publish limit of topic {TOPIC} (tenant), 500 messages/s, is above that of tenant acme (file)"
    )


def test_list_of_limits_is_bounded() -> None:
    many = {f"persistent://acme/shop/t{number}": publish(500) for number in range(30)}
    findings = unreachable({**TENANT, "topics": many})
    assert len(findings) == MOST_LISTED + 1
    assert findings[-1].text == "10 further limits like these"


def test_each_step_looks_at_one_limit() -> None:
    many = {f"persistent://acme/shop/t{number}": publish(500) for number in range(30)}
    looking = UnreachableLimits(policies_of(Config.model_validate({"limits": {**TENANT, "topics": many}}).limits))
    assert {looking.number for _ in looking.looking()} == {*range(31)}


FORMS = [f"{'n' * length}*" for length in range(1, MOST_FORMS + 1)]
NAMES = [f"{'n' * MOST_FORMS}{number}/a" for number in range(200)]


@pytest.mark.parametrize(
    ("limits", "number"),
    [
        (
            {
                "tenants": {form: publish(50) for form in FORMS},
                "namespaces": {f"{form}/a*": {"publish_total": {"messages": 60}, **publish(70)} for form in FORMS},
                "topics": {f"persistent://{name}/t": publish(500) for name in NAMES},
            },
            200 + 2 * len(FORMS),
        ),
        ({"tenants": {name: publish(5) for name in ("*", *map(str, range(30_000)))}, "each_topic": publish(3)}, 0),
    ],
    ids=["many forms", "many names"],
)
def test_many_patterns_and_names_make_no_turn_long(limits: dict[str, Any], number: int) -> None:
    looking = UnreachableLimits(policies_of(Config.model_validate({"limits": limits}).limits))
    calls, longest = 0, 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        for step, _ in enumerate(looking.looking(), 1):
            if step % AT_ONCE[Work.REQUESTS] == 0:
                longest, calls = max(longest, calls), 0
    finally:
        sys.setprofile(None)
    assert looking.number == number
    assert longest <= MOST_CALLS


def test_patterns_of_one_form_are_not_held_against_each_other() -> None:
    names = [f"tenant-{number}/*" for number in range(1_000)]
    limits = {"namespaces": {name: {"publish_total": {"messages": 5}, **publish(4)} for name in names}}
    looking = UnreachableLimits(policies_of(Config.model_validate({"limits": limits}).limits))
    assert sum(1 for _ in looking.looking()) <= 10 * len(names)
