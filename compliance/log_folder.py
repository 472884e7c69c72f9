"""The folder of an access log: where it is, which of its files are closed, and what else lies there."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from accesslog.file_names import READABLE_SUFFIXES, UNREADABLE_SUFFIXES

# As Hadoop writes them: nothing in them is escaped, and one slash will do.
_FILE_URL = re.compile(r"file:(?:/|///+|//localhost/+)(?!/)(.*)", re.IGNORECASE | re.DOTALL)

NOT_WITHIN = "where only files of the log belong; give a folder outside of it"
"""Why `--out` may not be in the folder of the log."""


def is_url(place: str) -> bool:
    """Return whether a place is a URL (even one of a folder of this machine), and not a plain path."""
    return "://" in place or _FILE_URL.fullmatch(place) is not None


def on_this_machine(place: str) -> Path | None:
    """Return the folder that a plain path or a `file:` URL names; None if it is on another storage."""
    if url := _FILE_URL.fullmatch(place):
        return Path("/", url[1])
    return None if is_url(place) else Path(place)


def is_within(place: str, folder: str) -> bool:
    """Return whether one place is the other or lies in it, by their names; links of this machine are followed."""
    here, there = on_this_machine(place), on_this_machine(folder)
    if here and there:
        return here.resolve().is_relative_to(there.resolve())
    return not here and not there and f"{place.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


HIDDEN = "names that begin with . or _"
ODD = "names that Hadoop cannot take"
LINK = "symbolic links"
SPECIAL = "devices, pipes and sockets"
OTHER_COMPRESSION = "packed files"
FOLDER = "subfolders with log files"
REMEDIES: Mapping[str, str] = {
    HIDDEN: "rename them",
    ODD: "rename them, without any of : * ? [ ] { } \\ and without line ends, in UTF-8",
    LINK: "put the files themselves there",
    SPECIAL: "move them out of the folder",
    OTHER_COMPRESSION: "unpack them",
    FOLDER: "read each with an --out of its own",
}
"""Each kind of file that is passed over, and its remedy."""
UNREAD = (HIDDEN, ODD, LINK, OTHER_COMPRESSION)
"""Kinds of passed-over files that may hold lines of the log. With such a file nothing is confirmed."""
MOST_NAMED = 3
MOST_FOLDERS = 100
"""The number of subfolders that are looked into."""
_PATTERN = set(":*?[]{}\\")


@dataclass(frozen=True, slots=True)
class LogFolder:
    """The content of an access log's folder.

    Args:
        closed: Files that are read, in order of their names.
        passed_over: Names of files that are not read, in order, by one of `REMEDIES`.
    """

    closed: list[Path]
    passed_over: Mapping[str, list[str]]

    @property
    def unread(self) -> int:
        """The number of unread files that may hold lines."""
        return sum(len(self.passed_over.get(kind, ())) for kind in UNREAD)

    def words(self) -> str:
        """Return a line that names the files passed over, and the remedy; empty without any."""
        return "; ".join(
            f"{kind}: {len(names):,} ({_first(names)}): {REMEDIES[kind]}" for kind, names in self.passed_over.items()
        )


def look_into(folder: Path) -> LogFolder:
    """List the content of a folder of this machine.

    Raises:
        OSError: If it cannot be read.
    """
    closed: list[Path] = []
    passed_over: dict[str, list[str]] = {kind: [] for kind in REMEDIES}
    looked_into = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                looked_into += 1
                if looked_into <= MOST_FOLDERS and _has_log(Path(entry.path)):
                    passed_over[FOLDER].append(entry.name)
            elif why := _why_not(entry):
                passed_over[why].append(entry.name)
            elif entry.name.endswith(READABLE_SUFFIXES):
                closed.append(Path(entry.path))
    return LogFolder(sorted(closed), {kind: sorted(names) for kind, names in passed_over.items() if names})


def is_closed(name: str) -> bool:
    """Return whether a name is that of a file that is read."""
    return name.endswith(READABLE_SUFFIXES) and not is_hidden(name) and not is_odd(name)


def is_hidden(name: str) -> bool:
    """Return whether Spark takes a file for one of its own.

    Source: org.apache.spark.util.HadoopFSUtils.shouldFilterOutPathName.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _why_not(entry: os.DirEntry[str]) -> str | None:
    if entry.name.endswith(UNREADABLE_SUFFIXES):
        return OTHER_COMPRESSION
    if not entry.name.endswith(READABLE_SUFFIXES):
        return None
    if is_hidden(entry.name):
        return HIDDEN
    if entry.is_symlink():
        return LINK
    if not entry.is_file():
        return SPECIAL
    return ODD if is_odd(entry.name) else None


def is_odd(name: str) -> bool:
    """Return whether Hadoop's paths and patterns cannot take a file's name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return not name.isprintable() or bool(_PATTERN & set(name))


def _has_log(folder: Path) -> bool:
    # Those with a dot are of editors and file systems: snapshots, recycled files.
    if folder.name.startswith("."):
        return False
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(READABLE_SUFFIXES) for entry in entries)
    except OSError:
        return False


def _first(names: list[str]) -> str:
    # A name may have line ends in it, and bytes that are no text.
    shown = (ascii(name)[1:-1] if is_odd(name) else name for name in names[:MOST_NAMED])
    return ", ".join([*shown, *(["…"] if len(names) > MOST_NAMED else [])])
