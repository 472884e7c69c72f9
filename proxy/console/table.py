"""The table, for a terminal or as plain text."""

from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from proxy.console.poll import Poll
from proxy.console.rows import Row, Sort, ordered, rows_of, total
from proxy.console.words import obstacle, printable, rate, short_topic, since, size, who

_COLUMNS = ("topic", "way", "who", "client", "offered/s", "passed/s", "held", "bytes", "since", "waits on")
_TO_THE_RIGHT = frozenset({"offered/s", "passed/s", "held", "bytes", "since"})
_WAYS = {"publish": "pub", "dispatch": "dis"}


@dataclass(frozen=True, slots=True)
class View:
    """What to show.

    Args:
        title: One line above the rest.
        sort: What comes first.
        most: Most rows.
    """

    title: str
    sort: Sort
    most: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A table without any form: lines above it, and its cells."""

    heading: list[str]
    cells: list[tuple[str, ...]]


def show(poll: Poll, before: Poll | None, view: View) -> Shown:
    """The table of one look, with rates since the one before."""
    rows = ordered(rows_of(poll, before), view.sort)
    heading = [f"{view.title}   {_sums(poll, rows)}"]
    if poll.left_out:
        heading.append(f"rates and rows without {poll.left_out:,} streams that hold less and were opened later")
    return Shown(heading, [_cells(row) for row in rows[: view.most]])


def plain(shown: Shown) -> str:
    """Lines of text with aligned columns; nothing is cut off."""
    lines = [_COLUMNS, *shown.cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "\n".join([*shown.heading, *("  ".join(map(_aligned, line, widths, _COLUMNS)).rstrip() for line in lines)])


def rendered(shown: Shown, problem: str = "") -> Group:
    """The same for a terminal.

    Args:
        shown: What to show.
        problem: Why it is old, if it is.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column in _TO_THE_RIGHT else "left", no_wrap=True)
    for cells in shown.cells:
        is_held = cells[_COLUMNS.index("held")] != "0"
        table.add_row(*(Text(cell, overflow="ellipsis") for cell in cells), style="yellow" if is_held else "")
    heading = [Text(line, style="bold", no_wrap=True, overflow="ellipsis") for line in shown.heading]
    return Group(*heading, *([Text(problem, style="bold red")] if problem else []), table)


def _sums(poll: Poll, rows: list[Row]) -> str:
    totals = poll.totals
    rejected = total([row.rejected_per_s for row in rows])
    parts = [
        f"{totals.streams:,} streams, {totals.held_streams:,} held",
        f"{totals.held_messages:,} messages, {size(totals.held_bytes)} held",
        f"offered {rate(total([row.offered_per_s for row in rows]))}/s",
        f"passed {rate(total([row.passed_per_s for row in rows]))}/s",
    ]
    return " · ".join([*parts, f"rejected {rate(rejected)}/s"] if rejected else parts)


def _cells(row: Row) -> tuple[str, ...]:
    stream = row.stream
    cells = (
        short_topic(stream.topic),
        _WAYS.get(stream.direction, stream.direction),
        who(stream),
        stream.client_address,
        rate(row.offered_per_s),
        rate(row.passed_per_s),
        f"{stream.held_messages:,}",
        size(stream.held_bytes),
        since(stream),
        obstacle(stream),
    )
    return tuple(printable(cell) for cell in cells)


def _aligned(cell: str, width: int, column: str) -> str:
    return cell.rjust(width) if column in _TO_THE_RIGHT else cell.ljust(width)
