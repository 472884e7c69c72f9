"""Ready-made frames: what is sent over and over, and the answers to it. Pure.

Sequence ids begin at 2^28: from there on each has five bytes, so that a number can be put in place of another.
"""

from dataclasses import dataclass

from protocol.commands import encode, encode_with_payload
from protocol.pulsar_pb2 import (
    CommandFlow,
    CommandMessage,
    CommandSend,
    CommandSendReceipt,
    MessageIdData,
    MessageMetadata,
)

FIRST_SEQUENCE = 1 << 28
PRODUCER_ID = CONSUMER_ID = 1
_SEQUENCE = bytes([0x80, 0x80, 0x80, 0x80, 0x01])
_METADATA = MessageMetadata(producer_name="bench", sequence_id=7, publish_time=1_700_000_000_000).SerializeToString()
_HEADERS = b"\x0e\x01" + bytes(4) + len(_METADATA).to_bytes(4, "big") + _METADATA
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Numbered:
    """A frame, and where in it five bytes hold the sequence id."""

    frame: bytes
    sequence_at: int


def send_frame(size: int, producer_id: int = PRODUCER_ID) -> Numbered:
    """A SEND of one message whose whole frame has about `size` bytes."""
    command = CommandSend(producer_id=producer_id, sequence_id=FIRST_SEQUENCE, num_messages=1)
    return _numbered(_filled(command, size))


def receipt() -> Numbered:
    """The answer to it."""
    identity = MessageIdData(ledger_id=12345, entry_id=67890)
    return _numbered(
        encode(CommandSendReceipt(producer_id=PRODUCER_ID, sequence_id=FIRST_SEQUENCE, message_id=identity))
    )


def message_frame(size: int) -> bytes:
    """A MESSAGE whose whole frame has about `size` bytes."""
    identity = MessageIdData(ledger_id=12345, entry_id=67890, partition=-1)
    return _filled(CommandMessage(consumer_id=CONSUMER_ID, message_id=identity, redelivery_count=0), size)


def flow(permits: int) -> bytes:
    """The FLOW that permits so many messages more."""
    return encode(CommandFlow(consumer_id=CONSUMER_ID, message_permits=permits))


def many(frame: bytes) -> bytes:
    """About a MiB of it."""
    return frame * max(1, _CHUNK // len(frame))


def _filled(command: CommandSend | CommandMessage, size: int) -> bytes:
    filler = bytes(max(0, size - len(encode_with_payload(command, _HEADERS))))
    return encode_with_payload(command, _HEADERS + filler)


def _numbered(frame: bytes) -> Numbered:
    return Numbered(frame, frame.index(_SEQUENCE))
