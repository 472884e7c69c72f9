"""Write the access log's files one after the other: the part that waits for the disk, and has no thread of its own.

Files are named `PROXY-BOOT-NUMBER.jsonl.zst`, or `.jsonl` without compression, and with a dot before it while they are
written. Readers (Spark among them) pass over names that begin with a dot. A run has one more file there, empty and
locked, as long as it lives: `.PROXY-BOOT.alive`. By that file the next run sees that it was killed. Old files are
deleted, so that they do not fill the disk: only closed ones of the same `proxy_id`, the oldest first. Whether a file
has been read is not known: readers must be quicker than the configured age and size. The writing thread and the event
loop both add to the losses that are not declared yet.
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
from functools import partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import structlog
from backports.zstd import CompressionParameter, ZstdCompressor, ZstdDecompressor, ZstdError

from accesslog.file_names import READABLE_SUFFIXES, SUFFIXES, Compression, compression_of
from proxy.files import check_regular, open_regular, sync_folder

_BOOT = r"\d{8}T\d{6}-[0-9a-f]{8}"


class LogName(NamedTuple):
    """The run and number of a file; names sort in the order in which the files were written."""

    boot_id: str
    number: int
    compression: Compression

    def closed(self, proxy_id: str) -> str:
        """Return the file's name when it is whole."""
        return f"{proxy_id}-{self.boot_id}-{self.number:06d}{SUFFIXES[self.compression]}"

    def unfinished(self, proxy_id: str) -> str:
        """Return the file's name while it is written."""
        return f".{self.closed(proxy_id)}.open"


def alive_name(proxy_id: str, boot_id: str) -> str:
    """Return the name of the file that a living run has locked."""
    return f".{proxy_id}-{boot_id}.alive"


class OwnFiles:
    """Finds one proxy's files in a folder, and no other's: of the proxies `a` and `a-b`, the files of `a` alone.

    Args:
        folder: The folder of the access log.
        proxy_id: The id of the proxy.

    Raises, in its methods:
        OSError: If the folder cannot be read.
    """

    def __init__(self, folder: Path, proxy_id: str) -> None:
        self._folder = folder
        own = re.escape(proxy_id)
        name = rf"{own}-({_BOOT})-(\d{{6,}})({'|'.join(map(re.escape, READABLE_SUFFIXES))})"
        self._closed = re.compile(name)
        self._unfinished = re.compile(rf"\.{name}\.open")
        self._alive = re.compile(rf"\.{own}-({_BOOT})\.alive")

    def closed(self) -> list[tuple[LogName, Path]]:
        """Return the files that readers may read, the oldest first."""
        return self._found(self._closed)

    def unfinished(self) -> list[tuple[LogName, Path]]:
        """Return the files that are being written or were left, the oldest first."""
        return self._found(self._unfinished)

    def alive(self) -> list[tuple[str, Path]]:
        """Return the runs that live or were killed, and their marking files."""
        return sorted((match[1], path) for match, path in self._matching(self._alive))

    def _found(self, pattern: re.Pattern[str]) -> list[tuple[LogName, Path]]:
        return sorted(
            (LogName(match[1], int(match[2]), compression_of(match[3])), path)
            for match, path in self._matching(pattern)
        )

    def _matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], Path]]:
        """Yield regular files with such names; a link or folder of such a name was not made by a proxy."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                match = pattern.fullmatch(entry.name)
                if match and entry.is_file(follow_symlinks=False):
                    yield match, Path(entry.path)
                elif match:
                    structlog.get_logger().warning(
                        "access log: skipped, as it is a link, a folder or a device", file=entry.path
                    )


LossCause = Literal["disk", "queue", "killed"]


@dataclass(frozen=True, slots=True)
class LineRun:
    """Consecutive lines of this run, or the sum of several such ranges.

    Args:
        number: Number of lines.
        first: `seq` of the first line.
        last: `seq` of the last line.
        since: The time of the first line, nanoseconds since 1970.
        until: The time of the last line, nanoseconds since 1970.
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

    def without_first(self, number: int) -> "LineRun":
        """Return these lines without the first `number`."""
        return replace(self, number=self.number - number, first=self.first + number)


@dataclass(frozen=True, slots=True)
class Loss:
    """The contents of a `loss` line; see `accesslog.record.LossLine` for the fields."""

    of_boot: str
    cause: LossCause
    detail: str
    lost_lines: int | None
    first_seq: int
    last_seq: int | None
    since: int
    until: int


class Losses:
    """Sums up losses until they are declared: one sum for each cause.

    Args:
        boot_id: The id of this run.
        of_killed: The losses of earlier runs.

    Attributes:
        total: Number of lost lines of this run, declared or not.
    """

    def __init__(self, boot_id: str, of_killed: Iterable[Loss] = ()) -> None:
        self.total = 0
        self._boot_id = boot_id
        self._of_killed = list(of_killed)
        self._own: dict[LossCause, tuple[LineRun, str]] = {}
        self._lock = threading.Lock()

    def lose(self, cause: LossCause, lines: LineRun, detail: str = "") -> None:
        """Count lines that will not reach a reader."""
        with self._lock:
            self.total += lines.number
            self._add(cause, lines, detail)

    @property
    def are_declared(self) -> bool:
        """True if the log declares every lost line of this run."""
        with self._lock:
            return not self._own

    def take(self) -> list[Loss]:
        """Remove and return the losses to declare; the caller gives them back if their declaration is lost."""
        with self._lock:
            taken = self._of_killed + [self._loss(cause, *lost) for cause, lost in self._own.items()]
            self._of_killed, self._own = [], {}
        return taken

    def give_back(self, losses: Iterable[Loss]) -> None:
        """Take losses back whose declarations are lost."""
        with self._lock:
            for loss in losses:
                if loss.lost_lines is None or loss.last_seq is None:
                    self._of_killed.append(loss)
                else:
                    lines = LineRun(loss.lost_lines, loss.first_seq, loss.last_seq, loss.since, loss.until)
                    self._add(loss.cause, lines, loss.detail)

    def _add(self, cause: LossCause, lines: LineRun, detail: str) -> None:
        before = self._own.get(cause)
        self._own[cause] = (lines, detail) if before is None else (before[0] + lines, detail)

    def _loss(self, cause: LossCause, lines: LineRun, detail: str) -> Loss:
        return Loss(self._boot_id, cause, detail, lines.number, lines.first, lines.last, lines.since, lines.until)


Sync = Literal["never", "close", "batch"]
"""When a file is forced onto the disk, so that it survives a power cut: when it is closed, after each write, or never.
(Written lines survive a kill of the process in any case.)"""


NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
"""Flags by which files are made in the log's folder: links are not followed."""


_PARAMETERS: dict[int, int] = {CompressionParameter.compression_level: 6, CompressionParameter.window_log: 22}
_LAST_BLOCK = b"\x01\x00\x00"
"""The empty block that ends a frame: the last one, raw, of no bytes. Source: RFC 8878, 3.1.1.2."""


class LogFile:
    """A file that is being written; readers pass over it.

    A compressed file is one frame of zstd that is whole after each write: the next write replaces its last block. So a
    process that is killed leaves a file that any decompressor reads.

    Args:
        unfinished: The file's name while it is written.
        closed: The file's name when it is whole.
        sync: When the file is forced onto the disk.
        compression: The form in which the file has the lines.

    Attributes:
        size: Bytes of the lines in the file, before compression.
        lines: The lines in the file; None while there are none.
        declared: The losses that these lines declare.

    Raises:
        OSError: If the file cannot be made.
    """

    def __init__(self, unfinished: Path, closed: Path, sync: Sync, compression: Compression) -> None:
        self.path = closed
        self.size = 0
        self.lines: LineRun | None = None
        self.declared: list[Loss] = []
        self._unfinished = unfinished
        self._sync = sync
        self._compressor = ZstdCompressor(options=_PARAMETERS) if compression == "zstd" else None
        self._next_at = 0
        """Where the next write begins: at the end, or at the last block of the frame."""
        self._is_torn = False
        self._file = FileIO(open_regular(unfinished, NEW), "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)  # so that `recover` knows it from one that was left

    @property
    def is_gone(self) -> bool:
        """True if the file, or its folder, was deleted."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def append(self, data: bytes, lines: LineRun, declares: tuple[Loss, ...]) -> tuple[int, OSError | None]:
        """Write whole lines; after an error the caller closes the file.

        Returns:
            How many of the lines are in the file, and the error that kept out the others.
        """
        done, error = self._write_compressed(data) if self._compressor else self._write_plain(data)
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
            OSError: If the disk did not take all; lines that it took can still be read.
        """
        try:
            if self._sync != "never":
                os.fsync(self._file)
        finally:
            self._file.close()

    def name(self) -> bool:
        """Rename the closed file to its final name; return False if it is gone, with all its lines.

        Raises:
            OSError: If that is not possible now; it may be later.
        """
        try:
            if self._is_torn:
                self._end_frame()
            self._unfinished.rename(self.path)
        except FileNotFoundError:
            return self.path.exists()
        if self._sync != "never":
            sync_folder(self.path.parent)
        return True

    def discard(self) -> None:
        """Delete a file without a line."""
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def _end_frame(self) -> None:
        """End the frame where it ended before the write that failed: it has had that room."""
        with os.fdopen(open_regular(self._unfinished, os.O_WRONLY | os.O_NOFOLLOW), "wb", buffering=0) as file:
            file.seek(self._next_at)
            file.write(_LAST_BLOCK)
            file.truncate()
        self._is_torn = False

    def _write_plain(self, data: bytes) -> tuple[int, OSError | None]:
        """Write whole lines, and return the bytes of those that the disk took.

        A torn line is cut off the end; if that fails, readers quarantine it.
        """
        done, error = self._write(data)
        whole = done if done == len(data) else data.rfind(b"\n", 0, done) + 1
        self._next_at += whole
        if whole < done:
            with suppress(OSError):
                self._file.truncate(self._next_at)
        return whole, error

    def _write_compressed(self, data: bytes) -> tuple[int, OSError | None]:
        """Write whole lines and the end of the frame, and return their bytes; 0 if the disk did not take all."""
        assert self._compressor is not None
        blocks = self._compressor.compress(data, ZstdCompressor.FLUSH_BLOCK)
        done, error = self._write(blocks + _LAST_BLOCK)
        if done < len(blocks) + len(_LAST_BLOCK):
            self._is_torn = True
            return 0, error
        self._next_at += len(blocks)
        return len(data), error

    def _write(self, data: bytes) -> tuple[int, OSError | None]:
        """Return how many bytes the disk took, and the error if it did not take all."""
        done, rest = 0, memoryview(data)
        try:
            self._file.seek(self._next_at)
            while rest and (taken := self._file.write(rest)):
                done, rest = done + taken, rest[taken:]
            if self._sync == "batch":
                os.fsync(self._file)
        except OSError as error:
            return done, error
        return done, OSError(errno.ENOSPC, "the disk takes no more") if rest else None


class DamagedLogError(Exception):
    """A compressed file is cut off, or a part of it is no frame."""


def lines_of(file: BinaryIO, compression: Compression, together: int = 1 << 16) -> Iterator[bytes]:
    """Yield pieces of the lines in a file of the log, as far as they can be read.

    Args:
        file: The file.
        compression: Its form.
        together: Bytes that are decompressed together: damage hides the lines in them.

    Raises:
        OSError: If the file cannot be read.
        DamagedLogError: At the place from which nothing can be read.
    """
    chunks = iter(partial(file.read, together), b"")
    if compression == "none":
        yield from chunks
        return
    decompressor = ZstdDecompressor()
    for chunk in chunks:
        try:
            piece = decompressor.decompress(chunk)
        except ZstdError as error:
            raise DamagedLogError(str(error)) from None
        yield piece
        if decompressor.eof:
            if decompressor.unused_data:
                raise DamagedLogError("bytes after the end of the frame")
            return
    raise DamagedLogError("the frame has no end")


class RunLock:
    """The locked file that exists from the start of a run until its orderly end.

    Args:
        folder: The folder of the access log.
        proxy_id: The id of the proxy.
        boot_id: The id of its run.

    Raises:
        OSError: If the file cannot be made.
    """

    def __init__(self, folder: Path, proxy_id: str, boot_id: str) -> None:
        self._folder, self._proxy_id, self._boot_id = folder, proxy_id, boot_id
        self._path = folder / alive_name(proxy_id, boot_id)
        self._file = self._make()

    def be_there(self) -> None:
        """Make the file again if it was deleted.

        Raises:
            OSError: If the file cannot be made.
        """
        if not self._path.exists():
            self._file.close()
            self._file = self._make()

    def declared(self, boot_id: str) -> None:
        """Note that the log declares the losses of a run; the file of an earlier run, which was killed, is deleted."""
        if boot_id != self._boot_id:
            with suppress(OSError):
                (self._folder / alive_name(self._proxy_id, boot_id)).unlink(missing_ok=True)

    def end(self, *, is_whole: bool = True) -> None:
        """End the run. If its log is not whole, the file stays, and the next run declares the loss."""
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
    """Bounds on the closed files that are kept: age in seconds, and bytes in all; None for no bound."""

    age_s: float | None = None
    size: int | None = None


KEEP_ALL = Keep()


class _Closed(NamedTuple):
    path: Path
    size: int
    closed_at: float


class Retention:
    """Deletes old files; knows the closed files, so that the folder is listed only once.

    Args:
        keep: The bounds.
        on_deleted: Called with the number of files that were just deleted, and their bytes.

    Attributes:
        deleted_files: Number of deleted files.
        deleted_bytes: Bytes of deleted files.
        size: Bytes of the closed files that are known: where there is a bound, all.
    """

    def __init__(self, keep: Keep, on_deleted: Callable[[int, int], None]) -> None:
        self.deleted_files = 0
        self.deleted_bytes = 0
        self._keep = keep
        self._on_deleted = on_deleted
        self._files: deque[_Closed] = deque()
        self.size = 0

    @property
    def most_bytes(self) -> int:
        """Bytes that the closed files may have in all; 0 for any number."""
        return self._keep.size or 0

    @property
    def is_bounded(self) -> bool:
        """True if files are ever to be deleted."""
        return self._keep != KEEP_ALL

    def find(self, own: OwnFiles) -> None:
        """Begin with the files that earlier runs left.

        Raises:
            OSError: If the folder cannot be read.
        """
        if self.is_bounded:
            for _, path in own.closed():
                self.add(path)

    def add(self, path: Path) -> None:
        """Add a file that was closed.

        Raises:
            OSError: If the file's status cannot be read.
        """
        if self.is_bounded:
            status = path.lstat()
            check_regular(status, path)
            self._files.append(_Closed(path, status.st_size, status.st_mtime))
            self.size += status.st_size

    def prune(self) -> None:
        """Delete the oldest files until both bounds hold.

        Raises:
            OSError: If a file cannot be deleted; it stays the next one to delete.
        """
        files, size = self.deleted_files, self.deleted_bytes
        try:
            while self._files and self._is_too_much():
                self._delete(self._files[0])
        finally:
            if self.deleted_files > files:
                self._on_deleted(self.deleted_files - files, self.deleted_bytes - size)

    def _delete(self, oldest: _Closed) -> None:
        try:
            check_regular(oldest.path.lstat(), oldest.path)
        except FileNotFoundError:
            pass
        except OSError as error:  # another file has this name, which is not the log's to delete
            structlog.get_logger().warning("access log: not deleted", file=str(oldest.path), error=error.strerror)
            self._forget(oldest)
            return
        oldest.path.unlink(missing_ok=True)
        self._forget(oldest)
        self.deleted_files += 1
        self.deleted_bytes += oldest.size

    def _forget(self, oldest: _Closed) -> None:
        self._files.popleft()
        self.size -= oldest.size

    def _is_too_much(self) -> bool:
        is_large = self._keep.size is not None and self.size > self._keep.size
        is_old = self._keep.age_s is not None and time.time() - self._files[0].closed_at > self._keep.age_s
        return is_large or is_old


LogTrouble = Literal["disk", "queue", "retention"]


@dataclass(frozen=True, slots=True)
class Notices:
    """Callbacks for the operator, called in either thread.

    Args:
        trouble: Called once when a trouble begins, with the error, and once with None when it is over.
        deleted: Called with the number of old files that were just deleted, and their bytes.
    """

    trouble: Callable[[LogTrouble, str | None], None]
    deleted: Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Rotation:
    """The bytes of lines and the seconds after which a file is closed, its form, and which closed files are kept."""

    size: int
    age_s: float
    sync: Sync
    keep: Keep
    compression: Compression


class LineBatch(NamedTuple):
    """Whole lines, and the losses that the first lines declare, if any."""

    data: bytes
    lines: LineRun
    declares: tuple[Loss, ...]


class LogWriter:
    """Appends lines to a row of files in `folder`; none of its methods raises.

    Args:
        folder: The folder of the access log; made if it does not exist.
        ids: The ids of the proxy and of this run.
        rotation: When to close a file.
        losses: Counts every lost line.
        notices: Called for troubles and deleted files.

    Attributes:
        troubles: The present troubles, and the error of each.

    Raises:
        OSError: If the folder cannot be made or written.
    """

    def __init__(
        self, folder: Path, ids: tuple[str, str], rotation: Rotation, losses: Losses, notices: Notices
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.losses = losses
        self.troubles: dict[LogTrouble, str] = {}
        self.retention = Retention(rotation.keep, notices.deleted)
        self._folder = folder
        self._proxy_id, self._boot_id = ids
        self._rotation = rotation
        self._notices = notices
        self._alive = RunLock(folder, *ids)
        self._file: LogFile | None = None
        self._file_since = 0.0
        self._files_made = 0
        self._unnamed: list[LogFile] = []
        try:
            self.retention.find(OwnFiles(folder, self._proxy_id))
        except OSError:
            self._alive.end()
            raise

    def end(self) -> None:
        """Close the last file and end the run."""
        self.close_file()
        self._alive.end(is_whole=self.losses.are_declared)

    def until_too_old(self) -> float | None:
        """Return the seconds until the file is closed for its age; None without a file."""
        if self._file is None:
            return None
        return max(0.0, self._file_since + self._rotation.age_s - time.monotonic())

    def append(self, batch: LineBatch) -> None:
        """Write lines; those that cannot be written are counted as lost."""
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
            rest = batch._replace(lines=batch.lines.without_first(kept), declares=batch.declares[kept:])
            self.lose("disk", rest, str(failure))
            self.close_file()  # readers get the written lines; the next line begins a new file
            self.tell("disk", str(failure))
            return
        self.tell("disk", None)
        if file.size >= self._rotation.size:
            self.close_file()

    def _open_file(self) -> LogFile:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._alive.be_there()
        rotation, folder = self._rotation, self._folder
        name = LogName(self._boot_id, self._files_made, rotation.compression)
        unfinished, closed = name.unfinished(self._proxy_id), name.closed(self._proxy_id)
        file = LogFile(folder / unfinished, folder / closed, rotation.sync, rotation.compression)
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
        """Name the file that was closed, and those that could not get their names before."""
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

    def _attempt(self, trouble: LogTrouble, action: Callable[[], object]) -> bool:
        try:
            action()
        except OSError as error:
            self.tell(trouble, str(error))
            return False
        return True

    def lose(self, cause: Literal["disk", "queue"], batch: LineBatch, detail: str) -> None:
        """Count lines that will not reach a reader, and take back the losses that they declare."""
        if batch.lines.number:
            self.losses.lose(cause, batch.lines, detail)
        self.losses.give_back(batch.declares)

    def tell(self, trouble: LogTrouble, error: str | None) -> None:
        """Report that a trouble began, or (None) that it is over; each change makes one notice."""
        if (error is not None) == (trouble in self.troubles):
            return
        if error is None:
            self.troubles.pop(trouble, None)
        else:
            self.troubles[trouble] = error
        self._notices.trouble(trouble, error)
