"""One topic: its producers, its entries, its subscriptions."""

from collections.abc import Callable
from dataclasses import dataclass

from loadgen.standin.consumer import Consumer
from loadgen.standin.counts import TopicCounts
from loadgen.standin.entry import Entry
from loadgen.standin.entry_log import EntryLog
from loadgen.standin.refusal import Refused
from loadgen.standin.subscription import Subscription
from protocol.pulsar_pb2 import CommandSubscribe, ServerError
from protocol.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer of a topic; `epoch` counts its reconnections where it has a generated name."""

    name: str
    epoch: int
    is_named_by_client: bool


class Topic:
    """What the broker knows of one topic (of one partition, where it is partitioned).

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
                raise Refused(ServerError.ProducerBusy, f"producer {producer.name!r} is connected already")
        self._producers[producer.name] = producer

    def remove_producer(self, producer: Producer) -> None:
        """A producer is gone; one that has taken its place stays."""
        if self._producers.get(producer.name) is producer:
            del self._producers[producer.name]

    def publish(self, messages: int, data: bytes) -> Entry:
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
        """Whether the subscription outlives its consumers; a reader's does not."""
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
