from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.stream.ledger import (
    GAPS,
    MOST_GAPS,
    RUNS,
    DayFacts,
    complete_up_to,
    facts_of,
    first_day_of_now,
    gap_table,
    joined,
    ranges_of,
    rfc3339,
    run_table,
    summary,
    total,
    union,
    with_copies,
)
from tests.compliance.arrow import rows_of, runs_of
from tests.compliance.planted import BEGIN, planted

BEGIN_US = int(BEGIN.timestamp()) * 1_000_000
NUMBERS = st.lists(st.integers(0, 30) | st.integers(2**63 - 3, 2**63 - 1), max_size=20)


def day_of(log, only=lambda _: True):
    """The facts of a log that is of one day."""
    rows = rows_of(log)
    (facts,) = facts_of(rows.filter([only(seq) for seq in rows["seq"].to_pylist()])).values()
    return facts


def ended(proxy_id, seconds, **names):
    log = planted(proxy_id, seconds, **names)
    log.beat(last=True)
    return log


@given(many=st.lists(NUMBERS, max_size=5))
def test_ranges_hold_the_numbers_that_were_seen(many):
    ranges = union(*(ranges_of(np.array(numbers, np.int64)) for numbers in many))
    seen = sorted({number for numbers in many for number in numbers})
    assert [number for first, last in ranges for number in range(first, last + 1)] == seen
    assert all(later[0] - 1 > earlier[1] for earlier, later in pairwise(ranges))


@given(cuts=st.lists(st.integers(0, 32), max_size=4))
def test_facts_of_parts_add_up_in_any_order(cuts):
    log = ended("a", 10)
    bounds = sorted({0, 31, *(cut for cut in cuts if cut < 31)})
    parts = [day_of(log, lambda seq, first=first, last=last: first <= seq < last) for first, last in pairwise(bounds)]
    assert total(parts) == total(reversed(parts)) == reduce(DayFacts.__add__, parts) == day_of(log)


def test_a_run_has_its_times_and_what_its_heartbeats_say():
    log = planted("a", 3)
    log.beat(dropped_lines=2)
    log.interval(1)
    del log.lines[2]
    (facts,) = runs_of(log).values()
    assert (facts.first, facts.last, facts.complete_up_to) == (BEGIN_US, BEGIN_US + 5_000_000, BEGIN_US + 4_000_000)
    assert (facts.has_ended, facts.dropped_lines, facts.read, facts.there, facts.missing) == (False, 2, 10, 10, 1)
    assert list(facts.gaps()) == [(1, 1)]


def test_losses_that_proxies_declare_are_counted():
    log = planted("a", 1)
    log.loss("boot-0", 5)
    log.loss("boot-0", None)
    facts = day_of(log)
    assert (facts.losses, facts.lost, facts.rows) == (2, 5, 5)


def test_rows_are_of_the_day_and_hour_in_which_they_start():
    log = planted("a", begin=BEGIN.replace(hour=23, minute=59, second=58))
    for _ in range(3):
        log.tick(1)
    days = facts_of(rows_of(log))
    assert {day: facts.rows for day, facts in days.items()} == {"2026-11-21": 6, "2026-11-22": 3}
    hour = BEGIN_US // 3_600_000_000 + 12
    assert [facts.hours for facts in days.values()] == [[hour], [hour + 1]]


def test_files_with_numbers_in_common_are_named_and_no_others():
    log = planted("a", 10)
    of_range = {
        name: [day_of(log, lambda seq, first=first, last=last: first <= seq < last)]
        for name, first, last in (("a", 0, 10), ("b", 10, 20), ("c", 19, 25), ("d", 25, 30))
    }
    assert with_copies(of_range) == {"b", "c"}
    assert with_copies({"a": of_range["a"], "d": of_range["d"], "other": [day_of(planted("b", 3))]}) == set()
    assert with_copies({"twice": [day_of(log), day_of(log)]}) == {"twice"}
    inside = {"all": [day_of(log)], "one": of_range["c"], "later": of_range["d"]}
    assert with_copies(inside) == {"all", "one", "later"}


def test_a_run_whose_clock_was_far_ahead_hides_not_the_live_one():
    now = BEGIN + timedelta(minutes=1)
    runs = runs_of(ended("a", 5, boot_id="boot-0", begin=BEGIN + timedelta(days=3)), planted("a", 10), planted("b", 30))
    assert complete_up_to(runs, now) == BEGIN_US + 10_000_000
    assert complete_up_to(runs, now + timedelta(days=3)) == BEGIN_US + 30_000_000


@pytest.mark.parametrize(("day", "is_over"), [("2026-11-20", True), ("2026-11-21", False), ("9999-12-31", False)])
def test_a_day_is_over_when_all_runs_are_in_a_later_one(day, is_over):
    log = planted("a", 10)
    assert (day < first_day_of_now(runs_of(log), BEGIN)) == is_over
    assert day >= first_day_of_now(runs_of(log, silent("b")), BEGIN)


def test_a_day_without_a_word_of_a_run_is_over_after_two():
    log, day = planted("a", 10), BEGIN.date().isoformat()
    for runs in (runs_of(log, silent("b")), {}):
        assert [day < first_day_of_now(runs, BEGIN + timedelta(days=days)) for days in (1, 2, 3)] == [
            False,
            False,
            True,
        ]


def test_runs_may_have_to_be_past_a_day_for_a_while():
    log = planted("a", 10, begin=BEGIN.replace(hour=0, minute=0, second=0))
    now, day = BEGIN, (BEGIN - timedelta(days=1)).date().isoformat()
    margins = [timedelta(seconds=seconds) for seconds in (0, 10, 11)]
    assert [day < first_day_of_now(runs_of(log), now, margin) for margin in margins] == [True, True, False]


def silent(proxy_id):
    log = planted(proxy_id)
    log.limit(1)
    return log


def test_the_last_moment_of_9999_is_a_time_like_others():
    log = planted("a", begin=datetime(9999, 12, 31, 23, 59, 58, tzinfo=UTC))
    log.beat()
    day_summary = summary({"9999-12-31": day_of(log)}, BEGIN)
    assert day_summary.runs[0].last == "9999-12-31T23:59:59.000000Z"


def test_tables_of_runs_and_gaps_have_what_is_missing():
    log, other = planted("a", 3), silent("b")
    del log.lines[2]
    runs = runs_of(log, other)
    table = run_table(runs, {run: span.missing for run, span in runs.items()})
    assert [(row["proxy_id"], row["there"], row["missing"]) for row in table.to_pylist()] == [("a", 8, 1), ("b", 1, 0)]
    assert [tuple(row.values()) for row in gap_table(runs).to_pylist()] == [("a", "boot-1", 1, 1)]
    assert (run_table({}, {}).schema, gap_table({}).schema) == (RUNS, GAPS)


def test_summary_counts_each_line_once_and_names_first_gaps():
    log = planted("a", 100)
    day = day_of(log, lambda seq: seq % 2 == 1) + day_of(log, lambda seq: seq < 3) + DayFacts(malformed=7)
    day_summary = summary({"2026-11-21": day}, BEGIN + timedelta(minutes=5))
    # Lines 0 to 2 and all odd ones.
    assert (
        day_summary.lines,
        day_summary.rows,
        day_summary.malformed,
        day_summary.duplicates,
        day_summary.missing,
    ) == (160, 152, 7, 1, 148)
    assert (len(day_summary.gaps), day_summary.gaps[0].after_seq, day_summary.gaps[0].missing) == (MOST_GAPS, 3, 1)
    assert (day_summary.days, day_summary.complete_up_to) == (["2026-11-21"], "2026-11-21T11:30:40.000000Z")


def test_facts_of_many_files_are_joined():
    logs = [planted(f"p-{number}", 1) for number in range(7)]
    assert set(joined(runs_of(log) for log in logs)) == {(f"p-{number}", "boot-1") for number in range(7)}


def test_a_time_is_written_to_the_microsecond_before_1970_too():
    assert rfc3339(BEGIN_US + 5) == "2026-11-21T11:29:00.000005Z"
    assert rfc3339(-1) == "1969-12-31T23:59:59.999999Z"
