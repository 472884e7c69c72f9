"""Tells the operator of the access log's troubles, and now and then what it deleted."""

import time
from collections.abc import Callable

import structlog

from proxy.observe.log_writer import Notices, Trouble

INTERVAL_NS = 600 * 1_000_000_000
"""Between two lines about deleted files: where files come and go every ten seconds, each would be one."""

_WORDS: dict[Trouble, tuple[str, str]] = {
    "disk": ("lines are lost until this is mended", "writing works again"),
    "queue": ("lines are lost because the disk is too slow", "the disk keeps up again"),
    "retention": ("old files cannot be deleted", "old files are deleted again"),
}


def tell_trouble(trouble: Trouble, error: str | None) -> None:
    """A trouble begins, or is over."""
    begins, ends = _WORDS[trouble]
    if error is None:
        structlog.get_logger().info(f"access log: {ends}")
    else:
        structlog.get_logger().error(f"access log: {begins}", error=error)


class DeletedLog:
    """A line for the first deleted file, and then one for all of ten minutes.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._told_at: int | None = None
        self._files = self._bytes = 0

    def deleted(self, files: int, size: int) -> None:
        """So many files with so many bytes were just deleted."""
        self._files += files
        self._bytes += size
        now = self._clock()
        if self._told_at is not None and now - self._told_at < INTERVAL_NS:
            return
        self._told_at = now
        counted = {"files": self._files, "bytes": self._bytes}
        self._files = self._bytes = 0
        structlog.get_logger().info("access log: old files deleted", **counted)


def operator_notices() -> Notices:
    """What goes into the operator's log."""
    return Notices(tell_trouble, DeletedLog(time.monotonic_ns).deleted)
