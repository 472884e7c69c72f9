"""Closes access-log files that an earlier run of the proxy left unfinished when it was killed.

A file that is being written is locked by its process, so that a second proxy with the same `proxy_id` is left alone.
A torn last line stays as it is, the last of its file: readers quarantine it, and it is joined to nothing.
"""

import fcntl
from pathlib import Path

import structlog


def rescue(folder: Path, proxy_id: str) -> list[Path]:
    """Give each abandoned file of a proxy the name under which readers look for it; empty ones go.

    Returns:
        The files that have their names now.

    Raises:
        OSError: If the folder cannot be read.
    """
    rescued = []
    for unfinished in sorted(folder.glob(f".{proxy_id}-*.jsonl.open")):
        closed = unfinished.with_name(unfinished.name.removeprefix(".").removesuffix(".open"))
        try:
            size = _close(unfinished, closed)
        except OSError as error:
            structlog.get_logger().warning(
                "access log: unfinished file left as it is", file=str(unfinished), error=str(error)
            )
            continue
        if size is not None:
            rescued.append(closed)
            structlog.get_logger().info("access log: closed a file of an earlier run", file=str(closed), size=size)
    return rescued


def _close(unfinished: Path, closed: Path) -> int | None:
    """Returns its size; None where there was nothing to close."""
    with unfinished.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        size = unfinished.stat().st_size
        if size == 0:
            unfinished.unlink()
            return None
        if closed.exists():
            raise FileExistsError(f"{closed} is there already")
        unfinished.rename(closed)
        return size
