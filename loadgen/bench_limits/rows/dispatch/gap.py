"""A low limit: how evenly is it spread over its second?"""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.figures import Figure, Samples
from loadgen.bench_limits.measures import Span, longest_gap, percentile, spaces
from loadgen.bench_limits.rows.dispatch.backlog import PAUSE, drain_alone, gap_figure
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage

LIMIT = 100

FIGURES = (
    gap_figure(LIMIT),
    Figure("p99", "p99 of the times between deliveries", " ms", 1),
    Figure("p50", "p50 of them", " ms", 1),
    PAUSE,
)


def row(*, quick: bool) -> Row:
    """The row; quick: three seconds instead of ten."""
    seconds = 3 if quick else 10
    load = f"a backlog drained at {LIMIT}/s by one consumer, {seconds} s"
    return Row("gap", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1 if quick else 3)


def _measure(seconds: int, stage: Stage) -> Samples:
    drained = drain_alone(stage, LIMIT, seconds)
    return samples(drained.times, drained.stood, seconds) | {"pause": [drained.longest_pause_s * 1000]}


def samples(times: Sequence[float], stood: Sequence[Span], seconds: float) -> Samples:
    """The figures of one trial; the arguments are those of `backlog.samples`."""
    between = [space * 1000 for space in spaces(times, seconds)]
    return {
        "gap": [longest_gap(times, seconds, stood) * 1000],
        "p99": [percentile(between, 0.99)],
        "p50": [percentile(between, 0.5)],
    }
