"""The live picture: a table that changes in place on a terminal, a plain line now and then elsewhere."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo.rates import TopicRates

PLAIN_S = 5.0


class LivePicture:
    """Shows rows as they come.

    Args:
        console: Where to.
        seconds: How long the load is offered.
    """

    def __init__(self, console: Console, seconds: float) -> None:
        self._console = console
        self._seconds = seconds
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next_plain = PLAIN_S / 2

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, at_s: float, rows: Sequence[TopicRates]) -> None:
        """Show how things stand `at_s` seconds after the load began."""
        if self._live:
            self._live.update(table(at_s, self._seconds, rows), refresh=True)
        elif at_s >= self._next_plain:
            self._next_plain = at_s + PLAIN_S
            self._console.print(plain_line(at_s, rows), soft_wrap=True, highlight=False)


def table(at_s: float, seconds: float, rows: Sequence[TopicRates]) -> Table:
    """All rows as a table."""
    phase = f"{at_s:.0f} of {seconds:.0f} s" if at_s <= seconds else "waiting for the last receipts"
    result = Table(title=f"messages per second, {phase}", title_justify="left")
    result.add_column("topic")
    for name in ("wanted", "offered", "passed", "received", "limit", "held"):
        result.add_column(name, justify="right")
    result.add_column("waits on")
    for row in rows:
        rates = (row.wanted, row.offered, row.passed, row.received)
        cells = [f"{rate:,.0f}" for rate in rates]
        result.add_row(_short(row.topic), *cells, _limit(row), f"{row.state.held:,}", row.state.waits_on)
    return result


def plain_line(at_s: float, rows: Sequence[TopicRates]) -> str:
    """All rows in one line: passed per second, of the limit, and held."""
    parts = [f"{_short(row.topic)} {row.passed:.0f}/s of {_limit(row)}, {row.state.held} held" for row in rows]
    return f"  {at_s:3.0f} s  " + " | ".join(parts)


def _short(topic: str) -> str:
    return topic.removeprefix("persistent://")


def _limit(row: TopicRates) -> str:
    return "-" if row.state.limit_per_s is None else f"{row.state.limit_per_s:,.0f}"
