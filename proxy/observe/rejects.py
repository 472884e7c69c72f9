"""Sums up what connections are refused, until the access log asks: who floods the proxy must not flood its log."""

from dataclasses import dataclass

from proxy.observe.connection import Connection

MOST_LINES = 1000
"""Lines of one heartbeat; what finds no place among them is summed up by reason alone."""

MOST_TEXT = 1000
"""Characters of a topic and of a detail: as many as their line has, and one more is kept, to show that there were."""

_NOBODY = Connection(0)


@dataclass(slots=True)
class Reject:
    """What one connection was refused for one reason; `topic` and `detail` are those of the last time."""

    connection: Connection
    reason: str
    topic: str = ""
    detail: str = ""
    rejected: int = 0


class Rejects:
    """All of one process."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[int, str], Reject] = {}

    def note(self, connection: Connection, reason: str, topic: str, detail: str, *, times: int = 1) -> None:
        """A lookup, producer or consumer is refused, so many times; `reason` is one of a few words."""
        found = self._by_key.get((connection.connection_id, reason))
        if found is None:
            whose = connection if len(self._by_key) < MOST_LINES else _NOBODY
            found = self._by_key.setdefault((whose.connection_id, reason), Reject(whose, reason))
        found.rejected += times
        found.topic, found.detail = topic[: MOST_TEXT + 1], detail[: MOST_TEXT + 1]

    def take(self) -> list[Reject]:
        """What was refused since the last time."""
        taken, self._by_key = self._by_key, {}
        return list(taken.values())
