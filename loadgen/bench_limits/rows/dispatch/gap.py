"""A low limit: how evenly is it spread over its second?"""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.drain import SUBSCRIPTION, Backlog, drain, fill
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import Span, longest_gap, percentile, spaces
from loadgen.bench_limits.rows.dispatch.backlog import GAP_MS, MORE_S
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import SharedConsumer

LIMIT = 100

FIGURES = (
    Figure(
        "gap", f"longest time without a delivery (one is due every {1000 / LIMIT:g} ms)", " ms", 0, Goal("≤", GAP_MS)
    ),
    Figure("p99", "p99 of the times between deliveries", " ms", 1),
    Figure("p50", "p50 of them", " ms", 1),
    Figure("pause", "longest standstill of the consumer", " ms", 0),
)


def row(*, quick: bool) -> Row:
    """The row; quick: three seconds instead of ten."""
    seconds = 3 if quick else 10
    load = f"a backlog drained at {LIMIT}/s by one consumer, {seconds} s"
    return Row("gap", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1 if quick else 3)


def _measure(seconds: int, stage: Stage) -> Samples:
    topic = stage.dispatch_topic(LIMIT).name
    fill(stage.broker_url, [Backlog(topic, LIMIT * (seconds + MORE_S))])
    drained = drain(stage, [SharedConsumer("one", topic, SUBSCRIPTION)], seconds)
    return samples(drained.times, drained.stood, seconds) | {"pause": [drained.longest_pause_s * 1000]}


def samples(times: Sequence[float], stood: Sequence[Span], seconds: float) -> Samples:
    """The figures of one trial; the arguments are those of `backlog.samples`."""
    between = [space * 1000 for space in spaces(times, seconds)]
    return {
        "gap": [longest_gap(times, seconds, stood) * 1000],
        "p99": [percentile(between, 0.99)],
        "p50": [percentile(between, 0.5)],
    }
