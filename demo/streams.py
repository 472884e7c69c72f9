"""What Sluice says on `GET /sluice/streams`, summed up by topic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loadgen.admin_rest import AdminRest, AdminRestError

TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class TopicState:
    """All publish streams of one topic."""

    offered: int = 0
    """Messages since the streams opened."""
    passed: int = 0
    held: int = 0
    """Messages held now."""
    limit_per_s: float | None = None
    """The narrowest message limit in force, whatever its level."""
    waits_on: str = ""
    """Level of the limit that a stream waits on; empty if none waits."""

    def joined(self, other: "TopicState") -> "TopicState":
        """This and another stream of the topic."""
        limits = [one.limit_per_s for one in (self, other) if one.limit_per_s is not None]
        return TopicState(
            self.offered + other.offered,
            self.passed + other.passed,
            self.held + other.held,
            min(limits, default=None),
            self.waits_on or other.waits_on,
        )


def fetch_streams(admin: str) -> list[dict[str, Any]] | None:
    """The streams of the Sluice whose admin address is `admin`; None if it gives no answer just now."""
    try:
        answer = AdminRest(f"http://{admin}", TIMEOUT_S).call("GET", "/sluice/streams")
    except AdminRestError:
        return None
    streams: list[dict[str, Any]] = answer["streams"]
    return streams


def by_topic(streams: Iterable[Mapping[str, Any]]) -> dict[str, TopicState]:
    """The state of each topic that somebody publishes to."""
    topics: dict[str, TopicState] = {}
    for stream in streams:
        if stream["direction"] == "publish":
            topic = stream["topic"]
            topics[topic] = topics.get(topic, TopicState()).joined(_state(stream))
    return topics


def _state(stream: Mapping[str, Any]) -> TopicState:
    limits = [one["messages_per_s"] for one in stream["limits"] if one["messages_per_s"] is not None]
    return TopicState(
        offered=stream["offered_messages"],
        passed=stream["passed_messages"],
        held=stream["held_messages"],
        limit_per_s=min(limits, default=None),
        waits_on=(stream["waits_on"] or {}).get("level", ""),
    )
