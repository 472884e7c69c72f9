"""A consumer drains a backlog under a limit: what comes in each second, and how evenly."""

from collections.abc import Sequence
from functools import partial

from loadgen.bench_limits.drain import SUBSCRIPTION, Backlog, Drained, drain, fill
from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import Span, longest_gap
from loadgen.bench_limits.rows.evenness import EVENNESS, LIMIT, evenness
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import SharedConsumer

MORE_S = 4
"""Seconds' worth that is left of a backlog at the end, also when the first second brings twice the limit."""
_GAP_MS = 20


def gap_figure(limit: int) -> Figure:
    """How long nothing comes under a limit, although messages are there."""
    name = f"longest time without a delivery (one is due every {1000 / limit:g} ms)"
    return Figure("gap", name, " ms", 0, Goal("≤", _GAP_MS))


PAUSE = Figure("pause", "longest standstill of the consumer", " ms", 0)
FIGURES = (*EVENNESS, gap_figure(LIMIT), PAUSE)


def row(*, quick: bool) -> Row:
    """The row; quick: four seconds instead of twelve."""
    seconds = 4 if quick else 12
    load = f"a backlog drained at {LIMIT}/s by one consumer, {seconds} s"
    return Row("backlog", load, FIGURES, by_turns(partial(_measure, seconds)), rounds=1 if quick else 3)


def drain_alone(stage: Stage, limit: int, seconds: int) -> Drained:
    """One consumer drains a backlog under a limit."""
    topic = stage.dispatch_topic(limit).name
    fill(stage.broker_url, [Backlog(topic, limit * (seconds + MORE_S))])
    return drain(stage, [SharedConsumer("one", topic, SUBSCRIPTION)], seconds)


def _measure(seconds: int, stage: Stage) -> Samples:
    drained = drain_alone(stage, LIMIT, seconds)
    found = samples(drained.times, drained.stood, seconds)
    return found | {"pause": [drained.longest_pause_s * 1000]}


def samples(times: Sequence[float], stood: Sequence[Span], seconds: int) -> Samples:
    """The figures of one trial.

    Args:
        times: Arrivals, ascending.
        stood: In which spans the consumer stood still.
        seconds: How many are looked at, from the first arrival.
    """
    return evenness(times, seconds) | {"gap": [longest_gap(times, seconds, stood) * 1000]}
