"""How the access log's files are named: `PROXY-BOOT-NUMBER.jsonl`, and with a dot before it while it is written.

Readers (Spark among them) pass over names that begin with a dot. A run has one more file there, empty and locked, as
long as it lives: `.PROXY-BOOT.alive`.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import structlog

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
