"""A file that holds one token."""

from pathlib import Path


def token_in(path: Path) -> str:
    """The token; empty if the file holds none in one line, or something else besides.

    Raises:
        OSError: If it cannot be read.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        return ""
    return token if token.isprintable() and " " not in token else ""
