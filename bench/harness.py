"""The harness of all benchmarks: figures with their goals, rows of figures, rounds, the page, and the command line.

A benchmark measures each row's load with each peer, round by round; a round gives a `Sample` for each peer. One of the
peers, Sluice, has goals: bounds of its own figure, or of its ratio to another peer's. `carry_out` measures the rows of
some sections, prints their tables, and puts them into a page.
"""

import argparse
import math
import os
import platform
import signal
import statistics
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from operator import ge, le
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from adminrest.client import AdminError
from loadgen.real.jars import RealPulsarError

Sample = Mapping[str, float]
"""One measurement of one peer: values by the figure's key."""
Rounds = Mapping[str, Sequence[Sample | None]]
"""By peer, in the order in which they were measured; None where it failed."""
Found = Mapping[str, Rounds]
"""Samples by the row's name."""
Measure = TypeVar("Measure")

WIDTH = 100
"""Columns of the page."""
_AS_THEY_ARE = ("#", "|", "- ", "**")
"""The beginnings of headings, tables, lists and names of loads."""
TITLE = "# Benchmarks\n"
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_LONGEST_S = 3600.0
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"≤": le, "≥": ge}


class BenchError(Exception):
    """A peer could not be had or started, or a measurement failed; one line that names it."""


class PageError(Exception):
    """The page cannot be written, or has a begin without an end; the text names the remedy."""


# ---- Figures and goals


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that Sluice's figure has to keep.

    Attributes:
        is_to_be: In which direction.
        bound: Times the peer's figure; of the figure itself, if there is no peer. None: it is only compared.
        beside: The peer's name; empty: an absolute goal.
        guard: The bound below (or above) which a short run fails: wider, for a machine that is not alone.
    """

    is_to_be: Literal["≤", "≥"]
    bound: float | None
    beside: str = ""
    guard: float | None = None

    def allows(self, value: float, bound: float) -> bool:
        """Return whether a number is on the right side of a bound."""
        return _COMPARE[self.is_to_be](value, bound)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that is measured under a load.

    Attributes:
        key: Its key in samples.
        text: Its heading in the table.
        unit: Follows the number: `" ms"`, `" x"`, `" %"`.
        digits: Digits after the point.
        goals: The bounds of Sluice's figure.
    """

    key: str
    text: str
    unit: str = ""
    digits: int = 0
    goals: tuple[Goal, ...] = ()

    def shown(self, samples: Sequence[Sample | None]) -> str:
        """Median, and least and largest where they differ; `-` if there is nothing."""
        return spread(values_of(self.key, samples), self.digits, self.unit)

    def compared(self, goal: Goal, rounds: Rounds, subject: str) -> float | None:
        """Return the number that is compared with the goal's bound; None if it was not measured.

        It is the median over all rounds of the ratio within the round: both peers ran within seconds of each other, so
        other work of the machine cancels out. Or, without a peer, the median of the figure itself.
        """
        values = self._held_against(goal, rounds, subject)
        return statistics.median(values) if values else None

    def is_met(self, goal: Goal, rounds: Rounds, subject: str) -> bool:
        """Return whether the compared number, rounded as printed, reaches the goal, and no round failed.

        A goal is not missed where the subject or the peer beside it was not wanted; without its figure it is.
        """
        own = rounds.get(subject, ())
        if goal.bound is None or not own:
            return True
        value = self.compared(goal, rounds, subject)
        if value is None:
            return bool(goal.beside) and not values_of(self.key, rounds.get(goal.beside, ()))
        return goal.allows(round(value, self._digits(goal)), goal.bound) and None not in own

    def verdict(self, goal: Goal, rounds: Rounds, subject: str) -> str:
        """The comparison in words, with the goal and whether it is met as printed; empty if there is nothing to say."""
        values = self._held_against(goal, rounds, subject)
        ratio = f"{spread(values, 2)} x {goal.beside}" if goal.beside and values else ""
        if goal.bound is None or (not values and self.is_met(goal, rounds, subject)):
            return ratio
        mark = self._mark(goal, rounds, subject)
        return f"{ratio} {mark} ({self._bound(goal)}{_failures(rounds.get(subject, ()))})".strip()

    def goal_shown(self, goal: Goal, rounds: Rounds, subject: str) -> str:
        """An absolute goal, and whether it is met as printed; empty if there is nothing to say."""
        if not self.verdict(goal, rounds, subject):
            return ""
        return f"{self._bound(goal)} {self._mark(goal, rounds, subject)}"

    def _bound(self, goal: Goal) -> str:
        return f"{goal.is_to_be} {number(goal.bound or 0.0, self._digits(goal))}{'' if goal.beside else self.unit}"

    def _mark(self, goal: Goal, rounds: Rounds, subject: str) -> str:
        return "✓" if self.is_met(goal, rounds, subject) else "**missed**"

    def _held_against(self, goal: Goal, rounds: Rounds, subject: str) -> list[float]:
        own = rounds.get(subject, ())
        if not goal.beside:
            return values_of(self.key, own)
        pairs = zip(own, rounds.get(goal.beside, ()), strict=False)
        both = [(values_of(self.key, [sample]), values_of(self.key, [other])) for sample, other in pairs]
        return [values[0] / other[0] for values, other in both if values and other and other[0] > 0]

    def _digits(self, goal: Goal) -> int:
        return 2 if goal.beside else self.digits


def spread(values: Sequence[float], digits: int, unit: str = "") -> str:
    """Values as they are printed: the median, with the least and the largest where these differ; of none, a dash."""
    if not values:
        return "-"
    least, most = (number(find(values), digits) for find in (min, max))
    middle = f"{number(statistics.median(values), digits)}{unit}"
    return middle if least == most else f"{middle} ({least} to {most})"


def values_of(key: str, samples: Sequence[Sample | None]) -> list[float]:
    """The values that were measured."""
    return [sample[key] for sample in samples if sample is not None and key in sample]


def number(value: float, digits: int) -> str:
    """A number for people; rounded first, so that -0.04 is 0.0 without its sign."""
    return "never" if math.isinf(value) else f"{round(value, digits) + 0.0:,.{digits}f}"


def percentile(values: Collection[float], part: float) -> float:
    """The least value that at least `part` (0 to 1) of all do not exceed; infinity of none.

    Infinite values are messages that never came.
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else math.inf


def jain(shares: Collection[float]) -> float:
    """Return Jain's index of fairness: 1 when all shares are equal, 1/n when one has all; 0 when all are 0.

    Source: Jain, Chiu, Hawe: A Quantitative Measure of Fairness and Discrimination, 1984.
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def _failures(samples: Sequence[Sample | None]) -> str:
    failed = sum(sample is None for sample in samples)
    return f"; failed in {failed} of {len(samples)} rounds" if failed else ""


# ---- Rows


@dataclass(frozen=True, slots=True)
class Row(Generic[Measure]):
    """A load, and its figures.

    Attributes:
        name: For the command line.
        load: The load, for the table.
        figures: The measured figures, in the table's order.
        measure: Measures them; its arguments are the benchmark's own.
        peers: Who takes part, in the table's order; the last one is held against the goals.
        rounds: How often it is measured; None: as often as the command line says.
        is_real: Whether it needs a real broker in a benchmark that can do without.
        needs: A figure's key and the least that says that the machine is up to the load.
    """

    name: str
    load: str
    figures: tuple[Figure, ...]
    measure: Measure
    peers: tuple[str, ...]
    rounds: int | None = None
    is_real: bool = False
    needs: tuple[str, float] | None = None

    @property
    def subject(self) -> str:
        """The peer that the goals are about."""
        return self.peers[-1]

    def told(self, samples: Sequence[Sample | None]) -> str:
        """Write all figures of one peer in a line."""
        return ", ".join(f"{figure.shown(samples)} {figure.text}" for figure in self.figures)


def missed(rows: Sequence[Row[Measure]], measurements: Found) -> list[str]:
    """A line for each goal that was measured and is missed."""
    return [
        f"{row.name}: {figure.text}: {figure.shown(measurements[row.name].get(row.subject, ()))}:"
        f" {figure.verdict(goal, measurements[row.name], row.subject)}"
        for row in rows
        for figure in row.figures
        for goal in figure.goals
        if not figure.is_met(goal, measurements[row.name], row.subject)
    ]


def unguarded(rows: Sequence[Row[Measure]], measurements: Found) -> list[str]:
    """A line for each figure that is beyond the guard of a goal, or could not be measured."""
    lines = []
    for row in rows:
        for figure in row.figures:
            for goal in (goal for goal in figure.goals if goal.guard is not None):
                value = figure.compared(goal, measurements[row.name], row.subject)
                if value is None:
                    lines.append(f"{row.name}: {figure.text}: was not measured")
                elif goal.guard is not None and not goal.allows(value, goal.guard):
                    bound = f"{goal.is_to_be} {goal.guard}"
                    lines.append(f"{row.name}: {figure.text}: {number(value, 2)} x {goal.beside}, bound {bound}")
    return lines


# ---- Rounds

Progress = Callable[[str], None]
Round = Callable[[int], Mapping[str, Sequence[Sample | None]]]
"""Plays one round, given its number; returns the samples of each peer."""


def in_rounds(row: Row[Measure], rounds: int, play: Round, progress: Progress, *, warms_up: bool = False) -> Rounds:
    """Play the rounds of a row; returns the samples of each peer.

    Args:
        row: The row; `rounds` of its own come before those of the command line.
        rounds: How often it is measured.
        play: Plays one round, from number 1 on.
        progress: Gets a line for each peer and round.
        warms_up: A round 0, which does not count, comes first, to warm the peers up.
    """
    peer_samples: dict[str, list[Sample | None]] = {}
    last = row.rounds or rounds
    for number in range(0 if warms_up else 1, last + 1):
        for name, samples in play(number).items():
            if number > 0:
                peer_samples.setdefault(name, []).extend(samples)
                progress(f"{row.name}, {number} of {last}: {name}: {row.told(samples)}")
    return peer_samples


# ---- The page


@dataclass(frozen=True, slots=True)
class Section(Generic[Measure]):
    """A part of the page: rows, and the text around their tables.

    Attributes:
        name: Its name in its marks.
        rows: Its rows.
        text: Makes the text from the tables and the samples.
        is_listed: Whether the rows, which have the same figures, are the lines of one table.
    """

    name: str
    rows: Sequence[Row[Measure]]
    text: Callable[[str, Found], str] = lambda tables, _measurements: tables
    is_listed: bool = False

    @property
    def marks(self) -> tuple[str, str]:
        """The lines before and after it."""
        command = f"python -m bench {self.name.partition(',')[0]}"
        return f"<!-- {self.name}: written by `{command}`, not by hand -->", f"<!-- {self.name}: end -->"

    def put(self, page: str, measurements: Found) -> str:
        """Return the page with this section in place of the one between its marks, or at its end."""
        return put_between(page, self.marks, self.text(self.drawn(measurements), measurements))

    def drawn(self, measurements: Found) -> str:
        """Draw the tables."""
        return (listed if self.is_listed else shown)(self.rows, measurements)


def shown(rows: Sequence[Row[Measure]], measurements: Found) -> str:
    """Draw all rows: a table for each load, the measured peers side by side, and the ratios below it."""
    return "\n\n".join(_row_shown(row, measurements[row.name]) for row in rows)


def _row_shown(row: Row[Measure], rounds: Rounds) -> str:
    names = [name for name in row.peers if name in rounds]
    cells, ratios = [["", *(heading(name) for name in names), "goal"]], []
    for figure in row.figures:
        goals = _goals_shown(figure, rounds, row.subject)
        cells.append([figure.text, *(figure.shown(rounds[name]) for name in names), goals])
        beside = [figure.verdict(goal, rounds, row.subject) for goal in figure.goals if goal.beside]
        ratios += [f"{figure.text}: {ratio}" for ratio in beside if ratio]
    return "\n\n".join([_wrapped(f"**{row.load}**"), _with_goals(cells), *([bullets(ratios)] if ratios else [])])


def listed(rows: Sequence[Row[Measure]], measurements: Found) -> str:
    """Draw rows that have the same figures: a line for each, in which all peers that have a figure share its cell."""
    lines = [["", *(figure.text for figure in rows[0].figures), "goal"]]
    for row in rows:
        rounds = measurements[row.name]
        peers = [rounds[name] for name in row.peers if name in rounds]
        cells = [
            " → ".join(figure.shown(samples) for samples in peers if values_of(figure.key, samples)) or "-"
            for figure in row.figures
        ]
        goals = filter(None, (_goals_shown(figure, rounds, row.subject) for figure in row.figures))
        lines.append([row.load, *cells, ", ".join(goals)])
    return _with_goals(lines)


def _goals_shown(figure: Figure, rounds: Rounds, subject: str) -> str:
    goals = (figure.goal_shown(goal, rounds, subject) for goal in figure.goals if not goal.beside)
    return ", ".join(filter(None, goals))


def _with_goals(lines: Sequence[Sequence[str]]) -> str:
    """Return the table, without its last column where that has no goal."""
    return aligned(lines if any(line[-1] for line in lines[1:]) else [line[:-1] for line in lines])


def heading(name: str) -> str:
    """Return a peer's short name for its column."""
    return name.rpartition(", ")[2].removesuffix(" forwarder")


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose headings are the first line; all columns except the first are right-aligned."""
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    rows = []
    for line in (lines[0], rule, *lines[1:]):
        first, *others = (
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        rows.append(f"| {' | '.join([first, *others])} |")
    return "\n".join(rows)


def prose(text: str) -> str:
    """Paragraphs of prose, wrapped to the page; headings, lists and tables in it stay as they are."""
    parts = text.strip().split("\n\n")
    return "\n\n".join(part if part.startswith(_AS_THEY_ARE) else _wrapped(part) for part in parts)


def text_beside(module: str, name: str) -> str:
    """Return the text of a Markdown file that lies beside a module, given as its `__file__`."""
    return Path(module).with_name(name).read_text(encoding="utf-8").rstrip()


def bullets(lines: Sequence[str]) -> str:
    """Return a bulleted list, wrapped to the page."""
    return "\n".join(_wrapped(f"- {line}", "  ") for line in lines)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def page_text(page: Path) -> str:
    """Read the page before it is written; empty if it does not exist yet.

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


def put_between(page: str, marks: tuple[str, str], section: str) -> str:
    """The page with the section in place of the one between its marks, or at its end.

    Args:
        page: The whole page.
        marks: The lines before and after the section.
        section: The section, without marks.

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


# ---- The machine


def machine() -> str:
    """Describe the machine, and in which form Sluice ran."""
    form = "compiled" if is_compiled() else "interpreted"
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores of {platform.machine()}, {python}{congestion()}, Sluice's hot modules {form}"


def congestion() -> str:
    """Name TCP's congestion control (one that paces costs all proxies frames/s); empty where unknown."""
    try:
        return f", TCP's congestion control {_CONGESTION.read_text(encoding='ascii').strip()}"
    except OSError:
        return ""


def is_compiled() -> bool:
    """Return whether the frame walk is machine code here."""
    spec = find_spec("protocol.walk")
    return spec is not None and str(spec.origin).endswith(".so")


# ---- The command line

MISSED, CANNOT_START, BAD_INPUT = 3, 1, 2
"""Exit codes beside 0."""
Judge = Callable[[Sequence[Row[Any]], Found], list[str]]
"""The lines that a run ends with, and with the exit code MISSED, if there are any."""


def parser(name: str, description: str | None, rows: Sequence[str] = (), rounds: int = 0) -> argparse.ArgumentParser:
    """Return the options that all benchmarks have.

    Args:
        name: Of the benchmark.
        description: For `--help`.
        rows: Rows to choose from.
        rounds: How often each is measured unless the options say so; 0: the rows say it.
    """
    made = argparse.ArgumentParser(prog=f"python -m bench {name}", description=description)
    if rows:
        made.add_argument("--only", action="append", choices=rows, help="this row (may be given several times)")
    if rounds:
        help_text = f"measurements of each row and peer (default: {rounds})"
        made.add_argument("--rounds", type=count, default=rounds, help=help_text)
    made.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this Markdown page")
    return made


def carry_out(
    name: str,
    page: Path | None,
    sections: Sequence[Section[Measure]],
    measured: Callable[[], Found],
    judge: Judge = lambda _rows, _measurements: [],
) -> int:
    """Measure, print the tables and the goals that are missed, and write the page; returns the exit code.

    Args:
        name: The benchmark's name, for errors.
        page: The page for the sections; None: no page.
        sections: The sections to measure.
        measured: Measures all their rows.
        judge: What the run fails for.
    """
    rows = [row for section in sections for row in section.rows]

    def run() -> int:
        text = page_text(page) if page else ""
        for section in sections:  # a mark that is lost is named before the minutes of measuring
            put_between(text, section.marks, "")
        measurements = measured()
        tables = [section.drawn(measurements) for section in sections if section.rows]
        print("\n\n".join([*tables, f"measured on {machine()}"]))  # noqa: T201 - what the command is for
        for line in missed(rows, measurements):
            print(f"missed: {line}")  # noqa: T201
        for section in sections:
            text = section.put(text, measurements)
        if page:
            page.write_text(text, encoding="utf-8")
        return max((failed(name, line, MISSED) for line in judge(rows, measurements)), default=0)

    try:
        return attempted(name, run)
    except PageError as error:
        return failed(name, f"{page}: {error}", BAD_INPUT)


def attempted(name: str, run: Callable[[], int]) -> int:
    """Run a benchmark; returns its exit code, or that of what kept it from its end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended like Ctrl-C: nothing stays running
    try:
        return run()
    except (BenchError, AdminError, RealPulsarError, OSError) as error:
        return failed(name, str(error), CANNOT_START)
    except KeyboardInterrupt:
        return failed(name, "interrupted", CANNOT_START)


def failed(name: str, text: str, code: int) -> int:
    """Print an error in one line: its first, and the last line of its evidence."""
    first, *evidence = text.strip().splitlines() or ["failed"]
    line = f"{first}: {evidence[-1].strip()}" if evidence else first
    sys.stderr.write(f"bench {name}: {line}\n")
    return code


def count(text: str) -> int:
    """A whole number above 0.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number above 0 belongs here")
    return int(text)


def seconds(text: str) -> float:
    """A time above 0, of an hour at most.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    try:
        time_s = float(text)
    except ValueError:
        time_s = math.nan
    if not 0 < time_s <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds belong here, above 0 and up to {_LONGEST_S:g}")
    return time_s


def last_line(output: str) -> str:
    """Return the last line of a program's output: most programs say last why they end."""
    lines = output.strip().splitlines() or ["it said nothing"]
    return lines[-1].strip()
