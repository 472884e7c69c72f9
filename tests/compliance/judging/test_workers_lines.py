"""What workers tell late, or never: excused as far as the lines say so, and only where it can have happened."""

import pytest

from tests.compliance.judging.pure import deficit_s, doubts, excess
from tests.compliance.judging.test_account import CALM, judged
from tests.compliance.planted import PlantedLog

TOLD = {"idle_ms": 0.0} | CALM
FULL = {"tokens_messages": 10.0}


def behind_change(seconds, *, charged, passed, own):
    """A stream passes something so many seconds behind a change, and its lines say how much of it was charged."""
    log = PlantedLog()
    for second in range(seconds + 1):
        if second == 0:
            log.change()
        is_late = second == seconds
        log.interval(passed if is_late else 0, charged_messages=charged if is_late else None, limit_levels="topic")
        log.limit(own if is_late else 0, **TOLD)
        log.second += 1
    return judged(log)


@pytest.mark.parametrize("own", [0, 20, 40])
def test_behind_a_change_a_published_message_may_have_been_charged_to_some_limits_and_not_to_others(own):
    found = behind_change(1, charged=0, passed=40, own=own)
    assert (excess(found) < 0, doubts(found)) == (True, set())


def test_a_second_later_what_is_published_counts_whatever_is_said_of_charges():
    found = behind_change(3, charged=0, passed=400, own=0)
    assert (excess(found) > 0, doubts(found)) == (True, {"streams"})


@pytest.mark.parametrize("own", [9, 41])
def test_behind_a_change_no_less_counts_than_was_charged_and_no_more_than_passed(own):
    assert doubts(behind_change(1, charged=10, passed=40, own=own)) == {"streams"}


@pytest.mark.parametrize(("seconds", "is_known"), [(1, True), (3, False)])
def test_what_passed_of_streams_that_had_left_is_none_of_those_that_are_there(seconds, is_known):
    log = PlantedLog()
    log.change()
    for second in range(seconds + 1):
        left = 30 * (second == seconds)
        log.interval(10, limit_levels="topic")
        log.limit(10 + left, left_messages=left, left_bytes=100 * left, **TOLD)
        log.second += 1
    assert doubts(judged(log)) == (set() if is_known else {"streams"})


@pytest.mark.parametrize(("seconds", "is_known"), [(1, True), (3, False)])
def test_what_passed_before_its_worker_knew_the_limit_costs_nothing_just_behind_a_change(seconds, is_known):
    log = PlantedLog()
    log.change()
    for second in range(seconds + 1):
        late = 900 * (second == seconds)
        books = {"tokens_messages": 10.0, "overflow_messages": 90.0}
        log.limit(10 + late, unforeseen_messages=late, **TOLD, **books)
        log.second += 1
    found = judged(log)
    assert (excess(found) < 0, doubts(found)) == ((True, set()) if is_known else (False, {"books"}))


@pytest.mark.parametrize(("what", "is_known"), [("publish", False), ("attachment", True), ("file", True)])
def test_a_limit_that_is_not_new_is_charged_unless_streams_may_have_come_under_it(what, is_known):
    log = PlantedLog()
    for second in range(20):
        if second > 5:
            log.change(what=what, name="persistent://acme/orders/other")
        late = 300 * (second == 10)
        log.interval(late, charged_messages=0 if late else None, limit_levels="topic")
        log.limit(0, tokens_messages=10.0, overflow_messages=0.0 if second == 0 else 100.0, **TOLD)
        log.second += 1
    found = judged(log)
    assert (excess(found) < 0, doubts(found)) == ((True, set()) if is_known else (False, {"streams"}))


def test_changes_of_other_limits_excuse_nothing_that_a_limit_did_not_foresee():
    log = PlantedLog()
    for _ in range(20):
        log.change(name="persistent://acme/orders/other")
        log.limit(150, unforeseen_messages=50, tokens_messages=10.0, overflow_messages=0.0, **TOLD)
        log.second += 1
    # Where it may be new its first line is believed, and the next ones within a second.
    assert excess(judged(log)) > 17 * 50


def test_what_a_lost_worker_had_is_no_riddle_if_the_line_says_so():
    def told(lost):
        log = PlantedLog()
        for second in range(4):
            gone = 5 * (second == 2)
            full = {"tokens_messages": 10.0 - gone, "overflow_messages": 100.0 - 5 * (second == 3)}
            log.limit(0, lost_messages=gone if lost else 0, **TOLD, **full)
            log.second += 1
        return judged(log)

    assert doubts(told(lost=True)) == set()
    assert doubts(told(lost=False)) == {"books"}


def test_what_workers_used_between_lines_counts_in_the_next_one():
    """Two seconds without a line at 100/s: 250 may have passed in them, and no more than a burst besides."""

    def counted(passed, lent):
        log = PlantedLog()
        log.limit(0, lent_messages=lent, overflow_messages=100.0, **TOLD, **FULL)
        log.second += 3
        log.limit(passed, **TOLD, tokens_messages=1.0)
        return judged(log)

    assert excess(counted(300, lent=5)) < 0
    assert excess(counted(300, lent=0)) > 0
    assert excess(counted(330, lent=5)) > 0


def test_changes_of_other_limits_make_no_new_begin_where_the_balance_goes_on():
    log = PlantedLog()
    tokens = 10.0
    for second in range(0, 60, 2):
        log.second = second
        log.change(name="persistent://acme/orders/other")
        # 202 each two seconds; its books say that it had them.
        passed = 100 if second == 0 else 202
        tokens += (100 if second == 0 else 200) - passed
        log.limit(passed, tokens_messages=tokens, idle_ms=0.0)
    found = judged(log)
    assert excess(found) > 20
    assert deficit_s(found) < 0


def test_what_a_limit_did_not_foresee_does_not_disturb_its_balance_while_others_are_changed():
    """20 too many, behind a line that left no token; were others' changes its own, ten tokens would be there anew."""
    log = PlantedLog()
    log.change()
    for passed, late, tokens in ((110, 0, 0.0), (120, 900, -20.0)):
        log.limit(passed + late, unforeseen_messages=late, tokens_messages=tokens, idle_ms=0.0)
        log.second += 1
        for _ in range(2):
            log.change(name="persistent://acme/orders/other")
    found = judged(log)
    assert excess(found) == pytest.approx(18.5, abs=0.01)
    assert doubts(found) == set()
