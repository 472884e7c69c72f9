"""Takes over what a running broker limits, by its admin REST; nothing is changed there.

Its policies of namespaces, resource groups, topics and subscriptions become values of the configuration.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from yarl import URL

from proxy.config.showing import TakenValue
from proxy.config.values import Name, NamespaceName, WholeTopic
from proxy.importing.admin_client import connected, read_token, read_url
from proxy.importing.broker_state import (
    BrokerState,
    NamespacePolicies,
    OfTopic,
    TopicPolicies,
    broker_off,
    group_off,
    namespace_off,
    topic_off,
    walk,
)
from proxy.importing.keys import DEFAULTS, BrokerKey, one_line, take_keys
from proxy.importing.result import ImportResult, LeftOut
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate

PulsarRate = PublishRate | DispatchRate | SubscribeRate


def take_rate(rate: PulsarRate | None, path: tuple[str, ...], origin: str, found: ImportResult) -> bool:
    """Add what a rate says.

    Args:
        rate: None: nothing is set.
        path: Keys of what it becomes: a section, or for subscribe rates a value.
        origin: Where it was set, for people.
        found: Where to.

    Returns:
        Whether it limits anything: numbers of 0 and below are none, as with Pulsar.
    """
    taken = list(_taken(rate, path, origin)) if rate is not None else []
    found.taken += taken
    return bool(taken)


def _taken(rate: PulsarRate, path: tuple[str, ...], origin: str) -> Iterator[TakenValue]:
    if isinstance(rate, PublishRate):
        numbers = (rate.publishThrottlingRateInMsg, rate.publishThrottlingRateInByte)
        yield from _both("publish", numbers, 1, path, origin)
    elif isinstance(rate, DispatchRate):
        numbers = (rate.dispatchThrottlingRateInMsg, rate.dispatchThrottlingRateInByte)
        yield from _both("dispatch", numbers, max(1, rate.ratePeriodInSecond), path, origin)
        if rate.relativeToPublishRate and rate.limit():
            yield TakenValue((*path, "relativeToPublishRate"), value=True, origin=f"{origin}: relativeToPublishRate")
    elif rate.subscribeThrottlingRatePerConsumer > 0:
        count, period = rate.subscribeThrottlingRatePerConsumer, max(1, rate.ratePeriodInSecond)
        said = f"subscribeThrottlingRatePerConsumer {count}, ratePeriodInSecond {period}"
        yield TakenValue(path, f"{count}/{period}s", f"{origin}: {said}")


def _both(of: str, numbers: tuple[int, int], period: int, path: tuple[str, ...], origin: str) -> Iterator[TakenValue]:
    names = (f"{of}ThrottlingRateInMsg", f"{of}ThrottlingRateInByte")
    return _numbers(path, dict(zip(names, numbers, strict=True)), period, origin)


def take_group(group: ResourceGroup, path: tuple[str, ...], found: ImportResult) -> tuple[bool, bool]:
    """Add what a resource group says; whether it limits what is published, and what is delivered."""
    publish = {"publishRateInMsgs": group.publishRateInMsgs, "publishRateInBytes": group.publishRateInBytes}
    dispatch = {"dispatchRateInMsgs": group.dispatchRateInMsgs, "dispatchRateInBytes": group.dispatchRateInBytes}
    both = [
        list(_numbers((*path, section), {name: number or 0 for name, number in numbers.items()}, 1, "group"))
        for section, numbers in (("publish", publish), ("dispatch", dispatch))
    ]
    found.taken += [*both[0], *both[1]]
    return bool(both[0]), bool(both[1])


def _numbers(path: tuple[str, ...], numbers: dict[str, int], period_s: int, origin: str) -> Iterator[TakenValue]:
    """Messages, then bytes, each if it limits."""
    of_period = "" if period_s == 1 else f", ratePeriodInSecond {period_s}"
    for key, (name, number) in zip(("messages", "bytes"), numbers.items(), strict=True):
        if number > 0:
            value = number if period_s == 1 else f"{number}/{period_s}s"
            yield TakenValue((*path, key), value, f"{origin}: {name} {number}{of_period}")


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


def take_state(state: BrokerState, found: ImportResult) -> None:
    """Add the limits of namespaces, resource groups, topics and subscriptions, and what of them has no place."""
    for name, policies in sorted(state.namespaces.items()):
        _take_namespace(name, policies, state.cluster, found)
    _take_groups(state, found)
    for topic, own in sorted(state.topics.items()):
        _take_topic(topic, own, found)
    for name in sorted(state.strange):
        found.left.append(LeftOut(one_line(name), "a name in a form of Pulsar's that Sluice does not know"))
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


def _take_namespace(name: str, policies: NamespacePolicies, cluster: str, found: ImportResult) -> None:
    rates: dict[str, PulsarRate | None] = {
        "publish": (policies.publish or {}).get(cluster),
        "dispatch": (policies.dispatch or {}).get(cluster) or (policies.dispatch_of_old or {}).get(cluster),
        "subscription_dispatch": (policies.subscription_dispatch or {}).get(cluster),
        "subscribe": (policies.subscribe or {}).get(cluster),
    }
    for kind, rate in rates.items():
        if rate is not None and rate.limit() and not _is_of(_NAMESPACE, name):
            found.left.append(LeftOut(f"namespace {one_line(name)}: {kind}", _NAMELESS))
        elif take_rate(rate, ("limits", "namespaces", name, kind), "namespace", found):
            found.switch_off.append(namespace_off(name, kind))
    found.left += [LeftOut(f"namespace {name}: {what}", why) for what, why in _without_place(policies, cluster)]


def _without_place(policies: NamespacePolicies, cluster: str) -> Iterator[tuple[str, str]]:
    replicator = (policies.replicator_dispatch or {}).get(cluster)
    if replicator and replicator.limit():
        yield "replicatorDispatchRate", _REPLICATION
    for key, why in _BOUNDS.items():
        value = getattr(policies, key)
        if value is not None:
            yield f"{key} {value}", why


def _take_groups(state: BrokerState, found: ImportResult) -> None:
    attached: dict[str, list[str]] = {}
    for name, policies in sorted(state.namespaces.items()):
        if policies.resource_group and not _is_of(_NAMESPACE, name):
            found.left.append(LeftOut(f"namespace {one_line(name)}: resource group", _NAMELESS))
        elif policies.resource_group:
            attached.setdefault(policies.resource_group, []).append(name)
    for group, namespaces in sorted(attached.items()):
        if group not in state.groups:
            what = f"resource group {one_line(group)} of {', '.join(namespaces)}"
            found.left.append(LeftOut(what, "the broker knows no such group"))
    for group in sorted(state.groups):
        _take_group(group, state, attached.get(group, []), found)


def _take_group(name: str, state: BrokerState, namespaces: list[str], found: ImportResult) -> None:
    path = ("limits", "resource_groups", name)
    if not _is_name(name):
        found.left.append(LeftOut(f"resource group {one_line(name)}", _NAMELESS))
        return
    publish, dispatch = take_group(state.groups[name], path, found)
    if not publish and not dispatch:
        found.left.append(LeftOut(f"resource group {name}", "it limits nothing"))
        return
    if namespaces:
        found.taken.append(TakenValue((*path, "namespaces"), tuple(namespaces), "resource_group_name of each"))
    found.switch_off += [group_off(namespace) for namespace in namespaces]
    if dispatch:
        found.notes.append(f"resource group {name}: Pulsar does not enforce its dispatch rates, Sluice does")


def _take_topic(topic: str, policies: TopicPolicies, found: ImportResult) -> None:
    if not _is_of(_TOPIC, topic):
        found.left.append(LeftOut(one_line(topic), _NAMELESS))
        return
    for of in sorted({*policies.local, *policies.everywhere}):
        if of.subscription and not _is_name(of.subscription):
            found.left.append(
                LeftOut(f"{one_line(topic)}: dispatchRate of subscription {one_line(of.subscription)}", _NAMELESS)
            )
        else:
            _take_narrowest(topic, of, policies, found)


def _take_narrowest(topic: str, of: OfTopic, policies: TopicPolicies, found: ImportResult) -> None:
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


_RUNNING = "configuration of the broker"
_UNSURE = "its default depends on the broker's memory, so one cannot see if it was set; if so, set publish.hold_total"


def from_broker(text: str, token_file: Path | None) -> ImportResult:
    """What the broker at a URL says.

    Raises:
        ImportFailed: If it refuses something, does not answer, or has values that cannot be meant.
    """
    url, token = read_url(text), read_token(token_file)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        return found_in(asyncio.run(_ask(url, token, bar)))


def found_in(state: BrokerState) -> ImportResult:
    """Everything in a broker's answers.

    Of its configuration counts what differs from Pulsar's default, as nobody has set the rest.

    Raises:
        ImportFailed: If values cannot be meant.
    """
    running = {key: value for key, value in state.running.items() if key not in state.dynamic}
    unsure = [key for key in running if key in DEFAULTS and DEFAULTS[key] is None]
    entries = [
        BrokerKey(key, value, _RUNNING) for key, value in running.items() if DEFAULTS.get(key, "") not in {value, None}
    ]
    entries += [BrokerKey(key, value, "dynamic configuration") for key, value in state.dynamic.items()]
    found = take_keys(entries)
    found.left += [LeftOut(BrokerKey(key, running[key], _RUNNING).told, _UNSURE) for key in unsure]
    broker_off(found)
    take_state(state, found)
    return found


async def _ask(url: URL, token: str, bar: Progress) -> BrokerState:
    tasks = {}

    def progress(what: str, done: int, all_: int) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=all_)
        bar.update(tasks[what], completed=done)

    async with connected(url, token) as admin:
        return await walk(admin, progress)
