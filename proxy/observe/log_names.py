"""How the access log's files are named: `PROXY-BOOT-NUMBER.jsonl`, and with a dot before it while it is written.

Readers (Spark among them) pass over names that begin with a dot. A run has one more file there, empty and locked, as
long as it lives: `.PROXY-BOOT.alive`.
"""

import re
from pathlib import Path
from typing import NamedTuple

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
        matches = ((self._alive.fullmatch(path.name), path) for path in sorted(self._folder.iterdir()))
        return [(match[1], path) for match, path in matches if match]

    def _found(self, pattern: re.Pattern[str]) -> list[tuple[LogName, Path]]:
        matches = ((pattern.fullmatch(path.name), path) for path in self._folder.iterdir())
        return sorted((LogName(match[1], int(match[2])), path) for match, path in matches if match)
