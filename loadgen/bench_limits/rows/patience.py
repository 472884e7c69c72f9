"""A producer has minutes of debt: does its connection live, and does its limit hold?"""

import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial

from loadgen.bench_limits.errors import BenchError
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import count_between
from loadgen.bench_limits.orders import LaneOrder
from loadgen.bench_limits.rows.row import Row
from loadgen.bench_limits.trial import Stage

LIMIT = 1
BATCH = 121
"""The burst of one message and a debt of two minutes."""
FOLLOWERS_S = 1.0
"""When the messages begin that must wait, one a second."""
DEBT, WAITING = range(2)
SAMPLE_S = 1.0

FIGURES = (
    Figure("lost", "connections lost", goal=Goal("≤", 0)),
    Figure("slipped", "messages slipped through", goal=Goal("≤", 0)),
)


def row(*, quick: bool) -> Row:
    """The row; quick: so short that nothing can be lost yet."""
    seconds = 5 if quick else 100
    load = f"a batch of {BATCH} at {LIMIT}/s (two minutes of debt), then more, {seconds} s"
    return Row("patience", load, FIGURES, partial(_measure, seconds), rounds=1)


def _measure(seconds: int, stages: Sequence[Stage]) -> Sequence[Samples]:
    """All stages at once: the load costs nothing, and takes long."""
    topics = [stage.topic(LIMIT).name for stage in stages]
    connections: list[set[str]] = [set() for _ in stages]
    with ExitStack() as open_trials:
        trials = [
            open_trials.enter_context(stage.trial(_lanes(topic, seconds), drain_s=0))
            for stage, topic in zip(stages, topics, strict=True)
        ]
        while any(trial.now_s < seconds for trial in trials):
            for stage, topic, seen in zip(stages, topics, connections, strict=True):
                seen.update(stage.broker.connections(topic))
            time.sleep(SAMPLE_S)
    return [samples(seen, trial.arrivals, seconds) for seen, trial in zip(connections, trials, strict=True)]


def _lanes(topic: str, seconds: int) -> list[LaneOrder]:
    order = partial(LaneOrder, client="patient", topic=topic, batch=BATCH)
    return [
        order(index=DEBT, end_s=FOLLOWERS_S, most=BATCH),
        order(index=WAITING, begin_s=FOLLOWERS_S, end_s=seconds, rate=1),
    ]


def samples(connections: Collection[str], arrivals: dict[int, list[float]], seconds: float) -> Samples:
    """The figures of one trial.

    Args:
        connections: All that its producer had, one after the other.
        arrivals: By index, ascending seconds.
        seconds: How long is looked at; what passes when the client leaves does not count.

    Raises:
        BenchError: If there was not enough debt for so long.
    """
    times = sorted([*arrivals[DEBT], *arrivals[WAITING]])
    # on a machine that is very busy the client may have cut the batch in two: what came at once is the debt
    debt = count_between(times, 0, FOLLOWERS_S)
    if debt <= LIMIT * seconds + 1 or not connections:
        raise BenchError(f"patience: {debt} messages of {BATCH} passed at once, too few for {seconds:g} s of debt")
    return {"lost": [len(connections) - 1], "slipped": [count_between(times, FOLLOWERS_S, seconds)]}
