"""`python -m bench data-path`: measure the data path beside its peers, print the tables, write them into a page."""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from bench import harness
from bench.data_path import forwarder
from bench.data_path.native import Native
from bench.data_path.proxies import BARE, PLANS, SLUICE, PeerPlan, running
from bench.data_path.pulsar_perf import Traffic
from bench.data_path.rows import bucket, connections, many_streams, sizing, throughput, tls
from bench.data_path.stage import DataRow, RealBroker, Stage, TlsLines, measure
from bench.data_path.wire import LoopbackSink
from bench.harness import BAD_INPUT, BenchError, Found, Section, number, values_of
from loadgen.real import jars

NAME, TLS = "data-path", "data-path, TLS"
CONNECTIONS, LIMITS, WINDOW_S = 10_000, 100_000, 10.0
HELD = (
    many_streams.Held(unit="messages", rate=100_000, size=100, connections=20, streams=50, window_s=5.0),
    many_streams.Held(unit="bytes", rate=1_000_000_000, size=65_536, connections=20, streams=50, window_s=5.0),
)
ACTIVE = (
    many_streams.Load(connections=20, streams=50, size=1024, window_s=5.0),
    many_streams.Load(connections=1000, streams=1, size=1024, window_s=5.0),
)
TRAFFIC = (
    Traffic(rate=10_000, size=100, is_batched=False, messages=60_000),
    Traffic(rate=50_000, size=1024, is_batched=True, messages=300_000),
)
REAL = "rows with a real broker"
SHORT = ("send-100-1", "send-1024-1", "send-16384-1", "deliver-1024", "paced-8")
"""Rows of the short form, which runs Sluice and the bare forwarder only."""

Absent = Mapping[str, str]
"""Why peers, or rows, are not there."""

IDLE_WITH_TLS = 1000


def tls_rows() -> list[DataRow]:
    """List the rows of TLS."""
    return tls.rows(IDLE_WITH_TLS)


def rows() -> list[DataRow]:
    """List all rows of the benchmark."""
    possible = connections.connections_possible(CONNECTIONS, connections.descriptors())
    return [
        *(throughput.send_row(size, count) for size in (100, 1024, 16384) for count in (1, 100)),
        throughput.deliver_row(1024),
        throughput.paced_row(8, 60_000, receipts=False),
        throughput.paced_row(1, 10_000, receipts=True),
        throughput.latency_row(1000),
        connections.opening_row(2000),
        throughput.closing_row(50),
        connections.idle_row(possible, LIMITS, WINDOW_S),
        *(many_streams.held_row(load) for load in HELD),
        *(many_streams.log_row(load) for load in ACTIVE),
        throughput.interpreted_row(),
        bucket.row(),
        *(throughput.perf_row(traffic) for traffic in TRAFFIC),
    ]


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code: MISSED if the short form found Sluice too slow."""
    every = [*rows(), *tls_rows(), *sizing.rows()]
    arguments = _parser([row.name for row in every]).parse_args(words)
    wrong = _what_is_wrong(arguments, every)
    if wrong:
        return harness.failed(NAME, wrong, BAD_INPUT)
    all_of = tls_rows() if arguments.tls else sizing.rows() if arguments.sizing else [*rows(), *tls_rows()]
    wanted = arguments.only or (SHORT if arguments.short else [row.name for row in all_of])
    without = _without_real(arguments)
    for name, why in without.items() if arguments.real else ():
        sys.stderr.write(f"without {name}: {why}\n")
    chosen = [row for row in every if row.name in wanted and not (row.is_real and without)]
    absent = dict(without)

    def measured() -> Found:
        measurements, missing = _measure(arguments, chosen)
        absent.update(missing)
        return measurements

    with_tls = {row.name for row in tls_rows()}
    plain, sealed = ([row for row in chosen if (row.name in with_tls) is is_sealed] for is_sealed in (False, True))
    sections = [
        Section(
            NAME, plain, lambda tables, measurements: section("section.md", tables, notes(plain, measurements), absent)
        ),
        Section(
            TLS,
            sealed,
            lambda tables, measurements: section("tls_section.md", tables, notes(sealed, measurements), absent),
        ),
    ]
    judge = harness.unguarded if arguments.short else lambda _rows, _measurements: []
    return harness.carry_out(NAME, arguments.write, [each for each in sections if each.rows], measured, judge)


def _what_is_wrong(arguments: argparse.Namespace, every: Sequence[DataRow]) -> str:
    """Words that do not go together; empty if all do."""
    for row in (row for row in every if row.name in (arguments.only or ())):
        if row.is_real and not arguments.real:
            return f"--only {row.name}: a row with a real broker: add --real"
        if arguments.peer and not set(row.peers) & set(arguments.peer):
            return f"--only {row.name}: of its peers none is wanted: --peer {' or '.join(row.peers)}"
    for group in ("tls", "sizing"):
        if getattr(arguments, group) and (arguments.short or arguments.only):
            return f"--{group}: these rows alone: leave out --short and --only"
    if arguments.tls and arguments.sizing:
        return "--tls and --sizing are two groups of rows: leave out one"
    if arguments.write and (arguments.short or arguments.only or arguments.peer or arguments.sizing):
        return "--write: a page gets full runs only: leave out --short, --only, --peer and --sizing"
    return ""


def _without_real(arguments: argparse.Namespace) -> Absent:
    """Why there are no rows with a real broker, if there are none."""
    why = jars.available() if arguments.real else "only with --real"
    return {REAL: why} if why else {}


def notes(rows: Sequence[DataRow], measurements: Found) -> list[str]:
    """Lines below the tables: the frames that peers lost, and the loads that the machine did not reach."""
    return [*losses(rows, measurements), *beyond(rows, measurements)]


def losses(rows: Sequence[DataRow], measurements: Found) -> list[str]:
    """Return a line for each peer that lost frames, with its greatest loss in one measurement."""
    return [
        f"{name} lost frames that were written before the close: {row.load}, {number(max(lost), 2)}"
        f" in one of {len(lost)} measurements"
        for row in rows
        for name, samples in measurements[row.name].items()
        if (lost := values_of("lost", samples)) and max(lost) > 0
    ]


def beyond(rows: Sequence[DataRow], measurements: Found) -> list[str]:
    """A line for each peer and load for which the machine, with all that runs on it, is too slow."""
    return [
        f"the load is not reached here: {row.load}, {name}: {figure.shown(samples)} {figure.text}"
        for row in rows
        if row.needs is not None
        for figure in row.figures
        if figure.key == row.needs[0]
        for name, samples in measurements[row.name].items()
        if (values := values_of(figure.key, samples)) and statistics.median(values) < row.needs[1]
    ]


def section(file: str, tables: str, notes: Sequence[str], absent: Absent) -> str:
    """Return the text of a section: that of a file beside this one, with its tables."""
    lines = len(Path(str(forwarder.__file__)).read_text(encoding="utf-8").splitlines())
    values = {
        "machine": harness.machine(),
        "forwarder": lines,
        "notes": harness.bullets(notes) or "No frame was lost.",
    }
    text = harness.text_beside(__file__, file).format(table=tables, **values)
    return harness.prose("\n\n".join([text, *(f"Not measured: {name}: {why}." for name, why in absent.items())]))


def _measure(arguments: argparse.Namespace, chosen: Sequence[DataRow]) -> tuple[Found, Absent]:
    needed = {name for row in chosen for name in row.peers}
    if arguments.short:
        needed &= {BARE, SLUICE}
    needed &= set(arguments.peer or needed)
    console = Console(stderr=True)
    plans = [plan for plan in PLANS if plan.name in needed]
    later = {row.name for row in tls_rows()}
    at_once = {name for row in chosen if row.name not in later for name in row.peers}
    with _stage(plans, at_once, arguments.seconds, console) as (stage, absent):
        progress = partial(console.print, soft_wrap=True, highlight=False, markup=False)
        return measure(chosen, stage, arguments.rounds, progress), absent


@contextmanager
def _stage(
    plans: Sequence[PeerPlan], at_once: set[str], seconds: float, console: Console
) -> Iterator[tuple[Stage, Absent]]:
    """Both ends, and all peers that can be had, running where wanted `at_once`; of the others, why not."""
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        native, sink = Native(), stack.enter_context(LoopbackSink())
        real = stack.enter_context(RealBroker(folder))
        peers = {}
        for plan in plans:
            why = plan.missing()
            try:
                if why is None and plan.name in at_once:
                    peers[plan.name] = stack.enter_context(running(plan, folder, sink.port))
            except BenchError as error:
                why = str(error)
            if why is not None:
                absent[plan.name] = why
                console.print(f"without {plan.name}: {why}", soft_wrap=True, highlight=False, markup=False)
        had = {plan.name: plan for plan in plans if plan.name not in absent}
        lines = stack.enter_context(TlsLines(folder, sink))
        yield Stage(native, sink, peers, had, seconds, folder, real.peer, lines), absent


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    parser = harness.parser(NAME, __doc__, names, rounds=3)
    parser.add_argument("--peer", action="append", choices=[plan.name for plan in PLANS], help="this peer (as --only)")
    parser.add_argument(
        "--short", action="store_true", help="a few rows beside the bare forwarder: exit code 3 if slow"
    )
    parser.add_argument("--tls", action="store_true", help="rows of TLS only")
    parser.add_argument("--sizing", action="store_true", help="rows of the page on sizing only, Sluice alone")
    parser.add_argument("--real", action="store_true", help="rows with a real broker, too: needs Java 17+ and Maven")
    parser.add_argument("--seconds", type=harness.seconds, default=1.5, help="how long each sends (default: 1.5)")
    return parser
