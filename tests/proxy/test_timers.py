"""The scheduler's timers, and how late timers are."""

from collections.abc import Iterator
from functools import partial

import pytest

from limiter.activity import ActivityJournal
from limiter.limiter import Entry, Limiter, Scope, Stream, StreamName
from limiter.token_bucket import Limit, rate
from proxy.counters import LATENESS_NS, Counters
from proxy.slices import Slices, Work
from proxy.timers import TimedScheduler
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop


class Alarmed:
    """A scheduler with its alarms, and one limiter of a message a second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.counters = Counters()
        slices = Slices(self.counters, self.clock)
        release = partial(slices.run, Work.RELEASES)
        self.scheduler = TimedScheduler(self.clock, slices.lateness, release, ActivityJournal())
        self.limiter = Limiter(Scope("publish", "topic", "t", "a", "b"), Limit(rate(1)), "test", 0)
        self.passed: list[float] = []
        name = StreamName("publish", "a", "b", "t", 1)
        self.stream = Stream(name, (self.limiter,), lambda _stream, _entry: self.passed.append(self.loop.time()))

    def hold(self) -> None:
        self.loop.run(self.scheduler.hold, self.stream, Entry(b"x", 1, 1, 1, self.clock()), self.clock())


@pytest.fixture
def alarmed() -> Iterator[Alarmed]:
    alarmed = Alarmed()
    yield alarmed
    assert not alarmed.loop.trouble
    alarmed.loop.close()


def test_waiting_entries_go_when_their_tokens_come(alarmed: Alarmed) -> None:
    for _ in range(4):
        alarmed.hold()
    alarmed.loop.advance(10)
    assert [round(at, 6) for at in alarmed.passed] == [0, 1, 2, 3]


def test_a_limiter_that_nobody_waits_on_has_no_timer(alarmed: Alarmed) -> None:
    alarmed.hold()
    assert alarmed.loop.timers == []
    alarmed.hold()
    assert len(alarmed.loop.timers) == 1
    alarmed.loop.advance(5)
    assert alarmed.loop.timers == []


def test_another_time_replaces_the_one_before(alarmed: Alarmed) -> None:
    alarmed.loop.run(alarmed.scheduler.wake_at, alarmed.limiter, 5_000_000_000)
    alarmed.loop.run(alarmed.scheduler.wake_at, alarmed.limiter, 1_000_000_000)
    assert len(alarmed.loop.timers) == 1
    alarmed.loop.advance(1)
    assert alarmed.loop.timers == []
    assert alarmed.counters.timers_fired == 1


def test_a_time_that_is_past_rings_at_once_and_its_lateness_is_counted(alarmed: Alarmed) -> None:
    alarmed.clock.advance(3)
    alarmed.loop.run(alarmed.scheduler.wake_at, alarmed.limiter, 2_500_000_000)
    assert alarmed.counters.timers_fired == 1
    assert alarmed.counters.loop_lag_ns == alarmed.counters.loop_lag_max_ns == 500_000_000


def test_the_lateness_of_timers_is_summed_and_its_worst_kept() -> None:
    counters = Counters()
    lateness = Slices(counters).lateness
    for late_ns in (5, 20, 10):
        lateness.timer_fired(late_ns)
    assert (counters.timers_fired, counters.loop_lag_ns, counters.loop_lag_max_ns) == (3, 35, 20)


def test_timers_are_counted_by_the_least_bound_that_holds_them() -> None:
    counters = Counters()
    lateness = Slices(counters).lateness
    for late_ns in (-7, LATENESS_NS[0], LATENESS_NS[0] + 1, LATENESS_NS[-1], LATENESS_NS[-1] + 1):
        lateness.timer_fired(late_ns)
    assert [counters.timers_by_lateness[at] for at in (0, 1, -2, -1)] == [2, 1, 1, 1]
    assert sum(counters.timers_by_lateness) == counters.timers_fired


def test_a_timer_that_fires_early_is_not_late() -> None:
    counters = Counters()
    lateness = Slices(counters).lateness
    lateness.timer_fired(-7)
    assert (counters.timers_fired, counters.loop_lag_ns) == (1, 0)
