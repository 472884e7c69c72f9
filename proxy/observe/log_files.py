"""The access log's files: written by a thread of their own, closed by size or age, and only then given their names.

The event loop never waits for the disk. Lines that do not fit the queue are dropped, and so are those that cannot be
written. Both are counted in `losses`, a degraded state while they last, and declared in the log as soon as it can be
written again.

    write ──▶ queue ──thread──▶ LogWriter (log_writer.py)
                └─full─▶ lost

`recover` closes the files that killed runs left unfinished, and finds out what these runs lost. A file that is being
written is locked by its process, and so is the file that marks a living run: files of a second proxy with the same
`proxy_id` are left alone. A torn last line of a plain file stays as it is, the last of its file. Readers quarantine it,
and no line is joined to it. A compressed file that is torn, as after a power cut, is written again: its whole lines.

`DeletedLog` puts into the operator's log which files are deleted.
"""

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

from accesslog.file_names import Compression
from proxy.degraded import Degraded
from proxy.files import open_regular
from proxy.observe.log_writer import (
    DamagedLogError,
    LineBatch,
    LineRun,
    LogFile,
    LogTrouble,
    LogWriter,
    Loss,
    OwnFiles,
    lines_of,
)

_LOSING: Final[tuple[LogTrouble, ...]] = ("disk", "queue")
"""Troubles by which lines are lost."""


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
        """Queue whole lines. They are lost if the queue is full, unless they declare losses: those lines are few.

        Args:
            data: The lines.
            first_seq: `seq` of the first line; the others have the next numbers.
            lines: The number of lines.
            declares: The losses that the first lines declare, if any.
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

    def degraded(self) -> Iterator[Degraded]:
        """Yield the states in which lines are lost, or stay for longer than they should."""
        troubles = dict(self._writer.troubles)
        losing = "; ".join(troubles[trouble] for trouble in _LOSING if trouble in troubles)
        if losing:
            yield Degraded(
                "access_log_losing",
                f"lines of the access log are lost, and counted: {losing}",
                "see that the disk of access_log.dir has room, keeps up and can be written",
            )
        if "retention" in troubles:
            yield Degraded(
                "access_log_not_deleted",
                f"old files of the access log cannot be deleted: {troubles['retention']}",
                "see who owns access_log.dir and the files in it; until then the disk fills up",
            )

    @property
    def is_writing(self) -> bool:
        """True if, as far as is known, lines that are written now are not lost."""
        return self._writer.troubles.keys().isdisjoint(_LOSING)

    def rest(self, seconds: float) -> None:
        """Note that no line is expected for this time: a file that would become too old by then is closed now.

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


# ---- What the operator's log says of the files

DELETED_INTERVAL_NS = 600 * 1_000_000_000
"""Time between two lines about deleted files: where files come and go every ten seconds, each would be a line."""


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


# ---- Files and losses of killed runs

_TAIL = 1 << 20
"""Bytes at the end of a file in which its last line is searched."""


class _Tail(msgspec.Struct):
    seq: int
    end: datetime


_DECODER = msgspec.json.Decoder(_Tail)


def recover(folder: Path, proxy_id: str) -> list[Loss]:
    """Give each abandoned file of a proxy the name under which readers look for it; empty ones are deleted.

    Returns:
        For each run that was killed, a loss of unknown size after the last line that it wrote.

    Raises:
        OSError: If the folder cannot be read.
    """
    own = OwnFiles(folder, proxy_id)
    for name, unfinished in own.unfinished():
        closed = folder / name.closed(proxy_id)
        try:
            size = _close(unfinished, closed, name.compression)
        except OSError as error:
            structlog.get_logger().warning(
                "access log: unfinished file left as it is", file=str(unfinished), error=str(error)
            )
            continue
        if size is not None:
            structlog.get_logger().info("access log: closed a file of an earlier run", file=str(closed), size=size)
    losses = (_loss_of(own, boot_id, sign) for boot_id, sign in own.alive())
    return [loss for loss in losses if loss is not None]


def _close(unfinished: Path, closed: Path, compression: Compression) -> int | None:
    """Close an unfinished file and return its size; None where there was nothing to close."""
    with _locked(unfinished) as file:
        if file is None:
            return None
        size = os.fstat(file.fileno()).st_size
        if compression != "none" and size:
            size = _mended(file, unfinished, compression)
        if size == 0:
            unfinished.unlink()
            return None
        if os.path.lexists(closed):
            raise FileExistsError(f"{closed} already exists")
        unfinished.rename(closed)
        return size


def _mended(file: BinaryIO, unfinished: Path, compression: Compression) -> int:
    """Write a compressed file again if its frame has no end; return its size, 0 without a whole line."""
    pieces: list[bytes] = []
    try:
        deque(lines_of(file, compression), 0)
    except DamagedLogError:
        file.seek(0)
    else:
        return os.fstat(file.fileno()).st_size
    with suppress(DamagedLogError):
        pieces.extend(lines_of(file, compression, together=1))
    lines, _, _ = b"".join(pieces).rpartition(b"\n")
    if not lines:
        return 0
    mended = LogFile(unfinished.with_suffix(".mended"), unfinished, "close", compression)
    try:
        _, error = mended.append(lines + b"\n", LineRun(1, 0, 0, 0, 0), ())
        mended.close()
        if error is not None:
            raise error
        mended.name()
    finally:
        mended.discard()
    return unfinished.stat().st_size


def _loss_of(own: OwnFiles, boot_id: str, sign: Path) -> Loss | None:
    """Return the loss of a run; None if the run lives, or if its loss cannot be found out."""
    try:
        with _locked(sign) as file:
            return _loss(own, boot_id) if file is not None else None
    except OSError as error:
        structlog.get_logger().warning("access log: an earlier run cannot be looked into", error=str(error))
        return None


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO | None]:
    """Yield the file, locked; None if another process has it locked."""
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file


def _opened(path: Path) -> BinaryIO:
    """Open a regular file of the log's folder; links are not followed."""
    return os.fdopen(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")


def _loss(own: OwnFiles, boot_id: str) -> Loss:
    """Return the loss of a run that was killed, as far as it is known."""
    now = time.time_ns()
    closed = reversed(own.closed())
    tails = (_tail(path, name.compression) for name, path in closed if name.boot_id == boot_id)
    last = next((tail for tail in tails if tail is not None), None)
    since = now if last is None else round(last.end.timestamp() * 1e9)
    structlog.get_logger().warning("access log: an earlier run was killed", boot_id=boot_id)
    return Loss(boot_id, "killed", "", None, 0 if last is None else last.seq + 1, None, since, now)


def _tail(path: Path, compression: Compression) -> _Tail | None:
    """Return the last whole line of a file."""
    tail = b""
    with _opened(path) as file, suppress(DamagedLogError):
        if compression == "none":
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        for piece in lines_of(file, compression):
            tail = (tail + piece)[-_TAIL:]
    for line in reversed(tail.splitlines()):
        try:
            return _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return None
