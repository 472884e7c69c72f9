"""Python's search for cyclic garbage, kept away from where it costs most: while very much is built, and for ever after.

Each full search goes over all there is, in one step that nothing else interrupts: with 100,000 policies half a second.
To free very much in one go is such a step, too.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NEWCOMERS = 20_000
"""Objects between two searches of the youngest."""


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


def search_seldom() -> None:
    """Search when NEWCOMERS objects have come that are still there, instead of Python's 700.

    A connection is made of dozens: Python's way, searches cost a fifth of what opening connections does.
    What has ended does not wait for it: sessions are gone at once (`Session`, `Traffic.let_go`).
    """
    gc.set_threshold(NEWCOMERS, *gc.get_threshold()[1:])


def let_go(tree: Any) -> None:
    """Empty dicts, and those within them, piece by piece, so that other threads run between; nobody may need them."""
    while isinstance(tree, dict) and tree:
        let_go(tree.popitem()[1])
