"""`python -m bench limits`: measure, print the tables, write them into a page if asked to."""

import argparse
import gc
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from bench import harness
from bench.harness import BAD_INPUT, CANNOT_START, BenchError, Found, Section
from bench.limits import dispatch_rows, publish_rows
from bench.limits.trial import LimitsRow, measure, running, warm_up
from loadgen.load.clients import ClientError
from loadgen.real.jars import VERSION, available

ROWS = {"publish": publish_rows.ROWS, "dispatch": dispatch_rows.ROWS}
"""The rows of each section: what makes them, short or whole."""


NAME = "limits"


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code, which says nothing about goals."""
    arguments = _parser().parse_args(words)
    if bad_input := _contradiction(arguments):
        return harness.failed(NAME, bad_input, BAD_INPUT)
    if missing := available():
        return harness.failed(NAME, f"a real Pulsar broker is needed: {missing}", CANNOT_START)
    chosen = _chosen(arguments)
    sections = [Section(f"{NAME}, {about}", rows, partial(section, about)) for about, rows in chosen.items()]
    rows = [row for section in sections for row in section.rows]
    return harness.carry_out(NAME, arguments.write, sections, partial(_measure, rows, quick=arguments.quick))


def _contradiction(arguments: argparse.Namespace) -> str:
    """Say which options cannot be together, and the remedy; empty if there are none."""
    if arguments.write and (arguments.quick or arguments.only):
        return "--write: a page gets full runs only: leave out --quick and --only"
    if not _chosen(arguments):
        return f"--only: no such row in the section {' or '.join(arguments.rows)}: leave out --rows"
    return ""


def _chosen(arguments: argparse.Namespace) -> dict[str, list[LimitsRow]]:
    """The rows of each section that is wanted."""
    chosen: dict[str, list[LimitsRow]] = {}
    for about, makers in ROWS.items():
        rows = [make(quick=arguments.quick) for make in makers]
        wanted = [row for row in rows if row.name in (arguments.only or [row.name])]
        if wanted and about in (arguments.rows or ROWS):
            chosen[about] = wanted
    return chosen


def section(about: str, tables: str, _measurements: Found) -> str:
    """Return the text of the section about `publish` or `dispatch`."""
    text = harness.text_beside(__file__, f"{about}.md")
    return harness.prose(text.format(pulsar=VERSION, table=tables, machine=harness.machine()))


def _parser() -> argparse.ArgumentParser:
    names = [make(quick=True).name for makers in ROWS.values() for make in makers]
    parser = harness.parser(NAME, __doc__, names)
    parser.add_argument("--rows", action="append", choices=tuple(ROWS), help="the rows of this section")
    parser.add_argument("--quick", action="store_true", help="each row once and short: to see that it works")
    return parser


def _measure(rows: list[LimitsRow], *, quick: bool) -> Found:
    gc.disable()  # the receiving end: a full collection stops it for 20 ms and more (measured)
    console = Console(stderr=True)
    with (
        console.status("starting broker and Sluice") as status,
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder,
        running(Path(folder)) as both,
    ):
        status.update("measuring")
        try:
            for stage in () if quick else both:
                warm_up(stage)
            return measure(rows, both, partial(console.print, soft_wrap=True, highlight=False))
        except ClientError as error:
            raise BenchError(str(error)) from None
