"""Take over the limits of a running broker, by its admin REST; nothing is changed there.

A walk over tenants, namespaces, topics and subscriptions reads the policies that are set, and loads no client's topic:
policies and the names of subscriptions come from metadata (a topic that is not persistent is asked itself, as it exists
in memory only). The policies become values of the configuration. The result lists the commands of Pulsar's own tool
that end the limits at the broker once Sluice has them; none is run here.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote_plus

from msgspec import Struct
from msgspec import field as named
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from yarl import URL

from protocol.topic_name import TopicName, parse_topic
from proxy.config.showing import TakenValue
from proxy.config.values import Name, NamespaceName, WholeTopic
from proxy.importing.admin_client import (
    MOST_REQUESTS,
    BrokerAdminClient,
    RefusedAnswer,
    connected,
    path_of,
    read_url,
    token_in,
)
from proxy.importing.keys import (
    DEFAULTS,
    NUMBERS,
    PER_ADDRESS,
    SUBSCRIBE_PATH,
    SUBSCRIBE_RATE,
    BrokerKey,
    one_line,
    take_keys,
)
from proxy.importing.result import ImportFailed, ImportResult, LeftOut
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate


class NamespacePolicies(Struct, frozen=True):
    """The limits in a namespace's policies; rates are by cluster. Null and absent mean not set."""

    publish: dict[str, PublishRate] | None = named(default=None, name="publishMaxMessageRate")
    dispatch: dict[str, DispatchRate] | None = named(default=None, name="topicDispatchRate")
    dispatch_of_old: dict[str, DispatchRate] | None = named(default=None, name="clusterDispatchRate")
    """The rates of `clusterDispatchRate`, where Pulsar looks if `topicDispatchRate` has none."""
    subscription_dispatch: dict[str, DispatchRate] | None = named(default=None, name="subscriptionDispatchRate")
    replicator_dispatch: dict[str, DispatchRate] | None = named(default=None, name="replicatorDispatchRate")
    subscribe: dict[str, SubscribeRate] | None = named(default=None, name="clusterSubscribeRate")
    resource_group: str | None = named(default=None, name="resource_group_name")
    max_producers_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_topics_per_namespace: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    max_unacked_messages_per_subscription: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class OfTopic:
    """The target of a topic's rate: `publish`, `dispatch`, `subscribe`, `subscription_dispatch`, or a subscription."""

    kind: str
    subscription: str = ""


@dataclass(slots=True)
class TopicPolicies:
    """Policies of one topic: those of this cluster hold, and where there is none those for all clusters."""

    local: dict[OfTopic, PublishRate | DispatchRate | SubscribeRate] = field(default_factory=dict)
    everywhere: dict[OfTopic, PublishRate | DispatchRate | SubscribeRate] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerState:
    """The answers of a broker's admin REST.

    Args:
        running: Each key of the broker's configuration with the value it runs with.
        dynamic: The keys that were set at run time.
    """

    running: dict[str, str]
    dynamic: dict[str, str]
    groups: dict[str, ResourceGroup] = field(default_factory=dict)
    namespaces: dict[str, NamespacePolicies] = field(default_factory=dict)
    topics: dict[str, TopicPolicies] = field(default_factory=dict)
    """Topics that have policies of their own."""
    has_topic_policies: bool = True
    strange: list[str] = field(default_factory=list)
    """Names of namespaces and topics that are not `tenant/namespace` or `domain://tenant/namespace/topic`."""
    unseen: set[str] = field(default_factory=set)
    """Topics, of partitioned ones the whole, whose names cannot be printed: they are not asked for."""
    unlisted: list[str] = field(default_factory=list)
    """Topics whose subscriptions the broker could not list."""

    @property
    def cluster(self) -> str:
        """The name of the broker's own cluster; the rates of others are not in force here."""
        return self.running.get("clusterName", "")


GONE = frozenset({404})
"""Deleted since it was listed."""
_NO_POLICIES = frozenset({404, 405, 412})
"""Gone; topic policies are disabled; a name that looks like a partition's, which can have none."""
_DISABLED = 405
_NO_LEDGER = frozenset({404, 500})
"""Statuses of 4.0 for a partitioned topic of which a partition was never made."""
_OF_TOPIC = (
    ("publishRate", OfTopic("publish")),
    ("dispatchRate", OfTopic("dispatch")),
    ("subscriptionDispatchRate", OfTopic("subscription_dispatch")),
    ("subscribeRate", OfTopic("subscribe")),
)
_OWN_SUBSCRIPTIONS = ("pulsar.repl.", "pulsar.dedup", "__compaction")
_EXEMPT = "pulsar/system"
_DOMAINS = ("persistent", "non-persistent")

T = TypeVar("T")
OnProgress = Callable[[str, int, int], None]
"""Called with the kind of object, the number of objects read, and their total number."""


class _Ledger(Struct):
    cursors: dict[str, object] = {}


class _InternalInfo(Struct):
    cursors: dict[str, object] = {}
    partitions: dict[str, _Ledger] = {}


async def walk(admin: BrokerAdminClient, progress: OnProgress) -> BrokerState:
    """Ask a broker for everything.

    Raises:
        ImportFailed: If it refuses something, or does not answer.
    """
    running = await _required(admin, "brokers/configuration/runtime", dict[str, str | None]) or {}
    dynamic = await _required(admin, "brokers/configuration/values", dict[str, str]) or {}
    walker = _Walk(admin, BrokerState({key: value or "" for key, value in running.items()}, dynamic))
    await each(await _required(admin, "resourcegroups", list[str]) or [], walker.group, progress, "resource groups")
    namespaces: list[str] = []
    for tenant in await _required(admin, "tenants", list[str]) or []:
        listed = await admin.get(path_of("namespaces", tenant), list[str], GONE)
        namespaces += [] if isinstance(listed, RefusedAnswer) else listed or []
    await each([name for name in sorted(namespaces) if name != _EXEMPT], walker.namespace, progress, "namespaces")
    await each(sorted(walker.topics), walker.topic, progress, "topics")
    return walker.state


async def _required(admin: BrokerAdminClient, path: str, kind: type[T]) -> T | None:
    answer = await admin.get(path, kind)
    assert not isinstance(answer, RefusedAnswer), "no refusal is accepted"
    return answer


async def each(names: Iterable[str], look: Callable[[str], Awaitable[None]], progress: OnProgress, kind: str) -> None:
    """Call `look` for each item, a few at a time; the first failure ends it.

    Args:
        names: Of what there is to look at.
        look: Asks for one of them.
        progress: Told of each that was looked at.
        kind: The word for the items, for `progress`.

    Raises:
        ImportFailed: With all that failed until then.
    """
    names = list(names)
    waiting, done = iter(names), 0

    async def worker() -> None:
        nonlocal done
        for name in waiting:
            await look(name)
            done += 1
            progress(kind, done, len(names))

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(MOST_REQUESTS, len(names))):
                workers.create_task(worker())
    except* ImportFailed as failures:
        failed = failures
    else:
        return
    errors = [error for error in failed.exceptions if isinstance(error, ImportFailed)]
    raise ImportFailed(list(dict.fromkeys(problem for error in errors for problem in error.problems))) from None


class _Walk:
    def __init__(self, admin: BrokerAdminClient, state: BrokerState) -> None:
        self._admin = admin
        self.state = state
        self.topics: set[str] = set()
        """Full names, of partitioned ones that of the whole."""

    async def group(self, name: str) -> None:
        group = await self._admin.get(path_of("resourcegroups", name), ResourceGroup, GONE)
        if isinstance(group, ResourceGroup):
            self.state.groups[name] = group

    async def namespace(self, name: str) -> None:
        if name.count("/") != 1:
            self.state.strange.append(name)
            return
        policies = await self._admin.get(path_of("namespaces", *name.split("/")), NamespacePolicies, GONE)
        if not isinstance(policies, NamespacePolicies):
            return
        self.state.namespaces[name] = policies
        for domain in _DOMAINS:
            for partitioned in ((), ("partitioned",)):
                path = path_of(domain, *name.split("/"), *partitioned)
                listed = await self._admin.get(path, list[str], GONE)
                self._add([] if isinstance(listed, RefusedAnswer) else listed or [])

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                topic = parse_topic(name)
            except ValueError:
                self.state.strange.append(name)
                continue
            if (
                not topic.local.isprintable()
            ):  # nor can a limit be written for it, nor does every broker let it be asked
                self.state.unseen.add(topic.partitioned)
            elif not topic.is_system:
                self.topics.add(topic.partitioned)

    async def topic(self, name: str) -> None:
        if not self.state.has_topic_policies:
            return
        topic = parse_topic(name)
        policies = TopicPolicies()
        for is_global, rates in ((False, policies.local), (True, policies.everywhere)):
            for path, of in _OF_TOPIC:
                rate = await self._ask(topic, (path,), _form(of), is_global=is_global)
                if isinstance(rate, RefusedAnswer):
                    self.state.has_topic_policies &= rate.status != _DISABLED
                    return
                if rate is not None:
                    rates[of] = rate
        await self._of_subscriptions(topic, policies)
        if policies != TopicPolicies():
            self.state.topics[name] = policies

    async def _of_subscriptions(self, topic: TopicName, policies: TopicPolicies) -> None:
        for subscription in await self._subscriptions(topic):
            for is_global, rates in ((False, policies.local), (True, policies.everywhere)):
                rate = await self._ask(topic, (subscription, "dispatchRate"), DispatchRate, is_global=is_global)
                if isinstance(rate, DispatchRate):
                    rates[OfTopic("subscription_dispatch", subscription)] = rate

    async def _ask(
        self, topic: TopicName, parts: tuple[str, ...], kind: type[T], *, is_global: bool
    ) -> T | RefusedAnswer | None:
        path = path_of(topic.domain, topic.tenant, topic.namespace, topic.local, *parts)
        # Written out also where it is the default, so that no broker is asked for what is in force instead.
        return await self._admin.get(f"{path}?applied=false&isGlobal={str(is_global).lower()}", kind, _NO_POLICIES)

    async def _subscriptions(self, topic: TopicName) -> list[str]:
        path = path_of(topic.domain, topic.tenant, topic.namespace, topic.local)
        if topic.domain != "persistent":
            listed = await self._admin.get(f"{path}/subscriptions", list[str], GONE)
            return sorted(listed) if isinstance(listed, list) else []
        info = await self._admin.get(f"{path}/internal-info", _InternalInfo, _NO_LEDGER)
        if not isinstance(info, _InternalInfo):
            self.state.unlisted.append(topic.full)
            return []
        cursors = set(info.cursors).union(*(ledger.cursors for ledger in info.partitions.values()))
        return sorted(unquote_plus(name) for name in cursors if not name.startswith(_OWN_SUBSCRIPTIONS))


def _form(of: OfTopic) -> type[PublishRate | DispatchRate | SubscribeRate]:
    if of.kind == "subscribe":
        return SubscribeRate
    return PublishRate if of.kind == "publish" else DispatchRate


_REMOVE = {
    "publish": "remove-publish-rate",
    "dispatch": "remove-dispatch-rate",
    "subscription_dispatch": "remove-subscription-dispatch-rate",
    "subscribe": "remove-subscribe-rate",
}


def broker_off(findings: ImportResult) -> None:
    """Add what ends the broker's own limits that were taken; to 0, as a removed key would let its file's value hold."""
    paths = {taken.path for taken in findings.taken}
    keys = [key for key, number in NUMBERS.items() if number.path in paths and number.path[0] == "limits"]
    keys += [SUBSCRIBE_RATE] if SUBSCRIBE_PATH in paths else []
    findings.switch_off += [
        _command("brokers", "update-dynamic-config", "--config", key, "--value", "0") for key in keys
    ]
    if NUMBERS[PER_ADDRESS].path in paths:
        findings.by_hand.append(
            f"{PER_ADDRESS}=0 in the broker's file, and a restart: behind a proxy the broker takes all clients for one "
            "address"
        )


def namespace_off(namespace: str, setting: str) -> str:
    """Write the command that ends a namespace's `publish`, `dispatch`, `subscription_dispatch` or `subscribe` rate."""
    return _command("namespaces", _REMOVE[setting], namespace)


def group_off(namespace: str) -> str:
    """Write the command that takes a namespace out of its resource group."""
    return _command("namespaces", "remove-resource-group", namespace)


def topic_off(topic: str, of: OfTopic, *, is_global: bool) -> str:
    """Write the command that ends a rate of a topic or of one of its subscriptions, for this cluster or for all."""
    options = ["--global"] if is_global else []
    options += ["--subscription", of.subscription] if of.subscription else []
    return _command("topicPolicies", _REMOVE[of.kind], *options, topic)


def _command(*words: str) -> str:
    return shlex.join(["pulsar-admin", *words])


PulsarRate = PublishRate | DispatchRate | SubscribeRate


def take_rate(rate: PulsarRate | None, path: tuple[str, ...], origin: str, findings: ImportResult) -> bool:
    """Add the values of a rate.

    Args:
        rate: None: nothing is set.
        path: The keys of the configuration that it becomes: a section, or for subscribe rates a value.
        origin: The place where it was set, for people.
        findings: Gets the values.

    Returns:
        Whether the rate limits anything: numbers of 0 and below are no limits, as with Pulsar.
    """
    taken = list(_taken(rate, path, origin)) if rate is not None else []
    findings.taken += taken
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
        rate_text = f"subscribeThrottlingRatePerConsumer {count}, ratePeriodInSecond {period}"
        yield TakenValue(path, f"{count}/{period}s", f"{origin}: {rate_text}")


def _both(of: str, numbers: tuple[int, int], period: int, path: tuple[str, ...], origin: str) -> Iterator[TakenValue]:
    names = (f"{of}ThrottlingRateInMsg", f"{of}ThrottlingRateInByte")
    return _numbers(path, dict(zip(names, numbers, strict=True)), period, origin)


def take_group(group: ResourceGroup, path: tuple[str, ...], findings: ImportResult) -> tuple[bool, bool]:
    """Add the values of a resource group; return whether it limits publishing, and whether it limits dispatch."""
    publish = {"publishRateInMsgs": group.publishRateInMsgs, "publishRateInBytes": group.publishRateInBytes}
    dispatch = {"dispatchRateInMsgs": group.dispatchRateInMsgs, "dispatchRateInBytes": group.dispatchRateInBytes}
    both = [
        list(_numbers((*path, section), {name: number or 0 for name, number in numbers.items()}, 1, "group"))
        for section, numbers in (("publish", publish), ("dispatch", dispatch))
    ]
    findings.taken += [*both[0], *both[1]]
    return bool(both[0]), bool(both[1])


def _numbers(path: tuple[str, ...], numbers: dict[str, int], period_s: int, origin: str) -> Iterator[TakenValue]:
    """Yield messages, then bytes, each if it limits."""
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


def take_state(state: BrokerState, findings: ImportResult) -> None:
    """Add the limits of namespaces, resource groups, topics and subscriptions, and those that have no place here."""
    for name, policies in sorted(state.namespaces.items()):
        _take_namespace(name, policies, state.cluster, findings)
    _take_groups(state, findings)
    for topic, own in sorted(state.topics.items()):
        _take_topic(topic, own, findings)
    for name in sorted(state.strange):
        findings.left.append(LeftOut(one_line(name), "a name in a form of Pulsar's that Sluice does not know"))
    for topic in sorted(state.unlisted):
        findings.notes.append(
            f"{one_line(topic)}: the broker cannot list its subscriptions: if any has a dispatch rate of its own, "
            "it is missing here"
        )
    for topic in sorted(state.unseen):
        findings.notes.append(
            f"{one_line(topic)}: has characters that cannot be seen, and was not asked for: "
            "a limit of its own is missing here; its namespace's holds"
        )
    if not state.has_topic_policies:
        findings.notes.append("topic policies are disabled at the broker (405): no topic has a limit of its own there")


def _take_namespace(name: str, policies: NamespacePolicies, cluster: str, findings: ImportResult) -> None:
    rates: dict[str, PulsarRate | None] = {
        "publish": (policies.publish or {}).get(cluster),
        "dispatch": (policies.dispatch or {}).get(cluster) or (policies.dispatch_of_old or {}).get(cluster),
        "subscription_dispatch": (policies.subscription_dispatch or {}).get(cluster),
        "subscribe": (policies.subscribe or {}).get(cluster),
    }
    for kind, rate in rates.items():
        if rate is not None and rate.limit() and not _is_of(_NAMESPACE, name):
            findings.left.append(LeftOut(f"namespace {one_line(name)}: {kind}", _NAMELESS))
        elif take_rate(rate, ("limits", "namespaces", name, kind), "namespace", findings):
            findings.switch_off.append(namespace_off(name, kind))
    findings.left += [LeftOut(f"namespace {name}: {limit}", why) for limit, why in _without_place(policies, cluster)]


def _without_place(policies: NamespacePolicies, cluster: str) -> Iterator[tuple[str, str]]:
    replicator = (policies.replicator_dispatch or {}).get(cluster)
    if replicator and replicator.limit():
        yield "replicatorDispatchRate", _REPLICATION
    for key, why in _BOUNDS.items():
        value = getattr(policies, key)
        if value is not None:
            yield f"{key} {value}", why


def _take_groups(state: BrokerState, findings: ImportResult) -> None:
    attached: dict[str, list[str]] = {}
    for name, policies in sorted(state.namespaces.items()):
        if policies.resource_group and not _is_of(_NAMESPACE, name):
            findings.left.append(LeftOut(f"namespace {one_line(name)}: resource group", _NAMELESS))
        elif policies.resource_group:
            attached.setdefault(policies.resource_group, []).append(name)
    for group, namespaces in sorted(attached.items()):
        if group not in state.groups:
            subject = f"resource group {one_line(group)} of {', '.join(namespaces)}"
            findings.left.append(LeftOut(subject, "the broker knows no such group"))
    for group in sorted(state.groups):
        _take_group(group, state, attached.get(group, []), findings)


def _take_group(name: str, state: BrokerState, namespaces: list[str], findings: ImportResult) -> None:
    path = ("limits", "resource_groups", name)
    if not _is_name(name):
        findings.left.append(LeftOut(f"resource group {one_line(name)}", _NAMELESS))
        return
    publish, dispatch = take_group(state.groups[name], path, findings)
    if not publish and not dispatch:
        findings.left.append(LeftOut(f"resource group {name}", "it limits nothing"))
        return
    if namespaces:
        findings.taken.append(TakenValue((*path, "namespaces"), tuple(namespaces), "resource_group_name of each"))
    findings.switch_off += [group_off(namespace) for namespace in namespaces]
    if dispatch:
        findings.notes.append(f"resource group {name}: Pulsar does not enforce its dispatch rates, Sluice does")


def _take_topic(topic: str, policies: TopicPolicies, findings: ImportResult) -> None:
    if not _is_of(_TOPIC, topic):
        findings.left.append(LeftOut(one_line(topic), _NAMELESS))
        return
    for of in sorted({*policies.local, *policies.everywhere}):
        if of.subscription and not _is_name(of.subscription):
            findings.left.append(
                LeftOut(f"{one_line(topic)}: dispatchRate of subscription {one_line(of.subscription)}", _NAMELESS)
            )
        else:
            _take_narrowest(topic, of, policies, findings)


def _take_narrowest(topic: str, of: OfTopic, policies: TopicPolicies, findings: ImportResult) -> None:
    """Take this cluster's value, else the one for all clusters; both must be removed to end the limit."""
    section = ("subscriptions", of.subscription, "dispatch") if of.subscription else (of.kind,)
    path = ("limits", "topics", topic, *section)
    is_taken = False
    for rate, is_global in ((policies.local.get(of), False), (policies.everywhere.get(of), True)):
        if rate is None or not rate.limit():
            continue
        is_taken = is_taken or take_rate(rate, path, "global topic policy" if is_global else "topic policy", findings)
        findings.switch_off.append(topic_off(topic, of, is_global=is_global))


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


def from_broker(text: str, token_file: Path | None, *, is_silent: bool = False) -> ImportResult:
    """Ask the broker at a URL for its limits; draw the progress on a terminal, unless `is_silent`.

    Raises:
        ImportFailed: If the broker refuses a request, does not answer, or has invalid values.
    """
    url, token = read_url(text), token_in(token_file)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=is_silent or not console.is_terminal) as bar:
        return found_in(asyncio.run(_ask(url, token, bar)))


def found_in(state: BrokerState) -> ImportResult:
    """Return the import of a broker's answers.

    Of its configuration, only values that differ from Pulsar's defaults count, as the others were not set.

    Raises:
        ImportFailed: If values are invalid.
    """
    running = {key: value for key, value in state.running.items() if key not in state.dynamic}
    unsure = [key for key in running if key in DEFAULTS and DEFAULTS[key] is None]
    entries = [
        BrokerKey(key, value, _RUNNING) for key, value in running.items() if DEFAULTS.get(key, "") not in {value, None}
    ]
    entries += [BrokerKey(key, value, "dynamic configuration") for key, value in state.dynamic.items()]
    findings = take_keys(entries)
    findings.left += [LeftOut(BrokerKey(key, running[key], _RUNNING).shown_with_place, _UNSURE) for key in unsure]
    broker_off(findings)
    take_state(state, findings)
    return findings


async def _ask(url: URL, token: str, bar: Progress) -> BrokerState:
    tasks = {}

    def progress(kind: str, done: int, all_: int) -> None:
        if kind not in tasks:
            tasks[kind] = bar.add_task(kind, total=all_)
        bar.update(tasks[kind], completed=done)

    async with connected(url, token) as admin:
        return await walk(admin, progress)
