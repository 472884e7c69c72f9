"""Close access-log files that killed runs of the proxy left unfinished, and find out what these runs lost.

A file that is being written is locked by its process, and so is the file that marks a living run: files of a second
proxy with the same `proxy_id` are left alone. A torn last line stays as it is, the last of its file. Readers quarantine
it, and no line is joined to it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog

from proxy.files import open_regular
from proxy.observe.log_writer import Loss, OwnFiles

_TAIL = 1 << 20
"""Bytes at the end of a file in which its last line is searched."""


class _Tail(msgspec.Struct):
    seq: int
    end: datetime


_DECODER = msgspec.json.Decoder(_Tail)


def recover(folder: Path, proxy_id: str) -> list[Loss]:
    """Give each abandoned file of a proxy the name under which readers look for it; empty ones are deleted.

    Returns:
        For each run that was killed, a loss of unknown size behind the last line that it wrote.

    Raises:
        OSError: If the folder cannot be read.
    """
    own = OwnFiles(folder, proxy_id)
    for name, unfinished in own.unfinished():
        closed = folder / name.closed(proxy_id)
        try:
            size = _close(unfinished, closed)
        except OSError as error:
            structlog.get_logger().warning(
                "access log: unfinished file left as it is", file=str(unfinished), error=str(error)
            )
            continue
        if size is not None:
            structlog.get_logger().info("access log: closed a file of an earlier run", file=str(closed), size=size)
    losses = (_loss_of(own, boot_id, sign) for boot_id, sign in own.alive())
    return [loss for loss in losses if loss is not None]


def _close(unfinished: Path, closed: Path) -> int | None:
    """Close an unfinished file and return its size; None where there was nothing to close."""
    with _locked(unfinished) as file:
        if file is None:
            return None
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            unfinished.unlink()
            return None
        if os.path.lexists(closed):
            raise FileExistsError(f"{closed} is there already")
        unfinished.rename(closed)
        return size


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
    """Return what is known of the loss of a run that was killed."""
    now = time.time_ns()
    tails = (_tail(path) for name, path in reversed(own.closed()) if name.boot_id == boot_id)
    last = next((tail for tail in tails if tail is not None), None)
    since = now if last is None else round(last.end.timestamp() * 1e9)
    structlog.get_logger().warning("access log: an earlier run was killed", boot_id=boot_id)
    return Loss(boot_id, "killed", "", None, 0 if last is None else last.seq + 1, None, since, now)


def _tail(path: Path) -> _Tail | None:
    """Return the last whole line of a file."""
    with _opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        for line in reversed(file.read().splitlines()):
            try:
                return _DECODER.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
    return None
