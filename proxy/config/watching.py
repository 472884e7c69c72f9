"""Notices that configuration files change: rewritten, replaced, or (Kubernetes) behind a symlink that is swapped."""

import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path

from watchfiles import awatch

_DEBOUNCE_MS = 50
"""Changes closer together are one: editors write in several steps."""
_STEP_MS = 10
_LOOK_MS = 10_000
"""Looked at so often in any case: what changes while the watch is set up, or where none reaches, is told by nobody."""

Fingerprint = tuple[str, int, int, int]


async def changes_of(seen: Mapping[Path, Fingerprint | None]) -> AsyncGenerator[None, None]:
    """Yields whenever one of the files is another than before; ends with its task.

    The folders are watched, not the files, as files that are replaced are new ones.

    Args:
        seen: The files' fingerprints from before they were read.

    Raises:
        OSError: If a folder cannot be watched.
        RuntimeError: If the watch breaks.
    """
    before = fingerprints(seen)
    if before != seen:
        yield None
    async for _ in awatch(
        *sorted({file.parent for file in before}),
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        recursive=False,
        watch_filter=None,
        rust_timeout=_LOOK_MS,
        yield_on_timeout=True,
    ):
        now = fingerprints(before)
        if now != before:
            before = now
            yield None


def fingerprints(files: Iterable[Path]) -> dict[Path, Fingerprint | None]:
    """What tells files from others of the same names; None for one that is not there."""
    return {file: _of(file) for file in files}


def _of(file: Path) -> Fingerprint | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return os.path.realpath(file), found.st_ino, found.st_size, found.st_mtime_ns
