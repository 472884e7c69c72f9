"""Frames of all sorts, ways to cut a stream of frames into chunks, and a plain model of the scanner."""

from dataclasses import dataclass

from protocol.frames import ACK, ACK_RESPONSE, SEND_RECEIPT, FrameCutter
from protocol.pulsar_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandFlow,
    CommandProducer,
    KeyValue,
    MessageMetadata,
)
from tests.protocol import fields as wire
from tests.protocol import ill_commands as ill
from tests.protocol.choices import Choices
from tests.protocol.ill_commands import MESSAGE, SEND

MAX_SIZE = 300_000
SILENT = {SEND: {ACK}, MESSAGE: {SEND_RECEIPT, ACK_RESPONSE}}


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def frame(command: bytes, rest: bytes = b"") -> bytes:
    return u32(4 + len(command) + len(rest)) + u32(len(command)) + command + rest


def payload_command(choose: Choices, kind: int, direction: int) -> bytes:
    """A SEND or MESSAGE with one of a few ids, as clients write it or in another valid form."""
    ids = b"\x08" + wire.varint(choose.one_of([1, 2, 3, 300, 2**40]))
    if choose.chance(3):
        if direction == SEND:
            return ill.of_client(choose, kind, ill.body(choose, kind, ids))
        odd = ill.body(choose, kind, ids)
        return b"".join(choose.shuffled([ill.type_field(choose, kind), wire.delimited(kind, odd)]))
    counted = b"\x18" + wire.varint(choose.below(200)) if choose.chance(2) else b""
    return wire.tag(1, 0) + wire.varint(kind) + wire.delimited(kind, ids + b"\x10\x07" + counted)


def headers(choose: Choices, kind: int) -> bytes:
    """The bytes between a payload's command and the payload: all that may be there, or as few as are allowed."""
    metadata = MessageMetadata(producer_name="producer", sequence_id=choose.below(256), publish_time=1_700_000_000_000)
    if choose.chance(2):
        metadata.num_messages_in_batch = choose.below(100)
    for _ in range(choose.one_of([0, 0, 3, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0, 1000])):
        metadata.properties.append(KeyValue(key="key", value="value" * 5))
    body = metadata.SerializeToString()
    parts = u32(len(body)) + body
    if choose.chance(2):
        parts = b"\x0e\x01" + choose.take(4) + parts
    if kind == MESSAGE and choose.chance(3):
        entry = BrokerEntryMetadata(broker_timestamp=choose.below(256), index=7).SerializeToString()
        parts = b"\x0e\x02" + u32(len(entry)) + entry + parts
    return parts


def any_frame(choose: Choices, direction: int) -> bytes:
    """A frame as it may go in this direction (named for its payload frames)."""
    which = choose.below(8)
    if which < 4:
        payload = b"p" * choose.one_of([0, 1, 7, 30, 100, 100, 200, 1000])
        return frame(payload_command(choose, direction, direction), headers(choose, direction) + payload)
    if which < 6:
        silent = choose.one_of(sorted(SILENT[direction]))
        body = wire.delimited(silent, b"\x08\x01" + wire.delimited(100, choose.octets(200)))
        return frame(wire.tag(1, 0) + wire.varint(silent) + body, choose.octets(9) if choose.chance(6) else b"")
    return control_frame(choose, direction)


def sends_in_a_row(choose: Choices) -> list[bytes]:
    """SENDs as one client writes them: most differ in their ids alone; a few differ otherwise."""
    often, has_count, is_last = choose.one_of([0, 1, 30, 100]), choose.chance(2), choose.chance(3)
    begin = choose.one_of([0, 120, 2**14, 2**35, 2**56 - 9])
    row = []
    for number in range(choose.below(20)):
        owner = b"\x08" + wire.varint(choose.one_of([1, 1, 1, 1, 1, 2]))
        count = b"\x18" + wire.varint(choose.one_of([5, 5, 5, 5, 6, 0])) if has_count else b""
        ids = [owner, b"\x10" + wire.varint(begin + number), count]
        size = choose.one_of([often, often, often, often, often, often + 1])
        row.append(frame(b"\x08\x06" + wire.delimited(SEND, b"".join(reversed(ids) if is_last else ids)), bytes(size)))
    return row


def any_frames(choose: Choices, direction: int) -> list[bytes]:
    """A few frames of all sorts; in a client's direction perhaps a row of SENDs among them."""
    frames = [any_frame(choose, direction) for _ in range(choose.below(8))]
    if direction == SEND and choose.chance(2):
        at = choose.below(len(frames) + 1)
        frames[at:at] = sends_in_a_row(choose)
    return frames


def control_frame(choose: Choices, direction: int) -> bytes:
    """A command that the proxy reads, or does not know."""
    which = choose.below(5)
    if which == 0:
        return frame(b"\x08\x12\x92\x01\x00")  # PING
    if which == 1:
        flow = CommandFlow(consumer_id=1, message_permits=choose.below(2000)).SerializeToString()
        return frame(b"\x08\x0b" + wire.delimited(11, flow))
    if which == 2:
        unknown = choose.one_of([1, 41, 69, 99, 2**31 - 1])
        body = wire.unknown_field(choose, 100)
        if direction == SEND:
            body = wire.delimited(unknown, body) if unknown < 2**29 else b""
        return frame(b"\x08" + wire.varint(unknown) + body, choose.octets(40))
    if which == 3:
        other = MESSAGE if direction == SEND else SEND
        return frame(payload_command(choose, other, direction), choose.octets(100))
    producer = CommandProducer(topic="t" * choose.one_of([1, 100, 3000]), producer_id=1, request_id=choose.below(9))
    return frame(BaseCommand(type=BaseCommand.PRODUCER, producer=producer).SerializeToString())


def cut_anyhow(choose: Choices, stream: bytes) -> list[bytes]:
    """The stream in chunks whose sizes follow a short pattern, over and over; empty ones among them."""
    pattern = [choose.one_of([1, 0, 1, 2, 3, 5, 8, 13, 29, 100, 400, 3000]) for _ in range(1 + choose.below(6))]
    if sum(pattern) * 500 < len(stream) * len(pattern):  # single bytes are for short streams
        pattern.append(1 + len(stream) * len(pattern) // 500)
    chunks: list[bytes] = []
    at = 0
    while at < len(stream):
        size = pattern[len(chunks) % len(pattern)]
        chunks.append(stream[at : at + size])
        at += size
    return chunks


@dataclass(frozen=True)
class Expected:
    """The values of the frame `stream[start:stop]`, which are known once `verdict` bytes of the stream have arrived."""

    start: int
    stop: int
    verdict: int
    kind: int
    command_end: int
    owner: int = -1
    messages: int = 0
    size: int = 0


def model(stream: bytes, direction: int) -> list[Expected]:
    """Every frame of the stream, by way of the plain cutter and protobuf's decoder."""
    frames, at = [], 0
    for whole in FrameCutter(MAX_SIZE).feed(stream):
        frames.append(_expected(whole, at, direction))
        at += len(whole)
    assert at == len(stream)
    return frames


def _expected(whole: bytes, start: int, direction: int) -> Expected:
    command_end = 8 + int.from_bytes(whole[4:8])
    stop, command = start + len(whole), whole[8:command_end]
    decoded = BaseCommand.FromString(command)
    kind = decoded.type if decoded.HasField("type") else _unknown_type(command)
    if kind != direction:
        return Expected(start, stop, stop, kind, start + command_end)
    size = len(whole) - command_end
    if kind == SEND:
        owner, messages = decoded.send.producer_id, max(1, decoded.send.num_messages)
        return Expected(start, stop, start + command_end, kind, start + command_end, owner, messages, size)
    metadata, metadata_end = _metadata(whole, command_end)
    owner, messages = decoded.message.consumer_id, max(1, metadata.num_messages_in_batch)
    return Expected(start, stop, start + metadata_end, kind, start + command_end, owner, messages, size)


def _unknown_type(command: bytes) -> int:
    """The type that `control_frame` made up, which protobuf does not know: the first field, not over-long."""
    number = 0
    for place, byte in enumerate(command[1:6]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return number


def _metadata(whole: bytes, at: int) -> tuple[MessageMetadata, int]:
    if whole[at : at + 2] == b"\x0e\x02":
        at += 6 + int.from_bytes(whole[at + 2 : at + 6])
    if whole[at : at + 2] == b"\x0e\x01":
        at += 6
    end = at + 4 + int.from_bytes(whole[at : at + 4])
    return MessageMetadata.FromString(whole[at + 4 : end]), end
