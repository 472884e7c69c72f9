"""`python -m loadgen.bench`: measure the data path beside its peers, print the table, write it into a page."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from loadgen.bench import arguments as accepted
from loadgen.bench import page, run
from loadgen.bench.errors import BenchError
from loadgen.bench.native import Native
from loadgen.bench.peers import bare, forwarder, haproxy, official, sluice
from loadgen.bench.peers.plan import Plan, running
from loadgen.bench.real import RealBroker
from loadgen.bench.rows import (
    access_log,
    bucket,
    closing,
    deliver,
    held,
    idle,
    interpreted,
    latency,
    opening,
    paced,
    perf,
    send,
    workers,
)
from loadgen.bench.rows.row import Row
from loadgen.bench.sink import Sink
from loadgen.bench.stage import Stage
from loadgen.bench.table import MARKS, Found, beyond, losses, missed, table, unguarded, unlisted
from loadgen.bench_limits.page import machine
from loadgen.bench_limits.page_file import text_of
from loadgen.bench_limits.table import PageError, put_between
from loadgen.real import jars
from loadgen.real.perf import Traffic

PLANS = (
    bare.PLAN,
    haproxy.PLAN,
    *(official.plan(name) for name in (official.ZERO_COPY, official.COPYING, official.PARSING)),
    sluice.plan(),
)
MISSED, CANNOT_START, BAD_INPUT = 3, 1, 2
CONNECTIONS, LIMITS, WINDOW_S = 10_000, 100_000, 10.0
HELD = (
    held.Held("messages", 100_000, 100, connections=20, streams=50, window_s=5.0),
    held.Held("bytes", 1_000_000_000, 65_536, connections=20, streams=50, window_s=5.0),
)
ACTIVE = (
    access_log.Active(connections=20, streams=50, size=1024, window_s=5.0),
    access_log.Active(connections=1000, streams=1, size=1024, window_s=5.0),
)
TRAFFIC = (
    Traffic(rate=10_000, size=100, is_batched=False, messages=60_000),
    Traffic(rate=50_000, size=1024, is_batched=True, messages=300_000),
)
REAL = "rows with a real broker"
SHORT = ("send-100-1", "send-1024-1", "send-16384-1", "deliver-1024", "paced-8")
"""Rows of the short form, which runs Sluice and the bare forwarder only."""

Absent = dict[str, str]


def rows() -> list[Row]:
    """All of them."""
    sizes = [send.row(size, connections) for size in (100, 1024, 16384) for connections in (1, 100)]
    connections = idle.connections_possible(CONNECTIONS, idle.descriptors())
    small = [paced.row(8, 60_000, receipts=False), paced.row(1, 10_000, receipts=True)]
    rest = [latency.row(1000), opening.row(2000), closing.row(50), idle.row(connections, LIMITS, WINDOW_S)]
    alone = [
        *(held.row(load) for load in HELD),
        *(access_log.row(load) for load in ACTIVE),
        *workers.rows(64, 40),
        interpreted.row(),
        bucket.row(),
    ]
    return [*sizes, deliver.row(1024), *small, *rest, *alone, *(perf.row(traffic) for traffic in TRAFFIC)]


def main() -> int:
    """Run the command line; returns the exit code: MISSED if the short form found Sluice too slow."""
    every = rows()
    arguments = _parser([row.name for row in every]).parse_args()
    wrong = _what_is_wrong(arguments, every)
    if wrong:
        return _fail(wrong, BAD_INPUT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended like Ctrl-C: nothing stays behind
    wanted = arguments.only or (SHORT if arguments.short else [row.name for row in every])
    without = _without_real(arguments)
    chosen = [row for row in every if row.name in wanted and not (row.is_real and without)]
    try:
        return _run(arguments, chosen, without)
    except PageError as error:
        return _fail(f"{arguments.write}: {error}", BAD_INPUT)
    except (BenchError, OSError) as error:
        return _fail(str(error), CANNOT_START)
    except KeyboardInterrupt:
        return _fail("interrupted", CANNOT_START)


def _what_is_wrong(arguments: argparse.Namespace, every: Sequence[Row]) -> str:
    """Words that do not go together; empty if all do."""
    for row in (row for row in every if row.name in (arguments.only or ())):
        if row.is_real and not arguments.real:
            return f"--only {row.name}: a row with a real broker: add --real"
        if arguments.peer and not set(row.peers) & set(arguments.peer):
            return f"--only {row.name}: of its peers none is wanted: --peer {' or '.join(row.peers)}"
    if arguments.write and (arguments.short or arguments.only or arguments.peer):
        return "--write: a page gets full runs only: leave out --short, --only and --peer"
    return ""


def _without_real(arguments: argparse.Namespace) -> Absent:
    """Why there are no rows with a real broker, if there are none."""
    why = jars.available() if arguments.real else "only with --real"
    return {REAL: why} if why else {}


def _run(arguments: argparse.Namespace, chosen: Sequence[Row], without: Absent) -> int:
    if arguments.write:
        # before the minutes of measuring: a page that cannot be written or has lost a mark is told at once
        _put(arguments.write, "")
    for name, why in without.items() if arguments.real else ():
        sys.stderr.write(f"without {name}: {why}\n")
    found, missing = _measure(arguments, chosen)
    absent = {**missing, **without}
    made = table(chosen, found)
    notes = [*losses(chosen, found), *beyond(chosen, found), *unlisted(chosen, found)]
    print("\n".join([made, "", f"measured on {machine()}", *notes]))  # noqa: T201 - what the command is for
    for line in missed(chosen, found):
        print(f"missed: {line}")  # noqa: T201
    if arguments.write:
        lines = len(Path(str(forwarder.__file__)).read_text(encoding="utf-8").splitlines())
        arguments.write.write_text(_put(arguments.write, page.section(made, notes, absent, lines)), encoding="utf-8")
    slow = unguarded(chosen, found) if arguments.short else []
    for line in slow:
        _fail(f"too slow: {line}", MISSED)
    return MISSED if slow else 0


def _put(to: Path, section: str) -> str:
    return put_between(text_of(to), MARKS, section)


def _measure(arguments: argparse.Namespace, chosen: Sequence[Row]) -> tuple[Found, Absent]:
    needed = {name for row in chosen for name in row.peers}
    if arguments.short:
        needed &= {bare.NAME, sluice.NAME}
    needed &= set(arguments.peer or needed)
    console = Console(stderr=True)
    with _stage([plan for plan in PLANS if plan.name in needed], arguments.seconds, console) as (stage, absent):
        told = partial(console.print, soft_wrap=True, highlight=False)
        return run.measure(chosen, stage, arguments.rounds, told), absent


@contextmanager
def _stage(plans: Sequence[Plan], seconds: float, console: Console) -> Iterator[tuple[Stage, Absent]]:
    """Both ends, and all peers that can be had; of the others, why not."""
    absent: Absent = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        native, sink = Native(), stack.enter_context(Sink())
        real = stack.enter_context(RealBroker(folder))
        peers = {}
        for plan in plans:
            why = plan.missing()
            try:
                if why is None:
                    peers[plan.name] = stack.enter_context(running(plan, folder, sink.port))
            except BenchError as error:
                why = str(error)
            if why is not None:
                absent[plan.name] = why
                console.print(f"without {plan.name}: {why}", soft_wrap=True, highlight=False)
        had = {plan.name: plan for plan in plans if plan.name in peers}
        yield Stage(native, sink, peers, had, seconds, folder, real.peer), absent


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadgen.bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="this row (may be given several times)")
    parser.add_argument("--peer", action="append", choices=[plan.name for plan in PLANS], help="this peer (as --only)")
    parser.add_argument(
        "--short", action="store_true", help="a few rows beside the bare forwarder: exit code 3 if slow"
    )
    parser.add_argument("--real", action="store_true", help="rows with a real broker, too: needs Java 17+ and Maven")
    parser.add_argument(
        "--rounds", type=accepted.count, default=3, help="measurements of each row and peer (default: 3)"
    )
    parser.add_argument("--seconds", type=accepted.seconds, default=1.5, help="how long each sends (default: 1.5)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this Markdown page")
    return parser


def _fail(line: str, code: int) -> int:
    sys.stderr.write(f"bench: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
