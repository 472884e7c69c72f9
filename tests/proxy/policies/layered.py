"""Books with values on every layer, and what they make hold."""

import asyncio
from typing import Any

from hypothesis import strategies as st

from limiter.levels import Client, Setting
from limiter.policies import Policies, PolicyTarget
from limiter.token_bucket import DIRECTIONS
from protocol.topic_name import parse_topic
from proxy.config.model import Config
from proxy.policies.bodies import DispatchRate, PublishRate, SubscribeRate, kept_as_own, kept_as_pulsar_s
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, Principal, rate_key
from proxy.policies.layers import FilePolicies, file_policies
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store

ANN = Principal("ann", "10.0.0.1")
ORDERS, LOGS = "persistent://acme/shop/orders", "persistent://acme/shop/logs"
SYSTEM = "persistent://acme/shop/__change_events"
TOPICS = (ORDERS, f"{ORDERS}-partition-1", LOGS, "persistent://acme/till/x", "non-persistent://other/ns/y", SYSTEM)
CLIENTS = (
    Client(),
    Client(producer_name="meter", role="billing", address="10.1.2.3", subscription="audit"),
    Client(producer_name="other", role="ops", address="10.2.0.1", subscription="a@b"),
    Client(address="2001:db8::1", subscription="x"),
)
_NAMES: dict[Setting, tuple[str, ...]] = {
    Setting.PROXY: ("",),
    Setting.TENANT: ("acme", "a*", "*"),
    Setting.NAMESPACE: ("acme/shop", "acme/*", "*/s*"),
    Setting.RESOURCE_GROUP: ("gold", "on"),
    Setting.PARTITIONED_TOPIC: (ORDERS,),
    Setting.TOPIC: (ORDERS, LOGS),
    Setting.TOPIC_OF_NAMESPACE: ("acme/shop", "other/ns", "*/shop"),
    Setting.TOPIC_OF_BROKER: ("",),
    Setting.SUBSCRIPTION: (f"audit@{ORDERS}", f"a@b@{LOGS}"),
    Setting.SUBSCRIPTION_OF_TOPIC: (ORDERS,),
    Setting.SUBSCRIPTION_OF_NAMESPACE: ("acme/shop",),
    Setting.SUBSCRIPTION_OF_BROKER: ("",),
    Setting.PRODUCER: ("meter", "*"),
    Setting.ROLE: ("billing", "*"),
    Setting.ADDRESS: ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2001:db8::/32"),
    Setting.EXEMPT: ("",),
}
assert set(_NAMES) == set(Setting), "a setting that these policies do not have"
_OF_SUBSCRIPTIONS = {setting for setting in Setting if setting.value.startswith("subscription")}
_SUBSCRIBES = (Setting.TOPIC, Setting.TOPIC_OF_NAMESPACE, Setting.TOPIC_OF_BROKER)
_RELATIVE = _OF_SUBSCRIPTIONS | set(_SUBSCRIBES)
RATED: tuple[PolicyTarget, ...] = (
    *(("publish", setting, name) for setting in _NAMES if setting not in _OF_SUBSCRIPTIONS for name in _NAMES[setting]),
    *(("dispatch", setting, name) for setting in _NAMES if setting != "producer" for name in _NAMES[setting]),
    *(("subscribe", setting, name) for setting in _SUBSCRIBES for name in _NAMES[setting]),
)
_KEYED = tuple(place for place in RATED if place[1] is not Setting.RESOURCE_GROUP)
_DYNAMIC = ("maxPublishRatePerTopicInMessages", "dispatchThrottlingRateInByte", "subscribeThrottlingRatePerConsumer")


@st.composite
def sections(draw: st.DrawFn, place: PolicyTarget) -> dict[str, Any]:
    """A limit as the configuration writes it."""
    section: dict[str, Any] = {"messages": draw(st.sampled_from([5, "30/min", "7/1.5s"]))}
    if place[0] == "subscribe":
        return section
    if draw(st.booleans()):
        section |= {"burst_messages": 9, "peak_messages": 900}
    if draw(st.booleans()):
        section["bytes"] = draw(st.sampled_from(["10MB", "1KiB/h"]))
    if draw(st.booleans()):
        section["mode"] = "observe"
    if place[0] == "dispatch" and place[1] in _RELATIVE and draw(st.booleans()):
        section["relativeToPublishRate"] = True
    return section


_NUMBERS = st.sampled_from([-1, 0, 3, 50])


def _pulsar_s(place: PolicyTarget) -> st.SearchStrategy[str]:
    relative = st.booleans() if place[1] in _RELATIVE else st.just(value=False)
    bodies = {
        "publish": st.builds(PublishRate, _NUMBERS, _NUMBERS),
        "dispatch": st.builds(DispatchRate, _NUMBERS, _NUMBERS, relative, st.sampled_from([0, 1, 60])),
        "subscribe": st.builds(SubscribeRate, _NUMBERS, st.sampled_from([1, 30])),
    }
    return bodies[place[0]].map(kept_as_pulsar_s)


@st.composite
def _rates(draw: st.DrawFn) -> tuple[PolicyKey, str]:
    place = draw(st.sampled_from(_KEYED))
    key = rate_key(
        *place, draw(st.sampled_from([Layer.REST, Layer.GLOBAL])) if place[1] is Setting.TOPIC else Layer.REST
    )
    return key, draw(_pulsar_s(place) | sections(place).map(kept_as_own))


_GROUPS = st.tuples(
    st.sampled_from([PolicyKey(PolicyKind.GROUP, "", name) for name in ("gold", "on", "empty")]),
    st.sampled_from(
        [
            '{"publishRateInMsgs":5,"dispatchRateInBytes":7}',
            "{}",
            '{"form":"sluice","body":{"publish":{"messages":"1/min"}}}',
            '{"form":"sluice","body":{"dispatch":null}}',
        ]
    ),
)
_ATTACHMENTS = st.tuples(
    st.sampled_from(
        [
            PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop"),
            *(PolicyKey(PolicyKind.ATTACHMENT, "tenant", t) for t in ("acme", "other")),
        ]
    ),
    st.sampled_from(["gold", "on", ""]),
)
_DYNAMICS = st.tuples(
    st.sampled_from([PolicyKey(PolicyKind.DYNAMIC, "", name) for name in _DYNAMIC]), _NUMBERS.map(str)
)


@st.composite
def files(draw: st.DrawFn) -> FilePolicies:
    """What a configuration file says."""
    config: dict[str, Any] = {"limits": {}}
    for place in draw(st.lists(st.sampled_from(RATED), unique=True, max_size=6)):
        _write(config, place, draw(sections(place)))
    groups = config["limits"].setdefault("resource_groups", {})
    for name, attached in draw(st.sampled_from([(), (("gold", "acme/shop"),), (("on", "acme/shop"),)])):
        groups.setdefault(name, {})["namespaces"] = [attached]
    read = Config.model_validate(config)
    return file_policies(read.limits, read.admission.subscribe_rate_per_consumer)


def _write(config: dict[str, Any], place: PolicyTarget, section: dict[str, Any]) -> None:
    """By hand, so that the paths under test are not compared with themselves."""
    about, setting, name = place
    keys = {
        Setting.PROXY: f"proxy/{about}",
        Setting.TENANT: f"tenants/NAME/{about}",
        Setting.NAMESPACE: f"namespaces/NAME/{about}_total",
        Setting.RESOURCE_GROUP: f"resource_groups/NAME/{about}",
        Setting.PARTITIONED_TOPIC: f"topics/NAME/{about}_total",
        Setting.TOPIC: f"topics/NAME/{about}",
        Setting.TOPIC_OF_NAMESPACE: f"namespaces/NAME/{about}",
        Setting.TOPIC_OF_BROKER: f"each_topic/{about}",
        Setting.SUBSCRIPTION: f"topics/TOPIC/subscriptions/NAME/{about}",
        Setting.SUBSCRIPTION_OF_TOPIC: f"topics/NAME/subscription_{about}",
        Setting.SUBSCRIPTION_OF_NAMESPACE: f"namespaces/NAME/subscription_{about}",
        Setting.SUBSCRIPTION_OF_BROKER: f"each_subscription/{about}",
        Setting.PRODUCER: f"producers/NAME/{about}",
        Setting.ROLE: f"roles/NAME/{about}",
        Setting.ADDRESS: f"addresses/NAME/{about}",
        Setting.EXEMPT: f"exempt/{about}",
    }
    if about == "subscribe" and setting is Setting.TOPIC_OF_BROKER:
        config["admission"] = {"subscribe_rate_per_consumer": section["messages"]}
        return
    topic = ORDERS if name.endswith(ORDERS) else LOGS
    own = name.removesuffix(f"@{topic}")
    words = {"NAME": own if setting is Setting.SUBSCRIPTION else name, "TOPIC": topic}
    path, below = [words.get(key, key) for key in keys[setting].split("/")], config["limits"]
    for key in path[:-1]:
        below = below.setdefault(key, {})
    below[path[-1]] = section["messages"] if about == "subscribe" else section


def changes() -> st.SearchStrategy[list[tuple[PolicyKey, str]]]:
    """What was set at run time."""
    return st.lists(_rates() | _GROUPS | _ATTACHMENTS | _DYNAMICS, max_size=12)


def a_service(
    file: FilePolicies, set_at_run_time: list[tuple[PolicyKey, str]] | dict[PolicyKey, str | None]
) -> PolicyService:
    """A service over a store in memory; `store.close()` is the caller's."""
    service = PolicyService(Policies(), file, Store(None), Around(lambda: (0, 0), lambda _changes, _now: None))
    asyncio.run(service.change(dict(set_at_run_time), ANN))
    return service


def effects(service: PolicyService) -> list[object]:
    """What every client meets on every topic."""
    policies = service.layers.policies
    limits: list[object] = [
        [(entry.scope, entry.limit) for entry in policies.in_force(direction, parse_topic(topic), client)]
        for direction in DIRECTIONS
        for topic in TOPICS
        for client in CLIENTS
    ]
    subscribes = [policies.subscribe_rate(parse_topic(topic)) for topic in TOPICS]
    return [*limits, [rate and rate[0] for rate in subscribes]]
