"""Entries, a topic's log, and the cursors with the entries that subscriptions have acknowledged."""

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from struct import Struct

from google.protobuf.message import DecodeError

from protocol.pulsar_pb2 import MessageIdData, MessageMetadata, ServerError

UNASKED = 2**64 - 1
"""The request id of what the broker does of its own accord."""


class StandinRefusal(Exception):
    """The request gets an ERROR of this code; the connection lives on."""

    def __init__(self, error: ServerError, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


KEY_SLOTS = 65536
_MAGIC = Struct(">H")
_SIZE = Struct(">I")
_CHECKSUM_MAGIC = 0x0E01
_CHECKSUM_HEADER = 6
_UNKNOWN = -1


@dataclass(slots=True, eq=False)
class StoredEntry:
    """One message or one batch of messages.

    `data` is everything after the command: magic, checksum, metadata, payload. `messages` is
    CommandSend.num_messages as sent; nothing is verified.
    """

    entry_id: int
    messages: int
    data: bytes
    _slot: int = _UNKNOWN

    @property
    def slot(self) -> int:
        """The slot of the entry's key, in [0, KEY_SLOTS). Not the real broker's hash, only as even."""
        if self._slot == _UNKNOWN:
            self._slot = zlib.crc32(_key_of(metadata_of(self.data))) % KEY_SLOTS
        return self._slot

    @property
    def publish_time_ms(self) -> int:
        """The producer's own publish time, in milliseconds since 1970."""
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


# Clients write "the first" as (-1, -1), and "after the last" as (2^63-1, 2^63-1), which is after each ledger.
EARLIEST_LEDGER = 2**64 - 1
ENTRY_OVERHEAD = 256


class EntryLog:
    """Entries by their id: 0, 1, 2 …, one ledger.

    Args:
        ledger_id: The ledger's number, the same for all entries.
        capacity: Most bytes to keep; each entry counts its size and ENTRY_OVERHEAD.
        retention: Bytes of the newest entries to keep although all subscriptions have acknowledged them.
    """

    def __init__(self, ledger_id: int, capacity: int, retention: int = 0) -> None:
        self.ledger_id = ledger_id
        self.first_id = 0
        self.next_id = 0
        self.kept_bytes = 0
        self._capacity = capacity
        self._retention = retention
        self._is_full = False
        self._entries: dict[int, StoredEntry] = {}

    def append(self, messages: int, data: bytes) -> StoredEntry:
        """Keep one more entry.

        Raises:
            Refused: If there is no room: the log is full from now on, until half is free.
        """
        size = len(data) + ENTRY_OVERHEAD
        self._is_full = self._is_full or self.kept_bytes + size > self._capacity
        self.check_room()
        entry = StoredEntry(self.next_id, messages, data)
        self._entries[self.next_id] = entry
        self.next_id += 1
        self.kept_bytes += size
        return entry

    def check_room(self) -> None:
        """Raise `StandinRefusal` while the log is full (the error with which producers wait and try again)."""
        if self._is_full:
            raise StandinRefusal(
                ServerError.ProducerBlockedQuotaExceededError,
                f"the topic keeps {self.kept_bytes} of at most {self._capacity} bytes: consume or unsubscribe",
            )

    def get(self, entry_id: int) -> StoredEntry | None:
        """The entry, None where it is not there yet or not any more."""
        return self._entries.get(entry_id)

    def trim(self, needed_id: int) -> None:
        """Forget the entries before `needed_id`, except those that the retention keeps."""
        while self.first_id < needed_id and self.kept_bytes > self._retention:
            entry = self._entries.pop(self.first_id)
            self.kept_bytes -= len(entry.data) + ENTRY_OVERHEAD
            self.first_id += 1
        if self.kept_bytes <= self._capacity // 2:
            self._is_full = False

    def superseded(self) -> Iterator[int]:
        """Yield the entries that a compaction would remove.

        It removes entries without a key, entries whose key has a later one, and entries without content, which clear
        their key. Batches are kept whole: this broker does not open them.
        """
        latest: dict[str, int] = {}
        for entry_id in range(self.first_id, self.next_id):
            metadata = metadata_of(self._entries[entry_id].data)
            if metadata.HasField("num_messages_in_batch"):
                continue
            former = latest.pop(metadata.partition_key, None)
            if former is not None:
                yield former
            if metadata.partition_key and metadata.uncompressed_size:
                latest[metadata.partition_key] = entry_id
            else:
                yield entry_id

    def position_of(self, message_id: MessageIdData) -> int:
        """Return the entry id to start reading at, among the entries kept."""
        if message_id.ledger_id == EARLIEST_LEDGER or message_id.ledger_id < self.ledger_id:
            return self.first_id
        if message_id.ledger_id > self.ledger_id:
            return self.next_id
        return min(max(message_id.entry_id, self.first_id), self.next_id)

    def position_at(self, publish_time_ms: int) -> int:
        """The first entry published at that time or later; takes publish times as ascending, as Pulsar does."""
        kept = range(self.first_id, self.next_id)
        return self.first_id + bisect_left(kept, publish_time_ms, key=self._publish_time_ms)

    def _publish_time_ms(self, entry_id: int) -> int:
        return self._entries[entry_id].publish_time_ms


class Cursor:
    """A subscription's acknowledgements: all below `position`, and single ones above it.

    A batch acknowledged in part has an ack set: 64-bit words, a set bit for each message still open.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        self._single: set[int] = set()
        self._open_in_batch: dict[int, tuple[int, ...]] = {}

    def is_acknowledged(self, entry_id: int) -> bool:
        """Return whether the subscription has acknowledged the whole entry."""
        return entry_id < self.position or entry_id in self._single

    def acknowledge(self, entry_id: int) -> None:
        """Acknowledge one entry."""
        if entry_id < self.position:
            return
        self._single.add(entry_id)
        self._advance()

    def acknowledge_in_part(self, entry_id: int, ack_set: Sequence[int]) -> bool:
        """Acknowledge some messages of a batch; return whether all are acknowledged now."""
        known = self._open_in_batch.get(entry_id)
        still_open = tuple(ack_set)
        if known is not None:
            still_open = tuple(left & right for left, right in zip_longest(known, ack_set, fillvalue=0))
        if any(still_open):
            self._open_in_batch[entry_id] = still_open
            return False
        self.acknowledge(entry_id)
        return True

    def open_in_batch(self, entry_id: int) -> tuple[int, ...]:
        """Return the entry's ack set, empty where no message is acknowledged."""
        return self._open_in_batch.get(entry_id, ())

    def acknowledge_below(self, position: int) -> None:
        """Acknowledge all entries before `position`."""
        if position > self.position:
            for entry_id in range(self.position, position):
                self._single.discard(entry_id)
                self._open_in_batch.pop(entry_id, None)
            self.position = position
        self._advance()

    def reset(self, position: int) -> None:
        """Begin again at `position`, whatever was acknowledged."""
        self.position = position
        self._single.clear()
        self._open_in_batch.clear()

    def _advance(self) -> None:
        while self.position in self._single:
            self._single.discard(self.position)
            self._open_in_batch.pop(self.position, None)
            self.position += 1
