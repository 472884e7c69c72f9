"""When a worker is asked for a sign of life, and when it is given up; time is the list of what the loop was to call."""

import asyncio
from collections.abc import Callable

import pytest

from proxy.workers.connection import ASKED_AT_MOST, CALM_S, PATIENCE_S, URGENT_PATIENCE_S, URGENT_S, LivenessProbe


class Handle:
    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self.seconds = seconds
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Watched:
    """A worker that says what the test says."""

    def __init__(self, monkeypatch) -> None:
        self.timers: list[Handle] = []
        self.asked = self.given_up = 0
        self.matters = True
        self.presses = False
        self.liveness = LivenessProbe(self._ask, lambda: self.matters, lambda: self.presses, self._give_up)
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Handle:
        self.timers.append(Handle(seconds, call))
        return self.timers[-1]

    def _ask(self) -> None:
        self.asked += 1

    def _give_up(self) -> None:
        self.given_up += 1

    def time_passes(self) -> float:
        """Until the next timer; returns how long that was."""
        (due,) = [timer for timer in self.timers if not timer.is_cancelled]
        self.timers.clear()
        due.call()
        return due.seconds


@pytest.fixture
def watched(monkeypatch) -> Watched:
    return Watched(monkeypatch)


def test_before_anything_is_heard_there_is_no_timer(watched: Watched) -> None:
    assert watched.liveness.is_at_rest
    assert watched.timers == []


def test_who_talks_is_not_asked(watched: Watched) -> None:
    watched.liveness.heard()
    for _ in range(5):
        watched.liveness.heard()
        assert watched.time_passes() == CALM_S
    assert watched.asked == 0


def test_who_is_silent_is_asked_and_then_given_up(watched: Watched) -> None:
    watched.liveness.heard()
    watched.time_passes()
    for count in range(1, ASKED_AT_MOST + 1):
        assert (watched.asked, watched.given_up) == (count, 0)
        assert watched.time_passes() == PATIENCE_S
    assert (watched.asked, watched.given_up) == (ASKED_AT_MOST, 1)
    assert watched.liveness.is_at_rest


def test_who_answers_late_is_asked_anew_after_a_while(watched: Watched) -> None:
    watched.liveness.heard()
    for _ in range(ASKED_AT_MOST):
        watched.time_passes()
    watched.liveness.heard()
    assert watched.time_passes() == CALM_S
    for _ in range(ASKED_AT_MOST - 1):
        watched.time_passes()
    assert watched.given_up == 0


def test_as_long_as_nobody_waits_for_it_there_is_no_timer(watched: Watched) -> None:
    watched.liveness.heard()
    watched.matters = False
    watched.time_passes()
    assert watched.liveness.is_at_rest
    assert watched.asked == 0
    watched.liveness.heard()
    assert not watched.liveness.is_at_rest


def test_who_is_asked_something_is_watched_until_something_is_heard(watched: Watched) -> None:
    watched.liveness.watch()
    watched.liveness.watch()
    assert watched.time_passes() == CALM_S
    for _ in range(ASKED_AT_MOST):
        assert watched.time_passes() == PATIENCE_S
    assert (watched.asked, watched.given_up) == (ASKED_AT_MOST, 1)
    assert watched.liveness.is_at_rest


def test_who_answers_what_it_is_asked_is_left_alone(watched: Watched) -> None:
    watched.liveness.watch()
    watched.liveness.heard()
    watched.matters = False
    assert watched.time_passes() == CALM_S
    assert watched.liveness.is_at_rest
    assert watched.asked == 0


def test_one_that_is_gone_is_not_looked_for(watched: Watched) -> None:
    watched.liveness.heard()
    watched.liveness.stop()
    assert watched.liveness.is_at_rest
    assert all(timer.is_cancelled for timer in watched.timers)


def test_where_others_wait_for_it_all_goes_faster(watched: Watched) -> None:
    watched.liveness.heard()
    watched.presses = True
    watched.liveness.hurry()
    watched.liveness.hurry()
    assert watched.time_passes() == URGENT_S
    for _ in range(ASKED_AT_MOST):
        assert watched.time_passes() == URGENT_PATIENCE_S
    assert (watched.asked, watched.given_up) == (ASKED_AT_MOST, 1)
    assert URGENT_S + ASKED_AT_MOST * URGENT_PATIENCE_S <= 10


def test_who_is_asked_already_is_given_less_time_from_then_on(watched: Watched) -> None:
    watched.liveness.heard()
    watched.time_passes()
    watched.presses = True
    watched.liveness.hurry()
    assert watched.asked == 1
    for _ in range(ASKED_AT_MOST):
        assert watched.time_passes() == URGENT_PATIENCE_S
    assert watched.given_up == 1


def test_it_is_calm_again_when_nobody_else_waits(watched: Watched) -> None:
    watched.liveness.heard()
    watched.presses = True
    watched.liveness.hurry()
    for _ in range(3):
        watched.liveness.heard()
        assert watched.time_passes() == URGENT_S
    watched.presses = False
    watched.liveness.heard()
    watched.time_passes()
    watched.liveness.heard()
    assert watched.time_passes() == CALM_S
    assert watched.asked == 0
