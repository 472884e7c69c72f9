from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from accesslog.record import LossLine
from compliance.judging import quality
from compliance.judging.clocks import CLOCK_SPANS, CLOCK_STEPS, step_facts
from tests.compliance.arrow import kept_of, lines_of, summed_of
from tests.compliance.planted import BEGIN, PlantedLog, exact_log


def log_without(*numbers, **names):
    log = exact_log(10, **names)
    log.lines = [line for line in log.lines if line.seq not in numbers]
    return log


def dropping():
    """The proxy says that it dropped lines, although the numbers have no gap yet."""
    log = exact_log(9, proxy_id="dropping")
    log.beat(dropped_lines=2)
    return log


def pausing():
    """The wall clock goes five seconds ahead: no line is missing, and no time."""
    log = exact_log(5, proxy_id="pausing")
    log.ahead_s += 5
    log.interval(1)
    log.beat()
    return log


def open_tail():
    """Lines of a second whose heartbeat is not written yet."""
    log = exact_log(10, proxy_id="open tail")
    log.interval(1)
    return log


def changing():
    """A limit is changed in the middle, another one at the end."""
    log = exact_log(5, proxy_id="changing")
    log.change()
    for _ in range(5):
        log.tick(100)
    log.change(before="x", after=None)
    return log


@pytest.fixture(scope="module")
def runs():
    logs = [
        exact_log(10, proxy_id="whole"),
        log_without(4, proxy_id="gap"),
        log_without(0, proxy_id="headless"),
        log_without(*range(27, 30), proxy_id="tailless"),
        dropping(),
        pausing(),
        open_tail(),
        changing(),
    ]
    return {run.proxy_id: run for run in facts_of(*logs)}


def facts_of(*logs):
    sums = {"ends": quality.ENDS, "beats": quality.BEATS, "losses": quality.LOSSES}
    runs, gaps = kept_of(*logs)
    return quality.run_facts(runs, gaps, {name: summed_of(sum_, *logs) for name, sum_ in sums.items()}, {})


def steps_of(lines):
    """The sizes of the steps of clocks, as of two tasks with a half of the lines each, and of one with all lines."""
    halves = [lines.slice(0, len(lines) // 2), lines.slice(len(lines) // 2)]
    for parts in (halves, halves[::-1], [lines], [lines.take(list(range(start, len(lines), 2))) for start in (0, 1)]):
        steps = step_facts(CLOCK_STEPS.of(*parts), CLOCK_SPANS.of(*parts))
        yield [(step.size_s, step.line.seq) for step in sorted(steps, key=lambda step: step.last)]


@pytest.mark.parametrize(
    ("proxy_id", "missing", "coverage"),
    [
        ("whole", 0, 1.0),
        ("gap", 1, 0.9),
        ("headless", 1, 0.9),
        # What was never written after the last line cannot be missed: the log is complete up to there.
        ("tailless", 0, 1.0),
        ("dropping", 0, 0.9),
        ("pausing", 0, 1.0),
        ("open tail", 0, 1.0),
        ("changing", 0, 1.0),
    ],
)
def test_coverage_is_the_share_of_time_with_all_lines(runs, proxy_id, missing, coverage):
    assert runs[proxy_id].missing == missing
    assert runs[proxy_id].coverage == pytest.approx(coverage)


def test_complete_up_to_is_the_last_heartbeats_end(runs):
    end = BEGIN + timedelta(seconds=10)
    assert runs["open tail"].complete_up_to == end
    assert runs["open tail"].last > end


def test_a_change_is_neither_a_gap_nor_a_step_of_the_clock(runs):
    assert runs["changing"].lines == 32
    assert list(steps_of(lines_of([changing()]))) == [[]] * 4
    assert runs["changing"].complete_up_to == runs["whole"].complete_up_to


def test_gaps_are_placed():
    log = log_without(0, 4, 5)
    _, gaps = kept_of(log)
    rows = quality.gap_facts(gaps, summed_of(quality.after_gaps(gaps), log))
    until = [BEGIN, BEGIN + timedelta(seconds=2)]
    assert [(row.after_seq, row.missing) for row in rows] == [(-1, 1), (3, 2)]
    assert [row.until for row in rows] == until
    # Each planted line stands in the file as its number says: the first line has number 0.
    assert [(row.behind.file, row.behind.line) for row in rows] == [("a.jsonl", 2), ("a.jsonl", 7)]


def test_a_stepped_wall_clock_is_found_whichever_task_reads_it():
    log = PlantedLog()
    for ahead_s in (0, 0, -10, -10, 0, 0):
        log.ahead_s = ahead_s
        log.beat()
    there_and_back = [(-10.0, 2), (10.0, 4)]
    assert list(steps_of(lines_of([log]))) == [there_and_back] * 4


def test_lost_lines_that_a_proxy_declares_make_a_run_lossy():
    log = exact_log(2)
    for of_boot, lost_lines in (("boot-1", None), ("boot-2", 0)):
        lost: dict[str, Any] = {"of_boot": of_boot, "cause": "disk", "detail": "full", "lost_lines": lost_lines}
        log.add(LossLine, **lost, first_seq=3, last_seq=None, lost_from=BEGIN, lost_until=BEGIN)
    other = exact_log(2, boot_id="boot-2")
    assert {run.boot_id: run.is_lossy for run in facts_of(log, other)} == {"boot-1": True, "boot-2": False}


def test_only_a_newer_version_of_a_known_kind_may_hide_facts():
    kinds = [("limit (version 2)",), ("weather (version 2)",), ("weather",), ("heartbeat",), ("my limit (version 2)",)]
    lines = pa.Table.from_pylist(
        [{"proxy_id": "p", "boot_id": "b", "seq": seq, "kind": kind} for seq, (kind,) in enumerate(kinds)]
    )
    unknown = {(row["kind"], row["is_newer"]) for row in quality.UNKNOWN.of(lines).to_pylist()}
    assert unknown == {(kind, kind == "limit (version 2)") for (kind,) in kinds if kind != "heartbeat"}
