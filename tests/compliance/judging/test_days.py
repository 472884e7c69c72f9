"""A log that crosses midnight: judged day by day it shows what it shows as a whole, and balances go on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compliance.excerpt import WHOLE_LOG
from compliance.judging.bypasses import LIMITED, Suspicion
from compliance.judging.days import doubts_of_days
from compliance.judging.facts import DoubtFacts, Judged
from compliance.judging.fleets import FleetNotes
from compliance.judging.judge import Judging, results_of
from tests.compliance.arrow import lines_of as rows_of
from tests.compliance.arrow import summed_of
from tests.compliance.judging.pure import Key, deficit_s, doubts, excess, notes_of, verdicts
from tests.compliance.judging.test_steady import STEADY_S, STEPS, lines_of
from tests.compliance.planted import PlantedLog
from tests.proxy.observe.test_lines_at_changes import PLACES

MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)
_TIMES = ("start", "end", "held_since", "complete_until")


def by_day(log: Any) -> dict[Key, Judged]:
    """The results of a log of one run, all its days together."""
    run = log.lines[0].proxy_id, log.lines[0].boot_id
    judging = Judging({}, {run: notes_of(log.lines)}, FleetNotes(), Suspicion(summed_of(LIMITED, log), {}))
    judged = judging.figures(judging.parts(rows_of([log])))
    results = results_of(judged["judged"])
    return {(result.kept.direction, result.kept.level, result.kept.name): result for result in results}


def at_midnight(lines: list[Any], share: float) -> list[Any]:
    """The lines at another time: midnight is at that part of them."""
    first, last = min(line.start for line in lines), max(line.end for line in lines)
    later = MIDNIGHT - (first + share * (last - first))
    return [
        msgspec.structs.replace(
            line, **{name: at + later for name in _TIMES if (at := getattr(line, name, None)) is not None}
        )
        for line in lines
    ]


@settings(max_examples=60)
@given(steps=STEPS, share=st.floats(0, 1))
@example(steps=[("calm", 25), ("wait", 0.3), ("send", 1, 30, 3), ("calm", 25)], share=0.5)
@example(
    steps=[("change", [(PLACES[0], {"messages": 3})]), ("send", 1, 2, 2), ("wait", 0.05), ("send", 1, 2, 1)], share=0.1
)
def test_days_show_nothing_that_the_whole_log_does_not(steps: Any, share: float) -> None:
    log = PlantedLog(lines=at_midnight(lines_of(steps, STEADY_S), share))
    whole, days = verdicts(log.lines), by_day(log)
    assert {key for key, result in whole.items() if result.kept.lines} <= days.keys()
    for key, result in days.items():
        assert doubts(result) <= doubts(whole[key]), key
        assert excess(result) <= max(excess(whole[key]), 0), key
        assert deficit_s(result) <= max(deficit_s(whole[key]), 0) + 1e-6, key
        assert result.kept.lines == whole[key].kept.lines, key
        assert result.kept.waited_s == pytest.approx(whole[key].kept.waited_s), key


def hour_of_burst(second_at_s: int, second: int) -> PlantedLog:
    """The burst of an hour passes half an hour before midnight, and an amount some time after that."""
    log = PlantedLog(begin=MIDNIGHT - timedelta(minutes=30))
    for at_s, passed in ((0, 3600), (second_at_s, second)):
        log.second = at_s
        left = min(3600.0, at_s + 1.0) if at_s else 1.0
        tokens = {"tokens_messages": left - passed if at_s else 1.0}
        log.limit(passed, rate=1.0, burst_messages=3600.0, throttled_ms=0.0, **tokens)
    return log


@pytest.mark.parametrize("after_s", [10, 600])
def test_no_burst_comes_back_at_midnight(after_s: int) -> None:
    at_s = 1800 + after_s
    (kept,) = by_day(hour_of_burst(at_s, at_s)).values()
    (exceeded,) = by_day(hour_of_burst(at_s, at_s + 100)).values()
    assert excess(kept) < 0
    assert excess(exceeded) == pytest.approx(100, abs=3)


def test_an_amount_too_much_counts_on_its_own_day_alone() -> None:
    log = PlantedLog(begin=MIDNIGHT - timedelta(seconds=10))
    for second in range(20):
        log.limit(500 if second == 5 else 100, tokens_messages=0.0)
        log.second += 1
    (result,) = by_day(log).values()
    (window,) = result.windows
    assert window.end < MIDNIGHT
    assert result.kept.over is not None
    assert result.kept.over.longest < MIDNIGHT


def test_a_stream_that_waits_over_midnight_is_owed_on_both_sides() -> None:
    log = PlantedLog(begin=MIDNIGHT - timedelta(seconds=5))
    for _ in range(10):
        log.limit(50)
        log.second += 1
    (result,) = by_day(log).values()
    assert result.entitlement is not None
    (whole,) = verdicts(log.lines).values()
    assert deficit_s(whole) >= deficit_s(result) >= deficit_s(whole) - 1, "a line without a balance"


def test_results_of_days_are_in_one_order_and_add_up() -> None:
    log = PlantedLog(begin=MIDNIGHT - timedelta(hours=30))
    for second in count(step=43_200):
        if second > 60 * 3600:
            break
        log.second = second
        log.limit(20, throttled_ms=0.0)
        log.second += 1
        log.limit(0, throttled_ms=0.0)
    judging = Judging({}, {}, FleetNotes(), Suspicion(summed_of(LIMITED, log), {}))
    judged = judging.figures(judging.parts(rows_of([log])))
    assert judged["judged"]["day"].to_pylist() == [20777, 20778, 20779, 20780]
    assert sum(pa.table(judged["limiters"])["passed_messages"].to_pylist()) == 20 * 6
    (result,) = results_of(judged["judged"])
    assert result.kept.lines == 12


def test_days_judged_apart_are_as_days_judged_together() -> None:
    log = hour_of_burst(1800 + 600, 2500)
    judging = Judging({}, {}, FleetNotes(), Suspicion(summed_of(LIMITED, log), {}))
    rows = rows_of([log])
    together = judging.figures(judging.parts(rows))
    apart, last = [], None
    for day in WHOLE_LOG.days([rows["start"]]):
        own = replace(judging, excerpt=day, has_edges=False, last=last)
        apart.append(own.figures(own.parts(day.with_margin.of(rows))))
        last = apart[-1]["last_lines"]
    assert [part["judged"].to_pylist() for part in apart] == [
        together["judged"].slice(place, 1).to_pylist() for place in range(2)
    ]
    for name in together.keys() - {"last_lines"}:
        assert pa.concat_tables([part[name] for part in apart]) == together[name], name


def test_stream_with_a_large_entry_over_midnight_is_not_starved() -> None:
    """Ten streams share 100/s; one waits 100 s for its entry of 1,000 messages, which came before the day's lines."""
    log, waits = PlantedLog(begin=MIDNIGHT - timedelta(seconds=75)), {"reason": "topic", "throttled_ms": 1000.0}
    for second in range(101):
        is_over = second == 100
        first = {"offered": 1000, "offered_entries": 1} if second == 0 else {"offered": 0, "offered_entries": 0}
        held = {"held_messages": 1000, "held_since": log.begin, "reason_name": log.topic, **waits}
        passed = {"passed_entries": 1} if is_over else {"passed_entries": 0, **held}
        log.interval(1000 if is_over else 0, **(first | passed))
        for number in range(2, 11):
            extra = (number == 2) + 100 * (number == 2 and second == 0)
            log.interval(0 if is_over else 11 + extra, connection_id=number, stream_id=number)
        amount = 1000 if is_over else 200 if second == 0 else 100
        log.limit(
            amount,
            burst_messages=100.0,
            tokens_messages=-900.0 if is_over else 0.0,
            overflow_messages=0.0,
            throttled_ms=0.0 if is_over else 1000.0,
            largest_entry_messages=1000 if is_over else 1,
        )
        log.second += 1
    (whole,), (days,) = verdicts(log.lines).values(), by_day(log).values()
    assert doubts(days) == doubts(whole) == set()
    assert deficit_s(days) <= 0


@pytest.mark.parametrize("begin_s", [10, -100])
def test_days_count_lines_once_when_a_clock_steps_over_midnight(begin_s: int) -> None:
    log = PlantedLog(begin=MIDNIGHT + timedelta(seconds=begin_s))
    for second in range(begin_s, 20):
        log.limit(700 if second == 15 else 100, tokens_messages=0.0)
        log.second += 1
    log.ahead_s = -40.0
    for _ in range(100):
        log.limit(100, tokens_messages=0.0)
        log.second += 1
    (whole,), (days,) = verdicts(log.lines).values(), by_day(log).values()
    assert days.kept.lines == whole.kept.lines == len(log.lines)
    assert excess(days) >= excess(whole) > 500


def test_a_debt_of_what_was_too_much_is_none_of_the_next_day() -> None:
    log = PlantedLog(begin=MIDNIGHT - timedelta(seconds=10))
    balance = 10.0
    for second in range(20):
        passed = 500 if second == 5 else 100
        balance = min(10.0, balance + 100) - passed if second else 0.0
        log.limit(passed, tokens_messages=balance)
        log.second += 1
    (result,) = by_day(log).values()
    assert excess(result) > 300
    assert result.kept.over is not None
    assert (result.kept.over.times, result.kept.over.longest < MIDNIGHT) == (1, True)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    amounts=st.lists(st.integers(0, 300), min_size=10, max_size=80),
    share=st.floats(0, 1),
    burst=st.sampled_from((10.0, 100.0, 6000.0)),
)
def test_days_miss_no_excess_that_the_whole_log_shows(amounts: list[int], share: float, burst: float) -> None:
    """Of a limiter that lets any amount pass, and is honest about what its bucket holds then."""
    log = PlantedLog()
    balance = burst
    for amount in amounts:
        balance = min(burst, balance + 100) - amount
        log.limit(amount, burst_messages=burst, throttled_ms=0.0, tokens_messages=balance)
        log.second += 1
    log = PlantedLog(lines=at_midnight(log.lines, share))
    (whole,), (days,) = verdicts(log.lines).values(), by_day(log).values()
    if excess(whole) > 2:  # half a message of each day is rounding
        assert excess(days) > 0


def test_doubts_of_one_kind_are_one_however_many_days_have_them() -> None:
    logs = [PlantedLog(begin=MIDNIGHT + timedelta(days=day)) for day in range(3)]
    lines = []
    for log in logs:
        for _ in range(3):
            log.interval(10)
            log.interval(300, limit_levels="", stream_id=9)
            log.limit(10)
            log.second += 1
        lines += log.lines
    log = PlantedLog(lines=[msgspec.structs.replace(line, seq=seq) for seq, line in enumerate(lines)])
    judging = Judging({}, {}, FleetNotes(), Suspicion(summed_of(LIMITED, log), {}))
    facts = judging.figures(judging.parts(rows_of([log])))["outside"]["facts"].to_pylist()
    of_each = [msgspec.msgpack.decode(each, type=DoubtFacts) for each in facts]
    (doubt,) = doubts_of_days(of_each)
    assert (len(of_each), doubt.times, doubt.start) == (3, 9, MIDNIGHT)
