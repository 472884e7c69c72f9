"""Counting reasons not to read."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.sessions.throttle import Cause, ThrottleTracker
from tests.proxy.relay_rig import Reading


class Tracked:
    """A tracker that notes what it tells."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.changes: list[tuple[Cause, bool]] = []
        self.tracker = ThrottleTracker(
            lambda cause, is_raised: self.changes.append((cause, is_raised)),
            lambda _last: self.reading.resume_reading(),
        )


def test_reading_stops_at_the_first_reason_and_resumes_without_the_last() -> None:
    tracked = Tracked()
    tracked.tracker.throttle(Cause.HOLD_CONNECTION, tracked.reading)
    tracked.tracker.throttle(Cause.WRITE_BUFFER, tracked.reading)
    assert tracked.tracker.causes == {Cause.HOLD_CONNECTION, Cause.WRITE_BUFFER}
    tracked.tracker.unthrottle(Cause.HOLD_CONNECTION)
    assert tracked.reading.is_paused
    tracked.tracker.unthrottle(Cause.WRITE_BUFFER)
    assert not tracked.reading.is_paused
    assert (tracked.reading.pauses, tracked.reading.resumes) == (1, 1)


def test_a_reason_told_twice_counts_once_and_its_end_ends_it() -> None:
    tracked = Tracked()
    for _ in range(2):
        tracked.tracker.throttle(Cause.WRITE_BUFFER, tracked.reading)
    for _ in range(2):
        tracked.tracker.unthrottle(Cause.WRITE_BUFFER)
    assert tracked.changes == [(Cause.WRITE_BUFFER, True), (Cause.WRITE_BUFFER, False)]
    assert not tracked.reading.is_paused


def test_clearing_tells_the_end_of_each_reason_and_resumes_nothing() -> None:
    tracked = Tracked()
    tracked.tracker.throttle(Cause.HOLD_PROCESS, tracked.reading)
    tracked.tracker.throttle(Cause.WRITE_BUFFER, tracked.reading)
    tracked.tracker.clear()
    assert tracked.tracker.causes == set()
    assert sum(not is_raised for _, is_raised in tracked.changes) == 2
    assert tracked.reading.resumes == 0


@given(st.lists(st.tuples(st.sampled_from(Cause), st.booleans())))
def test_reading_is_paused_exactly_while_there_is_a_reason(steps: list[tuple[Cause, bool]]) -> None:
    tracked = Tracked()
    reasons: set[Cause] = set()
    for cause, is_raised in steps:
        if is_raised:
            reasons.add(cause)
            tracked.tracker.throttle(cause, tracked.reading)
        else:
            reasons.discard(cause)
            tracked.tracker.unthrottle(cause)
        assert tracked.reading.is_paused == bool(reasons)
        assert tracked.tracker.causes == reasons
