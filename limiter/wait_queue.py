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
    from limiter.stream import Stream

Place = tuple[int, int]
"""Virtual time, and a number that grows: of two equal ones the earlier goes first."""


class WaitQueue:
    """Streams by their places; a stream stands here at most once."""

    __slots__ = ("_gone", "_row", "virtual_time")

    def __init__(self) -> None:
        self.virtual_time = 0
        self._row: list[tuple[int, int, Stream]] = []
        self._gone = 0
        """So many at the front are gone, half of the row at most: were each taken out, all behind it would be moved."""

    def __len__(self) -> int:
        return len(self._row) - self._gone

    def first(self) -> "Stream":
        """Whose turn it is; the queue must not be empty."""
        return self._row[self._gone][2]

    def is_before_all(self, place: Place) -> bool:
        """Whether nobody waits here who would go before (or already is at) this place."""
        return not self or _precedes(place, self._row[self._gone])

    def add(self, stream: "Stream", place: Place) -> None:
        """`stream` waits here; places of different streams are never equal."""
        row = self._row
        if row and _precedes(place, row[-1]):
            insort(row, (place[0], place[1], stream), lo=self._gone)
        else:  # where all entries cost the same, who comes is the last
            row.append((place[0], place[1], stream))

    def remove(self, stream: "Stream", place: Place) -> None:
        """`stream` waits here no longer; `place` is the one that it was added with."""
        row, first = self._row, self._gone
        at = first if row[first][2] is stream else bisect_left(row, place, lo=first)
        assert row[at][2] is stream, "a stream is removed from the place where it was added"
        if at > first:
            del row[at]
        elif 2 * first + 1 < len(row):
            self._gone += 1
        else:
            del row[: first + 1]
            self._gone = 0

    def went(self, place: Place) -> None:
        """The entry at this place passed: virtual time goes on to it."""
        self.virtual_time = max(self.virtual_time, place[0])


def _precedes(place: Place, waiter: "tuple[int, int, Stream]") -> bool:
    """Spelled out: to compare parts of tuples, Python would have to make them."""
    return place[0] < waiter[0] or (place[0] == waiter[0] and place[1] <= waiter[1])
