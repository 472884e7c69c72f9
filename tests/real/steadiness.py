"""How near to its limit a flow stays, all the time."""

from collections.abc import Sequence

from tests.real.arrivals import Arrival, Line, rate_over

SETTLED_S = 0.55
"""After the first arrival: the burst is over, and the border lies between two arrivals at a multiple of 10/s."""
OFF_BY_S = 0.1
"""So many seconds' worth of the limit may be missing, or more, whatever the window: that is 1 % of ten seconds and 5 %
of two. Pulsar's own tests allow 40 % and 55 %."""


def assert_never_above(arrivals: list[Arrival], line: Line, stall_s: float) -> None:
    """In no interval, from the very first second on."""
    assert line.worst_excess(arrivals, stall_s) <= 0, f"above {line}, though the machine stood {stall_s:.3f} s at most"


def assert_steady(
    arrivals: list[Arrival], line: Line, seconds: int, stalled_s: float, until: float = float("inf")
) -> None:
    """The mean over so many seconds is the limit, and that of each two adjacent ones, but for all standstills.

    `until` is when the limit ceased: what a standstill kept back for longer is not among these arrivals.
    """
    begin = arrivals[0][0] + SETTLED_S
    windows = [(begin, seconds), *((begin + second, 2) for second in range(seconds - 1))]
    # An entry is indivisible: a window may hold one more or less.
    allowed = max(OFF_BY_S * line.rate, line.entry)
    for window in windows:
        due = line.rate * window[1]
        cut_s = max(0.0, sum(window) + stalled_s - until)
        assert rate_over(arrivals, *window, stalled_s) * window[1] >= due - allowed - line.rate * cut_s
        assert rate_over(arrivals, *window) * window[1] <= due + allowed + line.rate * stalled_s


def in_bytes(arrivals: list[Arrival], entry_bytes: int) -> list[Arrival]:
    """The same for a limit in bytes."""
    return [(at, messages * entry_bytes) for at, messages in arrivals]


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 where all shares are equal."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
