"""Connections opened all at once."""

from functools import partial

from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.peers import haproxy
from loadgen.bench.rows.crowd import crowd
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import CpuClock, Stage


def row(connections: int) -> Row:
    """So many, up to the broker's greeting on each."""
    figures = (
        Figure("rate", "connections/s", goals=(Goal("≥", 0.5, haproxy.NAME),)),
        Figure("cpu", "CPU of each", " ms", digits=2),
    )
    return Row("opening", f"{connections:,} connections opened at once", figures, partial(_measure, connections))


def _measure(count: int, stage: Stage, name: str) -> Sample:
    peer = stage.peers[name]
    clock = CpuClock(peer.pid)
    with crowd(stage, peer.port, count, count) as opened:
        used = clock.read()
        return {"rate": count / opened.seconds, "cpu": used.cpu_s / count * 1e3}
