"""Notices that configuration files change: rewritten, replaced, or (Kubernetes) behind a symlink that is swapped."""

import os
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from watchfiles import awatch

_DEBOUNCE_MS = 50
"""Changes closer together are one: editors write in several steps."""
_STEP_MS = 10

Fingerprint = tuple[tuple[str, int, int, int] | None, ...]


async def changes_of(files: Collection[Path]) -> AsyncIterator[None]:
    """Yields whenever one of the files is another than before; ends with its task.

    The folders are watched, not the files, as files that are replaced are new ones.
    """
    before = fingerprint(files)
    async for _ in awatch(
        *sorted({file.parent for file in files}),
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        recursive=False,
        watch_filter=None,
    ):
        now = fingerprint(files)
        if now != before:
            before = now
            yield None


def fingerprint(files: Collection[Path]) -> Fingerprint:
    """What tells files from others of the same names; None for one that is not there."""
    return tuple(_of(file) for file in files)


def _of(file: Path) -> tuple[str, int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return os.path.realpath(file), found.st_ino, found.st_size, found.st_mtime_ns
