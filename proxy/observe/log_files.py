"""The access log's files: written by a thread of their own, closed by size or age, and only then given their names.

The event loop never waits for the disk. Lines that do not fit the queue are dropped, and so are those that cannot be
written. Both are counted in `losses`, reported once to the operator, and declared in the log as soon as it can be
written again.

    write ──▶ queue ──thread──▶ LogWriter (log_writer.py)
                └─full─▶ lost
"""

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from proxy.observe.log_writer import LineBatch, LineRun, LogWriter, Loss, Notices, Trouble


class LogFiles:
    """Takes lines from the event loop; a thread writes them.

    Args:
        writer: Writes the lines to files.
        queue: Most bytes that wait for the writer.
    """

    def __init__(self, writer: LogWriter, queue: int) -> None:
        self.losses = writer.losses
        self.retention = writer.retention
        self._writer = writer
        self._queue = queue
        self._waiting: deque[LineBatch] = deque()
        self._waiting_size = 0
        self._signal = threading.Condition()
        self._is_ending = False
        self._rests_s = 0.0
        self._drained: list[threading.Event] = []
        self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
        self._thread.start()

    def write(self, data: bytes, first_seq: int, lines: int, declares: tuple[Loss, ...] = ()) -> None:
        """Queue whole lines. They are lost if too much is waiting, unless they declare losses: those are few.

        Args:
            data: The lines.
            first_seq: `seq` of the first line; the others have the next numbers.
            lines: The number of lines.
            declares: The losses that the first of them declare, if any.
        """
        now = time.time_ns()
        batch = LineBatch(data, LineRun(lines, first_seq, first_seq + lines - 1, now, now), declares)
        with self._signal:
            if declares or self._waiting_size + len(data) <= self._queue:
                self._waiting.append(batch)
                self._waiting_size += len(data)
                self._signal.notify()
                return
        self._writer.lose("queue", batch, "")
        self._writer.tell("queue", f"the disk is too slow: more than {self._queue} bytes would wait for it")

    @property
    def is_writing(self) -> bool:
        """True if, as far as is known, lines that are written now are not lost."""
        return not self._writer.troubles & {"disk", "queue"}

    def rest(self, seconds: float) -> None:
        """Note that no line is expected for so many seconds: a file that would become too old meanwhile is closed now.

        So the file's age does not wake an idle process, and readers have the file sooner.
        """
        with self._signal:
            self._rests_s = seconds
            self._signal.notify()

    def drain(self, patience_s: float) -> bool:
        """Write all waiting lines and close the file; return False if that took longer than `patience_s`."""
        drained = threading.Event()
        with self._signal:
            self._drained.append(drained)
            self._signal.notify()
        return drained.wait(patience_s)

    def close(self, patience_s: float) -> bool:
        """Write all waiting lines and stop the thread; return False if that took longer than `patience_s`."""
        with self._signal:
            self._is_ending = True
            self._signal.notify()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._signal:
                if not (self._waiting or self._is_ending or self._drained or self._rests_s):
                    self._signal.wait(self._writer.until_too_old())
                batches, self._waiting = self._waiting, deque()
                self._waiting_size = 0
                drained, self._drained = self._drained, []
                is_ending = self._is_ending
                rests_s, self._rests_s = self._rests_s, 0.0
            for batch in batches:
                self._writer.append(batch)
            self._writer.tell("queue", None)
            age_left = self._writer.until_too_old()
            if drained or (age_left is not None and age_left <= rests_s):
                self._writer.close_file()
            if is_ending:
                self._writer.end()
            for event in drained:
                event.set()
            if is_ending:
                return


DELETED_INTERVAL_NS = 600 * 1_000_000_000
"""Time between two lines about deleted files: where files come and go every ten seconds, each would be a line."""

_WORDS: dict[Trouble, tuple[str, str]] = {
    "disk": ("lines are lost until this is mended", "writing works again"),
    "queue": ("lines are lost because the disk is too slow", "the disk keeps up again"),
    "retention": ("old files cannot be deleted", "old files are deleted again"),
}


def tell_trouble(trouble: Trouble, error: str | None) -> None:
    """Log that a trouble begins, or is over."""
    begins, ends = _WORDS[trouble]
    if error is None:
        structlog.get_logger().info(f"access log: {ends}")
    else:
        structlog.get_logger().error(f"access log: {begins}", error=error)


class DeletedLog:
    """Logs deleted files: a line for the first, and then one for all of ten minutes.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._told_at: int | None = None
        self._files = self._bytes = 0

    def deleted(self, files: int, size: int) -> None:
        """Count files and bytes that were just deleted, and log them if a line is due."""
        self._files += files
        self._bytes += size
        now = self._clock()
        if self._told_at is not None and now - self._told_at < DELETED_INTERVAL_NS:
            return
        self._told_at = now
        counted = {"files": self._files, "bytes": self._bytes}
        self._files = self._bytes = 0
        structlog.get_logger().info("access log: old files deleted", **counted)


def operator_notices() -> Notices:
    """Return the notices that go into the operator's log."""
    return Notices(tell_trouble, DeletedLog(time.monotonic_ns).deleted)
