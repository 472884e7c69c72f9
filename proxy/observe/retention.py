"""Deletes a proxy's old access-log files, so that they do not fill the disk.

Only closed files of the same `proxy_id`, the oldest first. Nobody tells whether a file has been read: whoever reads
must be quicker than what is configured.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from proxy.files import check_regular
from proxy.observe.log_names import OwnFiles


@dataclass(frozen=True, slots=True)
class Keep:
    """How long, in seconds, and how many bytes in all; None for no bound."""

    age_s: float | None = None
    size: int | None = None


KEEP_ALL = Keep()


class _Closed(NamedTuple):
    path: Path
    size: int
    closed_at: float


class Retention:
    """Knows the closed files, so that the folder is listed only once.

    Args:
        keep: The bounds.
        told: Called with how many files were deleted at once, and their bytes.

    Attributes:
        deleted_files: How many were deleted.
        deleted_bytes: And how large they were.
    """

    def __init__(self, keep: Keep, told: Callable[[int, int], None]) -> None:
        self.deleted_files = 0
        self.deleted_bytes = 0
        self._keep = keep
        self._told = told
        self._files: deque[_Closed] = deque()
        self._size = 0

    @property
    def is_bounded(self) -> bool:
        """Whether anything is ever to be deleted."""
        return self._keep != KEEP_ALL

    def find(self, own: OwnFiles) -> None:
        """Begin with what earlier runs left.

        Raises:
            OSError: If the folder cannot be read.
        """
        if self.is_bounded:
            for _, path in own.closed():
                self.add(path)

    def add(self, path: Path) -> None:
        """A file was closed.

        Raises:
            OSError: If it cannot be looked at.
        """
        if self.is_bounded:
            status = path.lstat()
            check_regular(status, path)
            self._files.append(_Closed(path, status.st_size, status.st_mtime))
            self._size += status.st_size

    def prune(self) -> None:
        """Delete what is too old or too much.

        Raises:
            OSError: If a file cannot be deleted; it stays the next to be.
        """
        files, size = self.deleted_files, self.deleted_bytes
        try:
            while self._files and self._is_too_much():
                self._delete(self._files[0])
        finally:
            if self.deleted_files > files:
                self._told(self.deleted_files - files, self.deleted_bytes - size)

    def _delete(self, oldest: _Closed) -> None:
        try:
            check_regular(oldest.path.lstat(), oldest.path)
        except FileNotFoundError:
            pass
        except OSError as error:  # somebody put something else there, which is not the log's to delete
            structlog.get_logger().warning("access log: not deleted", file=str(oldest.path), error=error.strerror)
            self._forget(oldest)
            return
        oldest.path.unlink(missing_ok=True)
        self._forget(oldest)
        self.deleted_files += 1
        self.deleted_bytes += oldest.size

    def _forget(self, oldest: _Closed) -> None:
        self._files.popleft()
        self._size -= oldest.size

    def _is_too_much(self) -> bool:
        is_large = self._keep.size is not None and self._size > self._keep.size
        is_old = self._keep.age_s is not None and time.time() - self._files[0].closed_at > self._keep.age_s
        return is_large or is_old
