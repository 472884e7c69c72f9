"""How many messages a pattern wants to have offered after so much time: open loop, whatever came back."""

import math

from loadgen.load.scenario import Bursty, Greedy, Steady


def wanted_by(pattern: Steady | Greedy | Bursty, elapsed_s: float) -> int:
    """Messages that the pattern wants offered within the first `elapsed_s` seconds."""
    return math.floor(pattern.rate * _active_s(pattern, elapsed_s))


def _active_s(pattern: Steady | Greedy | Bursty, elapsed_s: float) -> float:
    if not isinstance(pattern, Bursty):
        return elapsed_s
    cycle = pattern.burst + pattern.pause
    whole = math.floor(elapsed_s / cycle)
    return whole * pattern.burst + min(pattern.burst, elapsed_s - whole * cycle)
