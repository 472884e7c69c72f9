from typing import Any

import pytest

from demo.watch import TopicStreams, by_topic


def stream(topic: str = "t", direction: str = "publish", **changes: Any) -> dict[str, Any]:
    limit = {"level": "topic", "name": topic, "messages_per_s": 500.0, "bytes_per_s": None}
    return {
        "direction": direction,
        "topic": topic,
        "offered_messages": 10,
        "passed_messages": 7,
        "held_messages": 3,
        "waits_on": None,
        "limits": [limit],
        **changes,
    }


def limit(messages_per_s: float | None) -> dict[str, Any]:
    return {"level": "namespace", "name": "n", "messages_per_s": messages_per_s, "bytes_per_s": 1e6}


def test_producers_of_one_topic_are_added_up() -> None:
    waiting = stream(waits_on={"level": "topic", "name": "t", "for_ms": 1.0})
    assert by_topic([stream(), waiting, stream("u")]) == {
        "t": TopicStreams(20, 14, 6, 500.0, "topic"),
        "u": TopicStreams(10, 7, 3, 500.0, ""),
    }


def test_consumers_are_left_out() -> None:
    assert by_topic([stream(direction="dispatch")]) == {}


@pytest.mark.parametrize(
    ("limits", "narrowest"), [([], None), ([limit(None)], None), ([limit(400), limit(500), limit(None)], 400)]
)
def test_the_narrowest_message_limit_is_shown(limits: list[dict[str, Any]], narrowest: float | None) -> None:
    assert by_topic([stream(limits=limits)])["t"].limit_per_s == narrowest
