"""Frames for tests, and what they are called when a test fails."""

from typing import Any

from google.protobuf.message import Message

from protocol.commands import SIZES, body_of, encode, encode_with_payload, split
from protocol.frames import ProtocolError
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnect,
    CommandConnected,
    CommandError,
    CommandFlow,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandMessage,
    CommandPing,
    CommandPong,
    CommandProducer,
    CommandProducerSuccess,
    CommandReachedEndOfTopic,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSend,
    CommandSendError,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    CommandUnsubscribe,
    MessageIdData,
    MessageMetadata,
)

TOPIC = "persistent://acme/shop/orders"
OTHER_TOPIC = "persistent://acme/shop/other"
UNLIMITED_TOPIC = "persistent://free/space/orders"
PING, PONG = encode(CommandPing()), encode(CommandPong())
NO_REQUEST = 2**64 - 1


def connect(target: str | None = None, **more: Any) -> bytes:
    fields = {"client_version": "test-client", "protocol_version": 20, "auth_data": b"secret", **more}
    if target is not None:
        fields["proxy_to_broker_url"] = target
    return encode(CommandConnect(**fields))


def connected(max_message_size: int | None = None) -> bytes:
    sizes: dict[str, Any] = {} if max_message_size is None else {"max_message_size": max_message_size}
    return encode(CommandConnected(server_version="test-broker", protocol_version=20, **sizes))


def producer(producer_id: int = 1, topic: str = TOPIC, request_id: int | None = None, **more: Any) -> bytes:
    request_id = 100 + producer_id if request_id is None else request_id
    return encode(CommandProducer(topic=topic, producer_id=producer_id, request_id=request_id, **more))


def producer_success(producer_id: int = 1, name: str = "named-by-broker", **more: Any) -> bytes:
    return encode(CommandProducerSuccess(**{"request_id": 100 + producer_id, "producer_name": name, **more}))


def close_producer(producer_id: int = 1, **more: Any) -> bytes:
    return encode(CommandCloseProducer(producer_id=producer_id, request_id=200 + producer_id, **more))


def send(sequence_id: int, producer_id: int = 1, messages: int = 1, size: int = 20, **more: Any) -> bytes:
    """A SEND of `messages` messages with `size` metered bytes."""
    command = CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=messages, **more)
    return encode_with_payload(command, bytes([sequence_id % 251]) * size)


def sends(count: int, producer_id: int = 1, start: int = 0, size: int = 20) -> list[bytes]:
    return [send(start + number, producer_id, size=size) for number in range(count)]


def receipt(sequence_id: int, producer_id: int = 1) -> bytes:
    return encode(CommandSendReceipt(producer_id=producer_id, sequence_id=sequence_id))


def send_error(sequence_id: int, producer_id: int = 1, kind: int = 0) -> bytes:
    command = CommandSendError(producer_id=producer_id, sequence_id=sequence_id, message="no")
    command.error = kind  # type: ignore[assignment]  # enum values are plain ints at run time
    return encode(command)


def subscribe(consumer_id: int = 7, topic: str = TOPIC, **more: Any) -> bytes:
    fields = {"subscription": "sub", "sub_type": CommandSubscribe.Shared, "request_id": 300 + consumer_id, **more}
    return encode(CommandSubscribe(topic=topic, consumer_id=consumer_id, **fields))


def success(request_id: int) -> bytes:
    return encode(CommandSuccess(request_id=request_id))


def flow(permits: int, consumer_id: int = 7) -> bytes:
    return encode(CommandFlow(consumer_id=consumer_id, message_permits=permits))


def message(entry_id: int, consumer_id: int = 7, messages: int = 1, size: int = 20) -> bytes:
    """A MESSAGE frame with a batch of `messages` and `size` bytes of payload."""
    command = CommandMessage(consumer_id=consumer_id, message_id=MessageIdData(ledger_id=1, entry_id=entry_id))
    metadata = MessageMetadata(producer_name="p", sequence_id=entry_id, publish_time=1, num_messages_in_batch=messages)
    head = metadata.SerializeToString()
    return encode_with_payload(command, len(head).to_bytes(4, "big") + head + bytes(size))


def messages(count: int, consumer_id: int = 7, start: int = 0) -> list[bytes]:
    return [message(start + number, consumer_id) for number in range(count)]


def close_consumer(consumer_id: int = 7, **more: Any) -> bytes:
    return encode(CommandCloseConsumer(consumer_id=consumer_id, request_id=400 + consumer_id, **more))


def lookup(request_id: int = 1, **more: Any) -> bytes:
    return encode(CommandLookupTopic(topic=TOPIC, request_id=request_id, **more))


def lookup_answer(kind: int, url: str = "", request_id: int = 1, **more: Any) -> bytes:
    answer = CommandLookupTopicResponse(request_id=request_id, broker_service_url=url, **more)
    answer.response = kind  # type: ignore[assignment]  # enum values are plain ints at run time
    return encode(answer)


def unknown_command(number: int = 45, content: bytes = b"from the future") -> bytes:
    """A command that no protocol file of today knows."""
    body = b"\x08" + bytes([number]) + varint(number << 3 | 2) + varint(len(content)) + content
    return SIZES.pack(len(body) + 4, len(body)) + body


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def as_frame(command: "Message | bytes") -> bytes:
    return command if isinstance(command, bytes) else encode(command)


def body(frame: bytes) -> Any:
    """The command inside a frame."""
    return body_of(split(frame)[0])


def name_of(frame: bytes) -> str:
    """`SEND`, `CONNECTED` …"""
    try:
        envelope, _ = split(frame)
    except ProtocolError:
        return "?"
    return BaseCommand.Type.Name(envelope.type) if envelope.HasField("type") else "a command from the future"


_TOLD_FIELDS = (
    "producer_id", "consumer_id", "sequence_id", "request_id", "message_permits", "response", "error", "message",
    "proxy_to_broker_url", "broker_service_url",
)  # fmt: skip


def told(frame: bytes) -> str:
    """A frame in one line, for people who read why a test failed."""
    try:
        command = body(frame)
    except ProtocolError:
        return f"{name_of(frame)} ({len(frame)} bytes)"
    parts = [f"{field.name}={value}" for field, value in command.ListFields() if field.name in _TOLD_FIELDS]
    if isinstance(command, CommandMessage):
        parts = [f"consumer_id={command.consumer_id}", f"entry_id={command.message_id.entry_id}"]
    return " ".join([name_of(frame), *parts])


def error(request_id: int, kind: int = 0, text: str = "no") -> bytes:
    command = CommandError(request_id=request_id, message=text)
    command.error = kind  # type: ignore[assignment]  # enum values are plain ints at run time
    return encode(command)


def seek(consumer_id: int = 7) -> bytes:
    return encode(CommandSeek(consumer_id=consumer_id, request_id=500 + consumer_id, message_publish_time=1))


def unsubscribe(consumer_id: int = 7) -> bytes:
    return encode(CommandUnsubscribe(consumer_id=consumer_id, request_id=600 + consumer_id))


def redeliver(consumer_id: int = 7, entry_ids: tuple[int, ...] = (), epoch: int | None = None) -> bytes:
    """Java clients say an epoch, others say none."""
    ids = [MessageIdData(ledger_id=1, entry_id=entry_id) for entry_id in entry_ids]
    command = CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, message_ids=ids, consumer_epoch=epoch)
    return encode(command)


def active(consumer_id: int = 7, *, is_active: bool = True) -> bytes:
    return encode(CommandActiveConsumerChange(consumer_id=consumer_id, is_active=is_active))


def end_of_topic(consumer_id: int = 7) -> bytes:
    return encode(CommandReachedEndOfTopic(consumer_id=consumer_id))
