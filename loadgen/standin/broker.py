"""The broker as a whole: its options, topics, schemas and counts, and the subscriptions that have something to do."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from struct import Struct
from typing import Any

from loadgen.standin.entry_log import EntryLog, StandinRefusal, StoredEntry
from loadgen.standin.subscription import Consumer, Subscription
from protocol.endpoint import EndpointForm
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE
from protocol.pulsar_pb2 import CommandSubscribe, Schema, ServerError
from protocol.topic_name import TopicName, parse_topic

MB = 1024 * 1024
MOST_PARTITIONS = 1000


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of a stand-in broker.

    `partitions` are the partitioned topics by full name. `topic_bytes` is the most that one topic keeps,
    `retention_bytes` how much of it although everybody has acknowledged it. `first_ledger` numbers the
    ledgers and the generated producer names: above those of an earlier run, or clients that outlive a
    restart would mistake new entries for old ones.
    """

    partitions: Mapping[str, int] = field(default_factory=dict)
    topic_bytes: int = 256 * MB
    retention_bytes: int = 0
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    first_ledger: int = 1


LISTEN = EndpointForm(("pulsar", "pulsar+ssl"), "127.0.0.1:6650", is_listened_on=True)
"""How the address is written on which it accepts clients."""


def parse_partitions(texts: Iterable[str]) -> dict[str, int]:
    """`TOPIC=PARTITIONS` pairs as partitions by the topic's full name.

    Raises:
        ValueError: If one of them is none.
    """
    partitions = {}
    for text in texts:
        topic, _, count = text.rpartition("=")
        if not topic or not (count.isascii() and count.isdigit()) or not 1 <= int(count) <= MOST_PARTITIONS:
            raise ValueError(f"{text!r} is not TOPIC=PARTITIONS with 1 to {MOST_PARTITIONS} partitions")
        partitions[parse_topic(topic).full] = int(count)
    return partitions


@dataclass(slots=True)
class TopicCounts:
    """Totals since the broker started; bytes are those behind the command; redeliveries count again."""

    received_entries: int = 0
    received_messages: int = 0
    received_bytes: int = 0
    delivered_entries: int = 0
    delivered_messages: int = 0
    delivered_bytes: int = 0

    def receive(self, messages: int, size: int) -> None:
        """Count one SEND that was kept."""
        self.received_entries += 1
        self.received_messages += messages
        self.received_bytes += size

    def deliver(self, messages: int, size: int) -> None:
        """Count one MESSAGE."""
        self.delivered_entries += 1
        self.delivered_messages += messages
        self.delivered_bytes += size


MOST_VERSIONS = 1000
_VERSION = Struct(">q")


class SchemaRegistry:
    """Versions of each topic's schema; the partitions of a topic have one schema."""

    def __init__(self) -> None:
        self._schemas: dict[str, list[Schema]] = {}

    def register(self, topic: TopicName, schema: Schema) -> bytes:
        """The schema's version, a new one if the topic had no such schema yet.

        Raises:
            Refused: IncompatibleSchema once a topic has MOST_VERSIONS.
        """
        versions = self._schemas.setdefault(topic.partitioned, [])
        if schema in versions:
            return _VERSION.pack(versions.index(schema))
        if len(versions) >= MOST_VERSIONS:
            raise StandinRefusal(
                ServerError.IncompatibleSchema, f"{topic.partitioned} has {MOST_VERSIONS} schemas already"
            )
        versions.append(schema)
        return _VERSION.pack(len(versions) - 1)

    def find(self, topic: TopicName, version: bytes) -> tuple[Schema, bytes]:
        """A topic's schema and its version; without a version, the newest.

        Raises:
            Refused: TopicNotFound if there is none.
        """
        versions = self._schemas.get(topic.partitioned, [])
        index = len(versions) - 1
        if version:
            index = _VERSION.unpack(version)[0] if len(version) == _VERSION.size else -1
        if not 0 <= index < len(versions):
            raise StandinRefusal(ServerError.TopicNotFound, f"{topic.partitioned} has no such schema")
        return versions[index], _VERSION.pack(index)


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer of a topic; `epoch` counts its reconnections where it has a generated name."""

    name: str
    epoch: int
    is_named_by_client: bool


class StandinTopic:
    """A topic of the broker, or one partition of it.

    Args:
        name: Its name.
        log: Its entries, empty.
        wake: Called with each subscription that may have something to dispatch.
    """

    def __init__(self, name: TopicName, log: EntryLog, wake: Callable[[Subscription], None]) -> None:
        self.name = name
        self.log = log
        self.counts = TopicCounts()
        self._wake = wake
        self._producers: dict[str, Producer] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._readers: set[str] = set()

    # ---- Producing

    def add_producer(self, producer: Producer) -> None:
        """Let a producer in.

        Raises:
            Refused: If the topic is full; ProducerBusy if another producer has the name. One that reconnects
                with a generated name takes its own place.
        """
        self.log.check_room()
        former = self._producers.get(producer.name)
        if former is not None:
            replaces = not (former.is_named_by_client or producer.is_named_by_client)
            if not replaces or producer.epoch <= former.epoch:
                raise StandinRefusal(ServerError.ProducerBusy, f"producer {producer.name!r} is connected already")
        self._producers[producer.name] = producer

    def remove_producer(self, producer: Producer) -> None:
        """A producer is gone; one that has taken its place stays."""
        if self._producers.get(producer.name) is producer:
            del self._producers[producer.name]

    def publish(self, messages: int, data: bytes) -> StoredEntry:
        """Keep what one SEND carried.

        Raises:
            Refused: If the topic is full.
        """
        entry = self.log.append(messages, data)
        self.counts.receive(messages, len(data))
        if not self._subscriptions:
            self.trim()
        for subscription in self._subscriptions.values():
            subscription.wake()
        return entry

    # ---- Consuming

    def subscribe(self, request: CommandSubscribe, consumer: Consumer) -> Subscription:
        """Let a consumer join the subscription that it names, which is made if need be.

        Raises:
            Refused: If the subscription does not take it.
        """
        name = request.subscription
        subscription = self._subscriptions.get(name)
        if subscription is None:
            subscription = Subscription(self.log, self._start(request), self.name.partition, self._wake)
            self._subscriptions[name] = subscription
            if not request.durable:
                self._readers.add(name)
        subscription.add(consumer, request.sub_type)
        return subscription

    def _start(self, request: CommandSubscribe) -> int:
        if not request.durable and request.HasField("start_message_id"):
            return self.log.position_of(request.start_message_id)
        is_earliest = request.initial_position == CommandSubscribe.Earliest
        return self.log.first_id if is_earliest else self.log.next_id

    def is_durable(self, name: str) -> bool:
        """Return whether the subscription outlives its consumers; a reader's does not."""
        return name not in self._readers

    def end_reader(self, name: str) -> None:
        """Forget a reader's subscription once nobody reads it; any other stays."""
        subscription = self._subscriptions.get(name)
        if subscription is not None and not subscription.consumers and not self.is_durable(name):
            self.unsubscribe(name)

    def unsubscribe(self, name: str) -> None:
        """Forget a subscription and what was kept for it."""
        self._subscriptions.pop(name, None)
        self._readers.discard(name)
        self.trim()

    def trim(self) -> None:
        """Forget the entries that no subscription needs any more."""
        positions = (subscription.cursor.position for subscription in self._subscriptions.values())
        self.log.trim(min(positions, default=self.log.next_id))


MOST_TOPICS = 100_000


class StandinBroker:
    """The broker: everything that connections share.

    Whoever changes something calls `dispatch` when done with the bytes at hand, once for all changes.
    """

    def __init__(self, options: BrokerOptions) -> None:
        self.options = options
        self.schemas = SchemaRegistry()
        self.ignored_commands: Counter[str] = Counter()
        self._topics: dict[str, StandinTopic] = {}
        self._ledgers = count(options.first_ledger)
        self._producer_numbers = count()
        self._awake: dict[Subscription, None] = {}

    def topic(self, name: str) -> StandinTopic:
        """The topic of that name, made if need be.

        Raises:
            Refused: If the name is no topic's, or there are MOST_TOPICS already.
        """
        known = self._topics.get(name)
        return known if known is not None else self._topic_of(parse_name(name))

    def _topic_of(self, name: TopicName) -> StandinTopic:
        topic = self._topics.get(name.full)
        if topic is None:
            if len(self._topics) >= MOST_TOPICS:
                raise StandinRefusal(ServerError.NotAllowedError, f"the broker has {MOST_TOPICS} topics already")
            log = EntryLog(next(self._ledgers), self.options.topic_bytes, self.options.retention_bytes)
            topic = self._topics[name.full] = StandinTopic(name, log, self._wake)
        return topic

    def partitions(self, name: str) -> int:
        """Return the topic's number of partitions, 0 for one that is not partitioned.

        Raises:
            Refused: If the name is no topic's.
        """
        return self.options.partitions.get(parse_name(name).full, 0)

    def topics_of(self, namespace: str) -> list[TopicName]:
        """The topics of `tenant/namespace` that exist, partitions one by one."""
        configured = [
            parse_topic(f"{name}-partition-{index}")
            for name, partitions in self.options.partitions.items()
            for index in range(partitions)
        ]
        names = {name.full: name for name in configured} | {key: topic.name for key, topic in self._topics.items()}
        return [name for name in names.values() if name.namespace_name == namespace]

    def producer_name(self) -> str:
        """A name for a producer that brought none."""
        return f"standin-{self.options.first_ledger}-{next(self._producer_numbers)}"

    def dispatch(self) -> None:
        """Let each subscription that was woken deliver what it can."""
        while self._awake:
            subscription, _ = self._awake.popitem()
            subscription.dispatch()

    def counts(self) -> dict[str, Any]:
        """Totals by topic, and the commands that were not understood."""
        topics = {
            name: {field: getattr(topic.counts, field) for field in topic.counts.__slots__}
            for name, topic in sorted(self._topics.items())
        }
        return {"topics": topics, "ignored_commands": dict(self.ignored_commands)}

    def _wake(self, subscription: Subscription) -> None:
        self._awake[subscription] = None


def parse_name(name: str) -> TopicName:
    """A topic's name as clients send it.

    Raises:
        Refused: InvalidTopicName if it is none.
    """
    try:
        return parse_topic(name)
    except ValueError as error:
        raise StandinRefusal(ServerError.InvalidTopicName, str(error)) from None
