"""Two topics of a resource group with a limit of deliveries: is it kept?"""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.drain import SUBSCRIPTION, Backlog, drain, fill
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import per_second
from loadgen.bench_limits.peers import GROUP_LIMIT
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import SharedConsumer

TOPICS = 2
COUNT = 2500
"""Messages in each topic."""
LEAST_S = 2
"""A backlog that is drained sooner leaves no second behind the first to look at."""

FIGURES = (
    Figure("first", "first second", " x limit", 2, Goal("≤", 1.1)),
    Figure("mean", "mean while there was a backlog", " x limit", 3, Goal("≤", 1.02)),
    Figure("settled", "the same from the second second on", " x limit", 3, Goal("≥", 0.99)),
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
        return {"first": [0.0], "mean": [0.0], "settled": [0.0]}
    begin, is_drained = times[0], len(times) == TOPICS * COUNT
    lasted = max(1.0, times[-1] - begin) if is_drained else seconds
    looked_at = [at for at in times if is_drained or at < begin + seconds]
    settled = [at for at in looked_at if at >= begin + 1]
    return {
        "first": [per_second(times, 1)[0] / GROUP_LIMIT],
        "mean": [len(looked_at) / lasted / GROUP_LIMIT],
        "settled": [len(settled) / (lasted - 1) / GROUP_LIMIT] if lasted >= LEAST_S else [],
    }
