"""The producers and consumers that a broker has, by its admin REST.

Source: `stats` of a topic, https://pulsar.apache.org/docs/admin-api-topics/#get-stats
"""

from collections.abc import Iterable

from msgspec import Struct, field

from protocol.topic_name import parse_topic
from proxy.doctor.differences import Seen
from proxy.importing.admin_client import BrokerAdmin, Refused, path_of
from proxy.importing.admin_walk import each

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


async def on_topics(admin: BrokerAdmin, topics: Iterable[str]) -> list[Seen]:
    """Who is on these topics.

    Args:
        admin: The broker's.
        topics: Full names, of partitioned topics those of the partitions.

    Raises:
        ImportFailed: If it refuses to say, or does not answer.
    """
    found: list[Seen] = []
    await admin.get("clusters", list[str])  # or another server's "not found" would pass for a broker's "nobody there"

    async def look(topic: str) -> None:
        found.extend(await _on_topic(admin, topic))

    await each(sorted(topics), look, _untold, "topics")
    return found


async def all_topics(admin: BrokerAdmin, namespaces: Iterable[str]) -> set[str]:
    """The topics that there are in these namespaces, Pulsar's own left out: the brokers themselves are on those.

    Raises:
        ImportFailed: As `on_topics`.
    """
    topics: set[str] = set()
    for namespace in namespaces:
        for domain in _DOMAINS:
            listed = await admin.get(path_of(domain, *namespace.split("/")), list[str], _GONE)
            topics.update([] if isinstance(listed, Refused) else listed or [])
    return {topic for topic in topics if not parse_topic(topic).is_system}


def _untold(_what: str, _done: int, _all: int) -> None:
    """Nobody watches."""


async def _on_topic(admin: BrokerAdmin, name: str) -> list[Seen]:
    topic = parse_topic(name)
    stats = await admin.get(path_of(topic.domain, topic.tenant, topic.namespace, topic.local, "stats"), _Stats, _GONE)
    if not isinstance(stats, _Stats):
        return []
    producers = [
        Seen("publish", topic.full, "", one.producer_name, one.address.lstrip("/"), one.producer_id)
        for one in stats.publishers
    ]
    consumers = [
        Seen("dispatch", topic.full, subscription, one.consumer_name, one.address.lstrip("/"))
        for subscription, of in stats.subscriptions.items()
        for one in of.consumers
    ]
    return [*producers, *consumers]
