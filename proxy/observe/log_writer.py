"""Writes the access log's files one after the other; the part of it that waits for the disk, and has no thread.

Files are named `PROXY-BOOT-NUMBER.jsonl`, and with a dot before it while they are written. Readers (Spark among them)
pass over names that begin with a dot. A run has one more file there, empty and locked, as long as it lives:
`.PROXY-BOOT.alive`; by that the next run sees that it was killed. Old files are deleted, so that they do not fill the
disk: only closed ones of the same `proxy_id`, the oldest first. Nobody tells whether a file has been read: whoever
reads must be quicker than what is configured. Which lines are lost and not yet said to be, both the writing thread and
the event loop add to.
"""

import errno
import fcntl
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Literal, NamedTuple

import structlog

from proxy.files import check_regular, open_regular

_BOOT = r"\d{8}T\d{6}-[0-9a-f]{8}"


class LogName(NamedTuple):
    """Which file of which run; they sort in the order in which they were written."""

    boot_id: str
    number: int

    def closed(self, proxy_id: str) -> str:
        """Its name when it is whole."""
        return f"{proxy_id}-{self.boot_id}-{self.number:06d}.jsonl"

    def unfinished(self, proxy_id: str) -> str:
        """Its name while it is written."""
        return f".{self.closed(proxy_id)}.open"


def alive_name(proxy_id: str, boot_id: str) -> str:
    """The file that a living run has locked."""
    return f".{proxy_id}-{boot_id}.alive"


class OwnFiles:
    """Finds one proxy's files in a folder, and no other's: of the proxies `a` and `a-b`, the files of `a` alone.

    Args:
        folder: Where they are.
        proxy_id: Whose.

    Raises, in its methods:
        OSError: If the folder cannot be read.
    """

    def __init__(self, folder: Path, proxy_id: str) -> None:
        self._folder = folder
        own = re.escape(proxy_id)
        self._closed = re.compile(rf"{own}-({_BOOT})-(\d{{6,}})\.jsonl")
        self._unfinished = re.compile(rf"\.{own}-({_BOOT})-(\d{{6,}})\.jsonl\.open")
        self._alive = re.compile(rf"\.{own}-({_BOOT})\.alive")

    def closed(self) -> list[tuple[LogName, Path]]:
        """Those that readers may read, the oldest first."""
        return self._found(self._closed)

    def unfinished(self) -> list[tuple[LogName, Path]]:
        """Those that are being written or were left, the oldest first."""
        return self._found(self._unfinished)

    def alive(self) -> list[tuple[str, Path]]:
        """The runs that live or were killed, and their files."""
        return sorted((match[1], path) for match, path in self._matching(self._alive))

    def _found(self, pattern: re.Pattern[str]) -> list[tuple[LogName, Path]]:
        return sorted((LogName(match[1], int(match[2])), path) for match, path in self._matching(pattern))

    def _matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], Path]]:
        """Files of these names; a link, a folder or whatever else has such a name was not made by a proxy."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                match = pattern.fullmatch(entry.name)
                if match and entry.is_file(follow_symlinks=False):
                    yield match, Path(entry.path)
                elif match:
                    structlog.get_logger().warning("access log: passed over, it is no regular file", file=entry.path)


Cause = Literal["disk", "queue", "killed"]


@dataclass(frozen=True, slots=True)
class LineRun:
    """Consecutive lines of this run, or what is known of some that are not.

    Args:
        number: How many.
        first: `seq` of the first.
        last: `seq` of the last.
        since: When the first was to be written, nanoseconds since 1970.
        until: When the last was.
    """

    number: int
    first: int
    last: int
    since: int
    until: int

    def __add__(self, other: "LineRun") -> "LineRun":
        return LineRun(
            self.number + other.number,
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.since, other.since),
            max(self.until, other.until),
        )

    def behind(self, number: int) -> "LineRun":
        """Without so many at the beginning."""
        return replace(self, number=self.number - number, first=self.first + number)


@dataclass(frozen=True, slots=True)
class Loss:
    """What a `loss` line says; see `accesslog.process.LossLine` for the fields."""

    of_boot: str
    cause: Cause
    detail: str
    lost_lines: int | None
    first_seq: int
    last_seq: int | None
    since: int
    until: int


class Losses:
    """Sums up losses until they are declared: one sum for each cause.

    Args:
        boot_id: Which run this is.
        of_killed: What earlier runs lost.

    Attributes:
        total: Lines of this run that are lost, declared or not.
    """

    def __init__(self, boot_id: str, of_killed: Iterable[Loss] = ()) -> None:
        self.total = 0
        self._boot_id = boot_id
        self._of_killed = list(of_killed)
        self._own: dict[Cause, tuple[LineRun, str]] = {}
        self._lock = threading.Lock()

    def lose(self, cause: Cause, lines: LineRun, detail: str = "") -> None:
        """These lines will not reach a reader."""
        with self._lock:
            self.total += lines.number
            self._add(cause, lines, detail)

    @property
    def are_declared(self) -> bool:
        """Whether the log says of each line of this run that is lost."""
        with self._lock:
            return not self._own

    def take(self) -> list[Loss]:
        """What is to be declared; whoever takes it gives it back if that is lost, too."""
        with self._lock:
            taken = self._of_killed + [self._loss(cause, *lost) for cause, lost in self._own.items()]
            self._of_killed, self._own = [], {}
        return taken

    def give_back(self, losses: Iterable[Loss]) -> None:
        """The lines that declared these are lost."""
        with self._lock:
            for loss in losses:
                if loss.lost_lines is None or loss.last_seq is None:
                    self._of_killed.append(loss)
                else:
                    lines = LineRun(loss.lost_lines, loss.first_seq, loss.last_seq, loss.since, loss.until)
                    self._add(loss.cause, lines, loss.detail)

    def _add(self, cause: Cause, lines: LineRun, detail: str) -> None:
        before = self._own.get(cause)
        self._own[cause] = (lines, detail) if before is None else (before[0] + lines, detail)

    def _loss(self, cause: Cause, lines: LineRun, detail: str) -> Loss:
        return Loss(self._boot_id, cause, detail, lines.number, lines.first, lines.last, lines.since, lines.until)


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
        self.lines: LineRun | None = None
        self.declared: list[Loss] = []
        self._unfinished = unfinished
        self._sync = sync
        self._file = FileIO(open_regular(unfinished, NEW), "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)  # so that `rescue` knows it from one that was left

    @property
    def is_gone(self) -> bool:
        """Whether somebody deleted it, or the folder that it is in."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def append(self, data: bytes, lines: LineRun, declares: tuple[Loss, ...]) -> tuple[int, OSError | None]:
        """Write whole lines; after an error the file is to be closed.

        Returns:
            How many of them are in the file, and what kept out the others.
        """
        done, error = self._write(data)
        if done < len(data):
            done = self._cut_back(data, done)
        kept = data.count(b"\n", 0, done)
        if kept:
            before, more = self.lines, LineRun(kept, lines.first, lines.first + kept - 1, lines.since, lines.until)
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


class RunLock:
    """Is there from the start of a run until its orderly end.

    Args:
        folder: Of the access log.
        proxy_id: Which proxy this is.
        boot_id: Which run of it.

    Raises:
        OSError: If it cannot be made.
    """

    def __init__(self, folder: Path, proxy_id: str, boot_id: str) -> None:
        self._folder, self._proxy_id, self._boot_id = folder, proxy_id, boot_id
        self._path = folder / alive_name(proxy_id, boot_id)
        self._file = self._make()

    def be_there(self) -> None:
        """Make it again if somebody deleted it.

        Raises:
            OSError: If it cannot be made.
        """
        if not self._path.exists():
            self._file.close()
            self._file = self._make()

    def declared(self, boot_id: str) -> None:
        """The log says what this run, or another one that was killed, has lost; if it was another, its sign may go."""
        if boot_id != self._boot_id:
            with suppress(OSError):
                (self._folder / alive_name(self._proxy_id, boot_id)).unlink(missing_ok=True)

    def end(self, *, is_whole: bool = True) -> None:
        """The run is over, its log written to the end; if not, the sign stays, and the next run says what is lost."""
        if is_whole:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._file.close()

    def _make(self) -> FileIO:
        file = os.fdopen(open_regular(self._path, NEW), "wb", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file


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


class LineBatch(NamedTuple):
    """Whole lines, and the losses that the first of them tell of, if any."""

    data: bytes
    lines: LineRun
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
        self._alive = RunLock(folder, *whose)
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

    def append(self, batch: LineBatch) -> None:
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
                self.lose("disk", LineBatch(b"", file.lines, tuple(file.declared)), gone)
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

    def lose(self, cause: Literal["disk", "queue"], batch: LineBatch, detail: str) -> None:
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
