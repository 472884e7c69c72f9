"""`python -m bench limits`: measure, print the tables, write them into a page if asked to."""

import argparse
import gc
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from adminrest.client import AdminError
from bench import harness
from bench.harness import BenchError, Found, PageError
from bench.limits import dispatch_rows, publish_rows
from bench.limits.trial import LimitsRow, measure, running
from loadgen.load.clients import ClientError
from loadgen.real.jars import VERSION, RealPulsarError, available

ROWS = {"publish": publish_rows.ROWS, "dispatch": dispatch_rows.ROWS}
"""The rows of each section: what makes them, short or whole."""
CANNOT_START, BAD_INPUT = 1, 2


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code, which says nothing about goals."""
    arguments = _parser().parse_args(words)
    if bad_input := _contradiction(arguments):
        return _fail(bad_input, BAD_INPUT)
    if missing := available():
        return _fail(f"a real Pulsar broker is needed: {missing}", CANNOT_START)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended like Ctrl-C: nothing stays behind
    try:
        _run(arguments)
    except PageError as error:
        return _fail(f"{arguments.write}: {error}", BAD_INPUT)
    except (BenchError, AdminError, ClientError, RealPulsarError, OSError) as error:
        return _fail(_one_line(str(error)), CANNOT_START)
    except KeyboardInterrupt:
        return _fail("interrupted", CANNOT_START)
    return 0


def _run(arguments: argparse.Namespace) -> None:
    sections = _chosen(arguments)
    if arguments.write:
        # before the minutes of measuring: a page that cannot be read or has lost a mark is told at once
        _put(arguments.write, dict.fromkeys(sections, ""))
    rows = [row for chosen in sections.values() for row in chosen]
    found = _measure(rows)
    tables = {about: harness.shown(chosen, found) for about, chosen in sections.items()}
    print("\n\n".join([*tables.values(), f"measured on {harness.machine()}"]))  # noqa: T201 - what the command is for
    for line in harness.missed(rows, found):
        print(f"missed: {line}")  # noqa: T201
    if arguments.write:
        made = {about: section(about, its_table) for about, its_table in tables.items()}
        arguments.write.write_text(_put(arguments.write, made), encoding="utf-8")


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


def marks(about: str) -> tuple[str, str]:
    """The lines before and behind the section about publishing or dispatching."""
    return harness.marks(f"bench-limits, {about}", "make bench-limits")


def section(about: str, tables: str, on: str = "") -> str:
    """The whole section about `publish` or `dispatch`; `on` is another machine than this one."""
    text = harness.text_beside(__file__, f"{about}.md")
    return harness.prose(text.format(pulsar=VERSION, table=tables, machine=on or harness.machine()))


def _put(to: Path, sections: dict[str, str]) -> str:
    text = harness.page_text(to)
    for about, section in sections.items():
        text = harness.put_between(text, marks(about), section)
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench limits", description=__doc__)
    names = [make(quick=True).name for makers in ROWS.values() for make in makers]
    parser.add_argument("--rows", action="append", choices=tuple(ROWS), help="the rows of this section")
    parser.add_argument("--only", action="append", choices=names, help="this row (may be given several times)")
    parser.add_argument("--quick", action="store_true", help="each row once and short: to see that it works")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this Markdown page")
    return parser


def _measure(rows: list[LimitsRow]) -> Found:
    gc.disable()  # the receiving end: a full collection stops it for 20 ms and more (measured)
    console = Console(stderr=True)
    with (
        console.status("starting broker and Sluice") as status,
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder,
        running(Path(folder)) as both,
    ):
        status.update("measuring")
        return measure(rows, both, partial(console.print, soft_wrap=True, highlight=False))


def _one_line(text: str) -> str:
    """The message, and the last of the lines that stand behind it as evidence."""
    first, *evidence = text.strip().splitlines() or ["failed"]
    return f"{first}: {evidence[-1].strip()}" if evidence else first


def _fail(line: str, code: int) -> int:
    sys.stderr.write(f"bench-limits: {line}\n")
    return code
