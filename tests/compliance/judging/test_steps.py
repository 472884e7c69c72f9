"""Steps of the wall clock between heartbeats that are far apart: lines are placed by their numbers and durations."""

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compliance.judging.account import judged
from compliance.judging.lines import UNSEEN_S
from compliance.judging.steps import ClockStep, RunAxis, TimedLines, run_axis
from tests.compliance.judging.pure import axis_of, deficit_s, doubts, excess, verdicts
from tests.compliance.judging.scheduler_log import SchedulerLog, play
from tests.compliance.judging.stepped_log import stepped
from tests.compliance.judging.test_exactly import SEEDS, troubles
from tests.compliance.planted import PlantedLog

SECOND = 1_000_000


def steady(size_s, beats_s, *, at_s=31.7, undone_s=None, seconds=50, changed_at=None, extra=0, forged=None):
    """A greedy stream at a limit of 100, whose clock is stepped, and heartbeats so far apart.

    `undone_s` is when the step is undone; `forged` is a second, and by how much longer than it is it is said to be.
    """
    log, rate = PlantedLog(), 100
    origin, beaten = log.begin, 0

    def wall(second):
        is_ahead = second > at_s and (undone_s is None or second <= undone_s)
        return origin + timedelta(seconds=second + (size_s if is_ahead else 0))

    for second in range(seconds):
        if second == changed_at:
            log.change(start=wall(second), end=wall(second))
            rate = 50
        passed = rate + (10 if not second else 0) + (extra if second > at_s else 0)
        more_s = forged[1] if forged and second == forged[0] else 0
        times = {"start": wall(second), "end": wall(second + 1), "duration_ms": 1000.0 * (1 + more_s)}
        since = wall(second + 1) - timedelta(seconds=second + 1)
        passed += round(rate * more_s)
        log.interval(
            passed, held_messages=9, throttled_ms=1000.0 * (1 + more_s), held_since=since, limit_messages=rate, **times
        )
        log.limit(passed, rate=float(rate), idle_ms=0.0, tokens_messages=0.0, **times)
        log.second += 1
        if log.second - beaten == beats_s or log.second == seconds:
            spans = {"start": wall(beaten), "end": wall(log.second), "duration_ms": 1000.0 * (log.second - beaten)}
            beaten = log.second
            log.beat(**spans)
            log.second -= 1
    (found,) = verdicts(log.lines).values()
    return found, axis_of(log.lines)


SIZES = [-40, -15, -9, -6, -3, -1, -0.4, 0.4, 1, 2, 5, 9, 45]


@pytest.mark.parametrize("beats_s", [1, 2, 5, 10])
@pytest.mark.parametrize("size_s", SIZES)
@pytest.mark.parametrize("changed_at", [None, 20, 40])
def test_a_kept_limit_stays_kept_however_far_apart_heartbeats_are(size_s, beats_s, changed_at):
    found, axis = steady(size_s, beats_s, changed_at=changed_at)
    assert (excess(found) <= 0, deficit_s(found) <= 0, doubts(found)) == (True, True, set())
    assert ([us for _, us in axis.ahead], axis.unclear) == ([round(size_s * SECOND)], [])


@pytest.mark.parametrize("size_s", SIZES)
def test_what_is_over_behind_a_step_is_over(size_s):
    """Two messages too many in each second: the window goes on through the step."""
    found, _ = steady(size_s, 10, extra=2)
    assert excess(found) == pytest.approx(2 * 18 - 1 - 0.5, abs=0.1)


PAIRS = [0.12, 0.15, 0.19, 0.5, 2, 60]


@pytest.mark.parametrize("beats_s", [5, 10, 30])
@pytest.mark.parametrize("size_s", [*PAIRS, *(-size for size in PAIRS)])
@pytest.mark.parametrize("apart_s", [1, 4, 15])
def test_a_kept_limit_stays_kept_if_a_step_is_undone_between_the_same_heartbeats(size_s, beats_s, apart_s):
    found, axis = steady(size_s, beats_s, at_s=30.3, undone_s=30.3 + apart_s)
    assert (excess(found) <= 0, deficit_s(found) <= 0, doubts(found)) == (True, True, set())
    assert [round(us / SECOND, 6) for _, us in axis.ahead] == [size_s, 0]


@pytest.mark.parametrize("size_s", [*PAIRS, *(-size for size in PAIRS)])
def test_what_is_over_around_steps_that_cancel_is_over(size_s):
    """Two messages too many in each second behind the step."""
    found, _ = steady(size_s, 30, at_s=30.3, undone_s=33.3, extra=2)
    assert excess(found) == pytest.approx(2 * 19 - 1 - 0.5, abs=0.1)


@pytest.mark.parametrize("size_s", [0, -0.3, 0.3, 1, -15])
@pytest.mark.parametrize("more_s", [0.15, 0.19, 0.3, -0.5])
@pytest.mark.parametrize("at_s", [32.4, 34.4])
def test_a_forged_duration_is_doubted_whatever_the_clock_does_besides(size_s, more_s, at_s):
    found, axis = steady(size_s, 10, at_s=at_s, forged=(33, more_s))
    assert "clock" in doubts(found)
    assert len(axis.contradicted) == 1


def axis(size_s, *spans, until_s=10):
    """Of one step between heartbeats at 0 and `until_s`; lines of (begin, end) by the wall clock, and seconds."""
    step = ClockStep(0, len(spans), round(size_s * SECOND), 0, round((until_s + size_s) * SECOND))
    lines = [
        TimedLines(seq, *(round(time * SECOND) for time in (start, end, duration)))
        for seq, (start, end, duration) in enumerate(spans)
    ]
    return run_axis([step], lines)


def of(size_s, seq, unclear=(), contradicted=()):
    window = (0, 10 * SECOND, round(size_s * SECOND))
    return RunAxis([(seq, round(size_s * SECOND))], [window], list(unclear), list(contradicted))


def test_lines_behind_the_one_in_which_the_clock_was_stepped_are_of_the_new_time():
    assert axis(-5, (0, 1, 1), (1, -3, 1), (-3, -2, 1), (-2, -1, 1)) == of(-5, 1)
    assert axis(5, (0, 1, 1), (1, 7, 1), (7, 8, 1)) == of(5, 1)


def test_a_line_begun_before_a_shown_step_shows_no_second_one():
    assert axis(-5, (0, -4.5, 0.5), (0, -4, 1), (-4, -3, 1)) == of(-5, 0)


def test_two_steps_are_found_if_lines_show_both():
    assert axis(-3, (0, -4, 1), (-4, -1, 1), (-1, 0, 1)).ahead == [(0, -5 * SECOND), (1, -3 * SECOND)]


def test_a_step_is_found_that_is_made_a_second_time():
    assert axis(4, (0, 3, 1), (3, 6, 1), (6, 7, 1)).ahead == [(0, 2 * SECOND), (1, 4 * SECOND)]


def test_a_line_that_ends_when_the_one_before_did_shows_a_step_of_its_own():
    found = axis(2, (0, 4, 1), (4, 4, 1), (4, 5, 1))
    assert (found.ahead, found.contradicted) == ([(0, 3 * SECOND), (1, 2 * SECOND)], [])


def test_steps_that_cancel_are_found_though_heartbeats_show_none():
    found = axis(0, (0, 1.15, 1), (1.15, 2.15, 1), (2.15, 3, 1))
    assert found == RunAxis([(0, 150_000), (2, 0)], [(0, 10 * SECOND, 150_000), (0, 10 * SECOND, -150_000)], [], [])


def test_a_step_that_one_line_shows_is_undone_where_no_line_was_under_way():
    assert axis(0, (0, 3, 1), (3, 4, 1), (5, 6, 1), (6, 10, 4)).ahead == [(0, 2 * SECOND), (2, 0)]
    assert axis(0, (0, 1, 1), (-2, 4, 1), (4, 5, 1)).ahead == [(1, -5 * SECOND), (1, 0)]


def test_without_steps_in_lines_and_heartbeats_time_is_as_the_clock_says():
    assert axis(0, (0, 1, 1), (1, 2.09, 1)) == axis(0.09, (0, 1, 1)) == RunAxis([], [], [], [])


def test_a_line_that_began_before_a_heartbeat_shows_a_step_before_it():
    beats = [ClockStep(0, 2, -3 * SECOND, 0, 2 * SECOND), ClockStep(3, 5, 0, 2 * SECOND, 6 * SECOND)]
    lines = [(0, 0, 4, 4), (3, 4, 2.5, 1.5), (4, 2.5, 3.5, 1)]
    told = [TimedLines(seq, *(round(time * SECOND) for time in times)) for seq, *times in lines]
    assert run_axis(beats, told) == RunAxis([(2, -3 * SECOND)], [(0, 5 * SECOND, -3 * SECOND)], [], [])


def test_a_step_back_in_time_without_lines_lies_where_times_go_back():
    assert axis(-3, (1, 2, 1), (3, 4, 1), (2, 3, 1), (4, 5, 1)) == of(-3, 2)


def test_a_step_lies_before_lines_that_would_else_end_behind_the_heartbeat():
    assert axis(7, (1, 2, 1), (14, 15, 1)) == of(7, 1)


def test_a_step_lies_not_between_lines_without_time_in_between():
    assert axis(2, (0, 1, 1), (1, 2, 1), (6, 7, 1), (7, 8, 1), (8, 9, 1), (11, 12, 1)) == of(2, 2, [2, 5])


def test_where_a_step_may_lie_in_several_places_each_is_unclear():
    assert axis(2, (1, 2, 1), (5, 6, 1), (9, 10, 1), until_s=10) == of(2, 1, [1, 2, 3])


def test_lines_that_contradict_the_heartbeats_are_unclear():
    assert axis(3, (20, 21, 1), (0, 1, 1)) == of(3, 0, [0, 1], [(0, 2)])


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS, late_ms=st.sampled_from([0, 0, 5, 14]), nested=st.booleans())
def test_an_exact_limiter_is_never_accused_wherever_the_clock_is_stepped(
    seed: int,
    late_ms: int,
    nested: bool,  # noqa: FBT001 - hypothesis names it
) -> None:
    """Steps of any size, heartbeats 1 to 10 s apart, and anything that happens to the product's own gate."""
    log = SchedulerLog(Random(seed), late_ms)
    play(log, 25, nested=nested)
    notes, items = stepped(log, Random(seed))
    for key, of_limiter in items.items():
        found = judged(notes, of_limiter)
        assert troubles(found) == [], key
        assert found.entitlement is None or found.entitlement.unseen_s < UNSEEN_S
