"""How near to its limit a flow stays, all the time."""

from collections.abc import Sequence

from tests.real.arrivals import Arrival, Line, rate_over

SETTLED_S = 0.55
"""After the first arrival: the burst is over, and the border lies between two arrivals at a multiple of 10/s."""
MEAN_WITHIN = 0.01
"""Pulsar's own tests allow 40 %."""
PAIR_WITHIN = 0.05
"""Pulsar's own tests allow 55 %."""


def assert_never_above(arrivals: list[Arrival], line: Line, stall_s: float) -> None:
    """In no interval, from the very first second on."""
    assert line.worst_excess(arrivals, stall_s) <= 0, f"above {line}, though the machine stood {stall_s:.3f} s at most"


def assert_steady(arrivals: list[Arrival], line: Line, seconds: int, stall_s: float) -> None:
    """The mean over so many seconds is the limit, and that of each two adjacent seconds."""
    begin = arrivals[0][0] + SETTLED_S
    assert_near(arrivals, line, (begin, seconds, MEAN_WITHIN), stall_s)
    for second in range(seconds - 1):
        assert_near(arrivals, line, (begin + second, 2, PAIR_WITHIN), stall_s)


def assert_near(arrivals: list[Arrival], line: Line, window: tuple[float, float, float], stall_s: float) -> None:
    """The rate over a window (its begin, its seconds) is that of the line within a part of it (its third).

    An entry is indivisible: a window may hold one more or less.
    """
    begin, seconds, part = window
    allowed = max(part * line.rate, line.entry / seconds)
    assert rate_over(arrivals, begin, seconds, stall_s) >= line.rate - allowed
    assert rate_over(arrivals, begin, seconds) <= line.rate + allowed + line.rate * stall_s / seconds


def in_bytes(arrivals: list[Arrival], entry_bytes: int) -> list[Arrival]:
    """The same for a limit in bytes."""
    return [(at, messages * entry_bytes) for at, messages in arrivals]


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 where all shares are equal."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
