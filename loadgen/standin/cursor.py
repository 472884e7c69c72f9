"""What one subscription has acknowledged."""

from collections.abc import Sequence
from itertools import zip_longest


class Cursor:
    """All below `position` is acknowledged, above it what was acknowledged one by one.

    A batch acknowledged in part has an ack set: 64-bit words, a set bit for each message still open.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        self._single: set[int] = set()
        self._open_in_batch: dict[int, tuple[int, ...]] = {}

    def is_acknowledged(self, entry_id: int) -> bool:
        """Whether nobody needs to see this entry again."""
        return entry_id < self.position or entry_id in self._single

    def acknowledge(self, entry_id: int) -> None:
        """One entry is done."""
        if entry_id < self.position:
            return
        self._single.add(entry_id)
        self._advance()

    def acknowledge_in_part(self, entry_id: int, ack_set: Sequence[int]) -> bool:
        """Some messages of a batch are done; the answer is whether all of them are by now."""
        known = self._open_in_batch.get(entry_id)
        still_open = tuple(ack_set) if known is None else _both(known, ack_set)
        if any(still_open):
            self._open_in_batch[entry_id] = still_open
            return False
        self.acknowledge(entry_id)
        return True

    def open_in_batch(self, entry_id: int) -> tuple[int, ...]:
        """The entry's ack set, empty where nothing of it is acknowledged."""
        return self._open_in_batch.get(entry_id, ())

    def acknowledge_below(self, position: int) -> None:
        """All before `position` are done."""
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


def _both(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    return tuple(a & b for a, b in zip_longest(left, right, fillvalue=0))
