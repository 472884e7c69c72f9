from datetime import timedelta

from compliance.stream import runs
from compliance.stream.runs import Seen, Span, complete_up_to, merged, rfc3339, spans_of
from tests.compliance.arrow import lines_of, seen_of
from tests.compliance.planted import BEGIN, planted

BEGIN_US = int(BEGIN.timestamp()) * 1_000_000


def spans(*logs, only=lambda _: True):
    lines = lines_of(*logs).select([*runs.FIELDS, "seq"])
    return spans_of(lines.filter([only(seq) for seq in lines["seq"].to_pylist()]))


def ended(proxy_id, seconds):
    log = planted(proxy_id, seconds)
    log.beat(last=True)
    return log


def silent(proxy_id):
    log = planted(proxy_id)
    log.limit(1)
    return log


def test_a_run_whose_clock_was_far_ahead_hides_not_the_live_one():
    now = BEGIN + timedelta(minutes=1)
    ahead = planted("a", 5, boot_id="boot-0", begin=BEGIN + timedelta(days=3))
    ahead.beat(last=True)
    found = spans(ahead, planted("a", 10), planted("b", 30))
    assert complete_up_to(found, now) == BEGIN_US + 10_000_000
    assert complete_up_to(found, now + timedelta(days=3)) == BEGIN_US + 30_000_000


def test_a_run_has_its_first_and_last_moment_and_what_its_heartbeats_say():
    log = planted("a", 3)
    log.beat(dropped_lines=2)
    log.interval(1)
    assert spans(log) == {("a", "boot-1"): Span(BEGIN_US, BEGIN_US + 5_000_000, BEGIN_US + 4_000_000, False, 2, 11)}


def test_runs_of_two_batches_are_those_of_both_together():
    log = ended("a", 10)
    parts = [spans(log, only=lambda seq: seq < 11), spans(log, only=lambda seq: seq >= 11)]
    assert merged(parts) == merged(reversed(parts)) == spans(log)


def test_copies_are_read_like_other_lines():
    log = planted("a", 10)
    assert merged([spans(log), spans(log, only=lambda seq: seq < 5)])["a", "boot-1"].read == 35


def test_what_is_kept_is_what_was_found_with_the_lines_that_are_there():
    log, other = planted("a", 3), silent("b")
    del log.lines[2]
    kept = runs.table(spans(log, other), seen_of(log, other))
    assert runs.of(kept) == spans(log, other)
    assert [(row["proxy_id"], row["there"], row["missing"]) for row in kept.to_pylist()] == [("a", 8, 1), ("b", 1, 0)]
    assert runs.table({}, Seen()).schema == kept.schema == runs.RUNS_SCHEMA


def test_a_time_is_told_to_the_microsecond_before_1970_too():
    assert rfc3339(BEGIN_US + 5) == "2026-11-21T11:29:00.000005Z"
    assert rfc3339(-1) == "1969-12-31T23:59:59.999999Z"
