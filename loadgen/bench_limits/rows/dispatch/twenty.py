"""Twenty consumers of one subscription, each a client of its own: who gets how much of a low limit?"""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.drain import SUBSCRIPTION, Backlog, drain, fill
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import count_between, jain
from loadgen.bench_limits.rows.dispatch.backlog import MORE_S
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import SharedConsumer

LIMIT = 50
CONSUMERS = 20
QUEUE = 10

FIGURES = (
    Figure("jain", "Jain's index of the twenty, once all are there", digits=3, goal=Goal("≥", 0.99)),
    Figure("least", "share of the one that got least, of an equal share", " %", 0),
    Figure("most", "share of the one that got most", " %", 0),
    Figure("mean", "mean from the second second on", " x limit", 3, Goal("≥", 0.99)),
)


def row(*, quick: bool) -> Row:
    """The row; quick: four seconds instead of twelve."""
    seconds = 4 if quick else 12
    who = f"{CONSUMERS} clients of one subscription, receiver queue {QUEUE}"
    load = f"a backlog drained at {LIMIT}/s by {who}, {seconds} s"
    return Row("twenty", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1)


def _measure(seconds: int, stage: Stage) -> Samples:
    topic = stage.dispatch_topic(LIMIT).name
    fill(stage.broker_url, [Backlog(topic, LIMIT * (seconds + MORE_S))])
    consumers = [SharedConsumer(f"c{number}", topic, SUBSCRIPTION, QUEUE) for number in range(CONSUMERS)]
    drained = drain(stage, consumers, seconds)
    return samples([[at for at, _ in arrivals] for arrivals in drained.by_consumer], drained.complete_at, seconds)


def samples(by_consumer: Sequence[Sequence[float]], complete_at: float, seconds: float) -> Samples:
    """The figures of one trial.

    Args:
        by_consumer: Arrivals of each, ascending.
        complete_at: When all were there.
        seconds: How many are looked at, from the first arrival; the burst is in the first of them.
    """
    begin = min((times[0] for times in by_consumer if times), default=0.0)
    shares = [count_between(times, max(begin, complete_at), begin + seconds) for times in by_consumer]
    settled = sum(count_between(times, begin + 1, begin + seconds) for times in by_consumer)
    equal = sum(shares) / len(shares) or 1.0
    return {
        "jain": [jain(shares)],
        "least": [100 * min(shares) / equal],
        "most": [100 * max(shares) / equal],
        "mean": [settled / (seconds - 1) / LIMIT],
    }
