"""The measures that are read from arrival times and latencies, and the figures that several rows share. Pure."""

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from loadgen.bench.harness import Figure, Goal
from loadgen.load.results import RateLine, max_excess

Span = tuple[float, float]
"""Begin and end."""


def jain(shares: Collection[float]) -> float:
    """Jain's index of fairness: 1 when all shares are equal, 1/n when one has all; 0 when nobody has anything.

    Source: Jain, Chiu, Hawe: A Quantitative Measure of Fairness and Discrimination, 1984.
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def percentile(values: Collection[float], part: float) -> float:
    """The least value that at least `part` (0 to 1) of all do not exceed; infinity of none.

    Infinite values stand for what never came.
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else math.inf


def count_between(times: Sequence[float], begin: float, end: float) -> int:
    """Count those of `times` (ascending) that lie in [begin, end)."""
    return bisect_left(times, end) - bisect_left(times, begin)


def per_second(times: Sequence[float], seconds: int) -> list[int]:
    """Count `times` (ascending) in each of the first seconds, which begin with the first time."""
    begin = times[0] if times else 0.0
    return [count_between(times, begin + second, begin + second + 1) for second in range(seconds)]


def worst_deviation(counts: Collection[float], limit: float) -> float:
    """Return the distance of the worst count from `limit`, as a part of it."""
    return max(abs(count / limit - 1) for count in counts)


def pair_means(counts: Sequence[float]) -> list[float]:
    """Mean of each two neighbouring counts."""
    return [(one + other) / 2 for one, other in pairwise(counts)]


def spaces(times: Sequence[float], seconds: float) -> list[float]:
    """The times between two arrivals each (ascending), of the seconds that begin with the first one."""
    looked_at = times[: bisect_left(times, times[0] + seconds)] if times else ()
    return [later - earlier for earlier, later in pairwise(looked_at)]


def longest_gap(times: Sequence[float], seconds: float, stood: Sequence[Span] = ()) -> float:
    """The longest time without an arrival in the seconds that begin with the first one; infinity without any.

    Args:
        times: Arrivals, ascending.
        seconds: How long is looked; the end of it ends the last gap.
        stood: Ascending spans that do not count, because nobody was there to see an arrival.
    """
    if not times:
        return math.inf
    end = times[0] + seconds
    ends = [stood_end for _, stood_end in stood]
    gaps = pairwise([*times[: bisect_left(times, end)], end])
    return max(_less(gap, islice(stood, bisect_left(ends, gap[0]), None)) for gap in gaps)


def _less(gap: Span, stood: Iterable[Span]) -> float:
    """How long the gap is without those of the spans that lie in it; none of them ended before it begins."""
    begin, end = gap
    length = end - begin
    for stood_begin, stood_end in stood:
        if stood_begin >= end:
            break
        length -= min(end, stood_end) - max(begin, stood_begin)
    return length


LOW = 10
FREE_RATE = 200
FREE_PENDING = 20_000
"""More than B ever has on its way: it offers at its pace, whatever comes back."""

NOTICED = (
    Figure("ratio", "B's p50 latency, beside ÷ alone", " x", 2, (Goal("≤", 1.2),)),
    Figure("p50_alone", "B's p50 alone", " ms", 2),
    Figure("p50_beside", "B's p50 beside A", " ms", 2),
    Figure("p99_alone", "B's p99 alone", " ms", 2),
    Figure("p99_beside", "B's p99 beside A", " ms", 2),
    Figure("rate", f"B's rate beside A, of {FREE_RATE}/s", " %", 1, (Goal("≥", 99),)),
)


@dataclass(frozen=True, slots=True)
class Times:
    """The begins of a trial's spans, seconds."""

    alone: float
    held: float
    """From here on A does all it can."""
    beside: float
    end: float


def noticed(times: Times, alone_ms: Sequence[float], beside_ms: Sequence[float], in_time: int) -> dict[str, float]:
    """Return the notice figures of one trial.

    Args:
        times: Its spans.
        alone_ms: B's latencies before A was there.
        beside_ms: Those beside A.
        in_time: B's messages that arrived beside A.
    """
    return {
        "ratio": percentile(beside_ms, 0.5) / percentile(alone_ms, 0.5),
        "p50_alone": percentile(alone_ms, 0.5),
        "p50_beside": percentile(beside_ms, 0.5),
        "p99_alone": percentile(alone_ms, 0.99),
        "p99_beside": percentile(beside_ms, 0.99),
        "rate": 100 * in_time / (FREE_RATE * (times.end - times.beside)),
    }


EVEN = 500
BURST_S = 0.1
"""Seconds' worth of the limit that the line of comparison allows at once."""
SLACK_S = 0.05
"""Seconds' worth that the machine may put together between the limiter and the receiving end."""
SETTLED_S = 2
"""Where the first seconds end."""

EVENNESS = (
    Figure("first", "first second", " x limit", 2, (Goal("≤", 1.1),)),
    Figure("worst", "worst second after that, off by", " %", 1),
    Figure("pair", "worst mean of two seconds, off by", " %", 1, (Goal("≤", 5),)),
    Figure("mean", "mean from second 3 on", " x limit", 3, (Goal("≥", 0.99),)),
    Figure(
        "excess", f"most above {EVEN * BURST_S:g} + {EVEN} · t, in any interval", goals=(Goal("≤", EVEN * SLACK_S + 1),)
    ),
)


def evenness(times: Sequence[float], seconds: int) -> dict[str, float]:
    """Return the evenness figures of one trial.

    Args:
        times: Arrivals, ascending.
        seconds: How many are looked at, from the first arrival.
    """
    counts = per_second(times, seconds)
    settled = counts[SETTLED_S:]
    return {
        "first": counts[0] / EVEN,
        "worst": worst_deviation(counts[1:], EVEN) * 100,
        "pair": worst_deviation(pair_means(counts[1:]), EVEN) * 100,
        "mean": sum(settled) / len(settled) / EVEN,
        "excess": max_excess(times, RateLine(EVEN, EVEN * BURST_S, entry=0)),
    }
