"""Notices that configuration files change: rewritten, replaced, or (Kubernetes) behind a symlink that is swapped.

Nothing wakes the process up until the kernel tells of a change: a watch that polls would be most of what an idle proxy
does. Where there is no inotify, files are looked at each second.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

if sys.platform == "linux":
    from asyncinotify import Inotify, Mask

    _CHANGES = Mask.CLOSE_WRITE | Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO

_DEBOUNCE_S = 0.05
"""Changes closer together are one: editors write in several steps."""
_MOST_DEBOUNCED_S = 1.0
"""A folder in which something is written all the time must not keep its changes waiting."""
_LOOK_S = 60.0 if sys.platform == "linux" else 1.0
"""Looked at so often in any case: what changes where no watch reaches (a network's file system) is told by nobody."""

Fingerprint = tuple[str, int, int, int]


async def changes_of(seen: Mapping[Path, Fingerprint | None]) -> AsyncGenerator[None, None]:
    """Yields whenever one of the files is another than before; ends with its task.

    The folders are watched, not the files, as files that are replaced are new ones; and those that links lead to.

    Args:
        seen: The files' fingerprints from before they were read.

    Raises:
        OSError: If a folder cannot be watched.
    """
    before = dict(seen)
    with _Watch(before) as watch:
        while True:
            now = fingerprints(before)
            if now != before:
                before = now
                yield None
            await watch.told()


class _Watch:
    """Subscribe to the kernel's events about the folders of some files, until the block ends.

    Args:
        files: Their folders must be there.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = list(files)
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            self._inotify = self._closing.enter_context(Inotify())
            self._add()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    async def told(self) -> None:
        """Returns when something in one of the folders has changed, or long after nothing has."""
        if sys.platform != "linux":
            await asyncio.sleep(_LOOK_S)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._inotify.get()
            async with asyncio.timeout(_MOST_DEBOUNCED_S):
                while True:
                    async with asyncio.timeout(_DEBOUNCE_S):
                        await self._inotify.get()
        # A folder that was removed and made anew is another one, and links may lead elsewhere now.
        with suppress(OSError):
            self._add()

    def _add(self) -> None:
        named = {file.parent for file in self._files}
        meant = {Path(os.path.realpath(file)).parent for file in self._files}
        for folder in sorted(named):
            self._inotify.add_watch(folder, _CHANGES)
        for folder in sorted(meant - named):
            with suppress(OSError):  # where a broken link leads
                self._inotify.add_watch(folder, _CHANGES)


def fingerprints(files: Iterable[Path]) -> dict[Path, Fingerprint | None]:
    """Fingerprints, by which a file is told from another one of the same name; None for a file that is not there."""
    return {file: _of(file) for file in files}


def _of(file: Path) -> Fingerprint | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return os.path.realpath(file), found.st_ino, found.st_size, found.st_mtime_ns
