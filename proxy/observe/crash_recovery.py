"""Closes access-log files that runs of the proxy left unfinished when they were killed, and says what those lost.

A file that is being written is locked by its process, and so is the sign that a run lives: a second proxy with the same
`proxy_id` is left alone. A torn last line stays as it is, the last of its file: readers quarantine it, and it is joined
to nothing.
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
"""Bytes at the end of a file in which its last line is looked for."""


class _Tail(msgspec.Struct):
    seq: int
    end: datetime


_DECODER = msgspec.json.Decoder(_Tail)


def rescue(folder: Path, proxy_id: str) -> list[Loss]:
    """Give each abandoned file of a proxy the name under which readers look for it; empty ones go.

    Returns:
        For each run that was killed: what it wrote last, and that nobody knows what it lost.

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
    """Returns its size; None where there was nothing to close."""
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
    """What a run lost; None if it lives, or if that cannot be found out."""
    try:
        with _locked(sign) as file:
            return _loss(own, boot_id) if file is not None else None
    except OSError as error:
        structlog.get_logger().warning("access log: an earlier run cannot be looked into", error=str(error))
        return None


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO | None]:
    """The file, locked; None if somebody else had it locked."""
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file


def _opened(path: Path) -> BinaryIO:
    """A file of the log's folder; what a link leads to is none."""
    return os.fdopen(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")


def _loss(own: OwnFiles, boot_id: str) -> Loss:
    """What is known of a run that was killed."""
    now = time.time_ns()
    tails = (_tail(path) for name, path in reversed(own.closed()) if name.boot_id == boot_id)
    last = next((tail for tail in tails if tail is not None), None)
    since = now if last is None else round(last.end.timestamp() * 1e9)
    structlog.get_logger().warning("access log: an earlier run was killed", boot_id=boot_id)
    return Loss(boot_id, "killed", "", None, 0 if last is None else last.seq + 1, None, since, now)


def _tail(path: Path) -> _Tail | None:
    """The last whole line of a file."""
    with _opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        for line in reversed(file.read().splitlines()):
            try:
                return _DECODER.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
    return None
