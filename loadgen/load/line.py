"""How far arrivals rose above the line that a limiter promises.

A limiter promises, for every interval [t0, t1]: messages <= burst + rate * (t1 - t0) + one entry. Here is the
largest amount, over all intervals, by which the messages exceed that. Only intervals that begin and end at an arrival
matter, and with S the running count, the messages from i to j exceed rate * time by

    (S[j] - rate * t[j]) - (S[i-1] - rate * t[i])

so that one pass with the least right-hand part seen so far finds the largest (as one finds the largest drawdown).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """What a limiter promises: messages, and messages per second."""

    rate: float
    burst: float
    entry: float = 1.0
    """Messages in the largest entry: an entry is indivisible and may overshoot."""


def max_excess(times: Sequence[float], line: Line) -> float:
    """Messages above the line in the worst interval; negative if it was never reached, minus infinity without arrivals.

    Args:
        times: When each message arrived, seconds, ascending.
        line: The promise.
    """
    worst, lowest = -math.inf, math.inf
    for index, at in enumerate(times):
        earned = line.rate * at
        lowest = min(lowest, index - earned)
        worst = max(worst, index + 1 - earned - lowest)
    return worst - line.burst - line.entry
