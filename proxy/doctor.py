"""The producers and consumers that a proxy believes in, held against those that its broker has.

Both are asked, and asked again where they differ: between two questions things go on.

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
        number: A producer's id on its connection; None where it is not said.
    """

    direction: Direction
    topic: str
    subscription: str
    name: str
    connection: str
    number: int | None = None

    def __str__(self) -> str:
        what = f"producer {shown(self.name)!r}" if self.direction == "publish" else f"consumer {shown(self.name)!r}"
        of = f" of subscription {shown(self.subscription)!r}" if self.direction == "dispatch" else ""
        number = "" if self.number is None else f", id {self.number}"
        return f"{what}{of} on {shown(self.topic)} (connection {self.connection}{number})"


_Key = tuple[Direction, str, str, str]
"""Direction, topic, subscription and name: a broker has each producer's once, and may have a consumer's often."""


def differences(at_broker: Iterable[SeenStream], here: Iterable[SeenStream]) -> list[str]:
    """List what only one side has, and what both have differently; a line each, sorted.

    Connections have different names on the two sides. So two are the same where one name on the one side stands for one
    on the other in everything that both have.
    """
    theirs, ours = _by_key(at_broker), _by_key(here)
    pairs: list[tuple[SeenStream, SeenStream]] = []
    found: list[str] = []
    for key in theirs.keys() | ours.keys():
        there, own = theirs[key], ours[key]
        pairs += zip(there, own, strict=False) if len(there) == len(own) == 1 else ()
        extra = len(there) - len(own)
        if extra:
            found += _only("only the broker has", there, extra) if extra > 0 else _only("only Sluice has", own, -extra)
    found += [
        f"another id: the broker has {there}, Sluice {own}"
        for there, own in pairs
        if there.number is not None and own.number is not None and there.number != own.number
    ]
    return sorted([*found, *_connections(pairs)])


def alike(seen: Iterable[SeenStream]) -> int:
    """Count those that share direction, topic, subscription and name with another: only their number is compared."""
    return sum(len(of) for of in _by_key(seen).values() if len(of) > 1)


def _by_key(seen: Iterable[SeenStream]) -> defaultdict[_Key, list[SeenStream]]:
    by_key: defaultdict[_Key, list[SeenStream]] = defaultdict(list)
    for one in seen:
        by_key[one.direction, one.topic, one.subscription, one.name].append(one)
    return by_key


def _only(where: str, seen: list[SeenStream], extra: int) -> list[str]:
    """Return lines for `extra` of the streams that were seen, which nothing else tells apart."""
    if extra == len(seen):
        return [f"{where} {one}" for one in seen]
    return [f"{where} {extra} more of {seen[0]}"]


def _connections(pairs: list[tuple[SeenStream, SeenStream]]) -> Iterator[str]:
    """Connections of one side that are several of the other's."""
    for where, others, at in (("the broker", "Sluice", 0), ("Sluice", "the broker", 1)):
        first: dict[str, tuple[SeenStream, SeenStream]] = {}
        for pair in pairs:
            known = first.setdefault(pair[at].connection, pair)
            if known[1 - at].connection != pair[1 - at].connection:
                same = f"{where} has both on connection {pair[at].connection}"
                yield f"another connection: {same}, {others} has {known[1 - at]} and {pair[1 - at]}"


_GONE = frozenset({404})
"""The topic or namespace is not there, so nobody is on it."""
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
    """Ask the broker for the producers and consumers of these topics.

    Args:
        admin: The broker's.
        topics: Full names, of partitioned topics those of the partitions.

    Raises:
        ImportFailed: If it refuses to say, or does not answer.
    """
    found: list[SeenStream] = []
    await admin.get("clusters", list[str])  # or another server's "not found" would pass for a broker's "nobody there"

    async def look(topic: str) -> None:
        found.extend(await _on_topic(admin, topic))

    await each(sorted(topics), look, _untold, "topics")
    return found


async def all_topics(admin: BrokerAdminClient, namespaces: Iterable[str]) -> set[str]:
    """Return the topics that there are in these namespaces, Pulsar's own left out: the brokers themselves are on those.

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
    """Names that are refused here are looked at as all others: a broker may have them, made past the proxy."""
    try:
        return parse_topic(topic).is_system
    except ValueError:
        return False


def _untold(_what: str, _done: int, _all: int) -> None:
    """Do nothing: nobody watches the progress."""


async def _on_topic(admin: BrokerAdminClient, name: str) -> list[SeenStream]:
    domain, _, rest = name.partition("://")
    stats = await admin.get(path_of(domain, *rest.split("/", 2), "stats"), _Stats, _GONE)
    if not isinstance(stats, _Stats):
        return []
    producers = [
        SeenStream("publish", name, "", one.producer_name, one.address.lstrip("/"), one.producer_id)
        for one in stats.publishers
    ]
    consumers = [
        SeenStream("dispatch", name, subscription, one.consumer_name, one.address.lstrip("/"))
        for subscription, of in stats.subscriptions.items()
        for one in of.consumers
    ]
    return [*producers, *consumers]


AGAIN_S = 2.0
"""Seconds from one look to the next: what was under way at the first one is over by then."""
MOST_SHOWN = 10_000
"""Streams in one answer of a proxy."""


class Looked(NamedTuple):
    """The result of a look.

    Args:
        streams: Producers and consumers of the proxy.
        topics: On which the broker was asked who is there.
        alike: Consumers that no name tells apart.
        found: The differences, a line each.
    """

    streams: int
    topics: int
    alike: int
    found: list[str]


class TooManyError(Exception):
    """A proxy has more streams than it shows in one answer."""


async def look(
    admin: BrokerAdminClient, streams: Callable[[], dict[str, Any]], seen_from: str = "", *, everywhere: bool = False
) -> Looked:
    """Compare proxy and broker; a difference counts if it is there at two looks.

    Args:
        admin: The broker's.
        streams: Gives the answer of the proxy's `/sluice/streams`.
        seen_from: The address that the broker sees the proxy's connections come from; only these count. Empty: all do.
        everywhere: Look also at topics of which the proxy knows nothing, in the namespaces of those that it knows.

    Raises:
        ImportFailed: If the broker cannot be asked.
        TooManyError: If the proxy does not show all of its streams.
    """
    first = await _look(admin, streams, seen_from, everywhere=everywhere)
    if not first.found:
        return first
    await asyncio.sleep(AGAIN_S)
    again = await _look(admin, streams, seen_from, everywhere=everywhere)
    return first._replace(found=[one for one in first.found if one in set(again.found)])


async def _look(
    admin: BrokerAdminClient, streams: Callable[[], dict[str, Any]], seen_from: str, *, everywhere: bool
) -> Looked:
    here = seen_here(await asyncio.to_thread(streams))
    topics = {one.topic for one in here}
    if everywhere:
        topics |= await all_topics(admin, sorted({parse_topic(topic).namespace_name for topic in topics}))
    at_broker = await on_topics(admin, topics)
    if seen_from:
        at_broker = [one for one in at_broker if host_in(one.connection) == seen_from]
    return Looked(len(here), len(topics), alike(here), differences(at_broker, here))


def seen_here(answer: dict[str, Any]) -> list[SeenStream]:
    """Return the producers and consumers in the answer of a proxy's `/sluice/streams`.

    Raises:
        TooManyError: If it does not show all.
    """
    if answer["left_out"]:
        raise TooManyError(f"{answer['left_out']} streams are not shown, {MOST_SHOWN} are; --tenant TENANT shows fewer")
    return [
        SeenStream(
            one["direction"],
            one["topic"],
            one["subscription"],
            one["producer_name"] or one["consumer_name"],
            str(one["connection_id"]),
            one["stream_id"] if one["direction"] == "publish" else None,
        )
        for one in answer["streams"]
    ]
