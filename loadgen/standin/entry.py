"""One entry of a topic: what one SEND carried, kept as it came."""

import zlib
from dataclasses import dataclass
from struct import Struct

from google.protobuf.message import DecodeError

from protocol.pulsar_pb2 import MessageMetadata

KEY_SLOTS = 65536
_MAGIC = Struct(">H")
_SIZE = Struct(">I")
_CHECKSUM_MAGIC = 0x0E01
_CHECKSUM_HEADER = 6
_UNKNOWN = -1


@dataclass(slots=True, eq=False)
class Entry:
    """One message or one batch of messages.

    `data` is everything behind the command: magic, checksum, metadata, payload. `messages` is what
    CommandSend.num_messages claimed; nothing is verified.
    """

    entry_id: int
    messages: int
    data: bytes
    _slot: int = _UNKNOWN

    @property
    def slot(self) -> int:
        """Where the entry's key falls, in [0, KEY_SLOTS). Not the real broker's hash, only as even."""
        if self._slot == _UNKNOWN:
            self._slot = zlib.crc32(_key_of(metadata_of(self.data))) % KEY_SLOTS
        return self._slot

    @property
    def publish_time_ms(self) -> int:
        """When the producer says that it published, in milliseconds since 1970."""
        return metadata_of(self.data).publish_time

    @property
    def batch_size(self) -> int:
        """Messages in the batch, 0 where the entry is no batch."""
        metadata = metadata_of(self.data)
        return metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0


def metadata_of(data: bytes) -> MessageMetadata:
    """The metadata in front of a payload; an empty one where the bytes are none."""
    start = 0
    if len(data) >= _CHECKSUM_HEADER and _MAGIC.unpack_from(data)[0] == _CHECKSUM_MAGIC:
        start = _CHECKSUM_HEADER
    if len(data) < start + _SIZE.size:
        return MessageMetadata()
    (size,) = _SIZE.unpack_from(data, start)
    start += _SIZE.size
    try:
        return MessageMetadata.FromString(data[start : start + size])
    except DecodeError:
        return MessageMetadata()


def _key_of(metadata: MessageMetadata) -> bytes:
    """Ordering key before partition key; without either each message may go anywhere."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        return metadata.partition_key.encode()
    return f"{metadata.producer_name}-{metadata.sequence_id}".encode()
