"""Commands of producers."""

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from loadgen.standin.broker import Broker
from loadgen.standin.hot_frames import ReceiptFrames
from loadgen.standin.outbox import Outbox
from loadgen.standin.refusal import UNASKED, Refused
from loadgen.standin.topic import Producer, Topic
from protocol.pulsar_pb2 import (
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSuccess,
    ProducerAccessMode,
    ServerError,
)

SEND_WITHOUT_PRODUCER = "SEND without its producer"


@dataclass(frozen=True, slots=True)
class _Attached:
    producer: Producer
    topic: Topic
    receipts: ReceiptFrames


class Producing:
    """The producers of one connection.

    Args:
        broker: Whose topics they publish to.
        outbox: Takes the receipts.
        send: Sends any other answer.
    """

    def __init__(self, broker: Broker, outbox: Outbox, send: Callable[[Message], None]) -> None:
        self._broker = broker
        self._outbox = outbox
        self._send = send
        self._producers: dict[int, _Attached] = {}

    def open(self, request: CommandProducer, _: bytes) -> None:
        """Let a producer in. Asked again for one that is in, answer again."""
        if request.producer_access_mode != ProducerAccessMode.Value("Shared"):
            raise Refused(ServerError.NotAllowedError, "the stand-in broker has Shared producers only")
        attached = self._producers.get(request.producer_id) or self._attach(request)
        answer = CommandProducerSuccess(request_id=request.request_id, producer_name=attached.producer.name)
        answer.schema_version = b""
        if request.HasField("schema"):
            answer.schema_version = self._broker.schemas.register(attached.topic.name, request.schema)
        self._send(answer)

    def _attach(self, request: CommandProducer) -> _Attached:
        topic = self._broker.topic(request.topic)
        producer = Producer(
            name=request.producer_name or self._broker.producer_name(),
            epoch=request.epoch,
            is_named_by_client=bool(request.producer_name) and request.user_provided_producer_name,
        )
        topic.add_producer(producer)
        receipts = ReceiptFrames(request.producer_id, topic.log.ledger_id, topic.name.partition)
        attached = self._producers[request.producer_id] = _Attached(producer, topic, receipts)
        return attached

    def publish(self, send: CommandSend, data: bytes) -> None:
        """Keep what a SEND carries and give the receipt.

        A full topic closes the producer, which keeps its messages and comes again until it is let in: as
        the real broker does at its backlog quota. (A SEND_ERROR would end the whole connection of a
        C++ client.) What was sent in the meantime is dropped; the client sends it again.
        """
        attached = self._producers.get(send.producer_id)
        if attached is None:
            self._broker.ignored_commands[SEND_WITHOUT_PRODUCER] += 1
            return
        try:
            entry = attached.topic.publish(send.num_messages, data)
        except Refused:
            del self._producers[send.producer_id]
            attached.topic.remove_producer(attached.producer)
            self._send(CommandCloseProducer(producer_id=send.producer_id, request_id=UNASKED))
        else:
            self._outbox.put(attached.receipts.frame(send, entry.entry_id))

    def close(self, request: CommandCloseProducer, _: bytes) -> None:
        """End a producer."""
        attached = self._producers.pop(request.producer_id, None)
        if attached is not None:
            attached.topic.remove_producer(attached.producer)
        self._send(CommandSuccess(request_id=request.request_id))

    def close_all(self) -> None:
        """The connection is gone."""
        for attached in self._producers.values():
            attached.topic.remove_producer(attached.producer)
        self._producers.clear()
