"""Writes the access log's files one after the other; the part of it that waits for the disk, and has no thread.

append ──▶ .NAME.jsonl.open ──size or age──▶ NAME.jsonl ──age or total size──▶ deleted
└─error─▶ lost; the next line begins another file
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from proxy.observe.alive import Alive
from proxy.observe.log_file import LogFile, Sync
from proxy.observe.log_names import LogName, OwnFiles
from proxy.observe.losses import Lines, Loss, Losses
from proxy.observe.retention import KEEP_ALL, Keep, Retention

Trouble = Literal["disk", "queue", "retention"]


@dataclass(frozen=True, slots=True)
class Notices:
    """Who is told, in either thread.

    Args:
        trouble: When a trouble begins, with the error, and with None when it is over: each once.
        deleted: How many old files were just deleted, and their bytes.
    """

    trouble: Callable[[Trouble, str | None], None]
    deleted: Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a file is closed: bytes, seconds; when it is forced onto the disk; which are kept."""

    size: int
    age_s: float
    sync: Sync = "never"
    keep: Keep = KEEP_ALL


class Batch(NamedTuple):
    """Whole lines, and the losses that the first of them tell of, if any."""

    data: bytes
    lines: Lines
    declares: tuple[Loss, ...]


class LogWriter:
    """Appends lines to a row of files in `folder`; none of its methods fails.

    Args:
        folder: Made if it is not there.
        whose: The names of the proxy and of this run.
        rotation: When to close a file.
        losses: Told of every line that is lost.
        notices: Told of troubles and of deleted files.

    Attributes:
        troubles: Those that there are now.

    Raises:
        OSError: If the folder cannot be made or written.
    """

    def __init__(
        self, folder: Path, whose: tuple[str, str], rotation: Rotation, losses: Losses, notices: Notices
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.losses = losses
        self.troubles: set[Trouble] = set()
        self.retention = Retention(rotation.keep, notices.deleted)
        self._folder = folder
        self._proxy_id, self._boot_id = whose
        self._rotation = rotation
        self._notices = notices
        self._alive = Alive(folder, *whose)
        self._file: LogFile | None = None
        self._file_since = 0.0
        self._files_made = 0
        self._unnamed: list[LogFile] = []
        self.retention.find(OwnFiles(folder, self._proxy_id))

    def end(self) -> None:
        """This run is over."""
        self.close_file()
        self._alive.end(is_whole=self.losses.are_declared)

    def until_too_old(self) -> float | None:
        """Seconds until the file is to be closed; None without one."""
        if self._file is None:
            return None
        return max(0.0, self._file_since + self._rotation.age_s - time.monotonic())

    def append(self, batch: Batch) -> None:
        """Write lines; what cannot be written is lost."""
        if self._file is not None and self._file.is_gone:
            self.close_file()
        try:
            file = self._file = self._file or self._open_file()
        except OSError as error:
            self.lose("disk", batch, str(error))
            self.tell("disk", str(error))
            return
        kept, failure = file.append(*batch)
        if failure is not None:
            rest = batch._replace(lines=batch.lines.behind(kept), declares=batch.declares[kept:])
            self.lose("disk", rest, str(failure))
            self.close_file()  # readers get what is there; the next line begins a new file
            self.tell("disk", str(failure))
            return
        self.tell("disk", None)
        if file.size >= self._rotation.size:
            self.close_file()

    def _open_file(self) -> LogFile:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._alive.be_there()
        name = LogName(self._boot_id, self._files_made)
        unfinished, closed = name.unfinished(self._proxy_id), name.closed(self._proxy_id)
        file = LogFile(self._folder / unfinished, self._folder / closed, self._rotation.sync)
        self._files_made += 1
        self._file_since = time.monotonic()
        return file

    def close_file(self) -> None:
        """Give the file to readers; the next line begins another one."""
        file, self._file = self._file, None
        if file is not None:
            self._unnamed.append(file)
            self._attempt("disk", file.close)
        if self._unnamed:
            self._attempt("disk", self._name_files)
            if self.retention.is_bounded and self._attempt("retention", self.retention.prune):
                self.tell("retention", None)

    def _name_files(self) -> None:
        """The one that was closed, and those that could not get their names before."""
        while self._unnamed:
            file = self._unnamed[0]
            if file.lines is None:
                file.discard()
            elif file.name():
                self._closed(file)
            else:
                gone = f"{file.path}: it was deleted before it was closed"
                self.lose("disk", Batch(b"", file.lines, tuple(file.declared)), gone)
                self.tell("disk", gone)
            self._unnamed.pop(0)

    def _closed(self, file: LogFile) -> None:
        for loss in file.declared:
            self._alive.declared(loss.of_boot)
        self._attempt("retention", lambda: self.retention.add(file.path))

    def _attempt(self, trouble: Trouble, action: Callable[[], object]) -> bool:
        try:
            action()
        except OSError as error:
            self.tell(trouble, str(error))
            return False
        return True

    def lose(self, cause: Literal["disk", "queue"], batch: Batch, detail: str) -> None:
        """These lines will not reach a reader, nor what they declare."""
        if batch.lines.number:
            self.losses.lose(cause, batch.lines, detail)
        self.losses.give_back(batch.declares)

    def tell(self, trouble: Trouble, error: str | None) -> None:
        """A trouble is there, or None: is not; who is to know hears of each change."""
        if (error is not None) == (trouble in self.troubles):
            return
        if error is None:
            self.troubles.discard(trouble)
        else:
            self.troubles.add(trouble)
        self._notices.trouble(trouble, error)
