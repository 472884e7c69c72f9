"""Where a folder is that a user names: on this machine, or on a storage that only Spark reaches."""

import re
from pathlib import Path

# As Hadoop writes them: nothing in them is escaped, and one slash will do.
_FILE_URL = re.compile(r"file:(?:/|///+|//localhost/+)(?!/)(.*)", re.IGNORECASE | re.DOTALL)


def is_url(place: str) -> bool:
    """Whether it is a URL, be it of a folder of this machine, and not a plain path."""
    return "://" in place or _FILE_URL.fullmatch(place) is not None


def on_this_machine(place: str) -> Path | None:
    """The folder that a plain path or a `file:` URL names; None if it is on another storage."""
    if url := _FILE_URL.fullmatch(place):
        return Path("/", url[1])
    return None if is_url(place) else Path(place)
