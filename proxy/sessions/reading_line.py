"""Who is read again when many may be at the same moment: one connection in each turn of the loop.

When a tenant has room again, all its connections may be read on. Each read gives up to 256 KiB, up to 2 MiB in a row
where not all passes (`FULL_READS`), and each entry is held by itself: were all of them read in the same turn, no timer
would fire meanwhile, and most of what they bring would have no room after all.

    reasons gone ─▶ nobody in line ─▶ read on at once
                └─▶ else in line, at the place that it had ─▶ its turn ─▶ read on, its place is given up
                                                                     └─▶ stopped again meanwhile: it keeps its place

So whoever was told last is not always the one for whom nothing is left.
"""

import asyncio
from heapq import heappop, heappush
from typing import Protocol


class Reader(Protocol):
    """Who stands in line."""

    def turn_came(self) -> bool:
        """Read on, if nothing else is against it by now. Whether it did."""


class ReadingLine:
    """Gives turns; one of a process for all connections."""

    def __init__(self) -> None:
        self._places: dict[Reader, int] = {}
        self._row: list[tuple[int, Reader]] = []
        self._in_row: set[Reader] = set()
        self._last = 0
        self._is_busy = False

    def goes_first(self, reader: Reader) -> bool:
        """Whether it may read on now, as nobody is before it. Else it stands in line from now on."""
        if self._is_busy or self._places:
            self.join(reader)
            return False
        self._begin_turn()
        return True

    def join(self, reader: Reader) -> None:
        """Stand in line: behind all others, or at the place where it stood when it was stopped."""
        if reader not in self._places:
            self._last += 1
            self._places[reader] = self._last
        if reader not in self._in_row:
            self._in_row.add(reader)
            heappush(self._row, (self._places[reader], reader))
        if not self._is_busy:
            self._begin_turn()

    def leave(self, reader: Reader) -> None:
        """It will not be read again."""
        self._places.pop(reader, None)

    def _begin_turn(self) -> None:
        self._is_busy = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        if not self._row:
            self._is_busy = False
            return
        self._begin_turn()  # before anything that may fail
        while self._row and not self._has_its_turn():
            pass

    def _has_its_turn(self) -> bool:
        """Whether the first could use its turn; who is stopped again, or has left, does not cost others theirs."""
        _, reader = heappop(self._row)
        self._in_row.discard(reader)
        place = self._places.pop(reader, None)
        if place is None:
            return False
        has_gone = reader.turn_came()
        if not has_gone:
            self._places.setdefault(reader, place)
        return has_gone
