"""Where a folder is that a user names: on this machine, or on a storage that only Spark reaches."""

import re
from pathlib import Path

# As Hadoop writes them: nothing in them is escaped, and one slash will do.
_FILE_URL = re.compile(r"file:(?:/|///+|//localhost/+)(?!/)(.*)", re.IGNORECASE | re.DOTALL)

NOT_WITHIN = "where Spark would come upon its tables when it looks for log files; give a folder outside of it"
"""Why `--out` may not be in the folder of the log."""


def is_url(place: str) -> bool:
    """Whether it is a URL, be it of a folder of this machine, and not a plain path."""
    return "://" in place or _FILE_URL.fullmatch(place) is not None


def on_this_machine(place: str) -> Path | None:
    """The folder that a plain path or a `file:` URL names; None if it is on another storage."""
    if url := _FILE_URL.fullmatch(place):
        return Path("/", url[1])
    return None if is_url(place) else Path(place)


def is_within(place: str, folder: str) -> bool:
    """Whether one is the other, or lies in it, as far as their names tell; links of this machine are followed."""
    here, there = on_this_machine(place), on_this_machine(folder)
    if here and there:
        return here.resolve().is_relative_to(there.resolve())
    return not here and not there and f"{place.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")
