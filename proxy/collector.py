"""Python's search for cyclic garbage, kept away from where it costs most: while very much is built, and for ever after.

Each full search goes over all there is, in one step that nothing else interrupts: with 100,000 policies half a second.
To free very much in one go is such a step, too.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NEWCOMERS = 4_000
"""Objects between two searches of the youngest: these take half a millisecond."""
MANY = 1_000_000
"""Objects that outlived such a search, after which all are searched."""
SPARED = 300
"""As many times as long as a search of all took nobody begins another one."""
_NEVER = 1_000_000_000


class _Pauses:
    """How many threads want a pause now; it ends with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count and self._was_enabled:
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def paused_collector() -> Iterator[None]:
    """No search while much is built of which nothing is garbage, by this thread or any other."""
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()


def keep_for_ever() -> None:
    """What there is now is never searched again: for the start, when it is policies and code and not yet clients."""
    gc.freeze()


class Searches:
    """When Python searches for cyclic garbage: of the youngest often and shortly, of all seldom.

    Python's own rule searches 700 newcomers at a time, ten times as many after ten times, and all after a hundred. A
    connection is made of dozens, so that was a fifth of what opening connections costs; and where a thousand come and
    go, a search of 12 ms each two seconds, and of 40 to 80 ms now and then, is what their neighbours notice. Sessions
    that end wait for none (`Session`, `Traffic.let_go`), and the youngest hold nearly all garbage that there is.

    Args:
        soon: Has something called when the event loop has done what it is doing; from any thread.
        clock: Seconds.
    """

    def __init__(
        self, soon: Callable[[Callable[[], None]], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._soon = soon
        self._clock = clock
        self._outlived = 0
        self._next = clock()
        self._is_coming = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Search by this rule inside, and as before again behind."""
        before = gc.get_threshold()
        gc.set_threshold(NEWCOMERS, _NEVER, _NEVER)
        gc.callbacks.append(self._searched)
        try:
            yield
        finally:
            gc.callbacks.remove(self._searched)
            gc.set_threshold(*before)

    def _searched(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" or info["generation"] > 0:
            return
        self._outlived += NEWCOMERS
        if self._outlived >= MANY and not self._is_coming and self._clock() >= self._next:
            self._is_coming = True
            self._soon(self._search_all)

    def _search_all(self) -> None:
        began = self._clock()
        gc.collect()
        ended = self._clock()
        self._outlived = 0
        self._next = ended + SPARED * (ended - began)
        self._is_coming = False


def let_go(tree: Any) -> None:
    """Empty dicts, and those within them, piece by piece, so that other threads run between; nobody may need them."""
    while isinstance(tree, dict) and tree:
        let_go(tree.popitem()[1])
