from datetime import timedelta
from typing import Any

import pytest

from compliance.judging.clocks import axes_of, beat_pairs, step_facts, with_axis
from tests.compliance.arrow import kept_of
from tests.compliance.judging.pure import axis_of, on_axis
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def stepped(spark, *logs):
    """By proxy, the steps that are found, and the spans of all its lines on the axis, in seconds since its begin.

    A query costs seconds, whatever it reads: logs of different proxies are read in one.
    """
    lines, (_, gaps) = frame(spark, logs), kept_of(spark, *logs)
    beats = lines.where("kind = 'heartbeat'")
    facts, pairs = step_facts(beats, gaps).orderBy("from_seq").collect(), beat_pairs(beats, gaps)
    rows = with_axis(lines, axes_of(pairs, lines.where("kind in ('interval', 'limit')"))).orderBy("seq").collect()
    found = {}
    for proxy in (log.proxy_id for log in logs):
        own = [row for row in rows if row.proxy_id == proxy]
        begin = own[0].start_us
        spans = [((row.start_us - begin) / 1e6, (row.end_us - begin) / 1e6) for row in own]
        found[proxy] = [(fact.from_seq, fact.size_s) for fact in facts if fact.proxy_id == proxy], spans
    return found


def ahead(log, seconds):
    log.begin += timedelta(seconds=seconds)


def test_a_clock_that_goes_on_has_no_steps(spark):
    log = PlantedLog("steady")
    for _ in range(3):
        log.beat()
    assert stepped(spark, log) == {"steady": ([], [(0, 1), (1, 2), (2, 3)])}


def stepped_between_heartbeats(log, seconds):
    log.tick(10)
    ahead(log, seconds)
    log.tick(10)
    return [(3, seconds)], [(0, 1)] * 3 + [(1, 2)] * 3


THREE_TICKS = [(0, 1)] * 3 + [(1, 2)] * 3 + [(2, 3)] * 3


def stepped_behind_lines(log, seconds):
    """Between the lines of an interval and the heartbeat behind them: the lines are of the old time."""
    log.tick(10)
    log.interval(10)
    log.limit(10)
    ahead(log, seconds)
    log.beat()
    log.tick(10)
    return [(3, seconds)], THREE_TICKS


def stepped_within_lines(log, seconds):
    log.tick(10)
    end = log._head["end"] + timedelta(seconds=seconds)
    log.interval(10, end=end)
    log.limit(10, end=end)
    log.beat(end=end)
    ahead(log, seconds)
    log.tick(10)
    return [(3, seconds)], THREE_TICKS


def stepped_there_and_back(log, seconds):
    """Between two heartbeats, which show nothing of it: lines do."""
    log.beat()
    for from_s, until_s in ((0, 0), (0, seconds), (seconds, 0), (0, 0)):
        at = log.begin + timedelta(seconds=log.second)
        times = {"start": at + timedelta(seconds=from_s), "end": at + timedelta(seconds=1 + until_s)}
        log.interval(10, duration_ms=1000.0, **times)
        log.limit(10, duration_ms=1000.0, **times)
        log.second += 1
    log.beat(start=log.begin + timedelta(seconds=1), end=log.begin + timedelta(seconds=5), duration_ms=4000.0)
    return [], [(0, 1), *((second, second + 1) for second in (1, 2, 3, 4) for _ in range(2)), (1, 5)]


STEPS = {
    stepped_between_heartbeats: (3600, -30),
    stepped_behind_lines: (3600, 1.5, -5, -3600),
    stepped_within_lines: (5, -30),
    stepped_there_and_back: (0.15, -60),
}


def test_each_step_is_found_with_its_size_where_it_was_made_and_changes_no_length(spark):
    """Of proxies whose clocks are stepped, each in its own way, one whose clock goes on, and one that lost lines."""
    steady, lossy = PlantedLog("steady"), PlantedLog("lossy")
    for _ in range(10):
        steady.beat()
        lossy.beat()
    lossy.lines = [*lossy.lines[:3], *lossy.lines[7:]]
    kept = [(second, second + 1) for second in range(10)]
    logs = [steady, lossy]
    expected: dict[str, Any] = {"steady": ([], kept), "lossy": ([], kept[:3] + kept[7:])}
    for made, sizes in STEPS.items():
        for seconds in sizes:
            log = PlantedLog(f"{made.__name__} by {seconds}")
            expected[log.proxy_id] = made(log, seconds)
            logs.append(log)
    assert stepped(spark, *logs) == expected


def test_spark_places_lines_as_plain_python_does(spark):
    """Steps within lines and between them, heartbeats that are far apart, and lines that began before a step."""
    log, moments = PlantedLog(), {5.5: -3, 13: 7, 22.25: -0.4}
    origin, beaten = log.begin, 0

    def wall(second):
        return origin + timedelta(seconds=second + sum(size for at, size in moments.items() if at < second))

    for second in range(30):
        if second not in (12, 13):
            times = {"start": wall(second), "end": wall(second + 1)}
            log.interval(10, **times)
            log.limit(10, **times)
            log.limit(10, start=wall(second - 1), end=wall(second + 1), duration_ms=2000.0)
        if second % 5 == 4:
            log.beat(start=wall(beaten), end=wall(second + 1), duration_ms=1000.0 * (second + 1 - beaten))
            beaten, log.second = second + 1, second
        log.second += 1
    found, spans = stepped(spark, log)[log.proxy_id]
    assert [size for _, size in found] == pytest.approx(list(moments.values()))
    axis, begin = axis_of(log.lines), on_axis(axis_of(log.lines), log.lines[0])[0]
    assert spans == [tuple((at - begin) / 1e6 for at in on_axis(axis, line)) for line in log.lines]
    counted = [(line, span) for line, span in zip(log.lines, spans, strict=True) if line.duration_ms < 3000]
    assert [end - start for _, (start, end) in counted] == [line.duration_ms / 1e3 for line, _ in counted]
