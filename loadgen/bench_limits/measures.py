"""What is read from arrival times and latencies. Pure."""

import math
from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import pairwise


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
