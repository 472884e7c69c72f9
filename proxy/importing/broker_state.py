"""What a running broker says about its limits, found by a walk over its tenants, namespaces, topics and subscriptions.

Asking loads no topic of clients': policies and the names of subscriptions come from metadata (a topic that is not
persistent is asked itself, as it is in memory or nowhere). Only what is set is kept. From it come the commands of
Pulsar's own tool that end the limits at the broker once Sluice has them; none of them is run here.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import unquote_plus

from msgspec import Struct
from msgspec import field as named

from protocol.topic_name import TopicName, parse_topic
from proxy.importing.admin_client import MOST_REQUESTS, BrokerAdminClient, RefusedAnswer, path_of
from proxy.importing.keys import NUMBERS, PER_ADDRESS, SUBSCRIBE_PATH, SUBSCRIBE_RATE
from proxy.importing.result import ImportFailed, ImportResult
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate


class NamespacePolicies(Struct, frozen=True):
    """What a namespace's policies hold about limits; rates are by cluster. Null and absent mean not set."""

    publish: dict[str, PublishRate] | None = named(default=None, name="publishMaxMessageRate")
    dispatch: dict[str, DispatchRate] | None = named(default=None, name="topicDispatchRate")
    dispatch_of_old: dict[str, DispatchRate] | None = named(default=None, name="clusterDispatchRate")
    """Where Pulsar looks if there is none in the other."""
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
    """What of a topic a rate is for: `publish`, `dispatch`, `subscribe`, `subscription_dispatch`, or a subscription."""

    kind: str
    subscription: str = ""


@dataclass(slots=True)
class TopicPolicies:
    """Policies of one topic: those of this cluster hold, and where there is none those for all clusters."""

    local: dict[OfTopic, PublishRate | DispatchRate | SubscribeRate] = field(default_factory=dict)
    everywhere: dict[OfTopic, PublishRate | DispatchRate | SubscribeRate] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerState:
    """Everything that was asked for.

    Args:
        running: Each key of the broker's configuration with the value it runs with.
        dynamic: Those keys that were set at run time.
    """

    running: dict[str, str]
    dynamic: dict[str, str]
    groups: dict[str, ResourceGroup] = field(default_factory=dict)
    namespaces: dict[str, NamespacePolicies] = field(default_factory=dict)
    topics: dict[str, TopicPolicies] = field(default_factory=dict)
    """Only those that have policies of their own."""
    has_topic_policies: bool = True
    strange: list[str] = field(default_factory=list)
    """Names of namespaces and topics that are not `tenant/namespace` or `domain://tenant/namespace/topic`."""
    unseen: set[str] = field(default_factory=set)
    """Topics, of partitioned ones the whole, whose names cannot be printed: they are not asked for."""
    unlisted: list[str] = field(default_factory=list)
    """Topics whose subscriptions the broker could not list."""

    @property
    def cluster(self) -> str:
        """The broker's own; the rates of others are not in force here."""
        return self.running.get("clusterName", "")


GONE = frozenset({404})
"""Deleted since it was listed."""
_NO_POLICIES = frozenset({404, 405, 412})
"""Gone; topic policies are disabled; a name that looks like a partition's, which can have none."""
_DISABLED = 405
_NO_LEDGER = frozenset({404, 500})
"""What 4.0 says of a partitioned topic of which a partition was never made."""
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
Progress = Callable[[str, int, int], None]
"""Called with what is looked at, how many of them were, and how many there are."""


class _Ledger(Struct):
    cursors: dict[str, object] = {}


class _InternalInfo(Struct):
    cursors: dict[str, object] = {}
    partitions: dict[str, _Ledger] = {}


async def walk(admin: BrokerAdminClient, progress: Progress) -> BrokerState:
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
        found = await admin.get(path_of("namespaces", tenant), list[str], GONE)
        namespaces += [] if isinstance(found, RefusedAnswer) else found or []
    await each([name for name in sorted(namespaces) if name != _EXEMPT], walker.namespace, progress, "namespaces")
    await each(sorted(walker.topics), walker.topic, progress, "topics")
    return walker.state


async def _required(admin: BrokerAdminClient, path: str, kind: type[T]) -> T | None:
    found = await admin.get(path, kind)
    assert not isinstance(found, RefusedAnswer), "no refusal is accepted"
    return found


async def each(names: Iterable[str], look: Callable[[str], Awaitable[None]], progress: Progress, what: str) -> None:
    """Look at each, a few at a time; the first failure ends it.

    Args:
        names: Of what there is to look at.
        look: Asks for one of them.
        progress: Told of each that was looked at.
        what: What they are, for `progress`.

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
            progress(what, done, len(names))

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(MOST_REQUESTS, len(names))):
                workers.create_task(worker())
    except* ImportFailed as failures:
        failed = failures
    else:
        return
    raise ImportFailed(list(dict.fromkeys(problem for one in _flat(failed) for problem in one.problems))) from None


def _flat(group: BaseExceptionGroup[ImportFailed]) -> list[ImportFailed]:
    return [error for error in group.exceptions if isinstance(error, ImportFailed)]


class _Walk:
    def __init__(self, admin: BrokerAdminClient, state: BrokerState) -> None:
        self._admin = admin
        self.state = state
        self.topics: set[str] = set()
        """Full names, of partitioned ones that of the whole."""

    async def group(self, name: str) -> None:
        found = await self._admin.get(path_of("resourcegroups", name), ResourceGroup, GONE)
        if isinstance(found, ResourceGroup):
            self.state.groups[name] = found

    async def namespace(self, name: str) -> None:
        if name.count("/") != 1:
            self.state.strange.append(name)
            return
        found = await self._admin.get(path_of("namespaces", *name.split("/")), NamespacePolicies, GONE)
        if not isinstance(found, NamespacePolicies):
            return
        self.state.namespaces[name] = found
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
        found = TopicPolicies()
        for is_global, rates in ((False, found.local), (True, found.everywhere)):
            for path, of in _OF_TOPIC:
                rate = await self._ask(topic, (path,), _form(of), is_global=is_global)
                if isinstance(rate, RefusedAnswer):
                    self.state.has_topic_policies &= rate.status != _DISABLED
                    return
                if rate is not None:
                    rates[of] = rate
        await self._of_subscriptions(topic, found)
        if found != TopicPolicies():
            self.state.topics[name] = found

    async def _of_subscriptions(self, topic: TopicName, found: TopicPolicies) -> None:
        for subscription in await self._subscriptions(topic):
            for is_global, rates in ((False, found.local), (True, found.everywhere)):
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


def broker_off(found: ImportResult) -> None:
    """Add what ends the broker's own limits that were taken; to 0, as a removed key would let its file's value hold."""
    paths = {taken.path for taken in found.taken}
    keys = [key for key, number in NUMBERS.items() if number.path in paths and number.path[0] == "limits"]
    keys += [SUBSCRIBE_RATE] if SUBSCRIBE_PATH in paths else []
    found.switch_off += [_command("brokers", "update-dynamic-config", "--config", key, "--value", "0") for key in keys]
    if NUMBERS[PER_ADDRESS].path in paths:
        found.by_hand.append(
            f"{PER_ADDRESS}=0 in the broker's file, and a restart: behind a proxy the broker takes all clients for one "
            "address"
        )


def namespace_off(namespace: str, setting: str) -> str:
    """What ends a rate of a namespace: `publish`, `dispatch`, `subscription_dispatch` or `subscribe`."""
    return _command("namespaces", _REMOVE[setting], namespace)


def group_off(namespace: str) -> str:
    """What takes a namespace out of its resource group."""
    return _command("namespaces", "remove-resource-group", namespace)


def topic_off(topic: str, of: OfTopic, *, is_global: bool) -> str:
    """What ends a rate of a topic, or of one of its subscriptions, for this cluster or for all."""
    options = ["--global"] if is_global else []
    options += ["--subscription", of.subscription] if of.subscription else []
    return _command("topicPolicies", _REMOVE[of.kind], *options, topic)


def _command(*words: str) -> str:
    return shlex.join(["pulsar-admin", *words])
