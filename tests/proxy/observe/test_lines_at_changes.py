"""Lines of limiters where limits change: one instant ends the old value's, begins the new value's, and changes buckets.

The clock moves on at every look at it: whoever takes two looks for one instant is found out.
"""

import asyncio
from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accesslog.record import ChangeLine, IntervalLine, LimitLine
from limiter.levels import Setting
from limiter.registry import SLICE, TUNE_STEPS
from proxy.change_log import ChangeLog
from proxy.policies.bodies import kept_as_own
from proxy.policies.keys import PolicyKey, Principal, rate_key
from proxy.policies.layers import FilePolicies
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store
from tests.examples import examples
from tests.manual_clock import ManualClock
from tests.proxy import conversation
from tests.proxy.conversation import WALL_START_NS, World, publisher
from tests.proxy.wire import TOPIC, producer, send, sends

ANN = Principal("ann", "")
PLACES = (
    rate_key("publish", Setting.NAMESPACE, "acme/shop"),
    rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop"),
    rate_key("publish", Setting.TOPIC, TOPIC),
    rate_key("publish", Setting.PRODUCER, "*"),
)
SECTIONS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"messages": 3},
    {"messages": 50},
    {"messages": 3000},
    {"messages": 3000, "burst_messages": 1},
    {"bytes": 900},
    {"messages": 50, "bytes": 90_000, "peak_messages": 400, "burst_messages": 500},
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("change"), st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(SECTIONS)), max_size=3)
        ),
        st.tuples(st.just("change"), st.tuples(st.tuples(st.sampled_from(PLACES), st.sampled_from(SECTIONS)))),
        st.tuples(st.just("send"), st.integers(1, 40)),
        st.tuples(st.just("send"), st.integers(1, 40)),
        st.tuples(st.just("wait"), st.sampled_from((0.001, 0.05, 0.3, 0.7, 1.0, 2.5))),
    ),
    min_size=10,
    max_size=40,
)


class MovingClock(ManualClock):
    """A clock on which no two looks are the same."""

    def __call__(self) -> int:
        self.now += 7001
        return self.now


class Changing:
    """A conversation whose limits are a service's, with all that a proxy calls around a change."""

    def __init__(
        self, streams: int = 3, topics: int = 2, clock: type[ManualClock] = MovingClock, **settings: Any
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(conversation, "ManualClock", clock)
            self.world = World(**settings)
        world = self.world
        intervals, changed = world.intervals, ChangeLog(world.access).changed
        around = Around(intervals.change, self._after, changed, ready=intervals.lines_written)
        self.store = Store(None)
        self.wall = lambda: WALL_START_NS + world.clock()
        policies = world.engine.registry.policies
        self.service = PolicyService(policies, FilePolicies({}, {}, {}), self.store, around, self.wall)
        self.sent = 0
        self.client, self.broker = publisher(
            world, *(producer(number, f"{TOPIC}-{number % topics}") for number in range(2, streams + 1))
        )
        self.streams = streams

    def _after(self, changes: list[Any], now: int) -> None:
        self.world.engine.policies_changed(changes, now)

    def change(self, wanted: dict[PolicyKey, dict[str, Any] | None]) -> None:
        """On disk in no time, then in force."""
        bodies = {key: None if section is None else kept_as_own(section) for key, section in wanted.items()}
        draft = self.service._drafted(bodies, ANN)

        async def come() -> None:
            at_ns = await self.service._come_into_force(draft.laying, lambda _at_ns: None)
            self.service._notifier.notify(draft.limits, ANN, at_ns)

        if draft.limits:
            self.world.loop.run(lambda: asyncio.get_running_loop().create_task(come()))

    def send(self, count: int) -> None:
        for number in range(1, self.streams + 1):
            self.client >> sends(count, start=self.sent, producer_id=number)
        self.sent += count

    def send_one(self, stream: int, entries: int, messages: int) -> None:
        """One stream sends entries of as many messages each."""
        self.client >> [send(self.sent + number, producer_id=stream, messages=messages) for number in range(entries)]
        self.sent += entries

    def close(self) -> None:
        self.world.close()
        self.store.close()


def by_limiter(world: World) -> dict[tuple[str, str], list[LimitLine]]:
    lines = defaultdict(list)
    for line in world.lines(LimitLine):
        lines[line.level, line.name].append(line)
    return lines


def value(line: LimitLine) -> tuple[Any, ...]:
    rates = (line.limit_messages, line.limit_bytes, line.peak_messages, line.peak_bytes)
    return (*rates, line.burst_messages, line.burst_bytes, line.source, line.mode)


def check_books(lines: list[LimitLine]) -> None:
    """Of two lines without time in between and one value: what the bucket earned is what the later line says."""
    for before, line in pairwise(lines):
        assert before.end <= line.start, "no moment is told twice"
        if before.end != line.start or value(before) != value(line):
            continue
        for name, passed in (("messages", line.passed_messages), ("bytes", line.passed_bytes)):
            for peak in ("", "peak_"):
                rate = getattr(line, f"peak_{name}" if peak else f"limit_{name}")
                if rate is None:
                    continue
                earned = rate * line.duration_ms / 1e3 - getattr(line, f"overflow_{peak}{name}")
                held = getattr(before, f"tokens_{peak}{name}") + earned - passed
                assert held == pytest.approx(getattr(line, f"tokens_{peak}{name}"), abs=2e-6 * rate + 2e-3)


def check_changes(world: World) -> None:
    """Old values stand in front of a change, new ones behind it; a limit that stays as it is has no line more."""
    changes = world.lines(ChangeLine)
    moments = {change.start for change in changes}
    for lines in by_limiter(world).values():
        for before, line in pairwise(lines):
            assert before.end != line.start or value(before) == value(line) or line.start in moments
        for change in changes:
            assert not any(line.seq > change.seq and line.end <= change.start for line in lines)
            assert not any(line.seq < change.seq and line.start >= change.start for line in lines)


@settings(max_examples=examples(30), deadline=None)
@given(steps=STEPS)
def test_no_line_mixes_two_values_and_each_tells_what_its_bucket_earned(steps) -> None:
    changing = Changing()
    for name, argument in steps:
        if name == "change":
            changing.change(dict(argument))
        elif name == "send":
            changing.send(argument)
        else:
            changing.world.advance(argument)
    changing.world.advance(1)
    for lines in by_limiter(changing.world).values():
        check_books(lines)
    check_changes(changing.world)
    changing.close()


def test_a_limit_that_goes_while_somebody_waits_there_has_no_line_behind_its_change() -> None:
    changing = Changing()
    key = rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
    changing.change({key: {"messages": 3}})
    changing.send(20)
    changing.world.advance(0.4)
    changing.change({key: None})
    changing.world.advance(5)
    first, last = changing.world.lines(ChangeLine)
    lines = changing.world.lines(LimitLine)
    assert lines
    assert all(first.start <= line.start and line.end <= last.start and line.seq < last.seq for line in lines)
    changing.close()


def test_later_followers_have_lines_that_end_when_they_follow() -> None:
    changing = Changing(streams=3 * SLICE, topics=3 * SLICE)
    key = rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
    changing.change({key: {"messages": 30}})
    changing.world.advance(1)
    changing.send(40)
    changing.world.advance(0.3)
    changing.change({key: {"messages": 3000}})
    changing.world.advance(2)
    _, change = changing.world.lines(ChangeLine)
    of_streams = defaultdict(list)
    for line in changing.world.lines(IntervalLine):
        of_streams[line.topic].append(line)
    later = 0
    for (_, topic), lines in by_limiter(changing.world).items():
        check_books(lines)
        changed_at = switched(lines)
        assert {line.limit_messages for line in of_streams[topic] if line.end > changed_at} == {3000}
        later += changed_at > change.start
    assert later == 3 * SLICE - SLICE // TUNE_STEPS
    changing.close()


def switched(lines: list[Any]) -> datetime:
    """When the value became another one: the old one's last line ends, and the new one's first begins."""
    old, new = ([line for line in lines if line.limit_messages == messages] for messages in (30, 3000))
    assert max(line.end for line in old) == min(line.start for line in new)
    at: datetime = new[0].start
    return at
