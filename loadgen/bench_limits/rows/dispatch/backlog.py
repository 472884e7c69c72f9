"""A consumer drains a backlog under a limit: what comes in each second, and how evenly."""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.drain import SUBSCRIPTION, Backlog, drain, fill
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import Span, longest_gap, pair_means, per_second, worst_deviation
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import SharedConsumer
from loadgen.load.line import Line, max_excess

LIMIT = 500
BURST_S = 0.1
"""Seconds' worth of the limit that the line of comparison allows at once."""
SLACK_S = 0.05
"""Seconds' worth that the machine may put together between the limiter and the receiving end."""
SETTLED_S = 2
"""Where the first seconds end."""
MORE_S = 4
"""Seconds' worth that is left of a backlog at the end, also when the first second brings twice the limit."""
GAP_MS = 20

FIGURES = (
    Figure("first", "first second", " x limit", 2, Goal("≤", 1.1)),
    Figure("worst", "worst second after that, off by", " %", 1),
    Figure("pair", "worst mean of two seconds, off by", " %", 1, Goal("≤", 5)),
    Figure("mean", "mean from second 3 on", " x limit", 3, Goal("≥", 0.99)),
    Figure(
        "excess", f"most above {LIMIT * BURST_S:g} + {LIMIT} · t, in any interval", goal=Goal("≤", LIMIT * SLACK_S + 1)
    ),
    Figure(
        "gap", f"longest time without a delivery (one is due every {1000 / LIMIT:g} ms)", " ms", 0, Goal("≤", GAP_MS)
    ),
    Figure("pause", "longest standstill of the consumer", " ms", 0),
)


def row(*, quick: bool) -> Row:
    """The row; quick: four seconds instead of twelve."""
    seconds = 4 if quick else 12
    load = f"a backlog drained at {LIMIT}/s by one consumer, {seconds} s"
    return Row("backlog", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1 if quick else 3)


def _measure(seconds: int, stage: Stage) -> Samples:
    topic = stage.dispatch_topic(LIMIT).name
    fill(stage.broker_url, [Backlog(topic, LIMIT * (seconds + MORE_S))])
    drained = drain(stage, [SharedConsumer("one", topic, SUBSCRIPTION)], seconds)
    found = samples(drained.times, drained.stood, seconds)
    return found | {"pause": [drained.longest_pause_s * 1000]}


def samples(times: Sequence[float], stood: Sequence[Span], seconds: int) -> Samples:
    """The figures of one trial.

    Args:
        times: Arrivals, ascending.
        stood: In which spans the consumer stood still.
        seconds: How many are looked at, from the first arrival.
    """
    counts = per_second(times, seconds)
    settled = counts[SETTLED_S:]
    return {
        "first": [counts[0] / LIMIT],
        "worst": [worst_deviation(counts[1:], LIMIT) * 100],
        "pair": [worst_deviation(pair_means(counts[1:]), LIMIT) * 100],
        "mean": [sum(settled) / len(settled) / LIMIT],
        "excess": [max_excess(times, Line(LIMIT, LIMIT * BURST_S, entry=0))],
        "gap": [longest_gap(times, seconds, stood) * 1000],
    }
