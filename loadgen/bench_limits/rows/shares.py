"""A producer with batches and one without share a limit: who gets how much of it?"""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import jain
from loadgen.bench_limits.orders import LaneOrder
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage

LIMIT = 1000
BATCH = 100
PENDING = 1000
"""The client's default."""
BATCHING, SINGLE = range(2)

FIGURES = (
    Figure("jain", "Jain's index of the two", digits=3, goal=Goal("≥", 0.99)),
    Figure("batching", "share of the batching producer", " %", 1),
    Figure("single", "share of the other", " %", 1),
)


def row(*, quick: bool) -> Row:
    """The row; quick: four seconds instead of ten."""
    seconds = 4 if quick else 10
    load = f"{LIMIT}/s shared by batches of {BATCH} and single messages, {seconds} s"
    return Row("shares", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1 if quick else 3)


def _measure(seconds: int, stage: Stage) -> Samples:
    order = partial(LaneOrder, topic=stage.topic(LIMIT).name, end_s=seconds + 0.5, pending=PENDING)
    lanes = [order(client="batching", index=BATCHING, batch=BATCH), order(client="single", index=SINGLE)]
    with stage.trial(lanes, drain_s=0) as trial:
        pass
    return samples(trial.arrivals[BATCHING], trial.arrivals[SINGLE], seconds)


def samples(batching: Sequence[float], single: Sequence[float], seconds: float) -> Samples:
    """The figures of one trial: what arrived within `seconds` of the first arrival, of times ascending."""
    end = min([*batching[:1], *single[:1]], default=0.0) + seconds
    many, one = (sum(at < end for at in times) for times in (batching, single))
    total = max(1, many + one)
    return {"jain": [jain([many, one])], "batching": [100 * many / total], "single": [100 * one / total]}
