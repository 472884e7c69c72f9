"""A limit in bytes, and small messages before large ones: whoever reads by the average size reads too much."""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.drain import SUBSCRIPTION, Arrival, Backlog, drain, fill
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import per_second
from loadgen.bench_limits.rows.evenness import BURST_S, SETTLED_S, SLACK_S
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import SharedConsumer
from loadgen.load.results import Line, max_excess

UNIT = 100
"""Bytes; what is measured is counted in these."""
SMALL, LARGE = UNIT, 50_000
MANY, FEW = 1000, 230
LIMIT = 1_000_000
KB = 1000

FIGURES = (
    Figure("first", "first second", " x limit", 2, Goal("≤", 1.1 + LARGE / LIMIT)),
    Figure("worst", "most in a second", " x limit", 2, Goal("≤", 1.1 + LARGE / LIMIT)),
    Figure("mean", "mean from second 3 on", " x limit", 3, Goal("≥", 0.99)),
    Figure(
        "excess",
        f"most above {LIMIT * BURST_S / KB:g} KB + {LIMIT // KB:,} KB · t and one large message, in any interval",
        " KB",
        goal=Goal("≤", (LIMIT * SLACK_S + LARGE) / KB),
    ),
)


def row(*, quick: bool) -> Row:
    """The row; quick: four seconds instead of ten."""
    seconds = 4 if quick else 10
    load = f"{LIMIT // KB:,} KB/s: {MANY:,} messages of {SMALL} B, then such of {LARGE // KB} KB, {seconds} s"
    return Row("sizes", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1)


def _measure(seconds: int, stage: Stage) -> Samples:
    topic = stage.dispatch_topic(size=LIMIT).name
    fill(stage.broker_url, [Backlog(topic, MANY, SMALL), Backlog(topic, FEW, LARGE)])
    drained = drain(stage, [SharedConsumer("one", topic, SUBSCRIPTION)], seconds)
    return samples(drained.by_consumer[0], seconds)


def samples(arrivals: Sequence[Arrival], seconds: int) -> Samples:
    """The figures of one trial: what arrived (ascending), and how many seconds are looked at from the first arrival."""
    times = [at for at, size in arrivals for _ in range(size // UNIT)]
    limit = LIMIT / UNIT
    counts = per_second(times, seconds)
    settled = counts[SETTLED_S:]
    excess = max_excess(times, Line(limit, limit * BURST_S, LARGE / UNIT))
    return {
        "first": [counts[0] / limit],
        "worst": [max(counts) / limit],
        "mean": [sum(settled) / len(settled) / limit],
        "excess": [excess * UNIT / KB],
    }
