"""What a process that serves asks of Python, of the C library and of the system; most of it once, before it serves."""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

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
