"""The page that a table is put into, as a file: told before the minutes of measuring if it cannot be written."""

import os
from pathlib import Path

from loadgen.bench_limits.table import PageError


def text_of(page: Path) -> str:
    """What stands there; nothing if it is to be made.

    Raises:
        PageError: If it cannot be read, or nothing be written there.
    """
    if page.is_dir():
        raise PageError("it is a folder: name a file")
    if not page.parent.is_dir():
        raise PageError(f"there is no folder {page.parent}: make it, or name another page")
    if not os.access(page if page.exists() else page.parent, os.W_OK):
        raise PageError("it may not be written: give leave, or name another page")
    try:
        return page.read_text(encoding="utf-8") if page.exists() else ""
    except UnicodeDecodeError:
        raise PageError("it is no text in UTF-8: name a Markdown page") from None
