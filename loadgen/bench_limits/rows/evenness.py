"""What rows about one limit of 500/s have in common: what comes in each second, and how evenly."""

from collections.abc import Sequence

from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import pair_means, per_second, worst_deviation
from loadgen.load.results import Line, max_excess

LIMIT = 500
BURST_S = 0.1
"""Seconds' worth of the limit that the line of comparison allows at once."""
SLACK_S = 0.05
"""Seconds' worth that the machine may put together between the limiter and the receiving end."""
SETTLED_S = 2
"""Where the first seconds end."""

EVENNESS = (
    Figure("first", "first second", " x limit", 2, Goal("≤", 1.1)),
    Figure("worst", "worst second after that, off by", " %", 1),
    Figure("pair", "worst mean of two seconds, off by", " %", 1, Goal("≤", 5)),
    Figure("mean", "mean from second 3 on", " x limit", 3, Goal("≥", 0.99)),
    Figure(
        "excess", f"most above {LIMIT * BURST_S:g} + {LIMIT} · t, in any interval", goal=Goal("≤", LIMIT * SLACK_S + 1)
    ),
)


def evenness(times: Sequence[float], seconds: int) -> Samples:
    """These figures of one trial.

    Args:
        times: Arrivals, ascending.
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
    }
