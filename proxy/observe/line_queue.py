"""Lines that wait for standard error, which a thread writes: no reader that stands still stops the event loop.

write ──▶ queue ──thread──▶ standard error, each line in one write
            └─full─▶ lost, and said where the lost lines would be
"""

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

MOST_WAITING: Final = 1024**2
"""Most bytes that wait for standard error: some thousand lines. A pipe takes 64 KiB more."""
END_S: Final = 5.0
"""Seconds at the end of the process in which standard error must take the lines that wait."""


class _Gap:
    """The place of lost lines."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines = 0


class LineQueue:
    """Takes lines from any thread; a thread of its own writes them, in order.

    Args:
        descriptor: Where it writes.
        loss: Returns the line that says how many lines are lost.
        most_waiting: Most bytes that wait.

    Attributes:
        lost: The number of lines that were not written.
    """

    def __init__(self, descriptor: int, loss: Callable[[int], bytes], most_waiting: int = MOST_WAITING) -> None:
        self.lost = 0
        self._descriptor = descriptor
        self._loss = loss
        self._most_waiting = most_waiting
        self._waiting: deque[bytes | _Gap | Callable[[], None]] = deque()
        self._size = 0
        self._signal = threading.Condition()
        self._is_ending = False
        self._ended = threading.Event()
        self._unsaid = 0
        threading.Thread(target=self._run, name="operator log", daemon=True).start()

    def write(self, line: bytes) -> None:
        """Queue a whole line; it is lost if too much waits."""
        with self._signal:
            if self._size + len(line) <= self._most_waiting:
                self._waiting.append(line)
                self._size += len(line)
            else:
                self.lost += 1
                if not self._waiting or not isinstance(self._waiting[-1], _Gap):
                    self._waiting.append(_Gap())
                gap = self._waiting[-1]
                assert isinstance(gap, _Gap), "it was just appended"
                gap.lines += 1
            self._signal.notify()

    def then(self, call: Callable[[], None]) -> None:
        """Have the thread make a call when all lines so far are written."""
        with self._signal:
            self._waiting.append(call)
            self._signal.notify()

    def close(self, patience_s: float = END_S) -> bool:
        """Write the lines that wait, and no more; return False if that took longer than `patience_s`."""
        with self._signal:
            self._is_ending = True
            self._signal.notify()
        return self._ended.wait(patience_s)

    def write_left(self, patience_s: float = END_S) -> None:
        """Write the lines that came while the queue was closed, which its thread writes no more; then it takes none.

        Those that standard error does not take within `patience_s` are lost.
        """
        until = time.monotonic() + patience_s
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        with self._signal:
            left = [each for each in self._waiting if isinstance(each, bytes)]
            self._waiting.clear()
        for number, line in enumerate(left):
            rest = memoryview(line)
            while rest:
                try:
                    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                        self.lost += len(left) - number
                        return
                    rest = rest[os.write(self._descriptor, rest[: select.PIPE_BUF]) :]  # which a pipe takes at once
                except BlockingIOError:  # another process has filled it since
                    continue
                except OSError:
                    self.lost += 1
                    break

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, _Gap):
                self._unsaid += item.lines
            self._say_losses()
            if isinstance(item, bytes) and not self._put(item):
                self._unsaid += 1
                with self._signal:
                    self.lost += 1
            elif callable(item):
                item()
        self._say_losses()
        self._ended.set()

    def _next(self) -> bytes | _Gap | Callable[[], None] | None:
        with self._signal:
            while not self._waiting and not self._is_ending:
                self._signal.wait()
            item = self._waiting.popleft() if self._waiting else None
            if isinstance(item, bytes):
                self._size -= len(item)
            return item

    def _say_losses(self) -> None:
        if self._unsaid and self._put(self._loss(self._unsaid)):
            self._unsaid = 0

    def _put(self, line: bytes) -> bool:
        """Write a line, however long that takes; return False if it cannot be written."""
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process has made it so, which has the same pipe
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                return False
        return True
