"""From a broker's answers to values of the configuration: namespaces, resource groups, topics, subscriptions."""

from collections.abc import Iterator

from pydantic import TypeAdapter, ValidationError

from proxy.config.values import Name, NamespaceName, WholeTopic
from proxy.config.yaml_text import Taken
from proxy.importing.broker_state import BrokerState, NamespacePolicies, OfTopic, TopicPolicies
from proxy.importing.found import Found, Left
from proxy.importing.rates import PulsarRate, take_group, take_rate
from proxy.importing.switch_off import group_off, namespace_off, topic_off
from proxy.importing.values import one_line

_NO_KEY = "the file has one for all (admission.{}) and none for a namespace yet; it stays in force at the broker"
_STORED = "it bounds what the broker keeps, not what passes; it stays in force there"
_UNACKED = "the broker counts what is not acknowledged; it stays in force there"
_REPLICATION = "replication between clusters does not pass a proxy; it stays in force at the broker"
_NAMELESS = "its name cannot be written in the file: it is too long, or not printable"
_BOUNDS = {
    "max_producers_per_topic": _NO_KEY.format("max_producers_per_topic"),
    "max_consumers_per_topic": _NO_KEY.format("max_consumers_per_topic"),
    "max_consumers_per_subscription": _NO_KEY.format("max_consumers_per_subscription"),
    "max_subscriptions_per_topic": _STORED,
    "max_topics_per_namespace": _STORED,
    "max_unacked_messages_per_consumer": _UNACKED,
    "max_unacked_messages_per_subscription": _UNACKED,
}
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_NAMESPACE: TypeAdapter[str] = TypeAdapter(NamespaceName)
_TOPIC: TypeAdapter[str] = TypeAdapter(WholeTopic)


def take_state(state: BrokerState, found: Found) -> None:
    """Add the limits of namespaces, resource groups, topics and subscriptions, and what of them has no place."""
    for name, policies in sorted(state.namespaces.items()):
        _take_namespace(name, policies, state.cluster, found)
    _take_groups(state, found)
    for topic, own in sorted(state.topics.items()):
        _take_topic(topic, own, found)
    for name in sorted(state.strange):
        found.left.append(Left(one_line(name), "a name in a form of Pulsar's that Sluice does not know"))
    for topic in sorted(state.unlisted):
        found.notes.append(
            f"{one_line(topic)}: the broker cannot list its subscriptions: if any has a dispatch rate of its own, "
            "it is missing here"
        )
    for topic in sorted(state.unseen):
        found.notes.append(
            f"{one_line(topic)}: has characters that cannot be seen, and was not asked for: "
            "a limit of its own is missing here; its namespace's holds"
        )
    if not state.has_topic_policies:
        found.notes.append("topic policies are disabled at the broker (405): no topic has a limit of its own there")


def _take_namespace(name: str, policies: NamespacePolicies, cluster: str, found: Found) -> None:
    rates: dict[str, PulsarRate | None] = {
        "publish": (policies.publish or {}).get(cluster),
        "dispatch": (policies.dispatch or {}).get(cluster) or (policies.dispatch_of_old or {}).get(cluster),
        "subscription_dispatch": (policies.subscription_dispatch or {}).get(cluster),
        "subscribe": (policies.subscribe or {}).get(cluster),
    }
    for kind, rate in rates.items():
        if rate is not None and rate.limit() and not _is_of(_NAMESPACE, name):
            found.left.append(Left(f"namespace {one_line(name)}: {kind}", _NAMELESS))
        elif take_rate(rate, ("limits", "namespaces", name, kind), "namespace", found):
            found.switch_off.append(namespace_off(name, kind))
    found.left += [Left(f"namespace {name}: {what}", why) for what, why in _without_place(policies, cluster)]


def _without_place(policies: NamespacePolicies, cluster: str) -> Iterator[tuple[str, str]]:
    replicator = (policies.replicator_dispatch or {}).get(cluster)
    if replicator and replicator.limit():
        yield "replicatorDispatchRate", _REPLICATION
    for key, why in _BOUNDS.items():
        value = getattr(policies, key)
        if value is not None:
            yield f"{key} {value}", why


def _take_groups(state: BrokerState, found: Found) -> None:
    attached: dict[str, list[str]] = {}
    for name, policies in sorted(state.namespaces.items()):
        if policies.resource_group and not _is_of(_NAMESPACE, name):
            found.left.append(Left(f"namespace {one_line(name)}: resource group", _NAMELESS))
        elif policies.resource_group:
            attached.setdefault(policies.resource_group, []).append(name)
    for group, namespaces in sorted(attached.items()):
        if group not in state.groups:
            what = f"resource group {one_line(group)} of {', '.join(namespaces)}"
            found.left.append(Left(what, "the broker knows no such group"))
    for group in sorted(state.groups):
        _take_group(group, state, attached.get(group, []), found)


def _take_group(name: str, state: BrokerState, namespaces: list[str], found: Found) -> None:
    path = ("limits", "resource_groups", name)
    if not _is_name(name):
        found.left.append(Left(f"resource group {one_line(name)}", _NAMELESS))
        return
    publish, dispatch = take_group(state.groups[name], path, found)
    if not publish and not dispatch:
        found.left.append(Left(f"resource group {name}", "it limits nothing"))
        return
    if namespaces:
        found.taken.append(Taken((*path, "namespaces"), tuple(namespaces), "resource_group_name of each"))
    found.switch_off += [group_off(namespace) for namespace in namespaces]
    if dispatch:
        found.notes.append(f"resource group {name}: Pulsar does not enforce its dispatch rates, Sluice does")


def _take_topic(topic: str, policies: TopicPolicies, found: Found) -> None:
    if not _is_of(_TOPIC, topic):
        found.left.append(Left(one_line(topic), _NAMELESS))
        return
    for of in sorted({*policies.local, *policies.everywhere}):
        if of.subscription and not _is_name(of.subscription):
            found.left.append(
                Left(f"{one_line(topic)}: dispatchRate of subscription {one_line(of.subscription)}", _NAMELESS)
            )
        else:
            _take_narrowest(topic, of, policies, found)


def _take_narrowest(topic: str, of: OfTopic, policies: TopicPolicies, found: Found) -> None:
    """The value of this cluster, else that for all; to end the limit, both are to go."""
    section = ("subscriptions", of.subscription, "dispatch") if of.subscription else (of.kind,)
    path = ("limits", "topics", topic, *section)
    is_taken = False
    for rate, is_global in ((policies.local.get(of), False), (policies.everywhere.get(of), True)):
        if rate is None or not rate.limit():
            continue
        is_taken = is_taken or take_rate(rate, path, "global topic policy" if is_global else "topic policy", found)
        found.switch_off.append(topic_off(topic, of, is_global=is_global))


def _is_name(text: str) -> bool:
    return _is_of(_NAME, text)


def _is_of(kind: TypeAdapter[str], text: str) -> bool:
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True
