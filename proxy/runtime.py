"""Settings of Python, the C library and the system for a process that serves; memory and garbage collection.

Most settings are made once, before the process serves. Memory that came free after a crowd is given back to the system
after a while. The C library keeps all memory below something that is still used, and something always is. So a proxy
whose readers once stood still would take up, for ever after, as much as it kept for all of them at a time. Python's
search for cyclic garbage looks at new objects alone (`Searches`). A search of all objects is one step that nothing else
interrupts: with 100,000 policies half a second.
"""

import asyncio
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

SWITCH_S = 0.0005
"""Seconds after which a computing thread lets the loop go on, which asks for that after each read and each write.

Python's own 5 ms are as long as the loop may be late at all: while 60,000 limits are applied, a thread computes for
seconds. Measured then, on a busy machine, 23 writes a turn: the 99.9th percentile of answers 110 ms, with this 28 ms.
"""
LARGE = 128 * 1024
"""Bytes from which on a piece of memory returns to the system as soon as it is free.

glibc begins with this and raises it up to 32 MiB; then what is left of large reads makes holes among held entries.
"""
_KEPT = 1024 * 1024
"""Free bytes that the process keeps at the end of its memory: else each held entry would ask the system for memory."""
RESOLVERS = 8
"""Threads that may resolve names at once: libuv gives half of its threads to slow work, and has four by default."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_C_LIBRARY = ctypes.CDLL(None)
_TRIM = getattr(_C_LIBRARY, "malloc_trim", None)
if _TRIM is not None:
    _TRIM.argtypes = (ctypes.c_size_t,)


def set_up_runtime() -> None:
    """Make all settings; a C library that lacks an option goes on as it is."""
    sys.setswitchinterval(SWITCH_S)
    os.environ.setdefault("UV_THREADPOOL_SIZE", str(2 * RESOLVERS))
    options = getattr(_C_LIBRARY, "mallopt", None)
    if options is not None:
        options(_M_MMAP_THRESHOLD, LARGE)
        options(_M_TRIM_THRESHOLD, _KEPT)


def give_back_memory() -> None:
    """Give all free whole pages back to the system, but for _KEPT; a C library without that call keeps them.

    Source: malloc_trim(3).
    """
    if _TRIM is not None:
        _TRIM(_KEPT)


def be_scheduled(scheduling: str) -> str | None:
    """Have Linux schedule this process, its threads and its children as `Config.scheduling` says.

    A thread under another policy than the default one keeps it. Returns the error text, or None.

    Source: sched(7), SCHED_BATCH: a wake-up does not preempt the running thread.
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
"""Seconds from when memory came free until it is given back: until then more may come free, or it is used again.

To give it back takes 3 ms for 100 MiB in pieces of 64 KiB, 10 ms in pieces of 5 KiB, and nobody is served meanwhile:
another thread would be none the better for it, as who wants memory waits for it then. With nothing to give, 0.5 ms.
"""


class Heap:
    """Gives free memory back to the system some time after much came free; no timer runs while nothing does.

    There is one in a process.

    Args:
        give_back: Gives free memory back to the system.

    Attributes:
        measure: Measures that, as a context.
    """

    def __init__(self, give_back: Callable[[], None] = give_back_memory) -> None:
        self.measure: Callable[[], AbstractContextManager[object]] = nullcontext
        self._give_back = give_back
        self._is_asked = False

    def freed(self) -> None:
        """Note that much memory may have come free: of a slow reader, of held entries, of a session that ended.

        To be called in the loop.
        """
        if not self._is_asked:
            asyncio.get_running_loop().call_later(WHILE_S, self._go)
            self._is_asked = True

    def _go(self) -> None:
        self._is_asked = False
        with self.measure():
            self._give_back()


NEWCOMERS = 1_000
"""New objects between two searches of the youngest, which take an eighth of a millisecond."""
MANY = 10_000
"""Objects that outlived such searches, after which they are searched once more: 1 to 2 ms."""
_NEVER = 1_000_000_000


class _Pauses:
    """Counts the threads that want garbage collection paused; the pause ends with the last of them."""

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
                if gc.get_count()[0] > MANY:  # else the next search of newcomers would look at all that was built
                    gc.freeze()
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause garbage collection in all threads, while much is built of which nothing is garbage."""
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()


def keep_for_ever() -> None:
    """Exempt all present objects from garbage collection: at the start, when they are policies and code, no clients."""
    gc.freeze()


class Searches:
    """Schedules Python's searches for cyclic garbage: of the youngest objects, of those that outlived it, of no others.

        new ──1,000 more──▶ searched ──10,000 more──▶ searched once more, in a turn of its own ──▶ exempt (gc.freeze)

    Python's own rule searches all objects now and then, in one step that nothing else interrupts: with 10,000
    connections and 10,000 producers 0.2 to 0.4 s, which a client causes that opens them. Here a search looks at new
    objects alone, however many there are.

    What is exempt is freed as everything is that no cycle keeps; sessions, streams and their transports end without
    one (`Session`, `Forwarding.let_go`). A cycle stays for ever if it becomes garbage after its second search. As only
    what is made and not freed counts, that takes 10,000 objects more while the cycle is in use: of what a request
    leaves to the searches, less than a hundredth stays.

    Args:
        soon: Schedules a call in the event loop, from any thread.
        measure: Measures a search of those that outlived the first, as a context.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        measure: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._soon = soon
        self._measure = measure
        self._outlived = 0
        self._is_coming = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Apply this rule inside the block, and the former one again after it."""
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
        if self._outlived >= MANY and not self._is_coming:
            self._is_coming = True
            self._soon(self._search_again)

    def _search_again(self) -> None:
        with self._measure():
            gc.collect()
            gc.freeze()
        self._outlived = 0
        self._is_coming = False


def let_go(tree: Any) -> None:
    """Empty nested dicts piece by piece, so that other threads run in between; they must not be used any more."""
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
        """Cancel all running tasks."""
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
