"""One file of the access log, from its first line until it has its name."""

import errno
import fcntl
import os
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Literal

from proxy.files import open_regular
from proxy.observe.losses import Lines, Loss

Sync = Literal["never", "close", "batch"]
"""When a file is forced onto the disk, so that it outlives a power cut: when it is closed, after each write, or never.
(What was written outlives a kill of the process in any case.)"""


NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
"""How files are made in the log's folder: what a link leads to is not written."""


class LogFile:
    """A file that is being written; readers pass over it.

    Args:
        unfinished: Its name while it is written.
        closed: Its name when it is whole.
        sync: When it is forced onto the disk.

    Attributes:
        size: Bytes of the whole lines in it.
        lines: Those lines; None while there are none.
        declared: The losses that they tell of.

    Raises:
        OSError: If it cannot be made.
    """

    def __init__(self, unfinished: Path, closed: Path, sync: Sync) -> None:
        self.path = closed
        self.size = 0
        self.lines: Lines | None = None
        self.declared: list[Loss] = []
        self._unfinished = unfinished
        self._sync = sync
        self._file = FileIO(open_regular(unfinished, NEW), "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)  # so that `rescue` knows it from one that was left

    @property
    def is_gone(self) -> bool:
        """Whether somebody deleted it, or the folder that it is in."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def append(self, data: bytes, lines: Lines, declares: tuple[Loss, ...]) -> tuple[int, OSError | None]:
        """Write whole lines; after an error the file is to be closed.

        Returns:
            How many of them are in the file, and what kept out the others.
        """
        done, error = self._write(data)
        if done < len(data):
            done = self._cut_back(data, done)
        kept = data.count(b"\n", 0, done)
        if kept:
            before, more = self.lines, Lines(kept, lines.first, lines.first + kept - 1, lines.since, lines.until)
            self.lines = more if before is None else before + more
            self.declared += declares[:kept]
            self.size += done
        return kept, error

    def close(self) -> None:
        """Stop writing.

        Raises:
            OSError: If the disk did not take it; what it did take can still be read.
        """
        try:
            if self._sync != "never":
                os.fsync(self._file)
        finally:
            self._file.close()

    def name(self) -> bool:
        """Give it its name, once it is closed. False if it is gone, with all its lines.

        Raises:
            OSError: If that cannot be done now; perhaps later.
        """
        try:
            self._unfinished.rename(self.path)
        except FileNotFoundError:
            return self.path.exists()
        if self._sync != "never":
            _sync_folder(self.path.parent)
        return True

    def discard(self) -> None:
        """Forget a file without a line."""
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def _write(self, data: bytes) -> tuple[int, OSError | None]:
        """How many bytes the disk took, and what went wrong."""
        done, rest = 0, memoryview(data)
        try:
            while rest and (taken := self._file.write(rest)):
                done, rest = done + taken, rest[taken:]
            if self._sync == "batch":
                os.fsync(self._file)
        except OSError as error:
            return done, error
        return done, OSError(errno.ENOSPC, "the disk takes no more") if rest else None

    def _cut_back(self, data: bytes, done: int) -> int:
        """Take a torn line off the end; if that cannot be done, readers quarantine it. Bytes of whole lines."""
        whole = data.rfind(b"\n", 0, done) + 1
        if whole < done:
            with suppress(OSError):
                self._file.truncate(self.size + whole)
        return whole


def _sync_folder(folder: Path) -> None:
    """Force the names in it onto the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
