"""Five greedy producers, each a client of its own, share one limit: what passes in each second, and who gets it."""

from collections.abc import Sequence
from functools import partial
from heapq import merge

from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import jain, pair_means, per_second, worst_deviation
from loadgen.bench_limits.orders import LaneOrder
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.line import Line, max_excess

LIMIT = 500
PRODUCERS = 5
BURST_S = 0.1
"""Seconds' worth of the limit that the line of comparison allows at once."""
SLACK_S = 0.05
"""Seconds' worth that the machine may put together between the limiter and the receiving end."""
SETTLED_S = 2
"""Where the first seconds end."""

FIGURES = (
    Figure("first", "first second", " x limit", 2, Goal("≤", 1.1)),
    Figure("worst", "worst second after that, off by", " %", 1),
    Figure("pair", "worst mean of two seconds, off by", " %", 1, Goal("≤", 5)),
    Figure("mean", "mean from second 3 on", " x limit", 3, Goal("≥", 0.99)),
    Figure(
        "excess", f"most above {LIMIT * BURST_S:g} + {LIMIT} · t, in any interval", goal=Goal("≤", LIMIT * SLACK_S + 1)
    ),
    Figure("jain", "Jain's index of the five", digits=3, goal=Goal("≥", 0.99)),
    Figure("pause", "longest standstill of the publishers", " ms", 0),
)


def row(*, quick: bool) -> Row:
    """The row; quick: five seconds instead of twelve."""
    seconds = 5 if quick else 12
    load = f"{LIMIT}/s shared by {PRODUCERS} greedy clients, {seconds} s"
    return Row("sustained", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1 if quick else 3)


def _measure(seconds: int, stage: Stage) -> Samples:
    topic = stage.topic(LIMIT).name
    # half a second more than is looked at: the first arrival is a little late
    lanes = [LaneOrder(client=f"c{index}", topic=topic, index=index, end_s=seconds + 0.5) for index in range(PRODUCERS)]
    with stage.trial(lanes, drain_s=0) as trial:
        pass
    found = samples([trial.arrivals[index] for index in range(PRODUCERS)], seconds)
    return found | {"pause": [trial.longest_pause_s * 1000]}


def samples(arrivals: Sequence[Sequence[float]], seconds: int) -> Samples:
    """The figures of one trial.

    Args:
        arrivals: Of each producer, ascending seconds.
        seconds: How many are looked at, from the first arrival.
    """
    times = list(merge(*arrivals))
    counts = per_second(times, seconds)
    settled = counts[SETTLED_S:]
    end = times[0] + seconds if times else 0
    return {
        "first": [counts[0] / LIMIT],
        "worst": [worst_deviation(counts[1:], LIMIT) * 100],
        "pair": [worst_deviation(pair_means(counts[1:]), LIMIT) * 100],
        "mean": [sum(settled) / len(settled) / LIMIT],
        "excess": [max_excess(times, Line(LIMIT, LIMIT * BURST_S, entry=0))],
        "jain": [jain([sum(at < end for at in one) for one in arrivals])],
    }
