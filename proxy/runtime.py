"""What a process that serves asks of Python, of the C library and of the system.

Most of it once, before it serves. Memory that came free after a crowd is given back to the system in a while: the C
library keeps all that lies below something that is still used, and something always is, so a proxy whose readers stood
still would take up, for ever after, as much as it once kept for all of them at a time. Python's search for cyclic
garbage is kept away from where it costs most. A full search goes over all there is, in one step that nothing else
interrupts: with 100,000 policies half a second.
"""

import asyncio
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

SWITCH_S = 0.0005
"""After so long a thread that computes lets the loop go on, which asks for that behind each read and each write.

Python's own 5 ms are as long as the loop may be late at all: while 60,000 limits are applied, a thread computes for
seconds. Measured then, on a busy machine, 23 writes a turn: the 99.9th percentile of answers 110 ms, with this 28 ms.
"""
LARGE = 128 * 1024
"""Bytes from which on a piece of memory is the system's again as soon as it is free.

glibc begins with this and raises it up to 32 MiB; then what is left of large reads makes holes among held entries.
"""
_KEPT = 1024 * 1024
"""Bytes that stay the process's at the end of its memory, or each entry that is held there would be asked for anew."""
RESOLVERS = 8
"""Threads that may resolve names at once: libuv gives half of its own to what is slow, and has four if nobody asks."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_C_LIBRARY = ctypes.CDLL(None)
_TRIM = getattr(_C_LIBRARY, "malloc_trim", None)
if _TRIM is not None:
    _TRIM.argtypes = (ctypes.c_size_t,)


def set_up_runtime() -> None:
    """Set all of it; a C library that has no such options goes on as it is."""
    sys.setswitchinterval(SWITCH_S)
    os.environ.setdefault("UV_THREADPOOL_SIZE", str(2 * RESOLVERS))
    options = getattr(_C_LIBRARY, "mallopt", None)
    if options is not None:
        options(_M_MMAP_THRESHOLD, LARGE)
        options(_M_TRIM_THRESHOLD, _KEPT)


def give_back_memory() -> None:
    """Give the system all whole pages that are free, but for _KEPT; a C library that has no such call keeps them.

    Source: malloc_trim(3).
    """
    if _TRIM is not None:
        _TRIM(_KEPT)


def be_scheduled(scheduling: str) -> str | None:
    """Have Linux schedule this process, its threads and whatever it starts, as `Config.scheduling` says.

    A thread that runs under another policy than the usual one keeps it. Returns what is in the way.

    Source: sched(7), SCHED_BATCH: no wake-up interrupts whoever runs.
    """
    if scheduling != "batch" or not hasattr(os, "SCHED_BATCH"):
        return None
    try:
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it has just ended
                if os.sched_getscheduler(int(thread.name)) == os.SCHED_OTHER:
                    os.sched_setscheduler(int(thread.name), os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:  # as some sandboxes have it
        return str(error)
    return None


WHILE_S: Final = 10.0
"""From when some came free: until then much more may, or it is used again.

To give it back takes 3 ms for 100 MiB in pieces of 64 KiB, 10 ms in pieces of 5 KiB, and nobody is served meanwhile:
another thread would be none the better for it, as who wants memory waits for it then. With nothing to give, 0.5 ms.
"""


class Heap:
    """One of a process. No timer runs while nothing comes free.

    Args:
        give_back: Gives back to the system what is free.
    """

    def __init__(self, give_back: Callable[[], None] = give_back_memory) -> None:
        self._give_back = give_back
        self._is_asked = False

    def freed(self) -> None:
        """Much may have come free just now: of a reader that stood still, of what was held, of a session that ended.

        To be called in the loop.
        """
        if not self._is_asked:
            asyncio.get_running_loop().call_later(WHILE_S, self._go)
            self._is_asked = True

    def _go(self) -> None:
        self._is_asked = False
        self._give_back()


NEWCOMERS = 1_000
"""Objects between two searches of the youngest: these take an eighth of a millisecond."""
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
    that end wait for none (`Session`, `Forwarding.let_go`), and the youngest hold nearly all garbage that there is.

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


class Tasks:
    """Runs coroutines in the background until they end or the owner does."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work`, which handles its own errors."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """End all of them."""
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
