"""From totals seen now and then to rates per second."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from demo.streams import TopicState

WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class TopicRates:
    """One row of the live table; rates are messages per second."""

    topic: str
    wanted: float
    """What the load's pattern asks for."""
    offered: float
    """What arrived at Sluice."""
    passed: float
    received: float
    """What arrived at the receiving end, behind the broker."""
    state: TopicState


Totals = dict[str, tuple[int, int, int, int]]


class RateMeter:
    """Keeps the totals of about the last second and tells the rates over it.

    Args:
        topics: Full names, in the order of the rows.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = list(topics)
        self._seen: deque[tuple[float, Totals]] = deque()

    def rows(
        self, now: float, states: Mapping[str, TopicState], loads: Mapping[str, Mapping[str, int]]
    ) -> list[TopicRates]:
        """Take down what is seen at `now` (seconds) and return a row for each topic.

        Args:
            now: Of any monotonic clock.
            states: What Sluice says.
            loads: What the load generator says: its live counts by topic.
        """
        idle = TopicState()
        self._seen.append((now, {t: _totals(states.get(t, idle), loads.get(t, {})) for t in self._topics}))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        (then, before), (_, totals) = self._seen[0], self._seen[-1]
        return [TopicRates(t, *_rates(before[t], totals[t], now - then), states.get(t, idle)) for t in self._topics]


def _totals(state: TopicState, load: Mapping[str, int]) -> tuple[int, int, int, int]:
    return load.get("wanted_messages", 0), state.offered, state.passed, load.get("received", 0)


def _rates(before: tuple[int, ...], totals: tuple[int, ...], seconds: float) -> tuple[float, float, float, float]:
    # totals fall when a stream closes: that is no negative rate
    wanted, offered, passed, received = (
        max(0, new - old) / seconds if seconds > 0 else 0.0 for old, new in zip(before, totals, strict=True)
    )
    return wanted, offered, passed, received
