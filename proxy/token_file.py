"""A file that holds one token."""

from pathlib import Path

from proxy.files import MOST_SECRET, read_file


def token_in(path: Path) -> str:
    """The token; empty if the file holds none in one line, or something else besides.

    Raises:
        OSError: If it cannot be read, or is no regular file or too large to be a token.
    """
    try:
        token = read_file(path, MOST_SECRET).decode("ascii").strip()
    except UnicodeDecodeError:
        return ""
    return token if token.isprintable() and " " not in token else ""
