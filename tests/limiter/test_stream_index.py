"""Which streams a change can concern."""

import pytest

from limiter.levels import ANYBODY, Client, Setting
from limiter.limiter import Stream, StreamName
from limiter.policies import Change
from limiter.registry import StreamIndex
from limiter.token_bucket import DIRECTIONS, Direction
from protocol.topic_name import parse_topic

TOPICS = ("t/n/x", "t/n/x-partition-1", "t/n/y", "t/m/x")


def stream_of(topic: str, direction: Direction = "publish") -> Stream:
    return Stream(StreamName(direction, "t", "n", topic, 1), (), lambda _stream, _entry: None)


def live(*topics: str) -> StreamIndex:
    streams = StreamIndex()
    for topic in topics:
        for direction in DIRECTIONS:
            streams.put(stream_of(topic, direction), parse_topic(topic), ANYBODY)
    return streams


@pytest.mark.parametrize(
    ("setting", "name", "concerned"),
    [
        (Setting.TOPIC, "persistent://t/n/x", ["t/n/x", "t/n/x-partition-1"]),
        (Setting.SUBSCRIPTION, "s@persistent://t/n/x", ["t/n/x", "t/n/x-partition-1"]),
        (Setting.TOPIC, "persistent://t/n/z", []),
        (Setting.TOPIC_OF_NAMESPACE, "t/m", ["t/m/x"]),
        (Setting.TENANT, "t", list(TOPICS)),
        (Setting.TENANT, "*", list(TOPICS)),
        (Setting.TENANT, "s", []),
        (Setting.ROLE, "r", list(TOPICS)),
    ],
)
def test_streams_of_other_topics_or_directions_are_not_concerned(
    setting: Setting, name: str, concerned: list[str]
) -> None:
    streams = live(*TOPICS).concerned(Change("dispatch", setting, name))
    assert [stream.name.topic for stream in streams] == [topic for topic in concerned for _ in DIRECTIONS]


def test_nobody_is_concerned_by_how_often_one_may_subscribe() -> None:
    assert live(*TOPICS).concerned(Change("subscribe", Setting.PROXY, "")) == []


def test_nothing_is_left_of_streams_that_are_over() -> None:
    streams, stream = StreamIndex(), stream_of("t/n/x")
    streams.put(stream, parse_topic("t/n/x"), ANYBODY)
    streams.put(stream, parse_topic("t/n/x"), Client(producer_name="p"))
    assert stream in streams
    assert streams[stream][1] == Client(producer_name="p")
    streams.remove(stream)
    streams.remove(stream)
    assert (list(streams), streams.get(stream)) == ([], None)
    assert [*streams._by_part.values()] == [{}, {}, {}]
