"""When a line is due in the operator's log."""

from proxy.observe.operator_log import INTERVAL_NS, MOST_KNOWN, ThrottledLog
from tests.manual_clock import ManualClock


def test_a_flood_is_a_line_once_in_a_while_with_how_much_it_was() -> None:
    clock = ManualClock()
    lines = ThrottledLog(clock)
    assert [lines.due("a") for _ in range(4)] == [1, 0, 0, 0]
    assert lines.due("b") == 1
    clock.now += INTERVAL_NS
    assert lines.due("a") == 4
    assert lines.due("a") == 0


def test_each_client_has_lines_of_its_own_and_too_many_are_summed_up() -> None:
    clock = ManualClock()
    lines = ThrottledLog(clock)
    for number in range(MOST_KNOWN):
        assert lines.due("a", f"client {number}") == 1
    assert [lines.due("a", f"other {number}") for number in range(1000)] == [1] + [0] * 999
    assert lines.due("a", "client 7") == 0
    clock.now += INTERVAL_NS
    assert lines.due("a", "client 7") == 2
    assert lines.due("a", "a new one") == 1
    assert lines.due("a") == 1000


def test_what_is_not_told_of_who_is_forgotten_is_told_of_all() -> None:
    clock = ManualClock()
    lines = ThrottledLog(clock)
    for number in range(MOST_KNOWN):
        lines.due("a", f"client {number}")
        lines.due("a", f"client {number}")
    clock.now += INTERVAL_NS
    for number in range(MOST_KNOWN):
        assert lines.due("a", f"other {number}") == 1
    assert lines.due("a") == MOST_KNOWN + 1


def test_it_remembers_no_more_than_it_tells_of() -> None:
    clock = ManualClock()
    lines = ThrottledLog(clock)
    for number in range(10_000):
        lines.due("a", f"client {number}")
        clock.now += INTERVAL_NS // 1000
    assert len(lines._logged_at) <= MOST_KNOWN + 1
    assert len(lines._since) <= MOST_KNOWN + 1
