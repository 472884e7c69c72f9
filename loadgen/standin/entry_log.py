"""The entries of one topic, from the oldest that somebody still needs to the newest."""

from bisect import bisect_left

from loadgen.standin.entry import Entry
from loadgen.standin.refusal import Refused
from protocol.pulsar_pb2 import MessageIdData, ServerError

# Both are how clients write "the first" and "behind the last": (-1, -1) and (2^63-1, 2^63-1).
EARLIEST_LEDGER = 2**64 - 1
LATEST_LEDGER = 2**63 - 1
ENTRY_OVERHEAD = 256


class EntryLog:
    """Entries by their id: 0, 1, 2 …, one ledger.

    Args:
        ledger_id: The ledger's number, the same for all entries.
        capacity: Most bytes to keep; each entry counts its size and ENTRY_OVERHEAD.
        retention: Bytes of entries to keep although nobody needs them any more, the newest of them.
    """

    def __init__(self, ledger_id: int, capacity: int, retention: int = 0) -> None:
        self.ledger_id = ledger_id
        self.first_id = 0
        self.next_id = 0
        self.kept_bytes = 0
        self._capacity = capacity
        self._retention = retention
        self._is_full = False
        self._entries: dict[int, Entry] = {}

    def append(self, messages: int, data: bytes) -> Entry:
        """Keep one more entry.

        Raises:
            Refused: If there is no room for it: the log is full from now on, until half of it is free.
        """
        size = len(data) + ENTRY_OVERHEAD
        self._is_full = self._is_full or self.kept_bytes + size > self._capacity
        self.check_room()
        entry = Entry(self.next_id, messages, data)
        self._entries[self.next_id] = entry
        self.next_id += 1
        self.kept_bytes += size
        return entry

    def check_room(self) -> None:
        """Raise `Refused` while the log is full (the error with which producers wait and try again)."""
        if self._is_full:
            raise Refused(
                ServerError.ProducerBlockedQuotaExceededError,
                f"the topic keeps {self.kept_bytes} of at most {self._capacity} bytes: consume or unsubscribe",
            )

    def get(self, entry_id: int) -> Entry | None:
        """The entry, None where it is not there yet or not any more."""
        return self._entries.get(entry_id)

    def trim(self, needed_id: int) -> None:
        """Forget the entries before `needed_id`, but for what the retention keeps."""
        while self.first_id < needed_id and self.kept_bytes > self._retention:
            entry = self._entries.pop(self.first_id)
            self.kept_bytes -= len(entry.data) + ENTRY_OVERHEAD
            self.first_id += 1
        if self.kept_bytes <= self._capacity // 2:
            self._is_full = False

    def position_of(self, message_id: MessageIdData) -> int:
        """The entry id to start reading at, within what is kept."""
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
