"""What is read from arrival times and latencies. Pure."""

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import islice, pairwise

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
    """How many of `times` (ascending) lie in [begin, end)."""
    return bisect_left(times, end) - bisect_left(times, begin)


def per_second(times: Sequence[float], seconds: int) -> list[int]:
    """How many of `times` (ascending) lie in each of the first seconds, which begin with the first of them."""
    begin = times[0] if times else 0.0
    return [count_between(times, begin + second, begin + second + 1) for second in range(seconds)]


def worst_deviation(counts: Collection[float], limit: float) -> float:
    """How far the worst of the counts is from `limit`, as a part of it."""
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
