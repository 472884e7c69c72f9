"""Errors name the lines of a file; tests that are about something else look at the rest."""

import re
from pathlib import Path


def without_line(problem: str, path: Path) -> str:
    """A problem of a file without the line; what the file lacks has none."""
    return re.sub(rf"^{re.escape(str(path))}(:[0-9]+)+", str(path), problem)
