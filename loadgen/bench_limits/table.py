"""The table in Markdown, and its place in a page that may hold more. Pure."""

from collections.abc import Mapping, Sequence

from loadgen.bench_limits.figures import Samples
from loadgen.bench_limits.rows.row import Row

HEADINGS = ("load", "figure", "broker's own", "through Sluice", "goal")
TITLE = "# Benchmarks\n"

Found = Mapping[str, tuple[Samples, Samples]]
"""By row: what was measured at the broker's own limits, and through Sluice."""


class PageError(Exception):
    """The page has a begin without an end, or the other way round; the text names the remedy."""


def table(rows: Sequence[Row], found: Found) -> str:
    """The table, its columns aligned."""
    lines = [list(HEADINGS)]
    for row in rows:
        own, sluice = found[row.name]
        for number, figure in enumerate(row.figures):
            mine = sluice.get(figure.key, [])
            mark = "" if figure.goal is None else " ✓" if figure.is_met(mine) else " **missed**"
            load = row.load if number == 0 else ""
            lines.append([load, figure.text, figure.shown(own.get(figure.key, [])), figure.shown(mine) + mark])
            lines[-1].append(figure.goal_shown())
    return aligned(lines)


def missed(rows: Sequence[Row], found: Found) -> list[str]:
    """A line for each goal that Sluice missed."""
    return [
        f"{row.name}: {figure.text}: {figure.shown(found[row.name][1].get(figure.key, []))}, goal {figure.goal_shown()}"
        for row in rows
        for figure in row.figures
        if not figure.is_met(found[row.name][1].get(figure.key, []))
    ]


def marks(about: str) -> tuple[str, str]:
    """The lines before and behind the section about publishing or dispatching."""
    return (
        f"<!-- bench-limits, {about}: written by `make bench-limits`, not by hand -->",
        f"<!-- bench-limits, {about}: end -->",
    )


def put_into(page: str, about: str, section: str) -> str:
    """As `put_between`, for the section about publishing or dispatching."""
    return put_between(page, marks(about), section)


def put_between(page: str, marks: tuple[str, str], section: str) -> str:
    """The page with the section in place of the one between its marks, or at its end.

    Args:
        page: All of it.
        marks: The lines before and behind the section.
        section: Without marks.

    Raises:
        PageError: If only one of the marks is there.
    """
    begin, end = marks
    if (begin in page) != (end in page):
        raise PageError(f"only one of the lines '{begin}' and '{end}' is there: remove it")
    marked = f"{begin}\n{section.strip()}\n{end}\n"
    if begin not in page:
        return f"{page or TITLE}\n{marked}"
    before, _, rest = page.partition(begin)
    return before + marked + rest.partition(end)[2].removeprefix("\n")


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A table of these cells, the first line its headings."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    whole = [lines[0], rule, *lines[1:]]
    cells = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in whole)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
