"""Costly checks of credentials, one after the other in a thread, so that they do not hold the loop.

Any client may send a password, or a token that has to be tried with many keys. Few credentials may wait, fewer of one
address, and an address that sends wrong ones gets few checks.
"""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from limiter.admission import Buckets, KeyedBuckets
from limiter.token_bucket import NANOS_PER_SECOND, Rate

T = TypeVar("T")
MOST_WAITING = 64
"""Most different checks that wait, or are made."""
MOST_WAITING_OF_ONE = 16
"""Most checks of one address that wait, or are made."""
WRONG_ONES = Rate(1, NANOS_PER_SECOND, 10)
"""Wrong credentials of one address (IPv6: of its /64) that are checked."""
_MOST_ADDRESSES = 10_000
_NICENESS = 10


class CheckWorker(Protocol):
    """Makes checks outside of the loop, one after the other."""

    def __call__(self, work: Callable[[], T], then: Callable[[T | None], None]) -> None:
        """Call `then` in the event loop with the result of `work`; with None if it raises, which proves nothing."""


class Checks:
    """Checks within the bounds that this module's text names.

    Args:
        worker: Makes the checks.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, worker: CheckWorker, clock: Callable[[], int]) -> None:
        self._worker = worker
        self._clock = clock
        self._waiting: dict[bytes, list[Callable[[Any], None]]] = {}
        self._waiting_of: Counter[str] = Counter()
        self._wrong = KeyedBuckets(WRONG_ONES, Buckets(_MOST_ADDRESSES))

    def __len__(self) -> int:
        return len(self._waiting)

    def may_try(self, address: str) -> bool:
        """Return whether an address has not sent too many wrong credentials."""
        return self._wrong.admits(address, self._clock())

    def note_wrong(self, address: str) -> None:
        """Take note that an address has sent wrong credentials."""
        self._wrong.take(address, self._clock())

    def begin(self, digest: bytes, address: str, work: Callable[[], T], then: Callable[[T | None], None]) -> bool:
        """Have credentials checked, once for all that wait for the same; return False if there is no room.

        Args:
            digest: The digest of the credentials.
            address: The client's address, as limits count it.
            work: The check, in the thread.
            then: Called with its result; with None if it raises.
        """
        if digest in self._waiting:
            self._waiting[digest].append(then)
            return True
        if len(self._waiting) >= MOST_WAITING or self._waiting_of[address] >= MOST_WAITING_OF_ONE:
            return False
        self._waiting[digest] = [then]
        self._waiting_of[address] += 1
        self._worker(work, partial(self._made, digest, address))
        return True

    def _made(self, digest: bytes, address: str, result: object) -> None:
        waiting = self._waiting.pop(digest)
        self._waiting_of[address] -= 1
        if not self._waiting_of[address]:
            del self._waiting_of[address]
        for then in waiting:
            then(result)


class OneThread:
    """A thread that works for an event loop, with less right to the processor than the loop itself.

    It starts with the first work, and ends with the process, even in the middle of work.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[tuple[Callable[..., object], Callable[[], Any], Callable[[Any], None]]] = SimpleQueue()
        self._is_begun = False

    def __call__(self, work: Callable[[], T], then: Callable[[T | None], None]) -> None:
        """Work in the thread, and call `then` in the running loop."""
        if not self._is_begun:
            self._is_begun = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._work.put((asyncio.get_running_loop().call_soon_threadsafe, work, then))

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # Linux has a niceness for each thread
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while True:
            soon, work, then = self._work.get()
            try:
                result = work()
            except Exception:  # noqa: BLE001 - a library may raise anything for a password or a token
                result = None
            with suppress(RuntimeError):  # the loop has ended
                soon(then, result)
