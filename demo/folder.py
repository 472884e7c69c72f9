"""The folder that a demo leaves everything in: one demo at a time, and nothing of an earlier one."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.processes import DemoError

LOCK = ".lock"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make and empty the folder, and keep other demos out of it while the block runs.

    Raises:
        DemoError: If another demo is at work in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoError(f"demo: another one is at work in {folder}: wait until it has ended") from error
        _empty(folder)
        yield


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()
