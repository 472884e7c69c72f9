"""A producer has minutes of debt: does its connection live, and does its limit hold?"""

import time
from collections.abc import Collection
from functools import partial

from loadgen.bench_limits.errors import BenchError
from loadgen.bench_limits.figures import Figure, Goal, Samples
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
    return Row("patience", load, FIGURES, partial(_measure, seconds), rounds=1, together=True)


def _measure(seconds: int, stage: Stage) -> Samples:
    topic = stage.topic(LIMIT).name
    order = partial(LaneOrder, client="patient", topic=topic, batch=BATCH)
    lanes = [
        order(index=DEBT, end_s=FOLLOWERS_S, most=BATCH),
        order(index=WAITING, begin_s=FOLLOWERS_S, end_s=seconds, rate=1),
    ]
    connections: set[str] = set()
    with stage.trial(lanes, drain_s=0) as trial:
        while trial.now_s < seconds:
            connections |= stage.broker.connections(topic)
            time.sleep(SAMPLE_S)
    if len(trial.arrivals[DEBT]) < BATCH or not connections:
        raise BenchError(f"the batch of {BATCH} did not arrive {stage.peer.name}: there was no debt to be patient with")
    return samples(connections, len(trial.arrivals[WAITING]))


def samples(connections: Collection[str], slipped: int) -> Samples:
    """The figures of one trial: each connection that the producer had, and how many messages passed after the batch."""
    return {"lost": [len(connections) - 1], "slipped": [slipped]}
