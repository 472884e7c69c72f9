"""What is in a folder of the access log: files that Spark reads, and what it passes over without a word."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HIDDEN = "names that begin with . or _"
PACKED = "packed files"
FOLDER = "subfolders with *.jsonl"
NOTHING = "links to nothing"
REMEDIES: Mapping[str, str] = {
    HIDDEN: "rename them",
    PACKED: "unpack them",
    FOLDER: "read each with an --out of its own",
    NOTHING: "mend or delete them",
}
"""What is passed over, and what helps."""
MOST_NAMED = 3
MOST_FOLDERS = 100
"""So many subfolders are looked into."""
_CLOSED = ".jsonl"
_PACKED = tuple(f"{_CLOSED}.{packing}" for packing in ("gz", "bz2", "xz", "zst", "lz4", "snappy", "zip"))


@dataclass(frozen=True, slots=True)
class LogFolder:
    """What is there.

    Args:
        closed: Files that are read, in order of their names.
        passed_over: Names of what is not, in order, by one of `REMEDIES`.
    """

    closed: list[Path]
    passed_over: Mapping[str, list[str]]

    def words(self) -> str:
        """What is passed over and what helps, in one line; empty if there is nothing."""
        return "; ".join(
            f"{what}: {len(names):,} ({_first(names)}): {REMEDIES[what]}" for what, names in self.passed_over.items()
        )


def look_into(folder: Path) -> LogFolder:
    """What is in a folder of this machine.

    Raises:
        OSError: If it cannot be read.
    """
    closed: list[Path] = []
    passed_over: dict[str, list[str]] = {what: [] for what in REMEDIES}
    looked_into = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                looked_into += 1
                if looked_into <= MOST_FOLDERS and _has_log(Path(entry.path)):
                    passed_over[FOLDER].append(entry.name)
            elif why := _why_not(entry):
                passed_over[why].append(entry.name)
            elif entry.name.endswith(_CLOSED):
                closed.append(Path(entry.path))
    return LogFolder(sorted(closed), {what: sorted(names) for what, names in passed_over.items() if names})


def is_hidden(name: str) -> bool:
    """Whether Spark takes a file for one of its own.

    Source: org.apache.spark.util.HadoopFSUtils.shouldFilterOutPathName.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _why_not(entry: os.DirEntry[str]) -> str | None:
    if entry.name.endswith(_PACKED):
        return PACKED
    if not entry.name.endswith(_CLOSED):
        return None
    if is_hidden(entry.name):
        return HIDDEN
    return NOTHING if entry.is_symlink() and not entry.is_file() else None


def _has_log(folder: Path) -> bool:
    # Those with a dot are of editors and file systems: snapshots, recycled files.
    if folder.name.startswith("."):
        return False
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(_CLOSED) for entry in entries)
    except OSError:
        return False


def _first(names: list[str]) -> str:
    # A name may have line ends in it.
    return ", ".join([*(repr(name)[1:-1] for name in names[:MOST_NAMED]), *(["…"] if len(names) > MOST_NAMED else [])])
