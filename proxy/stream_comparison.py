"""Compares the producers and consumers that a proxy has with those that its broker has.

Both are asked, and asked again where they differ: streams open and close between two questions.

Source: `stats` of a topic, https://pulsar.apache.org/docs/admin-api-topics/#get-stats
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import Struct, field

from limiter.token_bucket import Direction
from protocol.endpoint import host_in
from protocol.topic_name import parse_topic
from proxy.importing.admin_client import BrokerAdminClient, RefusedAnswer, path_of
from proxy.importing.from_admin import each
from proxy.importing.keys import shown


@dataclass(frozen=True, slots=True)
class SeenStream:
    """A producer or consumer, as the broker or Sluice has it.

    Args:
        direction: `publish` for a producer, `dispatch` for a consumer.
        topic: Full name.
        subscription: Empty for a producer.
        name: Of the producer or consumer.
        connection: The broker's name for it (an address) or Sluice's (a number).
        number: A producer's id on its connection; None where it is not known.
    """

    direction: Direction
    topic: str
    subscription: str
    name: str
    connection: str
    number: int | None = None

    def __str__(self) -> str:
        kind = "producer" if self.direction == "publish" else "consumer"
        of = f" of subscription {shown(self.subscription)!r}" if self.direction == "dispatch" else ""
        number = "" if self.number is None else f", id {self.number}"
        return f"{kind} {shown(self.name)!r}{of} on {shown(self.topic)} (connection {self.connection}{number})"


_Key = tuple[Direction, str, str, str]
"""Direction, topic, subscription and name: a broker has each producer's once, and may have a consumer's often."""


def differences(at_broker: Iterable[SeenStream], here: Iterable[SeenStream]) -> list[str]:
    """List the streams that only one side has, and those that differ; a line each, sorted.

    Connections have different names on the two sides. Two names mean the same connection if all streams that both sides
    have pair these two names.
    """
    theirs, ours = _by_key(at_broker), _by_key(here)
    pairs: list[tuple[SeenStream, SeenStream]] = []
    lines: list[str] = []
    for key in theirs.keys() | ours.keys():
        there, own = theirs[key], ours[key]
        pairs += zip(there, own, strict=False) if len(there) == len(own) == 1 else ()
        extra = len(there) - len(own)
        if extra:
            lines += _only("only the broker has", there, extra) if extra > 0 else _only("only Sluice has", own, -extra)
    lines += [
        f"another id: the broker has {there}, Sluice {own}"
        for there, own in pairs
        if there.number is not None and own.number is not None and there.number != own.number
    ]
    return sorted([*lines, *_connections(pairs)])


def alike(seen: Iterable[SeenStream]) -> int:
    """Count streams that share direction, topic, subscription and name with another: only their number is compared."""
    return sum(len(streams) for streams in _by_key(seen).values() if len(streams) > 1)


def _by_key(seen: Iterable[SeenStream]) -> defaultdict[_Key, list[SeenStream]]:
    by_key: defaultdict[_Key, list[SeenStream]] = defaultdict(list)
    for stream in seen:
        by_key[stream.direction, stream.topic, stream.subscription, stream.name].append(stream)
    return by_key


def _only(where: str, seen: list[SeenStream], extra: int) -> list[str]:
    """Return lines for `extra` of the streams with one key, which only their number distinguishes."""
    if extra == len(seen):
        return [f"{where} {stream}" for stream in seen]
    return [f"{where} {extra} more of {seen[0]}"]


def _connections(pairs: list[tuple[SeenStream, SeenStream]]) -> Iterator[str]:
    """Yield a line for each connection of one side that is several connections of the other side."""
    for where, others, at in (("the broker", "Sluice", 0), ("Sluice", "the broker", 1)):
        first: dict[str, tuple[SeenStream, SeenStream]] = {}
        for pair in pairs:
            known = first.setdefault(pair[at].connection, pair)
            if known[1 - at].connection != pair[1 - at].connection:
                same = f"{where} has both on connection {pair[at].connection}"
                yield f"another connection: {same}, {others} has {known[1 - at]} and {pair[1 - at]}"


_GONE = frozenset({404})
"""The topic or namespace does not exist, so it has no producers and consumers."""
_DOMAINS = ("persistent", "non-persistent")


class _Publisher(Struct):
    producer_name: str = field(name="producerName", default="")
    producer_id: int = field(name="producerId", default=-1)
    address: str = ""


class _Consumer(Struct):
    consumer_name: str = field(name="consumerName", default="")
    address: str = ""


class _Subscription(Struct):
    consumers: list[_Consumer] = []


class _Stats(Struct):
    publishers: list[_Publisher] = []
    subscriptions: dict[str, _Subscription] = {}


async def on_topics(admin: BrokerAdminClient, topics: Iterable[str]) -> list[SeenStream]:
    """Ask the broker for the producers and consumers of some topics.

    Args:
        admin: The broker's.
        topics: Full names, of partitioned topics those of the partitions.

    Raises:
        ImportFailed: If it refuses, or does not answer.
    """
    streams: list[SeenStream] = []
    await admin.get("clusters", list[str])  # fails where the address is no broker's, whose 404 would mean "no streams"

    async def look(topic: str) -> None:
        streams.extend(await _on_topic(admin, topic))

    await each(sorted(topics), look, _show_no_progress, "topics")
    return streams


async def all_topics(admin: BrokerAdminClient, namespaces: Iterable[str]) -> set[str]:
    """Return the topics of some namespaces without Pulsar's own, on which the brokers themselves are.

    Raises:
        ImportFailed: As `on_topics`.
    """
    topics: set[str] = set()
    for namespace in namespaces:
        for domain in _DOMAINS:
            listed = await admin.get(path_of(domain, *namespace.split("/")), list[str], _GONE)
            topics.update([] if isinstance(listed, RefusedAnswer) else listed or [])
    return {topic for topic in topics if not _is_system(topic)}


def _is_system(topic: str) -> bool:
    """Return whether a topic is Pulsar's own; a name that Sluice refuses is not: a broker may still have it."""
    try:
        return parse_topic(topic).is_system
    except ValueError:
        return False


def _show_no_progress(_unit: str, _done: int, _all: int) -> None:
    """Do nothing: the command shows no progress."""


async def _on_topic(admin: BrokerAdminClient, name: str) -> list[SeenStream]:
    domain, _, rest = name.partition("://")
    stats = await admin.get(path_of(domain, *rest.split("/", 2), "stats"), _Stats, _GONE)
    if not isinstance(stats, _Stats):
        return []
    producers = [
        SeenStream("publish", name, "", producer.producer_name, producer.address.lstrip("/"), producer.producer_id)
        for producer in stats.publishers
    ]
    consumers = [
        SeenStream("dispatch", name, subscription, consumer.consumer_name, consumer.address.lstrip("/"))
        for subscription, of in stats.subscriptions.items()
        for consumer in of.consumers
    ]
    return [*producers, *consumers]


AGAIN_S = 2.0
"""Seconds from one look to the next: streams that were opening or closing have done so by then."""
MOST_SHOWN = 10_000
"""Streams in one answer of a proxy."""


class Looked(NamedTuple):
    """The result of a look.

    Args:
        streams: Producers and consumers of the proxy.
        topics: Topics that the broker was asked about.
        alike: Consumers with the same names.
        differences: The differences, a line each.
    """

    streams: int
    topics: int
    alike: int
    differences: list[str]


class TooManyError(Exception):
    """A proxy has more streams than it shows in one answer."""


async def look(
    admin: BrokerAdminClient, streams: Callable[[], dict[str, Any]], seen_from: str = "", *, everywhere: bool = False
) -> Looked:
    """Compare proxy and broker; a difference counts if it is there at two looks.

    Args:
        admin: The broker's.
        streams: Returns the answer of the proxy's `/sluice/streams`.
        seen_from: The address that the broker sees the proxy's connections come from; only these count. Empty: all do.
        everywhere: Look also at topics without streams here, in the namespaces of the proxy's topics.

    Raises:
        ImportFailed: If the broker cannot be asked.
        TooManyError: If the proxy does not show all of its streams.
    """
    first = await _look(admin, streams, seen_from, everywhere=everywhere)
    if not first.differences:
        return first
    await asyncio.sleep(AGAIN_S)
    again = await _look(admin, streams, seen_from, everywhere=everywhere)
    lasting = set(again.differences)
    return first._replace(differences=[line for line in first.differences if line in lasting])


async def _look(
    admin: BrokerAdminClient, streams: Callable[[], dict[str, Any]], seen_from: str, *, everywhere: bool
) -> Looked:
    here = seen_here(await asyncio.to_thread(streams))
    topics = {stream.topic for stream in here}
    if everywhere:
        topics |= await all_topics(admin, sorted({parse_topic(topic).namespace_name for topic in topics}))
    at_broker = await on_topics(admin, topics)
    if seen_from:
        at_broker = [stream for stream in at_broker if host_in(stream.connection) == seen_from]
    return Looked(len(here), len(topics), alike(here), differences(at_broker, here))


def seen_here(answer: dict[str, Any]) -> list[SeenStream]:
    """Return the producers and consumers in the answer of a proxy's `/sluice/streams`.

    Raises:
        TooManyError: If it does not show all.
    """
    if answer["left_out"]:
        shown = len(answer["streams"])
        raise TooManyError(f"{answer['left_out']} streams are not shown, {shown} are; --tenant TENANT shows fewer")
    return [
        SeenStream(
            stream["direction"],
            stream["topic"],
            stream["subscription"],
            stream["producer_name"] or stream["consumer_name"],
            str(stream["connection_id"]),
            stream["stream_id"] if stream["direction"] == "publish" else None,
        )
        for stream in answer["streams"]
    ]
