"""The table of `sluice top` in a terminal's width: numbers whole, names shortened in the middle. No I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

PROXY = "proxy"
"""The first column, where several proxies are looked at."""
_WAITS_ON = "waits on"
_CLIENTS = ("client", "who")
"""Columns of names that clients or programs make up; they are shortened first, the last one before the others."""
_NAMES = ("topic", _WAITS_ON)
"""Columns that are shortened after these; all others are numbers, or as short."""
_SHORT_TITLES = {"offered/s": "offered", "passed/s": "passed"}
_LESS_NEEDED = (*_CLIENTS, "bytes", "way", "offered")
"""Columns that narrow terminals leave out, the first one first."""
_CLIENT, _FEWEST = 9, 13
"""Characters of a shortened name of a client, and of a topic or limit, below which a column is left out."""
_ENDS = ".:-/"
"""Characters at which an address is cut."""


class Fitted(NamedTuple):
    """A table that fits.

    Args:
        columns: The titles.
        cells: The rows.
        gap: Characters between two columns.
    """

    columns: tuple[str, ...]
    cells: list[tuple[str, ...]]
    gap: int


def fitted(columns: tuple[str, ...], cells: list[tuple[str, ...]], width: int) -> Fitted:
    """Return the table for a terminal of so many characters in a line."""
    if sum(_widths(columns, cells)) + 2 * (len(columns) - 1) <= width:
        return Fitted(columns, cells, 2)
    if columns[0] == PROXY:
        short = distinct_parts({row[0] for row in cells})
        cells = [(short[row[0]], *row[1:]) for row in cells]
    columns = tuple(_SHORT_TITLES.get(column, column) for column in columns)
    for left_out in ("", *_LESS_NEEDED):
        places = [place for place, column in enumerate(columns) if column != left_out]
        columns = tuple(columns[place] for place in places)
        cells = [tuple(row[place] for place in places) for row in cells]
        widths = dict(zip(columns, _widths(columns, cells), strict=True))
        most = _most(widths, width)
        if all(most[column] >= min(_FEWEST, widths[column]) for column in _NAMES):
            break
    return Fitted(columns, [tuple(_shortened(row, columns, most)) for row in cells], 1)


def distinct_parts(names: Iterable[str]) -> dict[str, str]:
    """Return the parts in which names differ, by name: `…:8080` and `…:8081` of one host."""
    known = sorted(names)
    if len(known) < 2:
        return {name: name for name in known}
    first = max(0, *(_beginning_of_all(known).rfind(end) for end in _ENDS))
    ending = _beginning_of_all([name[:first:-1] for name in known])
    last = max(ending.rfind(end) + 1 for end in _ENDS)
    short = {name: name[first : len(name) - last] for name in known}
    return {name: f"{'…' * (first > 0)}{part}{'…' * (last > 0)}" for name, part in short.items()}


def _beginning_of_all(names: Sequence[str]) -> str:
    alike = takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike)


def shortened(text: str, width: int) -> str:
    """Return a text of at most so many characters; of a longer one, the beginning and the end."""
    if cell_len(text) <= width:
        return text
    tail = max(0, width - 1) // 2
    head = max(0, width - 1 - tail)
    return f"{_beginning(text, head)}…{_beginning(text[::-1], tail)[::-1]}"


def _beginning(text: str, width: int) -> str:
    return chop_cells(text, width)[0] if width > 0 else ""


def _shortened(row: tuple[str, ...], columns: tuple[str, ...], most: Mapping[str, int]) -> Iterator[str]:
    for cell, column in zip(row, columns, strict=True):
        width = most.get(column, cell_len(cell))
        yield _shortened_limit(cell, width) if column == _WAITS_ON else shortened(cell, width)


def _shortened_limit(text: str, width: int) -> str:
    """Return a limit with its value, which stays whole; of a longer text, without the parts of the value at its end."""
    if cell_len(text) <= width:
        return text
    whole = text.rpartition(" (")[0] if text.endswith(")") else text
    words, _, value = whole.rpartition(" ")
    left = width - cell_len(value) - 1
    if cell_len(whole) <= width or not words or left <= 1:
        return shortened(whole, width)
    return f"{_beginning(words, left - 1)}… {value}"


def _widths(columns: tuple[str, ...], cells: list[tuple[str, ...]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]


def _most(widths: Mapping[str, int], width: int) -> dict[str, int]:
    """Return the characters that names may have in each column; names of clients give way first."""
    most = {column: widths[column] for column in (*_CLIENTS, *_NAMES) if column in widths}
    excess = sum(widths.values()) + len(widths) - 1 - width
    for column in reversed(_CLIENTS):
        less = max(0, min(excess, most.get(column, 0) - _CLIENT))
        if less:
            most[column] -= less
            excess -= less
    if excess > 0:
        shorter, longer = sorted(_NAMES, key=lambda column: most[column])
        room = most[shorter] + most[longer] - excess
        most[shorter] = max(1, min(most[shorter], room // 2))
        most[longer] = max(1, room - most[shorter])
    return most
