"""Counts of an interval are those of its boundary, though they are taken in slices, and traffic goes on meanwhile."""

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accesslog.record import IntervalLine, LimitLine
from proxy import slices
from proxy.observe import intervals
from proxy.slices import Work
from tests.proxy import conversation
from tests.proxy.conversation import BROKER, World
from tests.proxy.observe.test_lines_at_changes import MovingClock, by_limiter, check_books
from tests.proxy.wire import producer, producer_success, send

STREAMS, TOPICS = 12, 4
LIMITS = {
    "tenants": {"acme": {"publish": {"messages": 100, "burst_messages": 10}}},
    "namespaces": {"acme/shop": {"publish": {"messages": 30, "bytes": 2000}}},
    "producers": {"*": {"publish": {"messages": 12, "mode": "observe"}}},
}
SENDS = st.lists(st.tuples(st.integers(0, STREAMS - 1), st.integers(1, 9)), min_size=1, max_size=60)


class Busy:
    """A world in which time passes while counts are taken, and clients send in each turn of the loop.

    Args:
        sends: Producers and numbers of messages, as long as there are some.
        turn_ns: How long each turn lasts.
    """

    def __init__(self, sends: list[tuple[int, int]], turn_ns: int) -> None:
        self.turn_ns = turn_ns
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(conversation, "ManualClock", MovingClock)
            self.world = World(limits=LIMITS)
        self.client, broker = self.world.pair(f"{BROKER[0]}:{BROKER[1]}")
        numbers = range(STREAMS)
        self.client >> [producer(number, f"persistent://acme/shop/{number % TOPICS}") for number in numbers]
        broker.heard()
        broker >> [producer_success(number, f"p{number}") for number in numbers]
        self.sends = [send(at, stream, messages=messages) for at, (stream, messages) in enumerate(sends)]
        self.client >> [send(0, number) for number in numbers]
        self.world.loop.turned = self._send_one

    def _send_one(self) -> None:
        if not self.world.engine.slices.waiting(Work.LINES):
            return
        self.world.clock.now += self.turn_ns
        if self.sends:
            self.world.loop.call_soon(self.client.transport.receive, self.sends.pop())


@settings(max_examples=40, deadline=None)
@given(sends=SENDS, turn_ns=st.sampled_from((0, 1_000_000, 4_000_000)))
def test_lines_of_limits_and_of_their_streams_agree(sends: list[tuple[int, int]], turn_ns: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_TAKEN", 1)
        patch.setitem(slices.AT_ONCE, slices.Work.LINES, 1)
        world = Busy(sends, turn_ns).world
        world.advance(6)
        world.loop.turned = lambda: None
        world.advance(3)
        lines, streams = world.lines(LimitLine), world.lines(IntervalLine)
        for of_one in by_limiter(world).values():
            check_books(of_one)
        _check_sums(lines, streams)
        for line in streams:
            assert line.throttled_ms <= line.duration_ms
        for stream, of_stream in _by_stream(streams).items():
            held = 0
            for line in of_stream:
                held += line.offered_messages - line.passed_messages - line.dropped_messages - line.rejected_messages
                assert held == line.held_messages, stream
        world.close()


def _check_sums(lines: list[Any], streams: list[Any]) -> None:
    """What a limit passed in a span is what its streams passed in that span."""
    of_streams = Counter[tuple[Any, ...]]()
    for line in streams:
        for level, name in (("tenant", "acme"), ("topic", line.topic)):
            of_streams[level, name, line.end] += line.passed_messages
    of_limits = {(line.level, line.name, line.end): line.passed_messages for line in lines if line.mode == "enforce"}
    assert of_limits
    assert {key: count for key, count in of_limits.items() if count} == +of_streams
    assert all(line.throttled_ms <= line.duration_ms for line in lines)


def _by_stream(lines: list[Any]) -> dict[int, list[Any]]:
    streams = defaultdict(list)
    for line in lines:
        streams[line.stream_id].append(line)
    return streams
