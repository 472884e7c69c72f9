"""Batches and a long receiver queue: permits are messages, reads are entries; how much is delivered above the limit?"""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.drain import SUBSCRIPTION, Backlog, drain, fill
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import longest_gap, per_second
from loadgen.bench_limits.rows.evenness import BURST_S, SLACK_S
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import SharedConsumer
from loadgen.load.results import Line, max_excess

LIMIT = 100
BATCH = 50
QUEUE = 1000
COUNT = 4000
"""More than a receiver queue at once and another one for its debt."""

FIGURES = (
    Figure("first", "first second", " x limit", 2, Goal("≤", 1.1 + (BATCH - 1) / LIMIT)),
    Figure("mean", "mean of all seconds", " x limit", 2),
    Figure(
        "excess",
        f"most above {LIMIT * BURST_S:g} + {LIMIT} · t and one batch, in any interval",
        goal=Goal("≤", LIMIT * SLACK_S + 1),
    ),
    Figure("silence", f"longest silence (a batch is due every {BATCH / LIMIT:g} s)", " s", 2, Goal("≤", 0.6)),
)


def row(*, quick: bool) -> Row:
    """The row; quick: three seconds instead of ten."""
    seconds = 3 if quick else 10
    load = f"a backlog of batches of {BATCH} drained at {LIMIT}/s, receiver queue {QUEUE}, {seconds} s"
    return Row("batches", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1)


def _measure(seconds: int, stage: Stage) -> Samples:
    topic = stage.dispatch_topic(LIMIT).name
    fill(stage.broker_url, [Backlog(topic, COUNT, batch=BATCH)])
    return samples(drain(stage, [SharedConsumer("one", topic, SUBSCRIPTION, QUEUE)], seconds).times, seconds)


def samples(times: Sequence[float], seconds: int) -> Samples:
    """The figures of one trial: what arrived (ascending), and how many seconds are looked at from the first arrival."""
    counts = per_second(times, seconds)
    return {
        "first": [counts[0] / LIMIT],
        "mean": [sum(counts) / seconds / LIMIT],
        "excess": [max_excess(times, Line(LIMIT, LIMIT * BURST_S, entry=BATCH))],
        "silence": [longest_gap(times, seconds)],
    }
