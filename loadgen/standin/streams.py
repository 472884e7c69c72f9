"""Producers and consumers of one connection: their commands, their frames, and the broker's notifications."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message

from loadgen.standin.broker import Producer, StandinBroker, StandinTopic
from loadgen.standin.entry_log import UNASKED, StandinRefusal
from loadgen.standin.subscription import Consumer, Delivery, Subscription
from protocol.commands import SIZES, encode
from protocol.frames import MalformedFrame
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandAckResponse,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandError,
    CommandFlow,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandProducer,
    CommandProducerSuccess,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSend,
    CommandSubscribe,
    CommandSuccess,
    CommandUnsubscribe,
    MessageIdData,
    ServerError,
)

WRITE_AT_BYTES = 256 * 1024
MOST_UNSENT_BYTES = 64 * 1024 * 1024


class Link(Protocol):
    """The socket behind a connection."""

    def write(self, data: bytes) -> None:
        """Send, or buffer what cannot be sent now."""
        ...

    def unsent_bytes(self) -> int:
        """Bytes that wait in the buffer."""
        ...

    def abort(self, reason: str) -> None:
        """Close at once; `reason` is for the log."""
        ...

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` once the bytes at hand are dealt with."""
        ...


class Outbox:
    """Gathers frames and writes them together.

    Args:
        link: Where they go.
    """

    def __init__(self, link: Link) -> None:
        self.is_paused = False
        self._link = link
        self._frames: list[bytes] = []
        self._size = 0

    def put(self, frame: bytes) -> None:
        """Send a frame soon, behind all that were put before."""
        if not self._frames:
            self._link.soon(self.flush)
        self._frames.append(frame)
        self._size += len(frame)
        if self._size >= WRITE_AT_BYTES:
            self.flush()

    def send(self, command: Message) -> None:
        """Send a command soon, as `put` does."""
        self.put(encode(command))

    def flush(self) -> None:
        """Write the waiting frames.

        A peer that sends and never reads its answers is cut off at MOST_UNSENT_BYTES.
        """
        if not self._frames:
            return
        data = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        self._link.write(data)
        if self._link.unsent_bytes() > MOST_UNSENT_BYTES:
            self._link.abort("it does not read what it is answered")


def set_message_id(message_id: MessageIdData, ledger_id: int, entry_id: int, partition: int) -> None:
    """Fill in a message id; the partition only where the topic is one."""
    message_id.ledger_id = ledger_id
    message_id.entry_id = entry_id
    if partition >= 0:
        message_id.partition = partition


class ReceiptFrames:
    """SEND_RECEIPTs of one producer.

    Args:
        producer_id: The client's number for it.
        ledger_id: The ledger that its entries go to.
        partition: The topic's partition, -1 where it is none.
    """

    def __init__(self, producer_id: int, ledger_id: int, partition: int) -> None:
        self._envelope = BaseCommand(type=BaseCommand.SEND_RECEIPT)
        self._receipt = self._envelope.send_receipt
        self._receipt.producer_id = producer_id
        self._message_id = self._receipt.message_id
        set_message_id(self._message_id, ledger_id, 0, partition)

    def frame(self, send: CommandSend, entry_id: int) -> bytes:
        """The receipt for one SEND."""
        self._receipt.sequence_id = send.sequence_id
        self._receipt.highest_sequence_id = send.highest_sequence_id
        self._message_id.entry_id = entry_id
        body = self._envelope.SerializeToString()
        return SIZES.pack(len(body) + 4, len(body)) + body


class MessageFrames:
    """MESSAGEs to one consumer.

    Args:
        consumer_id: The client's number for it.
        ledger_id: The ledger of its topic.
        partition: The topic's partition, -1 where it is none.
    """

    def __init__(self, consumer_id: int, ledger_id: int, partition: int) -> None:
        self._envelope = BaseCommand(type=BaseCommand.MESSAGE)
        self._message = self._envelope.message
        self._message.consumer_id = consumer_id
        self._message_id = self._message.message_id
        set_message_id(self._message_id, ledger_id, 0, partition)

    def frame(self, delivery: Delivery, epoch: int | None) -> bytes:
        """The frame of one delivery."""
        self._message_id.entry_id = delivery.entry.entry_id
        self._message.redelivery_count = delivery.redelivery_count
        del self._message.ack_set[:]
        self._message.ack_set.extend(delivery.ack_set)
        if epoch is not None:
            self._message.consumer_epoch = epoch
        body = self._envelope.SerializeToString()
        data = delivery.entry.data
        return SIZES.pack(len(body) + 4 + len(data), len(body)) + body + data


SEND_WITHOUT_PRODUCER = "SEND without its producer"


@dataclass(slots=True)
class _AttachedProducer:
    request: CommandProducer
    producer: Producer
    topic: StandinTopic
    receipts: ReceiptFrames
    schema_version: bytes
    has_access: bool = True


class Producing:
    """The producers of one connection; each producer's outlet.

    Args:
        broker: Whose topics they publish to.
        outbox: Takes the receipts and the answers.
    """

    def __init__(self, broker: StandinBroker, outbox: Outbox) -> None:
        self._broker = broker
        self._outbox = outbox
        self._producers: dict[int, _AttachedProducer] = {}
        self._fenced: set[int] = set()

    def open(self, request: CommandProducer, _: bytes) -> None:
        """Let a producer in. Asked again for one that is in, answer again, whatever the second command says.

        A producer that has to wait for exclusive access is answered twice: the first answer says that it is not ready.
        """
        attached = self._producers.get(request.producer_id) or self._attach(request)
        self._answer(attached, request)

    def _answer(self, attached: _AttachedProducer, request: CommandProducer) -> None:
        answer = CommandProducerSuccess(request_id=request.request_id, producer_name=attached.producer.name)
        answer.schema_version = attached.schema_version
        answer.producer_ready = attached.has_access
        if attached.has_access and attached.topic.epoch >= 0:
            answer.topic_epoch = attached.topic.epoch
        self._outbox.send(answer)

    def _attach(self, request: CommandProducer) -> _AttachedProducer:
        topic = self._broker.topic(request.topic)
        producer = Producer(
            name=request.producer_name or self._broker.producer_name(),
            epoch=request.epoch,
            is_named_by_client=bool(request.producer_name) and request.user_provided_producer_name,
            mode=request.producer_access_mode,
            topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
            outlet=self,
        )
        receipts = ReceiptFrames(request.producer_id, topic.log.ledger_id, topic.name.partition)
        schema = b""
        if request.HasField("schema"):
            schema = self._broker.schemas.register(topic.name, request.schema)
        attached = _AttachedProducer(request, producer, topic, receipts, schema, topic.add_producer(producer))
        self._producers[request.producer_id] = attached
        self._fenced.discard(request.producer_id)
        return attached

    # ---- The ProducerOutlet

    def admit(self, producer: Producer) -> None:
        """Send the second answer."""
        attached = self._attached(producer)
        attached.has_access = True
        self._answer(attached, attached.request)

    def refuse_waiting(self, producer: Producer) -> None:
        """Send an ERROR for the request that waits."""
        request = self._attached(producer).request
        del self._producers[request.producer_id]
        refusal = CommandError(request_id=request.request_id, error=ServerError.ProducerFenced, message="fenced out")
        self._outbox.send(refusal)

    def fence_out(self, producer: Producer) -> None:
        """Send nothing; a SEND of this producer ends the connection from now on."""
        producer_id = self._attached(producer).request.producer_id
        del self._producers[producer_id]
        self._fenced.add(producer_id)

    def _attached(self, producer: Producer) -> _AttachedProducer:
        return next(attached for attached in self._producers.values() if attached.producer is producer)

    # ---- Messages

    def publish(self, send: CommandSend, data: bytes) -> None:
        """Keep what a SEND carries and give the receipt. One by a producer without access ends the connection.

        A full topic closes the producer, which keeps its messages and comes again until it is let in: as
        the real broker does at its backlog quota. (A SEND_ERROR would end the whole connection of a
        C++ client.) Messages sent before that are dropped; the client sends them again.
        """
        attached = self._producers.get(send.producer_id)
        if send.producer_id in self._fenced or (attached and not attached.has_access):
            raise MalformedFrame("SEND by a producer that waits for exclusive access, or has lost it")
        if attached is None:
            self._broker.ignored_commands[SEND_WITHOUT_PRODUCER] += 1
            return
        try:
            entry = attached.topic.publish(send.num_messages, data)
        except StandinRefusal:
            del self._producers[send.producer_id]
            attached.topic.remove_producer(attached.producer)
            self._outbox.send(CommandCloseProducer(producer_id=send.producer_id, request_id=UNASKED))
        else:
            self._outbox.put(attached.receipts.frame(send, entry.entry_id))

    def close(self, request: CommandCloseProducer, _: bytes) -> None:
        """End a producer."""
        attached = self._producers.pop(request.producer_id, None)
        if attached is not None:
            attached.topic.remove_producer(attached.producer)
        self._outbox.send(CommandSuccess(request_id=request.request_id))

    def close_all(self) -> None:
        """The connection is gone."""
        for attached in self._producers.values():
            attached.topic.remove_producer(attached.producer)
        self._producers.clear()


@dataclass(frozen=True, slots=True)
class _AttachedConsumer:
    consumer: Consumer
    topic: StandinTopic
    subscription: Subscription
    name: str
    frames: MessageFrames


class Consuming:
    """The consumers of one connection; each consumer's Outlet.

    Args:
        broker: Whose topics they read.
        outbox: Takes the deliveries and the answers.
    """

    def __init__(self, broker: StandinBroker, outbox: Outbox) -> None:
        self._broker = broker
        self._outbox = outbox
        self._consumers: dict[int, _AttachedConsumer] = {}
        self._sought: list[_AttachedConsumer] = []

    # ---- Coming and going

    def subscribe(self, request: CommandSubscribe, _: bytes) -> None:
        """Let a consumer in. Asked again for one that is in, answer again, whatever the second command says."""
        if request.consumer_id not in self._consumers:
            topic = self._broker.topic(request.topic)
            if request.HasField("schema"):
                self._broker.schemas.register(topic.name, request.schema)
            self._attach(topic, request)
        self._outbox.send(CommandSuccess(request_id=request.request_id))

    def _attach(self, topic: StandinTopic, request: CommandSubscribe) -> None:
        consumer = Consumer(
            request.consumer_id,
            outlet=self,
            epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
            key_ranges=tuple((taken.start, taken.end) for taken in request.key_shared_meta.hash_ranges),
        )
        subscription = topic.subscribe(request, consumer)
        frames = MessageFrames(request.consumer_id, topic.log.ledger_id, topic.name.partition)
        self._consumers[request.consumer_id] = _AttachedConsumer(
            consumer, topic, subscription, request.subscription, frames
        )

    def close(self, request: CommandCloseConsumer, _: bytes) -> None:
        """End a consumer; its subscription stays, unless it is a reader's."""
        attached = self._consumers.pop(request.consumer_id, None)
        if attached is not None:
            _detach(attached)
        self._outbox.send(CommandSuccess(request_id=request.request_id))

    def unsubscribe(self, request: CommandUnsubscribe, _: bytes) -> None:
        """End a consumer and its subscription."""
        attached = self._attached(request.consumer_id)
        if len(attached.subscription.consumers) > 1 and not request.force:
            raise StandinRefusal(
                ServerError.MetadataError, f"{attached.name!r} has other consumers: only the last one may unsubscribe"
            )
        for consumer in list(attached.subscription.consumers):
            if consumer is not attached.consumer:
                consumer.outlet.send_away(consumer)
        del self._consumers[request.consumer_id]
        attached.subscription.remove(attached.consumer)
        attached.topic.unsubscribe(attached.name)
        self._outbox.send(CommandSuccess(request_id=request.request_id))

    def close_all(self) -> None:
        """The connection is gone."""
        for attached in self._consumers.values():
            _detach(attached)
        self._consumers.clear()
        for attached in self._sought:
            attached.topic.end_reader(attached.name)

    # ---- Reading

    def flow(self, request: CommandFlow, _: bytes) -> None:
        """Add permits."""
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
            self._outbox.send(CommandAckResponse(consumer_id=request.consumer_id, request_id=request.request_id))

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
        self._outbox.send(CommandSuccess(request_id=request.request_id))

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
        self._outbox.send(answer)

    # ---- The Outlet

    @property
    def writable(self) -> bool:
        """True if the connection takes more deliveries now."""
        return not self._outbox.is_paused

    def deliver(self, consumer: Consumer, delivery: Delivery) -> None:
        """Send a MESSAGE."""
        attached = self._consumers[consumer.consumer_id]
        attached.topic.counts.deliver(delivery.entry.messages, len(delivery.entry.data))
        self._outbox.put(attached.frames.frame(delivery, consumer.epoch))

    def tell_active(self, consumer: Consumer, *, is_active: bool) -> None:
        """Send an ACTIVE_CONSUMER_CHANGE."""
        change = CommandActiveConsumerChange(consumer_id=consumer.consumer_id, is_active=is_active)
        self._outbox.send(change)

    def send_away(self, consumer: Consumer) -> None:
        """End a consumer that did not ask for it; its subscription stays, a reader's too."""
        attached = self._consumers.pop(consumer.consumer_id)
        attached.subscription.remove(consumer)
        self._outbox.send(CommandCloseConsumer(consumer_id=consumer.consumer_id, request_id=UNASKED))

    def resume(self) -> None:
        """The connection takes deliveries again."""
        for attached in self._consumers.values():
            attached.subscription.resume(attached.consumer)

    def _attached(self, consumer_id: int) -> _AttachedConsumer:
        attached = self._consumers.get(consumer_id)
        if attached is None:
            raise StandinRefusal(ServerError.ConsumerNotFound, f"consumer {consumer_id} is not subscribed")
        return attached


def _detach(attached: _AttachedConsumer) -> None:
    attached.subscription.remove(attached.consumer)
    attached.topic.end_reader(attached.name)


def _set_id(message_id: MessageIdData, ledger_id: int, entry_id: int, partition: int) -> None:
    """As `set_message_id`, with entry -1 for "none" (the field is unsigned)."""
    set_message_id(message_id, ledger_id, entry_id % 2**64, partition)
