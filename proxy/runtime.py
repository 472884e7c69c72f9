"""Settings of Python, the C library and the system for a process that serves; memory and garbage collection.

Most settings are made once, before the process serves. Memory that came free after a crowd is given back to the system
after a while. By itself the C library keeps all memory below the highest piece in use. So a proxy whose readers once
stopped would for ever take as much memory as it held for them then. Python's search for cyclic garbage looks at new
objects only (`Searches`). A search of all objects is one step without interruption: half a second with 100,000
policies.
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

import protocol.scanner

SWITCH_S = 0.0005
"""Seconds after which a computing thread lets the loop go on, which waits for that after each read and each write.

Python's own 5 ms are the longest delay that the loop may have at all. While 60,000 limits are applied, a thread
computes for seconds. Measured then, on a busy machine, 23 writes a turn: the 99.9th percentile of answers is 110 ms
with 5 ms, and 28 ms with this.
"""
LARGE = 128 * 1024
"""Least bytes of a piece of memory that returns to the system as soon as it is free.

glibc begins with this value and raises it up to 32 MiB; large reads then leave holes among held entries.
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


class StartError(Exception):
    """The proxy cannot start; the text says why."""


def is_compiled() -> bool:
    """Return whether the hot modules run as machine code."""
    return not str(protocol.scanner.__file__).endswith(".py")


def set_up_runtime() -> None:
    """Make all settings; a C library that lacks an option goes on as it is."""
    sys.setswitchinterval(SWITCH_S)
    os.environ.setdefault("UV_THREADPOOL_SIZE", str(2 * RESOLVERS))
    options = getattr(_C_LIBRARY, "mallopt", None)
    if options is not None:
        options(_M_MMAP_THRESHOLD, LARGE)
        options(_M_TRIM_THRESHOLD, _KEPT)


def give_back_memory() -> None:
    """Give all free whole pages except _KEPT back to the system; a C library without that call keeps them.

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
            with suppress(ProcessLookupError):  # the thread has just ended
                if os.sched_getscheduler(int(thread.name)) == os.SCHED_OTHER:
                    os.sched_setscheduler(int(thread.name), os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:  # as some sandboxes have it
        return str(error)
    return None


WHILE_S: Final = 10.0
"""Seconds between memory coming free and giving it back: more may come free, or the memory is used again.

To give back 100 MiB takes 3 ms in pieces of 64 KiB, and 10 ms in pieces of 5 KiB. No client is served during that, and
another thread would not help: allocations wait for it as well. With nothing to give it takes 0.5 ms.
"""


PIECE_S: Final = 0.1
"""Seconds between two times at which memory is given back while thousands of streams end. That takes long for all of
their memory together: 23 ms for 194 MiB of 19,000 producers with long names."""


class Heap:
    """Gives free memory back to the system some time after much came free; no timer runs while nothing does.

    There is one in a process.

    Args:
        measure: Measures the call of `give_back`, as a context.
        give_back: Gives free memory back to the system.
        is_freeing: Returns whether work is under way that frees much.
    """

    def __init__(
        self,
        measure: Callable[[], AbstractContextManager[object]],
        give_back: Callable[[], None] = give_back_memory,
        is_freeing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._measure = measure
        self._give_back = give_back
        self._is_freeing = is_freeing
        self._is_asked = self._is_in_pieces = False

    def freed(self) -> None:
        """Note that much memory may have come free: of a slow reader, of held entries, of a session that ended.

        To be called in the loop.
        """
        if not self._is_asked:
            asyncio.get_running_loop().call_later(WHILE_S, self._go)
            self._is_asked = True

    def freeing(self) -> None:
        """Note that work begins that frees much memory, which is given back in pieces until that is over."""
        if not self._is_in_pieces:
            asyncio.get_running_loop().call_later(PIECE_S, self._give_piece)
            self._is_in_pieces = True

    def _go(self) -> None:
        self._is_asked = False
        with self._measure():
            self._give_back()

    def _give_piece(self) -> None:
        self._is_in_pieces = False
        if self._is_freeing():
            self.freeing()
        with self._measure():
            self._give_back()


NEWCOMERS = 1_000
"""Objects more than at the last search, after which Python searches the youngest; that takes an eighth of a
millisecond."""
MANY = 10_000
"""Objects that were searched once, after which they are searched once more: 1 to 3 ms."""
MOST_SEARCHED = 2 * MANY
"""Most objects of one search, which take 3 to 6 ms. More are exempt without a search."""
_NEVER = 1_000_000_000


class _Pauses:
    """Counts the threads that need garbage collection paused; the pause ends with the last one."""

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
                if gc.get_count()[0] > MANY:  # else the next search would look at all objects that were built
                    gc.freeze()
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause garbage collection in all threads, while many objects are built and none is garbage."""
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()


def keep_for_ever() -> None:
    """Exempt all present objects from garbage collection: at the start, when they are policies and code, no clients."""
    gc.freeze()


class Searches:
    """Schedules Python's searches for cyclic garbage: each object is searched twice while it is young, and never again.

        new ──1,000 more, or work of a turn──▶ searched ──10,000──▶ once more, in a turn of its own ──▶ exempt (freeze)

    Python's own rule searches all objects now and then, in one step without interruption. With 10,000 connections and
    10,000 producers that takes 0.2 to 0.4 s, and any client can open them. Here a search looks at new objects only,
    whatever the number of others.

    Python counts the objects that were made less those that were freed. While 12,000 old streams end and as many begin,
    that number does not grow, and 100,000 young objects would be searched at last, in one step of 0.13 s. So the
    youngest are also searched each time that the loop has done as much work as fills a turn. A search that would look
    at more than `MOST_SEARCHED` all the same, as in work that is in no slices, is left out.

    Exempt objects are freed as usual if no cycle keeps them; sessions, streams and their transports end without cycles
    (`Session`, `Forwarding.let_go`). A cycle stays for ever if it becomes garbage after its second search. That search
    comes after 10,000 more objects that are made and not freed while the cycle is in use. Of the cycles that requests
    leave, less than a hundredth stays.

    Args:
        soon: Schedules a call in the event loop, from any thread.
        measure: Measures the searches that are not Python's own, as a context.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        measure: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._soon = soon
        self._measure = measure
        self._searched_once = 0
        self._is_coming = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Apply this rule inside the block, and the former one again after it."""
        before = gc.get_threshold()
        gc.set_threshold(NEWCOMERS, _NEVER, _NEVER)
        gc.callbacks.append(self._searching)
        try:
            yield
        finally:
            gc.callbacks.remove(self._searching)
            gc.set_threshold(*before)

    def search_youngest(self) -> None:
        """Search the objects that are new since the last search, unless searches are paused."""
        if gc.isenabled():
            with self._measure():
                gc.collect(0)

    def _searching(self, phase: str, info: dict[str, int]) -> None:
        if phase != "start":
            return
        generation = info["generation"]
        objects = sum(len(gc.get_objects(generation=younger)) for younger in range(generation + 1))
        if objects > MOST_SEARCHED:
            gc.freeze()
            self._searched_once = 0
        elif generation == 0:
            self._searched_once += objects
            if self._searched_once >= MANY and not self._is_coming:
                self._is_coming = True
                self._soon(self._search_again)

    def _search_again(self) -> None:
        with self._measure():
            gc.collect()
            gc.freeze()
        self._searched_once = 0
        self._is_coming = False


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
