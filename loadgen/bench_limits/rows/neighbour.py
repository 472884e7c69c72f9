"""A free producer shares its connection with one that is held: what does it notice?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import count_between, percentile
from loadgen.bench_limits.orders import LaneOrder, LaneResult
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage

LIMIT = 10
HELD_PENDING = 50
RATE = 200
FREE_PENDING = 20_000
"""More than it ever has on its way: it offers at its pace, whatever comes back."""
HELD, WARM_UP, ALONE, BESIDE = range(4)

FIGURES = (
    Figure("ratio", "B's p50 latency, beside ÷ alone", " x", 2, Goal("≤", 1.2)),
    Figure("p50_alone", "B's p50 alone", " ms", 2),
    Figure("p50_beside", "B's p50 beside A", " ms", 2),
    Figure("p99_alone", "B's p99 alone", " ms", 2),
    Figure("p99_beside", "B's p99 beside A", " ms", 2),
    Figure("rate", f"B's rate beside A, of {RATE}/s", " %", 1, Goal("≥", 99)),
)


@dataclass(frozen=True, slots=True)
class Times:
    """When the spans of a trial begin, seconds."""

    alone: float
    held: float
    """From here on the held producer publishes all it can."""
    beside: float
    end: float


def row(*, quick: bool) -> Row:
    """The row; quick: seconds instead of ten."""
    times = Times(1, 3, 4, 7) if quick else Times(2, 8, 9, 19)
    seconds = times.end - times.beside
    load = f"one connection: A held at {LIMIT}/s ({HELD_PENDING} pending), B free at {RATE}/s, {seconds:g} s"
    return Row("neighbour", load, FIGURES, by_turns(partial(_measure, times)), rounds=1 if quick else 3)


def _measure(times: Times, stage: Stage) -> Samples:
    held = LaneOrder(
        client="shared",
        topic=stage.topic(LIMIT).name,
        index=HELD,
        begin_s=times.held,
        end_s=times.end,
        pending=HELD_PENDING,
    )
    free = partial(LaneOrder, client="shared", topic=stage.topic(None).name, rate=RATE, pending=FREE_PENDING)
    lanes = [
        held,
        free(index=WARM_UP, end_s=times.alone),
        free(index=ALONE, begin_s=times.alone, end_s=times.held),
        free(index=BESIDE, begin_s=times.beside, end_s=times.end),
    ]
    # A's 50 are gone after 5 s, and with them what stood behind them
    with stage.trial(lanes, drain_s=20) as trial:
        pass
    return samples(times, trial.results, trial.arrivals[BESIDE])


def samples(times: Times, results: Mapping[int, LaneResult], arrivals: Sequence[float]) -> Samples:
    """The figures of one trial.

    Args:
        times: Its spans.
        results: By index.
        arrivals: When the neighbour's messages offered beside the held producer arrived, ascending.
    """
    alone, beside = (latencies_ms(results[index]) for index in (ALONE, BESIDE))
    arrived = count_between(arrivals, times.beside, times.end)
    return {
        "ratio": [percentile(beside, 0.5) / percentile(alone, 0.5)],
        "p50_alone": [percentile(alone, 0.5)],
        "p50_beside": [percentile(beside, 0.5)],
        "p99_alone": [percentile(alone, 0.99)],
        "p99_beside": [percentile(beside, 0.99)],
        "rate": [100 * arrived / (RATE * (times.end - times.beside))],
    }


def latencies_ms(result: LaneResult) -> list[float]:
    """Milliseconds from offer to receipt; infinity for each message without one."""
    return [latency * 1000 for latency in result.latencies] + [inf] * (result.unsettled + sum(result.errors.values()))
