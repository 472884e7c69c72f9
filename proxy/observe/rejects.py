"""Sum up refusals until the access log asks: a client that floods the proxy must not flood its log."""

from dataclasses import dataclass

from proxy.observe.connection import Connection

MOST_LINES = 1000
"""Most lines of one heartbeat; refusals beyond them are summed up by reason alone."""

MOST_TEXT = 1000
"""Most characters of a topic and a detail in their line; one more is kept, to show that the text was longer."""

_NOBODY = Connection(0)


@dataclass(slots=True)
class Reject:
    """Refusals of one connection for one reason; `topic` and `detail` are those of the last one."""

    connection: Connection
    reason: str
    topic: str = ""
    detail: str = ""
    rejected: int = 0


class Rejects:
    """The refusals of one process, summed up by connection and reason."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[int, str], Reject] = {}

    def note(self, connection: Connection, reason: str, topic: str, detail: str, *, times: int = 1) -> None:
        """Count `times` refusals of a lookup, producer or consumer; `reason` is one of a few words."""
        found = self._by_key.get((connection.connection_id, reason))
        if found is None:
            whose = connection if len(self._by_key) < MOST_LINES else _NOBODY
            found = self._by_key.setdefault((whose.connection_id, reason), Reject(whose, reason))
        found.rejected += times
        found.topic, found.detail = topic[: MOST_TEXT + 1], detail[: MOST_TEXT + 1]

    def take(self) -> list[Reject]:
        """Return the refusals since the last call."""
        taken, self._by_key = self._by_key, {}
        return list(taken.values())
