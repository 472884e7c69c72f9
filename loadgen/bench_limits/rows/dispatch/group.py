"""Two topics of a resource group with a limit of deliveries: is it kept?"""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.drain import SUBSCRIPTION, Backlog, drain, fill
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import count_between, per_second
from loadgen.bench_limits.peers import GROUP_LIMIT
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import SharedConsumer

TOPICS = 2
COUNT = 2500
"""Messages in each topic."""

FIGURES = (
    Figure("first", "first second", " x limit", 2, Goal("≤", 1.1)),
    Figure("mean", "mean while there was a backlog", " x limit", 3, Goal("≤", 1.02)),
)


def row(*, quick: bool) -> Row:
    """The row; quick: three seconds instead of ten."""
    seconds = 3 if quick else 10
    load = f"a resource group of {GROUP_LIMIT}/s: {TOPICS} backlogs of {COUNT:,} drained at once, {seconds} s"
    return Row("group", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1)


def _measure(seconds: int, stage: Stage) -> Samples:
    topics = [stage.grouped_topic().name for _ in range(TOPICS)]
    fill(stage.broker_url, [Backlog(topic, COUNT) for topic in topics])
    drained = drain(stage, [SharedConsumer(topic, topic, SUBSCRIPTION) for topic in topics], seconds)
    return samples(drained.times, seconds)


def samples(times: Sequence[float], seconds: int) -> Samples:
    """The figures of one trial: what arrived (ascending), and how many seconds are looked at from the first arrival.

    Less than a second is a second: nobody is told a rate that never lasted.
    """
    if not times:
        return {"first": [0.0], "mean": [0.0]}
    if len(times) == TOPICS * COUNT:
        mean = len(times) / max(1.0, times[-1] - times[0])
    else:
        mean = count_between(times, times[0], times[0] + seconds) / seconds
    return {"first": [per_second(times, 1)[0] / GROUP_LIMIT], "mean": [mean / GROUP_LIMIT]}
