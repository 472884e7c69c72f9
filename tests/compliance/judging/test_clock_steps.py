from datetime import timedelta

import pytest

from compliance.judging.clock_steps import steps_back, with_epoch
from tests.compliance.judging.checked import crosschecked
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def epochs(spark, log):
    lines = frame(spark, [log])
    return [row.epoch for row in with_epoch(lines, steps_back(lines, lines)).orderBy("seq").collect()]


def put_back(log, seconds):
    log.begin -= timedelta(seconds=seconds)


def test_a_clock_that_goes_on_or_ahead_has_one_time(spark):
    log = PlantedLog()
    log.beat()
    log.beat(end=log._head["end"] + timedelta(seconds=5))
    put_back(log, -5)
    log.beat()
    assert epochs(spark, log) == [0, 0, 0]


def test_lines_behind_a_step_between_heartbeats_are_of_another_time(spark):
    log = PlantedLog()
    log.tick(10)
    put_back(log, 30)
    log.tick(10)
    assert epochs(spark, log) == [0, 0, 0, 1, 1, 1]


def test_a_line_within_which_the_clock_steps_is_alone(spark):
    log = PlantedLog()
    log.tick(10)
    back = log._head["end"] - timedelta(seconds=30)
    log.interval(10, end=back)
    log.limit(10, end=back)
    log.beat(end=back)
    put_back(log, 30)
    log.tick(10)
    assert epochs(spark, log) == [0, 0, 0, 1, 2, 3, 3, 3, 3]


def test_what_passed_before_a_step_is_not_held_against_the_limit_behind_it(spark):
    log = PlantedLog()
    for second in range(12):
        if second == 6:
            put_back(log, 5)
        log.tick(100)
    (row,) = crosschecked(spark, [log]).collect()
    assert row.excess < 0
