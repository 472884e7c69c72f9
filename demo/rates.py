"""From totals seen now and then to rates per second."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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


Totals = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Look:
    """Totals wanted, offered, passed and received by topic, and when the two sources told them, each by its clock."""

    sluice_s: float
    load_s: float
    totals: Mapping[str, Totals]


class RateMeter:
    """Keeps the totals of about the last second and tells the rates over it.

    Args:
        topics: Full names, in the order of the rows.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = list(topics)
        self._seen: deque[_Look] = deque()

    def rows(self, now: float, states: Mapping[str, TopicState], load: Mapping[str, Any]) -> list[TopicRates]:
        """Take down what is seen at `now` (seconds) and return a row for each topic.

        Args:
            now: When Sluice said so, by any monotonic clock.
            states: What Sluice says.
            load: What the load generator says: its last live line, which carries its own time.
        """
        idle, counts = TopicState(), load["topics"]
        totals = {topic: _totals(states.get(topic, idle), counts.get(topic, {})) for topic in self._topics}
        self._seen.append(_Look(now, load["at_s"], totals))
        while len(self._seen) > 2 and now - self._seen[1].sluice_s >= WINDOW_S:
            self._seen.popleft()
        return [TopicRates(topic, *self._rates(topic), states.get(topic, idle)) for topic in self._topics]

    def _rates(self, topic: str) -> tuple[float, float, float, float]:
        first, last = self._seen[0], self._seen[-1]
        by_sluice, by_load = last.sluice_s - first.sluice_s, last.load_s - first.load_s
        wanted, offered, passed, received = (
            # totals fall when a stream closes: that is no negative rate
            max(0, new - old) / seconds if seconds > 0 else 0.0
            for old, new, seconds in zip(
                first.totals[topic],
                last.totals[topic],
                (by_load, by_sluice, by_sluice, by_load),
                strict=True,
            )
        )
        return wanted, offered, passed, received


def _totals(state: TopicState, counts: Mapping[str, int]) -> Totals:
    return counts.get("wanted_messages", 0), state.offered, state.passed, counts.get("received", 0)
