"""The files of the log that a report is about, by their SHA-256: the list beside the report, and its check.

The list has the form of `sha256sum`, so `sha256sum -c` in the folder of the log checks it, too. The report has the
SHA-256 of the list.
"""

import hashlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from compliance.report.subjects import numbered

LIST = "log-files.sha256"
_MOST_NAMED = 10
"""Files of one kind that a check names."""
_THREADS = 4


class FileCheck(Struct, frozen=True, kw_only=True):
    """The files of a log beside the list of a report; by name."""

    same: list[str]
    changed: list[str]
    gone: list[str]
    """Deleted by now, so their lines cannot be checked."""
    newer: list[str]
    """Not in the list: closed after the report was made."""

    @property
    def is_proved(self) -> bool:
        """True if every file of the list is there as it was."""
        return not (self.changed or self.gone)

    def words(self) -> list[str]:
        """Return the result in lines."""
        kinds = (
            (self.changed, "is not as the report read it", "are not as the report read them"),
            (self.gone, "is gone and cannot be checked", "are gone and cannot be checked"),
            (self.newer, "is newer than the report", "are newer than the report"),
        )
        count = len(self.same)
        same = "is as the report read it" if count == 1 else "are as the report read them"
        lines = [f"{numbered(count, 'file')} {same}"]
        for names, singular, many in kinds:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            if names:
                listed = ", ".join(names[:_MOST_NAMED])
                lines.append(f"{numbered(len(names), 'file')} {singular if len(names) == 1 else many}: {listed}{more}")
        return lines


def digests(files: Iterable[Path], known: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each file by its name; those that are known are not read again.

    Args:
        files: Closed files, which do not change.
        known: Digests by name, of deleted files as well.
    """
    new = [file for file in files if file.name not in known]
    with ThreadPoolExecutor(_THREADS) as pool:
        pairs = zip((file.name for file in new), pool.map(_digest, new), strict=True)
        return {**known, **{name: digest for name, digest in pairs if digest}}


def _digest(file: Path) -> str:
    """The SHA-256 of a file; empty where the proxy has just deleted it."""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def as_list(known: Mapping[str, str]) -> bytes:
    """Return the list as `sha256sum` writes it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(known.items())).encode()


def of_list(content: bytes) -> dict[str, str]:
    """Return the digests of a list by name."""
    pairs = (line.split("  ", 1) for line in content.decode(errors="surrogateescape").splitlines() if "  " in line)
    return {name: digest for digest, name in pairs}


def seal(content: bytes) -> str:
    """Return the SHA-256 of a list, which the report has; empty for an empty list."""
    return hashlib.sha256(content).hexdigest() if content else ""


def check(files: Iterable[Path], known: Mapping[str, str]) -> FileCheck:
    """Compare the closed files of a log with a list."""
    there = {file.name: file for file in files}
    now = digests((file for name, file in there.items() if name in known), {})
    return FileCheck(
        same=sorted(name for name, digest in now.items() if known[name] == digest),
        changed=sorted(name for name, digest in now.items() if known[name] != digest),
        gone=sorted(known.keys() - now.keys()),
        newer=sorted(there.keys() - known.keys()),
    )
