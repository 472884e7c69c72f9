"""Sluice where there is no C compiler."""

from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.peers import bare, sluice
from loadgen.bench.rows import send
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import Stage

SIZE = 1024


def row() -> Row:
    """As the row of that size, with one connection."""
    figures = (
        Figure("rate", "frames/s", goals=(Goal("≥", 0.25, bare.NAME),)),
        Figure("cpu", "CPU s per million frames", digits=2, goals=(Goal("≤", None, bare.NAME),)),
    )
    load = f"SEND of {SIZE:,} B, 1 connection, Sluice interpreted"
    return Row("interpreted", load, figures, _measure, (bare.NAME, sluice.NAME))


def _measure(stage: Stage, name: str) -> Sample:
    if name != sluice.NAME:
        return send.measured(stage, stage.peers[name], SIZE, 1)
    with stage.started(sluice.interpreted()) as peer:
        return send.measured(stage, peer, SIZE, 1)
