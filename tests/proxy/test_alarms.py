"""The scheduler's alarm clock."""

from collections.abc import Iterator

import pytest

from limiter.activity import ActivityJournal
from limiter.limiter import Entry, Limiter, Scope, Stream, StreamName
from limiter.scheduler import Scheduler
from limiter.token_bucket import Limit, rate
from proxy.counters import Counters
from proxy.session.engine import LimiterTimers
from proxy.slices import Slices
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop


class Alarmed:
    """A scheduler with its alarms, and one limiter of a message a second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.counters = Counters()
        self.alarms = LimiterTimers(self.clock, self.counters, self._serve, Slices(self.counters, self.clock))
        self.scheduler = Scheduler(self.alarms.wake_at, ActivityJournal(lambda: None))
        self.limiter = Limiter(Scope("publish", "topic", "t", "a", "b"), Limit(rate(1)), "test", 0)
        self.passed: list[float] = []
        name = StreamName("publish", "a", "b", "t", 1)
        self.stream = Stream(name, (self.limiter,), lambda _stream, _entry: self.passed.append(self.loop.time()))

    def _serve(self, limiter: Limiter, now: int) -> None:
        self.scheduler.serve(limiter, now)

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
    alarmed.loop.run(alarmed.alarms.wake_at, alarmed.limiter, 5_000_000_000)
    alarmed.loop.run(alarmed.alarms.wake_at, alarmed.limiter, 1_000_000_000)
    assert len(alarmed.loop.timers) == 1
    alarmed.loop.advance(1)
    assert alarmed.loop.timers == []
    assert alarmed.counters.timers_fired == 1


def test_a_time_that_is_past_rings_at_once_and_its_lateness_is_counted(alarmed: Alarmed) -> None:
    alarmed.clock.advance(3)
    alarmed.loop.run(alarmed.alarms.wake_at, alarmed.limiter, 2_500_000_000)
    assert alarmed.counters.timers_fired == 1
    assert alarmed.counters.loop_lag_ns == alarmed.counters.loop_lag_max_ns == 500_000_000
