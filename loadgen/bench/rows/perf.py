"""The official pulsar-perf and a real broker, a peer between them: what real traffic costs."""

import tempfile
from functools import partial
from pathlib import Path

from loadgen.bench.harness import BenchError, Figure, Goal, Row, Sample
from loadgen.bench.proxies import BARE, PARSING, SLUICE
from loadgen.bench.stage import CpuClock, DataRow, Stage
from loadgen.real.jars import RealPulsarError
from loadgen.real.perf import OUTSTANDING, Traffic, pass_through

PEERS = (BARE, PARSING, SLUICE)
_REACHED = 95.0
"""Percent of the rate; below, the machine is not up to it."""


def row(traffic: Traffic) -> DataRow:
    """Such messages, produced and at the same time consumed through the peer."""
    kind, most = ("batched", 1.2) if traffic.is_batched else ("unbatched", 1.6)
    figures = (
        Figure(
            "cpu",
            "CPU s per million messages, produced and consumed",
            digits=2,
            goals=(Goal("≤", most, BARE), Goal("≤", None, PARSING)),
        ),
        Figure("rate", "produced, of that rate", " %"),
    )
    load = f"real broker, pulsar-perf -o {OUTSTANDING}: {traffic.rate:,} msg/s of {traffic.size:,} B, {kind}"
    return Row(
        f"perf-{traffic.size}", load, figures, partial(_measure, traffic), PEERS, is_real=True, needs=("rate", _REACHED)
    )


def _measure(traffic: Traffic, stage: Stage, name: str) -> Sample:
    if stage.real is None:
        raise BenchError("a real broker is not wanted: --real")
    peer = stage.real(stage.plans[name])
    folder = Path(tempfile.mkdtemp(prefix="perf", dir=stage.folder))
    topic = f"persistent://public/default/{folder.name}"
    clock = CpuClock(peer.pid)
    try:
        rate = pass_through(f"pulsar://127.0.0.1:{peer.port}", topic, traffic, folder)
    except RealPulsarError as error:
        raise BenchError(str(error).splitlines()[0]) from error
    return {"cpu": clock.read().cpu_s / traffic.messages * 1e6, "rate": rate / traffic.rate * 100}
