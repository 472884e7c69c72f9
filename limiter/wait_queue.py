"""The streams that wait on one limiter, in fair order.

Each stream has a place: the virtual time at which its next entry would be done if all that wait here were served at
the same time, at the same pace. Whose entry would be done first, goes first. Virtual time stands at the place of the
entry that went last, so who comes anew, or comes back after a pause, starts there: with neither arrears nor a debt.

    place = virtual time on arrival + cost of the entry        (cost: nanoseconds of the limiter that it uses up)

So in the long run every stream gets equal time of the limiter, whatever its entries cost, and meanwhile no stream is
ahead of another by more than one entry.

Source: self-clocked fair queuing, S. J. Golestani, INFOCOM 1994
"""

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limiter.limiter import Limiter
    from limiter.stream import Stream


class Place:
    """Where a stream stands at one limiter with the first of its entries; it is moved only while it is in no row.

    Attributes:
        time: Virtual time at which that entry would be done.
        number: Grows from entry to entry: of two equal times the earlier goes first.
    """

    __slots__ = ("limiter", "number", "stream", "time")

    def __init__(self, stream: "Stream", limiter: "Limiter") -> None:
        self.stream = stream
        self.limiter = limiter
        self.time = limiter.waiters.virtual_time
        self.number = 0

    def precedes(self, other: "Place") -> bool:
        """Whether this one's turn comes before the other's."""
        return self.time < other.time or (self.time == other.time and self.number < other.number)

    def __lt__(self, other: "Place") -> bool:
        return self.precedes(other)


class WaitQueue:
    """Streams by their places; a stream stands here at most once."""

    __slots__ = ("_gone", "_row", "virtual_time")

    def __init__(self) -> None:
        self.virtual_time = 0
        self._row: list[Place] = []
        self._gone = 0
        """So many at the front, under half of the row, are gone: were each taken out, all behind it would be moved."""

    def __len__(self) -> int:
        return len(self._row) - self._gone

    def first(self) -> "Stream":
        """Whose turn it is; the queue must not be empty."""
        return self._row[self._gone].stream

    def is_before_all(self, place: Place) -> bool:
        """Whether nobody waits here who would go before (or already is at) this place."""
        return not self or not self._row[self._gone].precedes(place)

    def add(self, place: Place) -> None:
        """Its stream waits here; no two places are equal."""
        row = self._row
        if len(row) > self._gone and place.precedes(row[-1]):
            insort(row, place, lo=self._gone)
        else:  # where all entries cost the same, who comes is the last
            row.append(place)

    def remove(self, place: Place) -> None:
        """Its stream waits here no longer."""
        row, first = self._row, self._gone
        at = first if row[first] is place else bisect_left(row, place, lo=first)
        assert row[at] is place, "a place is not moved while it is in a row"
        if at > first:
            del row[at]
        else:
            self._gone = first + 1
        if self._gone * 2 >= len(row):
            del row[: self._gone]
            self._gone = 0

    def went(self, place: Place) -> None:
        """The entry at this place passed: virtual time goes on to it."""
        self.virtual_time = max(self.virtual_time, place.time)
