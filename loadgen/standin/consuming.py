"""Commands of consumers, and what the broker tells them."""

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from loadgen.standin.broker import Broker
from loadgen.standin.consumer import Consumer, Delivery
from loadgen.standin.hot_frames import MessageFrames, set_message_id
from loadgen.standin.outbox import Outbox
from loadgen.standin.refusal import UNASKED, Refused
from loadgen.standin.subscription import Subscription
from loadgen.standin.topic import Topic
from protocol.commands import encode
from protocol.pulsar_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandFlow,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandSuccess,
    CommandUnsubscribe,
    MessageIdData,
    ServerError,
)


@dataclass(frozen=True, slots=True)
class _Attached:
    consumer: Consumer
    topic: Topic
    subscription: Subscription
    name: str
    frames: MessageFrames


class Consuming:
    """The consumers of one connection; the Outlet of each of them.

    Args:
        broker: Whose topics they read.
        outbox: Takes the deliveries.
        send: Sends an answer.
    """

    def __init__(self, broker: Broker, outbox: Outbox, send: Callable[[Message], None]) -> None:
        self._broker = broker
        self._outbox = outbox
        self._send = send
        self._consumers: dict[int, _Attached] = {}
        self._sought: list[_Attached] = []

    # ---- Coming and going

    def subscribe(self, request: CommandSubscribe, _: bytes) -> None:
        """Let a consumer in. Asked again for one that is in, answer again."""
        if request.consumer_id not in self._consumers:
            topic = self._broker.topic(request.topic)
            if request.HasField("schema"):
                self._broker.schemas.register(topic.name, request.schema)
            self._attach(topic, request)
        self._send(CommandSuccess(request_id=request.request_id))

    def _attach(self, topic: Topic, request: CommandSubscribe) -> None:
        consumer = Consumer(
            request.consumer_id,
            outlet=self,
            epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
            key_ranges=tuple((taken.start, taken.end) for taken in request.key_shared_meta.hash_ranges),
        )
        subscription = topic.subscribe(request, consumer)
        frames = MessageFrames(request.consumer_id, topic.log.ledger_id, topic.name.partition)
        self._consumers[request.consumer_id] = _Attached(consumer, topic, subscription, request.subscription, frames)

    def close(self, request: CommandCloseConsumer, _: bytes) -> None:
        """End a consumer; its subscription stays, unless it is a reader's."""
        attached = self._consumers.pop(request.consumer_id, None)
        if attached is not None:
            _detach(attached)
        self._send(CommandSuccess(request_id=request.request_id))

    def unsubscribe(self, request: CommandUnsubscribe, _: bytes) -> None:
        """End a consumer and its subscription."""
        attached = self._attached(request.consumer_id)
        if len(attached.subscription.consumers) > 1 and not request.force:
            raise Refused(ServerError.MetadataError, f"{attached.name!r} has other consumers: only the last may")
        for consumer in list(attached.subscription.consumers):
            if consumer is not attached.consumer:
                consumer.outlet.send_away(consumer)
        del self._consumers[request.consumer_id]
        attached.subscription.remove(attached.consumer)
        attached.topic.unsubscribe(attached.name)
        self._send(CommandSuccess(request_id=request.request_id))

    def close_all(self) -> None:
        """The connection is gone."""
        for attached in self._consumers.values():
            _detach(attached)
        self._consumers.clear()
        for attached in self._sought:
            attached.topic.end_reader(attached.name)

    # ---- Reading

    def flow(self, request: CommandFlow, _: bytes) -> None:
        """More permits."""
        attached = self._consumers.get(request.consumer_id)
        if attached is not None:
            attached.subscription.flow(attached.consumer, request.message_permits)

    def acknowledge(self, request: CommandAck, _: bytes) -> None:
        """Entries are done; grouped acknowledgements may come after the consumer has gone."""
        attached = self._consumers.get(request.consumer_id)
        if attached is not None:
            is_cumulative = request.ack_type == CommandAck.Cumulative
            subscription = attached.subscription
            acknowledge = subscription.acknowledge_up_to if is_cumulative else subscription.acknowledge
            for message_id in request.message_id:
                if message_id.ledger_id == attached.topic.log.ledger_id:
                    acknowledge(message_id.entry_id, message_id.ack_set)
            attached.topic.trim()
        if request.HasField("request_id"):
            self._send(CommandAckResponse(consumer_id=request.consumer_id, request_id=request.request_id))

    def redeliver(self, request: CommandRedeliverUnacknowledgedMessages, _: bytes) -> None:
        """Pending entries are due again."""
        attached = self._consumers.get(request.consumer_id)
        if attached is not None:
            if request.HasField("consumer_epoch"):
                attached.consumer.epoch = request.consumer_epoch
            attached.subscription.redeliver(
                attached.consumer, [message_id.entry_id for message_id in request.message_ids]
            )

    def seek(self, request: CommandSeek, _: bytes) -> None:
        """Set the subscription to another position.

        As from the real broker, its consumers are sent away before the answer and come again.
        """
        attached = self._attached(request.consumer_id)
        log = attached.topic.log
        if request.HasField("message_id"):
            position = log.position_of(request.message_id)
        else:
            position = log.position_at(request.message_publish_time)
        for consumer in list(attached.subscription.consumers):
            consumer.outlet.send_away(consumer)
        attached.subscription.reset(position)
        attached.topic.trim()
        self._sought = [former for former in self._sought if former.name != attached.name] + [attached]
        self._send(CommandSuccess(request_id=request.request_id))

    def last_message_id(self, request: CommandGetLastMessageId, _: bytes) -> None:
        """The newest entry; entry -1 where a reader has nothing to read at all."""
        attached = self._attached(request.consumer_id)
        log, partition = attached.topic.log, attached.topic.name.partition
        is_readable = log.first_id < log.next_id or attached.topic.is_durable(attached.name)
        answer = CommandGetLastMessageIdResponse(request_id=request.request_id)
        last = log.get(log.next_id - 1)
        _set_id(answer.last_message_id, log.ledger_id, log.next_id - 1 if is_readable else -1, partition)
        if last is not None and last.batch_size:
            answer.last_message_id.batch_index = last.batch_size - 1
        marked = attached.subscription.cursor.position - 1
        _set_id(answer.consumer_mark_delete_position, log.ledger_id, marked, partition)
        self._send(answer)

    # ---- The Outlet

    @property
    def writable(self) -> bool:
        """Whether the connection takes more deliveries now."""
        return not self._outbox.is_paused

    def deliver(self, consumer: Consumer, delivery: Delivery) -> None:
        """Send a MESSAGE."""
        attached = self._consumers[consumer.consumer_id]
        attached.topic.counts.deliver(delivery.entry.messages, len(delivery.entry.data))
        self._outbox.put(attached.frames.frame(delivery, consumer.epoch))

    def tell_active(self, consumer: Consumer, *, is_active: bool) -> None:
        """Send an ACTIVE_CONSUMER_CHANGE."""
        change = CommandActiveConsumerChange(consumer_id=consumer.consumer_id, is_active=is_active)
        self._outbox.put(encode(change))

    def send_away(self, consumer: Consumer) -> None:
        """End a consumer that did not ask for it; its subscription stays, a reader's too."""
        attached = self._consumers.pop(consumer.consumer_id)
        attached.subscription.remove(consumer)
        self._outbox.put(encode(CommandCloseConsumer(consumer_id=consumer.consumer_id, request_id=UNASKED)))

    def resume(self) -> None:
        """The connection takes deliveries again."""
        for attached in self._consumers.values():
            attached.subscription.resume(attached.consumer)

    def _attached(self, consumer_id: int) -> _Attached:
        attached = self._consumers.get(consumer_id)
        if attached is None:
            raise Refused(ServerError.ConsumerNotFound, f"consumer {consumer_id} is not subscribed")
        return attached


def _detach(attached: _Attached) -> None:
    attached.subscription.remove(attached.consumer)
    attached.topic.end_reader(attached.name)


def _set_id(message_id: MessageIdData, ledger_id: int, entry_id: int, partition: int) -> None:
    """As `set_message_id`, with entry -1 for "none" (the field is unsigned)."""
    set_message_id(message_id, ledger_id, entry_id % 2**64, partition)
