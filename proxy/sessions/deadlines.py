"""Many who each have the same time for something: one timer for all of them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Tells of those who are not ready in time. While nobody is under way, there is no timer.

    As all have the same time, who began first is due first; so to begin and to be ready is a look into a dictionary,
    where a timer of one's own is several objects, for each of thousands of connections that come at once.

    Args:
        seconds: So long each has.
        late: Told of each who is not ready then.
    """

    def __init__(self, seconds: float, late: Callable[[T], None]) -> None:
        self.seconds = seconds
        self._late = late
        self._due: OrderedDict[T, float] = OrderedDict()
        """A plain dictionary's first is found behind all gaps of those who were before it: with many, ever slower."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def begin(self, who: T) -> None:
        """From now on the time runs for one who is not under way already."""
        loop = asyncio.get_running_loop()
        self._due[who] = loop.time() + self.seconds
        if len(self._due) == 1:
            self._timer = loop.call_later(self.seconds, self._look)

    def end(self, who: T) -> None:
        """He is ready, or does not matter any more; perhaps he never began."""
        if self._due.pop(who, None) is not None and not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        try:
            while self._due:
                who, due = next(iter(self._due.items()))
                if due > loop.time():
                    break
                del self._due[who]
                self._late(who)
        finally:  # whatever is wrong with one, the others are told
            self._look_again(loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._due and self._timer is None:
            self._timer = loop.call_at(next(iter(self._due.values())), self._look)
