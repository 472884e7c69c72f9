"""`python -m bench processes`: what a message costs where two processes share a limit, beside one process."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench import harness
from bench.data_path.native import Native
from bench.data_path.proxies import UNREACHED, running, sluice_plan
from bench.data_path.rows.throughput import measure_deliveries, measure_sends
from bench.data_path.stage import DataRow, Stage, measure
from bench.data_path.wire import LoopbackSink
from bench.harness import BenchError, Figure, Found, Goal, Row, Sample, Section
from bench.process_sharing import formed, sharing_row
from loadgen.real.jars import ProcessFailed
from loadgen.real.process import TetheredProcess, free_ports, is_listening, wait_ready

NAME = "processes"
ONE, TWO = "one process", "two processes"
_PROCESSES = {ONE: 1, TWO: 2}
_READY_S = 60.0
_CONNECTIONS, _SIZE = 16, 100
MOST_COST = 1.11
"""Two processes carry 1.8 times the messages of one if a message costs at most 2 / 1.8 times the CPU."""
FIGURES = (
    Figure("cpu", "CPU s per million messages", digits=2, goals=(Goal("≤", MOST_COST, ONE),)),
    Figure("busiest", "part of it in the busier process", digits=2),
    Figure("rate", "messages/s"),
    Figure("lost", "lost at the close"),
)
TEXT = """\
## Several processes

Made by `python -m bench processes --write docs/benchmarks.md`, which writes this section itself.

{table}

Measured on {machine}. The ends of the data path's rows write and read {size} B over
{connections} connections as fast as Sluice takes them. A limit of the namespace, which nothing
reaches, holds for both processes together. The CPU time is that of all serving processes. Ends and
Sluice share the cores, so the ratio of the costs stands for the ratio of what two cores and one
core carry; the messages a second are what the ends leave room for."""


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code, which says whether all goals are reached."""
    parser = harness.parser(NAME, __doc__, [row.name for row in ROWS], rounds=5)
    parser.add_argument("--seconds", type=harness.seconds, default=5, help="how long each load lasts (default: 5)")
    arguments = parser.parse_args(words)
    rows = [row for row in ROWS if row.name in (arguments.only or [row.name])]

    def text(tables: str, _measurements: Found) -> str:
        values = {"connections": _CONNECTIONS, "size": _SIZE, "machine": harness.machine()}
        return harness.prose(TEXT.format(table=tables, **values))

    measured = partial(_measured, rows, arguments.rounds, arguments.seconds)
    return harness.carry_out(NAME, arguments.write, [Section(NAME, rows, text)], measured, harness.missed)


def _measured(rows: Sequence[DataRow], rounds: int, seconds: float) -> Found:
    with _stage(seconds) as stage:
        return measure(rows, stage, rounds, partial(print, file=sys.stderr))


@contextmanager
def _stage(seconds: float) -> Iterator[Stage]:
    """One process and two, which have formed their fleet; the broker of its topics is not that of the messages.

    Raises:
        BenchError: If something does not start.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        (port,) = free_ports(0)
        command = [sys.executable, "-m", "sluice", "broker", "--listen", f"127.0.0.1:{port}"]
        broker = TetheredProcess(command, folder / "broker.log")
        stack.callback(broker.kill)
        try:
            wait_ready(broker, partial(is_listening, port), _READY_S)
        except ProcessFailed as error:
            raise BenchError(str(error)) from error
        sink = stack.enter_context(LoopbackSink(fleets=port))
        plans = {name: sluice_plan(UNREACHED, processes=count) for name, count in _PROCESSES.items()}
        peers = {name: stack.enter_context(running(plan, folder, sink.port)) for name, plan in plans.items()}
        formed(peers[TWO], _PROCESSES[TWO])
        yield Stage(Native(), sink, peers, plans, seconds, folder)


def _measure_sends(stage: Stage, name: str) -> Sample:
    return measure_sends(stage, stage.peers[name], _SIZE, _CONNECTIONS)


def _measure_deliveries(stage: Stage, name: str) -> Sample:
    return measure_deliveries(stage, stage.peers[name], _SIZE, _CONNECTIONS)


ROWS: tuple[DataRow, ...] = (
    Row("send", "SEND", FIGURES, _measure_sends, (ONE, TWO)),
    Row("message", "MESSAGE", FIGURES, _measure_deliveries, (ONE, TWO)),
    sharing_row(TWO),
)
