from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from limiter.levels import Client, Setting
from limiter.policies import Value
from limiter.token_bucket import NOTHING_PUBLISHED, Limit, Published, Rate, rate
from protocol.topic_name import parse_topic
from proxy.config.limits import Limits
from proxy.config.sources import problems_line
from proxy.policies.layers import file_policies
from tests.proxy.file_limits import policies_of

SECOND = 1_000_000_000
TWO = {"messages": 2}
TWO_EACH = {"publish": {"messages": 2}}
ONE = {"publish": {"messages": 1}, "dispatch": {"messages": 2}}


def problems(limits: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate(limits)
    return " ".join(error["msg"] for error in caught.value.errors())


@pytest.mark.parametrize(
    ("section", "setting", "name"),
    [
        ({"proxy": ONE}, Setting.PROXY, ""),
        ({"tenants": {"shop": ONE}}, Setting.TENANT, "shop"),
        ({"tenants": {"*": ONE}}, Setting.TENANT, "*"),
        ({"namespaces": {"shop/a": ONE}}, Setting.TOPIC_OF_NAMESPACE, "shop/a"),
        (
            {"namespaces": {"shop/a": {f"{direction}_total": value for direction, value in ONE.items()}}},
            Setting.NAMESPACE,
            "shop/a",
        ),
        ({"resource_groups": {"gold": ONE}}, Setting.RESOURCE_GROUP, "gold"),
        ({"topics": {"shop/a/x": ONE}}, Setting.TOPIC, "persistent://shop/a/x"),
        (
            {"topics": {"shop/a/x": {f"{direction}_total": value for direction, value in ONE.items()}}},
            Setting.PARTITIONED_TOPIC,
            "persistent://shop/a/x",
        ),
        ({"each_topic": ONE}, Setting.TOPIC_OF_BROKER, ""),
        ({"roles": {"billing": ONE}}, Setting.ROLE, "billing"),
        ({"addresses": {"10.0.0.0/8": ONE}}, Setting.ADDRESS, "10.0.0.0/8"),
        ({"exempt": ONE}, Setting.EXEMPT, ""),
    ],
)
def test_each_section_is_a_setting_of_both_directions(section: dict[str, Any], setting: Setting, name: str) -> None:
    policies = policies_of(Limits.model_validate(section))
    assert {name: value.limit for name, value in policies.by_name("publish", setting).items()} == {name: Limit(rate(1))}
    assert {name: value.limit for name, value in policies.by_name("dispatch", setting).items()} == {
        name: Limit(rate(2))
    }


@pytest.mark.parametrize(
    ("section", "setting", "name"),
    [
        (
            {"topics": {"t/n/x": {"subscriptions": {"s": {"dispatch": TWO}}}}},
            Setting.SUBSCRIPTION,
            "s@persistent://t/n/x",
        ),
        ({"topics": {"t/n/x": {"subscription_dispatch": TWO}}}, Setting.SUBSCRIPTION_OF_TOPIC, "persistent://t/n/x"),
        ({"namespaces": {"t/n": {"subscription_dispatch": TWO}}}, Setting.SUBSCRIPTION_OF_NAMESPACE, "t/n"),
        ({"each_subscription": {"dispatch": TWO}}, Setting.SUBSCRIPTION_OF_BROKER, ""),
    ],
)
def test_subscriptions_have_a_dispatch_limit_only(section: dict[str, Any], setting: Setting, name: str) -> None:
    policies = policies_of(Limits.model_validate(section))
    assert {name: value.limit for name, value in policies.by_name("dispatch", setting).items()} == {
        name: Limit(rate(2))
    }
    assert policies.by_name("publish", setting) == {}


@pytest.mark.parametrize(
    ("section", "level"),
    [
        ({"proxy": {"dispatch": TWO}}, "proxy"),
        ({"each_topic": {"dispatch": TWO}}, "topic"),
        ({"each_subscription": {"dispatch": TWO}}, "subscription"),
        ({"namespaces": {"t/n": {"dispatch": TWO}}}, "topic"),
        ({"namespaces": {"t/n": {"subscription_dispatch": TWO}}}, "subscription"),
        ({"topics": {"t/n/x": {"dispatch": TWO}}}, "topic"),
        ({"topics": {"t/n/x": {"subscription_dispatch": TWO}}}, "subscription"),
    ],
    ids=[
        "broker: dispatchThrottlingRateInMsg",
        "topic: dispatchThrottlingRatePerTopicInMsg",
        "subscription: dispatchThrottlingRatePerSubscriptionInMsg",
        "namespaces set-dispatch-rate",
        "namespaces set-subscription-dispatch-rate",
        "topicPolicies set-dispatch-rate",
        "topicPolicies set-subscription-dispatch-rate",
    ],
)
@pytest.mark.parametrize("kind", ["messages", "bytes"])
def test_each_cell_of_pulsars_table_of_approaches_has_a_section(section: dict[str, Any], level: str, kind: str) -> None:
    """Its page on message dispatch throttling: per cluster, topic and subscription, by broker, namespace and topic."""
    [(outer, inner)] = section.items()
    section = {outer: _in_unit(inner, kind)}
    entries = policies_of(Limits.model_validate(section)).in_force(
        "dispatch", parse_topic("t/n/x"), Client(subscription="s")
    )
    assert [entry.scope.level for entry in entries] == [level]
    assert [entry.limit for entry in entries] == [Limit(rate(2)) if kind == "messages" else Limit(size=rate(2))]


def _in_unit(section: Any, kind: str) -> Any:
    if section == TWO:
        return {kind: 2}
    return {key: _in_unit(value, kind) for key, value in section.items()}


@pytest.mark.parametrize(
    "section",
    [
        {"each_topic": {"dispatch": TWO}},
        {"each_subscription": {"dispatch": TWO}},
        {"namespaces": {"t/n": {"dispatch": TWO}}},
        {"namespaces": {"t/n": {"subscription_dispatch": TWO}}},
        {"topics": {"t/n/x": {"dispatch": TWO}}},
        {"topics": {"t/n/x": {"subscription_dispatch": TWO}}},
        {"topics": {"t/n/x": {"subscriptions": {"s": {"dispatch": TWO}}}}},
    ],
)
@pytest.mark.parametrize(("is_relative", "published"), [(True, NOTHING_PUBLISHED), (False, None)])
def test_dispatch_of_a_topic_or_subscription_may_be_relative_to_the_publish_rate(
    section: dict[str, Any], published: Published | None, *, is_relative: bool
) -> None:
    policies = policies_of(Limits.model_validate(_relative(section, is_relative=is_relative)))
    (entry,) = policies.in_force("dispatch", parse_topic("t/n/x"), Client(subscription="s"))
    assert entry.limit == Limit(rate(2), published=published)


@pytest.mark.parametrize(
    "section",
    [
        {"proxy": {"dispatch": TWO}},
        {"tenants": {"t": {"dispatch": TWO}}},
        {"namespaces": {"t/n": {"dispatch_total": TWO}}},
        {"resource_groups": {"g": {"dispatch": TWO}}},
        {"topics": {"t/n/x": {"dispatch_total": TWO}}},
        {"roles": {"r": {"dispatch": TWO}}},
        {"addresses": {"10.0.0.0/8": {"dispatch": TWO}}},
        {"exempt": {"dispatch": TWO}},
        {"each_topic": {"publish": TWO}},
        {"producers": {"p": {"publish": TWO}}},
    ],
)
def test_a_limit_that_is_not_of_one_topics_deliveries_cannot_be_relative(section: dict[str, Any]) -> None:
    assert "relativeToPublishRate is for the dispatch of a topic or of a subscription" in problems(_relative(section))


def test_a_relative_limit_needs_a_rate_to_add_to() -> None:
    section = {"each_topic": {"dispatch": {"relativeToPublishRate": True}}}
    assert "write messages, bytes or both" in problems(section)


def _relative(section: Any, *, is_relative: bool = True) -> Any:
    if section == TWO:
        return {**TWO, "relativeToPublishRate": is_relative}
    return {key: _relative(value, is_relative=is_relative) for key, value in section.items()}


def test_10_000_messages_a_minute_are_written_as_a_minutes_period() -> None:
    """Pulsar's dispatchThrottlingRateInMsg 10,000 with ratePeriodInSecond 60; without a period it is a second."""
    policies = policies_of(Limits.model_validate({"proxy": {"dispatch": {"messages": "10000/min", "bytes": 500}}}))
    (entry,) = policies.in_force("dispatch", parse_topic("t/n/x"))
    assert entry.limit == Limit(rate(10_000, 60 * SECOND), rate(500, SECOND))


@pytest.mark.parametrize(
    ("section", "setting", "name"),
    [
        ({"namespaces": {"shop/a": {"subscribe": "5/30s"}}}, Setting.TOPIC_OF_NAMESPACE, "shop/a"),
        ({"topics": {"shop/a/x": {"subscribe": "5/30s"}}}, Setting.TOPIC, "persistent://shop/a/x"),
    ],
)
def test_a_subscribe_rate_lets_a_whole_period_in_at_once(section: dict[str, Any], setting: Setting, name: str) -> None:
    policies = policies_of(Limits.model_validate(section))
    assert policies.by_name("subscribe", setting) == {name: Value(Limit(Rate(5, 30 * SECOND, 5)), "file")}
    assert policies.subscribe_rate(parse_topic("shop/b/x")) is None


def test_the_subscribe_rate_of_all_topics_is_that_of_the_broker_level() -> None:
    policies = policies_of(Limits(), subscribe=(5, 30 * SECOND))
    assert policies.subscribe_rate(parse_topic("shop/b/x")) == (Rate(5, 30 * SECOND, 5), "broker file")


def test_a_subscribe_rate_of_bytes_is_none() -> None:
    assert "write a rate of what is counted" in problems({"namespaces": {"t/n": {"subscribe": "5KB/s"}}})


def test_producers_have_a_publish_limit_only() -> None:
    policies = policies_of(Limits.model_validate({"producers": {"meter": {"publish": {"messages": 3}}}}))
    assert [value.limit for value in policies.by_name("publish", Setting.PRODUCER).values()] == [Limit(rate(3))]
    with pytest.raises(ValidationError, match="dispatch"):
        Limits.model_validate({"producers": {"meter": ONE}})


def test_what_is_attached_to_a_resource_group_has_its_limit() -> None:
    groups = {"gold": {**ONE, "tenants": ["shop"]}, "iron": {**ONE, "namespaces": ["shop/a"]}}
    policies = policies_of(Limits.model_validate({"resource_groups": groups}))
    entries = [policies.in_force("publish", parse_topic(topic)) for topic in ("shop/a/x", "shop/b/x", "free/a/x")]
    assert [[entry.scope.name for entry in each] for each in entries] == [["iron"], ["gold"], []]


def test_a_rate_has_a_burst_a_peak_and_a_mode() -> None:
    section = {
        "messages": "600/min",
        "burst_messages": 50,
        "peak_messages": 20,
        "bytes": "1MB",
        "burst_bytes": "5MB",
        "peak_bytes": "2MB",
        "mode": "reject",
    }
    policies = policies_of(Limits.model_validate({"each_topic": {"publish": section}}))
    (entry,) = policies.in_force("publish", parse_topic("t/n/x"), Client())
    assert entry.limit == Limit(
        Rate(600, 60 * SECOND, 50), Rate(10**6, SECOND, 5 * 10**6), rate(20), rate(2 * 10**6), "reject"
    )


@pytest.mark.parametrize(
    ("section", "remedy"),
    [
        ({"messages": 10, "peak_messages": 20}, "peak_messages needs messages and burst_messages"),
        ({"bytes": 10, "burst_messages": 5}, "burst_messages needs messages"),
        ({"bytes": 10, "peak_messages": 20}, "peak_messages needs messages and burst_messages"),
        ({"messages": 10, "burst_messages": 50, "peak_messages": 10}, "peak_messages must be above messages"),
        ({"messages": 10, "burst_messages": 50, "peak_messages": "599/min"}, "peak_messages must be above messages"),
        ({"messages": 10, "burst_messages": 2**63}, "less than or equal to 9223372036854775807"),
        ({"bytes": 10, "burst_bytes": 2**63}, "a size is at most 9223372036854775807 bytes"),
        ({"bytes": 10, "burst_bytes": "9" * 30 + "GB"}, "a size is at most 9223372036854775807 bytes"),
        ({"messages": 10, "mode": "warn"}, "'enforce', 'observe' or 'reject'"),
        ({}, "write messages, bytes or both"),
    ],
)
def test_a_rate_that_makes_no_sense_is_told_with_its_remedy(section: dict[str, Any], remedy: str) -> None:
    assert remedy in problems({"each_topic": {"publish": section}})


def test_consumers_cannot_be_refused() -> None:
    assert "'enforce' or 'observe'" in problems({"each_topic": {"dispatch": {"messages": 1, "mode": "reject"}}})


@pytest.mark.parametrize(
    ("section", "remedy"),
    [
        ({"tenants": {"shop/a": ONE}}, "write a tenant as tenant"),
        ({"tenants": {"s*h*": ONE}}, "write one * at most in each part"),
        ({"namespaces": {"*": ONE}}, "write */* for each namespace"),
        ({"namespaces": {"t*n": ONE}}, "write a namespace as tenant/namespace"),
        ({"resource_groups": {"g": {"tenants": ["*"]}}}, "one tenant is named here, and no pattern"),
        ({"resource_groups": {"g": {"namespaces": ["t/*"]}}}, "one namespace is named here, and no pattern"),
        ({"tenants": {"t\0": ONE}}, "write a tenant as tenant"),
        ({"namespaces": {"t/n\0": ONE}}, "write a namespace as tenant/namespace"),
        (
            {"topics": {"t/n/x\0y": ONE}},
            "has characters that cannot be seen; write the limit for the topic's namespace",
        ),
        ({"topics": {"t/n/x\u202ey": ONE}}, "has characters that cannot be seen"),
        ({"addresses": {"10.0.0.1/8": ONE}}, "write an address as 192.0.2.7 or 2001:db8::7, a range as 192.0.2.0/24"),
        ({"addresses": {"localhost": ONE}}, "write an address as 192.0.2.7 or 2001:db8::7, a range as 192.0.2.0/24"),
        ({"addresses": {"2001:db8::7": ONE}}, "an IPv6 client is limited by its /64: write 2001:db8::/64"),
        ({"addresses": {"fe80::%eth0/64": ONE}}, "has a zone, which is ignored; leave out"),
        (
            {"addresses": {"10.0.0.1": ONE, "10.0.0.1/32": TWO_EACH}},
            "'10.0.0.1/32' names '10.0.0.1/32', which occurs here twice",
        ),
        (
            {"addresses": {"2001:DB8::/64": ONE, "2001:db8:0::/64": TWO_EACH}},
            "'2001:db8:0::/64' names '2001:db8::/64', which occurs here twice",
        ),
        ({"addresses": {"::ffff:10.0.0.1": ONE, "10.0.0.1": TWO_EACH}}, "'10.0.0.1/32', which occurs here twice"),
        ({"topics": {"a/b/c": ONE, "persistent://a/b/c": ONE}}, "occurs here twice"),
        (
            {"resource_groups": {"gold": {**ONE, "tenants": ["t"]}, "iron": {**ONE, "tenants": ["t"]}}},
            "'t' is attached to 'gold' and to 'iron': leave one out",
        ),
    ],
)
def test_names_that_make_no_sense_are_told_with_their_remedy(section: dict[str, Any], remedy: str) -> None:
    assert remedy in problems(section)


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 1001])
@pytest.mark.parametrize(
    "section",
    [
        lambda name: {"resource_groups": {name: ONE}},
        lambda name: {"producers": {name: {"publish": TWO}}},
        lambda name: {"topics": {"x": {"subscriptions": {name: {"dispatch": TWO}}}}},
    ],
    ids=["group", "producer", "subscription"],
)
def test_a_name_that_nobody_can_have_is_told(section: Callable[[str], dict[str, Any]], name: str) -> None:
    assert "write a name in one line of 1 to 1000 characters" in problems(section(name))
    assert Limits.model_validate(section("x" * 1000))


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 257])
def test_a_role_that_no_client_can_have_is_told(name: str) -> None:
    assert "write the role in one line of 1 to 256 characters" in problems({"roles": {name: ONE}})
    assert Limits.model_validate({"roles": {"x" * 256: ONE, "*": ONE}})


def test_networks_that_hold_each_other_may_both_have_a_value() -> None:
    limits = Limits.model_validate({"addresses": {"10.0.0.0/8": ONE, "10.0.0.0/16": ONE, "10.0.0.0": ONE}})
    assert list(limits.addresses) == ["10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/32"]


_TWO_PLANS: dict[str, Any] = {"gold": {"publish": ONE["publish"]}, "wide": {"publish_total": ONE["publish"]}}


@pytest.mark.parametrize(
    ("section", "remedy"),
    [
        ({"tenants": {"a": "glod"}}, "tenants.a.plan: 'glod' is no plan; did you mean 'gold'?"),
        ({"namespaces": {"a/*": {"plan": "none"}}}, "namespaces.a/*.plan: 'none' is no plan; write it in limits.plans"),
        ({"tenants": {"a": "wide"}}, "tenants.a.plan: the plan 'wide' has publish_total, which tenants do not have"),
        ({"roles": {"r": "gold"}}, "only tenants and namespaces may have a plan"),
        ({"topics": {"a/b/c": "gold"}}, "only tenants and namespaces may have a plan"),
        ({"resource_groups": {"g": "gold"}}, "only tenants and namespaces may have a plan"),
        ({"addresses": {"10.0.0.0/8": {"plan": "gold"}}}, "addresses.10.0.0.0/8.plan: this key is not known here"),
        ({"namespaces": {f"{'a' * long}*/x": ONE for long in range(17)}}, "the patterns have 17 forms"),
    ],
)
def test_plans_that_cannot_be_given_are_refused(section: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate({"plans": _TWO_PLANS, **section})
    assert remedy in problems_line(caught.value, Limits)


@pytest.mark.parametrize(
    ("section", "contradiction"),
    [
        ({"tenants": {"a": "glod"}}, "tenants.a.plan: 'glod' is no plan; did you mean 'gold'?"),
        ({"tenants": {"a": "wide"}}, "tenants.a.plan: the plan 'wide' has publish_total"),
        ({"namespaces": {f"{'a' * long}*/x": ONE for long in range(17)}}, "the patterns have 17 forms"),
        ({"topics": {"a/b/c": ONE, "persistent://a/b/c": ONE}}, "occurs here twice"),
        ({"addresses": {"10.0.0.1": ONE, "10.0.0.1/32": ONE}}, "occurs here twice"),
        ({"resource_groups": {"g": {"tenants": ["t"]}, "h": {"tenants": ["t"]}}}, "is attached to 'g' and to 'h'"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("where", ["plans", "same", "other"])
def test_contradiction_is_found_beside_any_other_mistake(
    section: dict[str, Any], contradiction: str, where: str
) -> None:
    (word,) = section
    wrong = {"plans": "plans", "same": word, "other": "producers"}[where]
    given: dict[str, Any] = {"plans": _TWO_PLANS, **section}
    given[wrong] = {**given.get(wrong, {}), "": {"publish": {"messages": "many"}, "colour": "red"}}
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate(given)
    line = problems_line(caught.value, Limits)
    assert contradiction in line
    assert "colour: this key is not known here" in line


def test_own_keys_hold_in_place_of_those_of_the_plan() -> None:
    own = {"plan": "gold", "dispatch": ONE["publish"]}
    limits = Limits.model_validate({"plans": _TWO_PLANS, "namespaces": {"a/*": own, "b/x": "wide"}})
    values = file_policies(limits, None).values
    assert {target: value.shown_origin for target, value in values.items()} == {
        ("publish", Setting.TOPIC_OF_NAMESPACE, "a/*"): "file plan gold",
        ("dispatch", Setting.TOPIC_OF_NAMESPACE, "a/*"): "file",
        ("publish", Setting.NAMESPACE, "b/x"): "file plan wide",
    }
