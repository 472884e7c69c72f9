"""Calls that touch the file system, in threads of their own and within a bound of time.

A call of a file system whose server hangs (NFS with a hard mount, FUSE) has no end that a program can bring about. So
neither the event loop makes it, nor a thread that others wait for, nor a pool whose threads the end of the process
waits for. The caller goes on when its patience ends; the thread is left to itself.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

LOOK_S: Final = 10.0
"""Seconds in which a file's state must come."""
READ_S: Final = 10.0
"""Seconds in which the files of one key must be read: a million bytes that a thread parses take one."""
CONFIG_S: Final = 120.0
"""Seconds in which the configuration must be read, checked and compared: 100,000 topics take ten on a busy machine."""

_Result = TypeVar("_Result")


class HungError(Exception):
    """A call of the file system does not come back."""


class FileCalls:
    """Makes calls, at most one of each key at one time.

    Args:
        on_answer: Called in the loop with the key when a call ends for which the caller no longer waited.

    Attributes:
        patience: Returns when so many seconds have passed.
    """

    patience: Callable[[float], Awaitable[object]] = staticmethod(asyncio.sleep)

    def __init__(self, on_answer: Callable[[Hashable], None] = lambda _: None) -> None:
        self._on_answer = on_answer
        self._under_way: set[Hashable] = set()

    async def run(self, key: Hashable, call: Callable[[], _Result], within_s: float) -> _Result:
        """Return what `call` returns in a thread.

        Raises:
            HungError: If the call, or an earlier one of this key, does not come back in time.
            Exception: As the call.
        """
        if key in self._under_way:
            raise HungError
        self._under_way.add(key)
        answer, is_left = in_own_thread(call), False

        def ended(_: object) -> None:
            self._under_way.discard(key)
            if is_left:
                self._on_answer(key)

        answer.add_done_callback(ended)
        patience = asyncio.ensure_future(self.patience(within_s))
        try:
            await asyncio.wait((answer, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
            is_left = not answer.done()
        if is_left:
            raise HungError
        return answer.result()


def in_own_thread(call: Callable[[], _Result]) -> "asyncio.Future[_Result]":
    """Make a call in a thread that ends with it, or with the process; return the future result."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Result] = loop.create_future()
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio logs an abandoned one
    context = copy_context()

    def run() -> None:
        settle: Callable[[], None]
        try:
            result = context.run(call)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            settle = partial(answer.set_exception, error)
        else:
            settle = partial(answer.set_result, result)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name="files", daemon=True).start()
    return answer
