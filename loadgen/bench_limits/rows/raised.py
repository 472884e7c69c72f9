"""A producer is deep in debt when its limit is raised: how soon does its next message pass?"""

from collections.abc import Sequence
from functools import partial
from math import inf
from time import monotonic

from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.orders import LaneOrder
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage

LOW, HIGH = 1, 1000
RAISED_S = 3.0
"""When the first topic's limit is raised; the others follow, `APART_S` after each other."""
APART_S = 0.3
DRAIN_S = 40.0

FIGURES = (Figure("freed", "from the REST call until its next message arrives", " ms", 0, Goal("≤", 50)),)


def row(*, quick: bool) -> Row:
    """The row: three topics at once; quick: one, and a smaller debt."""
    batch, topics = (6, 1) if quick else (20, 3)
    load = f"a batch of {batch} at {LOW}/s; {RAISED_S:g} s later the limit is raised to {HIGH}/s"
    return Row("raised", load, FIGURES, by_turns(partial(_measure, batch, topics)), rounds=1)


def _measure(batch: int, count: int, stage: Stage) -> Samples:
    topics = [stage.topic(LOW) for _ in range(count)]
    raised: list[float] = []
    lanes = [lane for number, topic in enumerate(topics) for lane in _lanes(number, topic.name, batch)]
    with stage.trial(lanes, DRAIN_S) as trial:
        for number, topic in enumerate(topics):
            trial.wait_until(RAISED_S + number * APART_S)
            raised.append(monotonic() - trial.began)
            stage.limit(topic, HIGH)
    return samples(raised, [trial.arrivals[_next(number)] for number in range(count)])


def _lanes(number: int, topic: str, batch: int) -> list[LaneOrder]:
    order = partial(LaneOrder, client=f"c{number}", topic=topic, batch=batch, end_s=1.0)
    return [order(index=_next(number) - 1, most=batch), order(index=_next(number), begin_s=0.5, most=1)]


def _next(number: int) -> int:
    """The index of the lane whose one message waits for the debt to be paid."""
    return 2 * number + 1


def samples(raised: Sequence[float], arrivals: Sequence[Sequence[float]]) -> Samples:
    """Milliseconds from each raise to the first arrival after it was waited for; infinity where none came."""
    return {"freed": [(min(times, default=inf) - at) * 1000 for at, times in zip(raised, arrivals, strict=True)]}
