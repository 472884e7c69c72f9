"""`python -m bench processes`: what a message costs where two processes share a limit, beside one process."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import harness, meters
from bench.harness import BenchError, Figure, Found, Goal, Row, Sample, Section
from loadgen.real.jars import ProcessFailed
from loadgen.real.process import TetheredProcess, free_ports, is_listening, wait_ready

NAME = "processes"
ONE, TWO = "one process", "two processes"
_COUNT = {ONE: 1, TWO: 2}
_READY_S = 60.0
_TOPICS, _RATE = 16, 2000
LIMITS = {"tenants": {"acme": {"publish": {"messages": 1_000_000}, "dispatch": {"messages": 1_000_000}}}}
"""Limits that both processes share and that nothing reaches."""
MOST_COST = 1.11
"""Two processes carry 1.8 times the messages of one if a message costs at most 2 / 1.8 times the CPU."""
FIGURES = (
    Figure("cpu", "CPU s per million messages", digits=1, goals=(Goal("≤", MOST_COST, ONE),)),
    Figure("busier", "part of it in the busier process", digits=2),
    Figure("rate", "messages/s"),
)
TEXT = """\
## Several processes

Made by `python -m bench processes --write docs/benchmarks.md`, which writes this section itself.

{table}

Measured on {machine}. Official Python clients send {rate} messages/s of 100 B over {topics}
connections through Sluice to the stand-in broker. In the second row consumers receive them through
Sluice. A limit of the tenant holds for both processes together. The CPU time is that of all serving
processes. Clients, broker and Sluice share the cores, so the ratio of the costs stands for the ratio
of what two cores and one core carry."""


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code, which says whether all goals are reached."""
    parser = harness.parser(NAME, __doc__, [row.name for row in ROWS], rounds=3)
    parser.add_argument("--seconds", type=float, default=20, help="how long each load lasts")
    arguments = parser.parse_args(words)
    rows = [row for row in ROWS if row.name in (arguments.only or [row.name])]

    def text(tables: str, _found: Found) -> str:
        told = {"rate": f"{_TOPICS * _RATE:,}", "topics": _TOPICS, "machine": harness.machine()}
        return harness.prose(TEXT.format(table=tables, **told))

    measured = partial(_measured, rows, arguments.rounds, arguments.seconds)
    return harness.carry_out(NAME, arguments.write, [Section(NAME, rows, text)], measured, harness.missed)


def _measured(rows: Sequence[Row[bool]], rounds: int, seconds: float) -> Found:
    def played(row: Row[bool], _number: int) -> dict[str, list[Sample | None]]:
        return {peer: [measure(_COUNT[peer], seconds, receives=row.measure)] for peer in row.peers}

    def progress(line: str) -> None:
        print(line, file=sys.stderr)  # noqa: T201 - minutes pass

    return {row.name: harness.in_rounds(row, rounds, partial(played, row), progress) for row in rows}


def measure(processes: int, seconds: float, *, receives: bool) -> Sample:
    """Return the cost of a message with so many processes; `receives`: it is delivered through Sluice, too.

    Raises:
        BenchError: If something does not start, or messages are lost.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        port, broker_port, admin = free_ports(0, 0, 0)
        (folder / "sluice.yaml").write_text(json.dumps({"limits": LIMITS, "processes": processes}))
        (folder / "load.yaml").write_text(json.dumps(_scenario()))
        broker = _start(folder, "broker", "--listen", f"127.0.0.1:{broker_port}")
        stack.callback(broker.kill)
        sluice = _start(
            folder,
            *("serve", "--config", str(folder / "sluice.yaml"), "--listen", f"127.0.0.1:{port}"),
            *("--broker", f"pulsar://127.0.0.1:{broker_port}", "--admin", f"127.0.0.1:{admin}"),
            *("--access-log", str(folder / "access-log")),
        )
        stack.callback(sluice.stop)
        load = [
            sys.executable,
            "-m",
            "sluice",
            "load",
            "--service-url",
            f"pulsar://127.0.0.1:{port}",
            "--scenario",
            str(folder / "load.yaml"),
        ]
        load += ["--seconds", str(seconds), "--out", str(folder / "counts.json")]
        load += ["--verify-url", f"pulsar://127.0.0.1:{port}"] if receives else []
        try:
            for each, process in ((broker_port, broker), (port, sluice), (admin + processes - 1, sluice)):
                wait_ready(process, partial(is_listening, each), _READY_S)
            serving = meters.children(sluice.pid) if processes > 1 else [sluice.pid]
            before = [meters.used(pid).cpu_s for pid in serving]
        except ProcessFailed as error:
            raise BenchError(str(error)) from error
        loaded = subprocess.run(load, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        if loaded.returncode != 0:
            raise BenchError(f"the load ended with code {loaded.returncode}: {loaded.stderr[-1000:]}")
        spent = [meters.used(pid).cpu_s - at for pid, at in zip(serving, before, strict=True)]
    sent = _TOPICS * _RATE * seconds
    return {"cpu": sum(spent) / sent * 1e6, "busier": max(spent) / sum(spent), "rate": sent / seconds}


def _start(folder: Path, *words: str) -> TetheredProcess:
    return TetheredProcess([sys.executable, "-m", "sluice", *words], folder / f"{words[0]}.log")


def _scenario() -> dict[str, object]:
    pattern = {"kind": "steady", "rate": _RATE}
    topics = {f"shop/t{number}": {"message_bytes": 100, "pattern": pattern} for number in range(_TOPICS)}
    return {"tenants": {"acme": {"topics": topics}}}


ROWS: tuple[Row[bool], ...] = (
    Row("send", "SEND", FIGURES, False, (ONE, TWO)),
    Row("message", "SEND and MESSAGE", FIGURES, True, (ONE, TWO)),
)
