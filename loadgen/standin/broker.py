"""The broker as a whole: its options, topics, schemas and counts, and the subscriptions that have something to do."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from struct import Struct
from typing import Any, Protocol

from loadgen.standin.entry_log import EntryLog, StandinRefusal, StoredEntry
from loadgen.standin.subscription import Consumer, Subscription
from protocol.endpoint import EndpointForm
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE
from protocol.pulsar_pb2 import CommandSubscribe, ProducerAccessMode, Schema, ServerError
from protocol.topic_name import TopicName, parse_topic

MB = 1024 * 1024
MOST_PARTITIONS = 1000


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of the broker.

    `partitions` are the partitioned topics by full name. `topic_bytes` is the most that one topic keeps,
    `retention_bytes` how much of it although everybody has acknowledged it. `first_ledger` numbers the
    ledgers and the generated producer names: above those of an earlier run, or clients that outlive a
    restart would mistake new entries for old ones. Topics of `missing_namespaces` are refused, as those of
    a namespace that was never created; all other namespaces exist.
    """

    partitions: Mapping[str, int] = field(default_factory=dict)
    topic_bytes: int = 256 * MB
    retention_bytes: int = 0
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    first_ledger: int = 1
    missing_namespaces: frozenset[str] = frozenset()


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
    """Totals since the broker started; bytes are those after the command; redeliveries count again."""

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


class ProducerOutlet(Protocol):
    """The connection of a producer."""

    def admit(self, producer: "Producer") -> None:
        """The producer has the exclusive access that it has waited for."""
        ...

    def refuse_waiting(self, producer: "Producer") -> None:
        """The producer waits no more: another one has taken access."""
        ...

    def fence_out(self, producer: "Producer") -> None:
        """The producer is closed, as another one has taken access; its client gets no notice, as in Pulsar."""
        ...


_SHARED, _EXCLUSIVE, _FENCING, _WAITING = map(
    ProducerAccessMode.Value, ("Shared", "Exclusive", "ExclusiveWithFencing", "WaitForExclusive")
)


@dataclass(frozen=True, slots=True, eq=False)
class Producer:
    """A producer of a topic.

    `epoch` counts its reconnections where it has a generated name. `topic_epoch` is the epoch of the topic in which a
    producer that connects again had exclusive access.
    """

    name: str
    epoch: int
    is_named_by_client: bool
    mode: int = _SHARED
    topic_epoch: int | None = None
    outlet: ProducerOutlet | None = None


class StandinTopic:
    """A topic of the broker, or a partition.

    Args:
        name: Its name.
        log: Its entries, empty.
        wake: Called with each subscription that may have something to dispatch.
    """

    def __init__(self, name: TopicName, log: EntryLog, wake: Callable[[Subscription], None]) -> None:
        self.name = name
        self.log = log
        self.counts = TopicCounts()
        self.is_persistent = name.domain == "persistent"
        self._wake = wake
        self.epoch = -1
        """How often exclusive access was given, from 0; as the real broker's of non-persistent topics, in memory."""
        self._producers: dict[str, Producer] = {}
        self._waiting: deque[Producer] = deque()
        self._subscriptions: dict[str, Subscription] = {}
        self._readers: set[str] = set()

    # ---- Producing

    def add_producer(self, producer: Producer) -> bool:
        """Let a producer in, or have it wait for exclusive access; return whether it is in.

        Raises:
            Refused: If the topic is full; ProducerBusy if another producer has the name, or exclusive access;
                ProducerFenced if it cannot have the access that it asks for. One that reconnects with a generated
                name takes its own place.
        """
        self.log.check_room()
        former = self._producers.get(producer.name)
        if former is not None:
            replaces = not (former.is_named_by_client or producer.is_named_by_client)
            if not replaces or producer.epoch <= former.epoch:
                raise StandinRefusal(ServerError.ProducerBusy, f"producer {producer.name!r} is connected already")
        if producer.mode == _WAITING and self._producers:
            self._waiting.append(producer)
            return False
        self._make_way(producer)
        if producer.mode != _SHARED:
            self._begin_epoch(producer)
        self._producers[producer.name] = producer
        return True

    def _make_way(self, producer: Producer) -> None:
        """Have no producer connected beside one that asks for exclusive access, nor one beside a producer that has it.

        Source: org.apache.pulsar.broker.service.AbstractTopic.incrementTopicEpochIfNeeded (4.0.8)
        """
        holder = next((candidate for candidate in self._producers.values() if candidate.mode != _SHARED), None)
        if producer.mode == _SHARED and (holder or self._waiting):
            text = f"the topic has an exclusive producer: {holder.name if holder else 'one waits for access'}"
            raise StandinRefusal(ServerError.ProducerBusy, text)
        if producer.mode == _EXCLUSIVE and (self._producers or self._waiting):
            raise StandinRefusal(ServerError.ProducerFenced, "the topic has a producer already")
        if producer.mode == _FENCING:
            waiting, self._waiting = self._waiting, deque()
            fenced, self._producers = self._producers, {}
            for each in waiting:
                _outlet(each).refuse_waiting(each)
            for each in fenced.values():
                _outlet(each).fence_out(each)

    def _begin_epoch(self, producer: Producer) -> None:
        if producer.topic_epoch is None:
            self.epoch += 1
        elif producer.topic_epoch < self.epoch:
            text = f"the topic's epoch has moved on: it is {self.epoch}, the producer's is {producer.topic_epoch}"
            raise StandinRefusal(ServerError.ProducerFenced, text)
        else:
            self.epoch = producer.topic_epoch

    def remove_producer(self, producer: Producer) -> None:
        """A producer is gone, or waits no more; one that has taken its place stays. The next in line has access."""
        if producer in self._waiting:
            self._waiting.remove(producer)
        elif self._producers.get(producer.name) is producer:
            del self._producers[producer.name]
            if self._waiting and not self._producers:
                following = self._waiting.popleft()
                self.epoch += 1
                self._producers[following.name] = following
                _outlet(following).admit(following)

    def publish(self, messages: int, data: bytes) -> StoredEntry:
        """Keep the entry of one SEND. A non-persistent topic hands it on, and loses it unless a consumer takes it now.

        Raises:
            Refused: If the topic is full.
        """
        entry = self.log.append(messages, data)
        self.counts.receive(messages, len(data))
        for subscription in self._subscriptions.values():
            if self.is_persistent:
                subscription.wake()
            else:
                subscription.dispatch()
                subscription.acknowledge_up_to(entry.entry_id)
        if not (self._subscriptions and self.is_persistent):
            self.trim()
        return entry

    # ---- Consuming

    def subscribe(self, request: CommandSubscribe, consumer: Consumer) -> Subscription:
        """Let a consumer join the subscription that it names, which is made if need be.

        Raises:
            Refused: If the subscription does not take it.
        """
        name = request.subscription
        if request.read_compacted and not (self.is_persistent and request.sub_type in _COMPACTED):
            text = "readCompacted is for Exclusive and Failover subscriptions of persistent topics"
            raise StandinRefusal(ServerError.NotAllowedError, text)
        subscription = self._subscriptions.get(name)
        if subscription is None:
            subscription = Subscription(self.log, self._start(request), self.name.partition, self._wake)
            self._subscriptions[name] = subscription
            for entry_id in self.log.superseded() if request.read_compacted else ():
                subscription.acknowledge(entry_id)
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
        """Forget a reader's subscription once it has no consumer; any other stays."""
        subscription = self._subscriptions.get(name)
        if subscription is not None and not subscription.consumers and not self.is_durable(name):
            self.unsubscribe(name)

    def unsubscribe(self, name: str) -> None:
        """Forget a subscription and the entries kept for it."""
        self._subscriptions.pop(name, None)
        self._readers.discard(name)
        self.trim()

    def trim(self) -> None:
        """Forget the entries that no subscription needs any more."""
        positions = (subscription.cursor.position for subscription in self._subscriptions.values())
        self.log.trim(min(positions, default=self.log.next_id))


def _outlet(producer: Producer) -> ProducerOutlet:
    assert producer.outlet is not None, "a producer that others can fence out has a connection"
    return producer.outlet


_COMPACTED = (CommandSubscribe.Exclusive, CommandSubscribe.Failover)
MOST_TOPICS = 100_000


class StandinBroker:
    """The broker: everything that connections share.

    Callers that change something call `dispatch` after the bytes at hand, once for all changes.
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
            Refused: If the name is no topic's, its namespace is not there, or there are MOST_TOPICS already.
        """
        known = self._topics.get(name)
        return known if known is not None else self._topic_of(self.existing(name))

    def existing(self, name: str) -> TopicName:
        """Return the parts of a name whose namespace is there.

        Raises:
            Refused: If the name is no topic's, or its namespace is not there.
        """
        topic = parse_name(name)
        if topic.namespace_name in self.options.missing_namespaces:
            raise StandinRefusal(ServerError.TopicNotFound, f"Namespace not found: {topic.namespace_name}")
        return topic

    def _topic_of(self, name: TopicName) -> StandinTopic:
        topic = self._topics.get(name.full)
        if topic is None:
            if len(self._topics) >= MOST_TOPICS:
                raise StandinRefusal(ServerError.NotAllowedError, f"the broker has {MOST_TOPICS} topics already")
            retention = self.options.retention_bytes if name.domain == "persistent" else 0
            log = EntryLog(next(self._ledgers), self.options.topic_bytes, retention)
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
        """Let each subscription that was woken deliver."""
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
