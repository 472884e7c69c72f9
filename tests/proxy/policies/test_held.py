"""What was in force before a change, whatever its source."""

import asyncio
from contextlib import closing
from typing import Any

import pytest

from limiter.levels import Setting
from limiter.policies import Policies
from proxy.config.model import Config
from proxy.policies.bodies import PublishRate, kept_as_own, kept_as_own_group, kept_as_pulsar_s
from proxy.policies.held import ValueBefore, read
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, Principal, rate_key
from proxy.policies.layers import file_policies
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store, StoredChange

TOPIC = "persistent://acme/shop/orders"
LIMITS: dict[str, Any] = {
    "plans": {"gold": {"publish_total": {"messages": 9}, "dispatch": {"messages": 8}}},
    "tenants": {"other": {"publish": {"messages": 40}}, "o*": {"publish": {"messages": 50}}},
    "namespaces": {"acme/shop": "gold", "acme/*": {"publish": {"messages": 7, "mode": "observe"}}},
    "resource_groups": {"wide": {"publish": {"bytes": "1MB"}, "tenants": ["acme"]}},
    "each_topic": {"publish": {"messages": 3}},
    "proxy": {"publish": {"messages": 1000}},
}
PUBLISH = kept_as_pulsar_s(PublishRate(5, -1))


def last_of(*changes: dict[PolicyKey, str | None]) -> StoredChange:
    """Return the audited line of the last of some changes."""
    config = Config.model_validate({"limits": LIMITS})
    with closing(Store(None)) as store:
        around = Around(lambda: (0, 0), lambda _changes, _now: None)
        service = PolicyService(Policies(), file_policies(config.limits, None), store, around)
        for bodies in changes:
            asyncio.run(service.change(bodies, Principal("ann", "")))
        change = store.audited(1)[0].change
    assert isinstance(change, StoredChange)
    return change


def before(key: PolicyKey, *bodies: str | None) -> list[ValueBefore]:
    """Return what was in force before the last of some changes of one policy."""
    return read(str(last_of(*({key: kept} for kept in bodies)).held))


@pytest.mark.parametrize(
    ("about", "setting", "name", "words"),
    [
        ("publish", Setting.TENANT, "other", "tenant other: messages 40 (file)"),
        ("publish", Setting.TENANT, "others", "tenant o*: messages 50 (file)"),
        ("publish", Setting.TENANT, "*", None),
        ("publish", Setting.TENANT, "acme", None),
        ("publish", Setting.NAMESPACE, "acme/shop", "namespace acme/shop: messages 9 (file, plan gold)"),
        ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/x", "topic_of_namespace acme/*: messages 7, mode observe (file)"),
        ("publish", Setting.TOPIC, TOPIC, "topic_of_namespace acme/*: messages 7, mode observe (file)"),
        ("dispatch", Setting.TOPIC, TOPIC, "topic_of_namespace acme/shop: messages 8 (file, plan gold)"),
        ("publish", Setting.TOPIC, "persistent://b/c/d", "topic_of_broker: messages 3 (file)"),
        ("publish", Setting.PROXY, "", "proxy: messages 1000 (file)"),
        ("publish", Setting.ROLE, "app", None),
        ("publish", Setting.ADDRESS, "10.0.0.0/8", None),
        ("dispatch", Setting.SUBSCRIPTION, f"s@{TOPIC}", None),
        ("subscribe", Setting.TOPIC, TOPIC, None),
    ],
)
def test_limit_in_force_before_is_known_whatever_its_source(
    about: Any, setting: Setting, name: str, words: str | None
) -> None:
    held = before(rate_key(about, setting, name), PUBLISH)
    assert [f"{each.setting} {each.name}".rstrip() + f": {each.words()}" for each in held] == [words] * bool(words)


def test_value_of_run_time_was_in_force_before_it_is_taken_back() -> None:
    (held,) = before(rate_key("publish", Setting.NAMESPACE, "acme/shop"), PUBLISH, None)
    assert (held.words(), held.limit) == ("messages 5 (rest)", {"messages": 5})
    (held,) = before(rate_key("publish", Setting.NAMESPACE, "acme/shop"), kept_as_pulsar_s(PublishRate(-1, -1)), None)
    assert (held.words(), held.limit) == ("no limit (rest)", {})


def test_stricter_of_operator_and_tenant_was_in_force() -> None:
    key = rate_key("publish", Setting.NAMESPACE, "acme/shop", Layer.TENANT)
    assert [each.words() for each in before(key, PUBLISH)] == ["messages 9 (file, plan gold)"]
    assert [each.words() for each in before(key, PUBLISH, None)] == ["messages 5 (tenant)"]


def test_groups_attachments_and_dynamic_keys_have_what_held() -> None:
    body = kept_as_own_group({"dispatch": {"messages": 4}}, ())
    group = PolicyKey(PolicyKind.GROUP, "", "wide")
    assert [(each.kind, each.words()) for each in before(group, body)] == [("publish", "bytes 1MB (file)")]
    assert [each.kind for each in before(group, body, None)] == ["publish", "dispatch"]
    tenant = PolicyKey(PolicyKind.ATTACHMENT, "tenant", "acme")
    assert [each.words() for each in before(tenant, "")] == ["in group wide (file)"]
    assert before(tenant, "", "wide") == []
    assert [each.words() for each in before(tenant, "gold", None)] == ["in group gold (rest)"]
    key = PolicyKey(PolicyKind.DYNAMIC, "", "maxPublishRatePerTopicInMessages")
    assert [each.words() for each in before(key, "7")] == ["messages 3 (file)"]
    assert [each.words() for each in before(key, "7", None)] == ["messages 7 (dynamic)"]


MAX_RATE = PolicyKey(PolicyKind.DYNAMIC, "", "maxPublishRatePerTopicInMessages")
MAX_BYTES = PolicyKey(PolicyKind.DYNAMIC, "", "maxPublishRatePerTopicInBytes")
OTHERS = rate_key("publish", Setting.TENANT, "others")


@pytest.mark.parametrize(
    ("key", "kept", "since"),
    [
        (OTHERS, PUBLISH, "messages 50 (file), as tenant o*"),
        (rate_key("publish", Setting.TENANT, "other"), PUBLISH, "messages 40 (file)"),
        (rate_key("publish", Setting.TENANT, "acme"), PUBLISH, "no limit"),
        (rate_key("publish", Setting.NAMESPACE, "acme/shop"), PUBLISH, "messages 9 (file, plan gold)"),
        (
            rate_key("publish", Setting.TOPIC, TOPIC),
            PUBLISH,
            "messages 7, mode observe (file), as topic_of_namespace acme/*",
        ),
        (rate_key("publish", Setting.TOPIC, "persistent://b/c/d"), PUBLISH, "messages 3 (file), as topic_of_broker"),
        (
            PolicyKey(PolicyKind.GROUP, "", "wide"),
            kept_as_own_group({"publish": None}, ()),
            "publish: bytes 1MB (file)",
        ),
        (PolicyKey(PolicyKind.ATTACHMENT, "tenant", "acme"), "", "in group wide (file)"),
        (PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop"), "gold", "in group wide, as tenant acme"),
        (PolicyKey(PolicyKind.ATTACHMENT, "tenant", "b"), "gold", "in no group"),
        (MAX_RATE, "7", "messages 3 (file)"),
    ],
)
def test_value_that_holds_since_a_take_back_is_said(key: PolicyKey, kept: str, since: str) -> None:
    assert last_of({key: kept}, {key: None}).words == f"taken back; since then: {since}"


def test_take_back_names_the_value_that_is_in_force_since() -> None:
    own, its = (rate_key("publish", Setting.NAMESPACE, "acme/shop", layer) for layer in (Layer.TENANT, Layer.REST))
    looser = kept_as_pulsar_s(PublishRate(8, -1))
    assert last_of({own: PUBLISH}, {its: looser}, {its: None}).words == (
        "taken back (it was messages 8); since then: messages 5 (tenant)"
    )
    assert last_of({own: PUBLISH}, {own: None}).words == "taken back; since then: messages 9 (file, plan gold)"
    assert last_of({MAX_RATE: "7"}, {MAX_BYTES: "1000"}, {MAX_BYTES: None}).words == (
        "taken back; since then: messages 7 (dynamic)"
    )


def test_what_holds_since_is_not_said_where_changes_meet() -> None:
    pattern = rate_key("publish", Setting.TENANT, "o*")
    assert last_of({OTHERS: PUBLISH, pattern: PUBLISH}, {pattern: None, OTHERS: None}).words == "taken back"
    apart = rate_key("publish", Setting.ROLE, "app")
    words = last_of({OTHERS: PUBLISH, apart: PUBLISH}, {apart: None, OTHERS: None}).words
    assert words == "taken back; since then: messages 50 (file), as tenant o*"


_RATE, _PERIOD = "subscribeThrottlingRatePerConsumer", "subscribeRatePeriodPerConsumerInSecond"
_OBSERVED = {"limits": {"each_topic": {"dispatch": {"bytes": "2KB", "mode": "observe"}}}}
_MESSAGES, _BYTES = "dispatchThrottlingRatePerTopicInMsg", "dispatchThrottlingRatePerTopicInByte"


@pytest.mark.parametrize(
    ("file", "set_before", "key", "value", "words"),
    [
        ({}, {_RATE: "5"}, _PERIOD, "10", "messages 5/10s (dynamic)"),
        ({}, {_PERIOD: "10"}, _RATE, "7", "messages 7/10s (dynamic)"),
        ({}, {}, _PERIOD, "10", "no limit (dynamic)"),
        ({}, {_RATE: "5"}, _RATE, "0", "no limit (dynamic)"),
        ({}, {_BYTES: "1000"}, _MESSAGES, "7", "messages 7, bytes 1KB (dynamic)"),
        ({}, {_BYTES: "1000", _MESSAGES: "7"}, _MESSAGES, "0", "bytes 1KB (dynamic)"),
        (_OBSERVED, {}, _MESSAGES, "7", "messages 7, bytes 2KB, mode observe (dynamic)"),
        ({"admission": {"subscribe_rate_per_consumer": "5/10s"}}, {}, _RATE, "7", "messages 7/10s (dynamic)"),
    ],
)
def test_dynamic_key_is_told_as_the_limit_that_it_makes(
    file: dict[str, Any], set_before: dict[str, str], key: str, value: str, words: str
) -> None:
    config = Config.model_validate(file)
    with closing(Store(None)) as store:
        around = Around(lambda: (0, 0), lambda _changes, _now: None)
        file_s = file_policies(config.limits, config.admission.subscribe_rate_per_consumer)
        service = PolicyService(Policies(), file_s, store, around)
        for name, text in (set_before | {key: value}).items():
            asyncio.run(service.change({PolicyKey(PolicyKind.DYNAMIC, "", name): text}, Principal("ann", "")))
        change = store.audited(1)[0].change
    assert isinstance(change, StoredChange)
    assert change.words == words


def test_null_is_told_with_the_wider_value_that_holds() -> None:
    key = rate_key("publish", Setting.NAMESPACE, "acme/nil")
    wide: dict[PolicyKey, str | None] = {
        rate_key("publish", Setting.NAMESPACE, "acme/*"): kept_as_own({"messages": 2000})
    }
    null = kept_as_pulsar_s(PublishRate(-1, -1))
    words = "no limit (rest), which counts as not set; since then: messages 2000 (rest), as namespace acme/*"
    assert last_of(wide, {key: null}).words == words
    taken_back = last_of(wide, {key: null}, {key: None})
    assert [held.words() for held in read(str(taken_back.held))] == ["messages 2000 (rest)"]
