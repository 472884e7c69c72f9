"""One timer for many who have the same time."""

import time
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from proxy.session.broker_connector import Deadlines
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop


def test_there_is_one_timer_while_somebody_is_under_way_and_none_else(loop: ManualLoop) -> None:
    late: list[int] = []
    deadlines = Deadlines(5.0, late.append)
    for entry in range(100):
        loop.run(deadlines.begin, entry)
    assert len(loop.timers) == 1
    for entry in range(100):
        loop.run(deadlines.end, entry)
    assert not loop.timers
    assert not late


def test_who_is_told_that_it_is_late_may_begin_anew(loop: ManualLoop) -> None:
    late: list[int] = []

    def again(entry: int) -> None:
        late.append(entry)
        if len(late) < 3:
            deadlines.begin(entry)

    deadlines = Deadlines(5.0, again)
    loop.run(deadlines.begin, 7)
    loop.advance(14)
    assert late == [7, 7]
    loop.advance(10)
    assert late == [7, 7, 7]
    assert not loop.timers


def test_what_goes_wrong_with_one_keeps_no_other_from_being_told(loop: ManualLoop) -> None:
    calls: list[int] = []

    def late(entry: int) -> None:
        calls.append(entry)
        if entry == 1:
            raise ValueError("of the caller")

    deadlines = Deadlines(5.0, late)
    for entry in (1, 2, 3):
        loop.run(deadlines.begin, entry)
    loop.advance(10)
    assert calls == [1, 2, 3]
    assert len(loop.trouble) == 1
    assert "of the caller" in loop.trouble[0]


def _time_of(many: int) -> float:
    loop = ManualLoop(ManualClock())
    late: list[int] = []
    deadlines = Deadlines(5.0, late.append)

    def begin() -> None:
        for entry in range(many):
            deadlines.begin(entry)

    loop.run(begin)
    started_at = time.thread_time()
    loop.advance(5)
    taken = time.thread_time() - started_at
    assert late == list(range(many)), "in the order in which they began"
    loop.close()
    return taken


def test_to_tell_ten_times_as_many_takes_ten_times_as_long() -> None:
    """And not a hundred times: all others would wait meanwhile."""
    few, many = (min(_time_of(number) for _ in range(3)) for number in (8_000, 80_000))
    assert many < 40 * few


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(["begin", "end"]), st.integers(0, 5)), min_size=1, max_size=60
    )
)
def test_each_is_told_exactly_when_its_own_time_is_over(steps: list[tuple[int, str, int]]) -> None:
    """The model counts in tenths of a second, which add up exactly; whose time is over between two of them."""
    loop = ManualLoop(ManualClock())
    calls: list[tuple[int, float]] = []
    deadlines = Deadlines[int](5.05, lambda entry: calls.append((entry, round(loop.time() * 10, 6))))
    now = 0
    due: dict[int, float] = {}
    expected: list[tuple[int, float]] = []

    def pass_time(tenths: int) -> None:
        nonlocal now
        now += tenths
        for entry, at in list(due.items()):
            if at <= now:
                expected.append((entry, at))
                del due[entry]
        loop.advance(tenths / 10)

    with closing(loop):
        for tenths, act, entry in steps:
            pass_time(tenths)
            if act == "end":
                loop.run(deadlines.end, entry)
                due.pop(entry, None)
            elif entry not in due:
                loop.run(deadlines.begin, entry)
                due[entry] = now + 50.5
        pass_time(100)
        assert sorted(calls) == sorted(expected)
        assert not loop.timers
