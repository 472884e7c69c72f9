from datetime import timedelta

import pytest

from compliance.judging.clocks import axes_of, beat_pairs, step_facts, with_axis
from tests.compliance.arrow import kept_of
from tests.compliance.judging.pure import axis_of, on_axis
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def stepped(spark, log):
    """The steps that are found, and the spans of all lines on the axis, in seconds since its begin."""
    lines, (_, gaps) = frame(spark, [log]), kept_of(spark, log)
    beats = lines.where("kind = 'heartbeat'")
    found, pairs = step_facts(beats, gaps), beat_pairs(beats, gaps)
    rows = with_axis(lines, axes_of(pairs, lines.where("kind in ('interval', 'limit')"))).orderBy("seq").collect()
    begin = rows[0].start_us
    spans = [((row.start_us - begin) / 1e6, (row.end_us - begin) / 1e6) for row in rows]
    return [(row.from_seq, row.size_s) for row in found.orderBy("from_seq").collect()], spans


def ahead(log, seconds):
    log.begin += timedelta(seconds=seconds)


def test_a_clock_that_goes_on_has_no_steps(spark):
    log = PlantedLog()
    for _ in range(3):
        log.beat()
    assert stepped(spark, log) == ([], [(0, 1), (1, 2), (2, 3)])


@pytest.mark.parametrize("seconds", [3600, -30])
def test_a_step_between_heartbeats_is_found_with_its_size_and_changes_no_length(spark, seconds):
    log = PlantedLog()
    log.tick(10)
    ahead(log, seconds)
    log.tick(10)
    assert stepped(spark, log) == ([(3, seconds)], [(0, 1)] * 3 + [(1, 2)] * 3)


@pytest.mark.parametrize("seconds", [3600, 1.5, -5, -3600])
def test_lines_that_ended_before_a_step_are_of_the_old_time(spark, seconds):
    """The step is made between the lines of an interval and the heartbeat behind them."""
    log = PlantedLog()
    log.tick(10)
    log.interval(10)
    log.limit(10)
    ahead(log, seconds)
    log.beat()
    log.tick(10)
    assert stepped(spark, log) == ([(3, seconds)], [(0, 1)] * 3 + [(1, 2)] * 3 + [(2, 3)] * 3)


@pytest.mark.parametrize("seconds", [5, -30])
def test_a_step_within_lines_is_found_too(spark, seconds):
    log = PlantedLog()
    log.tick(10)
    end = log._head["end"] + timedelta(seconds=seconds)
    log.interval(10, end=end)
    log.limit(10, end=end)
    log.beat(end=end)
    ahead(log, seconds)
    log.tick(10)
    assert stepped(spark, log) == ([(3, seconds)], [(0, 1)] * 3 + [(1, 2)] * 3 + [(2, 3)] * 3)


@pytest.mark.parametrize("seconds", [0.15, -60])
def test_steps_that_cancel_between_two_heartbeats_are_found_by_lines(spark, seconds):
    log = PlantedLog()
    log.beat()
    for from_s, until_s in ((0, 0), (0, seconds), (seconds, 0), (0, 0)):
        at = log.begin + timedelta(seconds=log.second)
        times = {"start": at + timedelta(seconds=from_s), "end": at + timedelta(seconds=1 + until_s)}
        log.interval(10, duration_ms=1000.0, **times)
        log.limit(10, duration_ms=1000.0, **times)
        log.second += 1
    log.beat(start=log.begin + timedelta(seconds=1), end=log.begin + timedelta(seconds=5), duration_ms=4000.0)
    spans = [(0, 1), *((second, second + 1) for second in (1, 2, 3, 4) for _ in range(2)), (1, 5)]
    assert stepped(spark, log) == ([], spans)


def test_time_in_which_lines_are_missing_is_no_step(spark):
    log = PlantedLog()
    for _ in range(10):
        log.beat()
    log.lines = [*log.lines[:3], *log.lines[7:]]
    assert stepped(spark, log)[0] == []


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
    found, spans = stepped(spark, log)
    assert [size for _, size in found] == pytest.approx(list(moments.values()))
    axis, begin = axis_of(log.lines), on_axis(axis_of(log.lines), log.lines[0])[0]
    assert spans == [tuple((at - begin) / 1e6 for at in on_axis(axis, line)) for line in log.lines]
    counted = [(line, span) for line, span in zip(log.lines, spans, strict=True) if line.duration_ms < 3000]
    assert [end - start for _, (start, end) in counted] == [line.duration_ms / 1e3 for line, _ in counted]
