"""The access log's files: written by a thread of their own, closed by size or age, and only then given their name.

A file is `.NAME.jsonl.open` while it is written; readers (Spark among them) ignore names with a leading dot. The event
loop never waits for the disk: what does not fit the queue is dropped and counted, and so is what cannot be written.
"""

import errno
import fcntl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a file is closed: bytes, seconds; and how many bytes may wait for the disk."""

    size: int
    age_s: float
    queue: int


class LogFiles:
    """Appends lines to a row of files in `folder`.

    Args:
        folder: Made if it is not there.
        stem: Begin of the files' names, unique to this run of the proxy.
        rotation: When to close a file.
        trouble: Called in the writing thread with the error when writing fails, and with None when it works again.

    Raises:
        OSError: If the folder cannot be made.
    """

    def __init__(self, folder: Path, stem: str, rotation: Rotation, trouble: Callable[[OSError | None], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.dropped = 0
        self._folder = folder
        self._stem = stem
        self._rotation = rotation
        self._trouble = trouble
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_size = 0
        self._signal = threading.Condition()
        self._is_ending = False
        self._file: FileIO | None = None
        self._file_path = folder
        self._file_size = 0
        self._file_lines = 0
        self._file_since = 0.0
        self._files_made = 0
        self._is_troubled = False
        self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
        self._thread.start()

    def write(self, data: bytes, lines: int) -> None:
        """Queue whole lines; drops and counts them if too much is waiting."""
        with self._signal:
            if self._waiting_size + len(data) > self._rotation.queue:
                self.dropped += lines
                return
            self._waiting.append((data, lines))
            self._waiting_size += len(data)
            self._signal.notify()

    def close(self, patience_s: float) -> bool:
        """Write what waits, close the file. False if that took longer than `patience_s`."""
        with self._signal:
            self._is_ending = True
            self._signal.notify()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._signal:
                if not self._waiting and not self._is_ending:
                    self._signal.wait(self._until_too_old())
                batch, self._waiting = self._waiting, deque()
                self._waiting_size = 0
                is_ending = self._is_ending
            for data, lines in batch:
                self._append(data, lines)
            if self._file is not None and (is_ending or self._until_too_old() == 0):
                self._close_file()
            if is_ending:
                return

    def _until_too_old(self) -> float | None:
        if self._file is None:
            return None
        return max(0.0, self._file_since + self._rotation.age_s - time.monotonic())

    def _append(self, data: bytes, lines: int) -> None:
        try:
            if self._file is None:
                self._open_file()
            assert self._file is not None, "it was opened"
            _write_all(self._file, data)
        except OSError as error:
            self._lose(lines, error)
            self._close_file()  # readers get what is there; the next line begins a new file
            return
        self._tell(None)
        self._file_size += len(data)
        self._file_lines += lines
        if self._file_size >= self._rotation.size:
            self._close_file()

    def _open_file(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file_path = self._folder / f"{self._stem}-{self._files_made:06d}.jsonl"
        self._file = FileIO(self._open_name(), "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)  # so that `rescue` knows it from one that was left
        self._files_made += 1
        self._file_size = self._file_lines = 0
        self._file_since = time.monotonic()

    def _open_name(self) -> Path:
        return self._file_path.with_name(f".{self._file_path.name}.open")

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
                self._open_name().rename(self._file_path)
            except OSError as error:
                self._lose(self._file_lines, error)

    def _lose(self, lines: int, error: OSError) -> None:
        """These lines will not reach a reader."""
        with self._signal:
            self.dropped += lines
        self._tell(error)

    def _tell(self, error: OSError | None) -> None:
        if (error is not None) != self._is_troubled:
            self._is_troubled = error is not None
            self._trouble(error)


def _write_all(file: FileIO, data: bytes) -> None:
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, "the disk took only a part of what was written")
