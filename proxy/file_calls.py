"""Calls that touch the file system, in threads of their own and within a bound of time.

A call of a file system whose server hangs (NFS with a hard mount, FUSE) has no end that a program can bring about. So
neither the event loop makes it, nor a thread that others wait for, nor a pool whose threads the end of the process
waits for. The caller goes on when its patience ends; the thread is left to itself.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

LOOK_S: Final = 10.0
"""Seconds in which a file's state must come."""
READ_S: Final = 10.0
"""Seconds in which the files of one key must be read: a million bytes that a thread parses take one."""
CONFIG_S: Final = 120.0
"""Seconds in which the configuration must be read, checked and put in force: 100,000 topics take ten to be read on a
busy machine."""

_Result = TypeVar("_Result")


class FileCallError(Exception):
    """A call of the file system has no result; the text says why, without the name of the file."""


class HungError(FileCallError):
    """A call does not come back."""

    def __init__(self) -> None:
        super().__init__("its file system does not answer")


class NoThreadError(FileCallError):
    """A call was not made."""

    def __init__(self) -> None:
        super().__init__("no thread can be started to read it; see the bounds of the cgroup's pids and of ulimit -u")


class FileCalls:
    """Makes calls, at most one of each key at one time; the next one waits as long as the caller of the one before.

    Args:
        on_refused: Called in the loop with the key when a call ends for which nobody waited any more, and another one
            was refused meanwhile.

    Attributes:
        patience: Returns when so many seconds have passed.
    """

    patience: Callable[[float], Awaitable[object]] = staticmethod(asyncio.sleep)

    def __init__(self, on_refused: Callable[[Hashable], None] = lambda _: None) -> None:
        self._on_refused = on_refused
        self._turns = defaultdict[Hashable, asyncio.Lock](asyncio.Lock)
        self._latest: dict[Hashable, asyncio.Future[Any]] = {}
        self._hung: set[Hashable] = set()
        """The keys whose latest call did not come back in time."""
        self._refused: set[Hashable] = set()
        self._is_over = False

    async def run(self, key: Hashable, call: Callable[[], _Result], within_s: float) -> _Result:
        """Return what `call` returns in a thread.

        Raises:
            HungError: If the call, or an earlier one of this key, does not come back in time.
            NoThreadError: If no thread can be started.
            Exception: As the call.
        """
        return await self.work(key, partial(in_own_thread, call), within_s)

    async def work(self, key: Hashable, work: Callable[[], Awaitable[_Result]], within_s: float) -> _Result:
        """Return what `work` returns, which makes calls; it goes on though its result comes too late.

        Raises:
            HungError: As `run`.
            Exception: As the work.
        """
        async with self._turns[key]:
            latest = self._latest.get(key)
            if latest is not None and not latest.done():
                if key not in self._hung:  # its caller was cancelled
                    await self.wait(latest, within_s)
                if not latest.done():
                    self._refused.add(key)
                    raise HungError
            if self._is_over:
                raise asyncio.CancelledError
            self._hung.discard(key)
            answer = asyncio.ensure_future(work())
            self._latest[key] = answer
            answer.add_done_callback(partial(self._ended, key))
            await self.wait(answer, within_s)
            if not answer.done():
                self._hung.add(key)
                raise HungError
            return answer.result()

    async def wait(self, answer: "asyncio.Future[Any]", within_s: float) -> None:
        """Return when the answer is there, or so many seconds have passed."""
        patience = asyncio.ensure_future(self.patience(within_s))
        try:
            await asyncio.wait((answer, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()

    def cancel(self) -> None:
        """Have nothing done with the results that are still to come, and make no more calls."""
        self._is_over = True
        for answer in self._latest.values():
            answer.cancel()

    def _ended(self, key: Hashable, answer: "asyncio.Future[Any]") -> None:
        if key in self._refused:
            self._refused.discard(key)
            if not answer.cancelled():
                self._on_refused(key)


def in_own_thread(call: Callable[[], _Result]) -> "asyncio.Future[_Result]":
    """Make a call in a thread that ends with it, or with the process; return the future result.

    Raises:
        NoThreadError: If no thread can be started.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Result] = loop.create_future()
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio logs an abandoned one
    context = copy_context()

    def settle(finish: Callable[[], None]) -> None:
        if not answer.cancelled():
            finish()

    def run() -> None:
        finish: Callable[[], None]
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001 - the caller gets it; a library in Rust may panic
            failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
            finish = partial(answer.set_exception, failure)
        else:
            finish = partial(answer.set_result, result)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, finish)

    try:
        threading.Thread(target=run, name="files", daemon=True).start()
    except RuntimeError:
        raise NoThreadError from None
    return answer
