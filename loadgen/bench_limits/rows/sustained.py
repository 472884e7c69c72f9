"""Five greedy producers, each a client of its own, share one limit: what passes in each second, and who gets it."""

from collections.abc import Sequence
from functools import partial
from heapq import merge

from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import jain
from loadgen.bench_limits.orders import LaneOrder
from loadgen.bench_limits.rows.evenness import EVENNESS, LIMIT, evenness
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage

PRODUCERS = 5

FIGURES = (
    *EVENNESS,
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
    end = times[0] + seconds if times else 0
    return evenness(times, seconds) | {"jain": [jain([sum(at < end for at in one) for one in arrivals])]}
