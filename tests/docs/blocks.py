"""The blocks of a page, as somebody who follows it meets them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"[Ss]ave\s+this\s+as\s+`([^`]+)`")


class Block(NamedTuple):
    """A block: its kind, its text, and the name under which the page says to save it; empty if it says so of none."""

    kind: str
    text: str
    name: str


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page in their order."""
    end = 0
    for block in _BLOCK.finditer(page):
        saved = _SAVED.findall(page[end : block.start()])
        yield Block(block[1], block[2], saved[-1] if saved else "")
        end = block.end()
