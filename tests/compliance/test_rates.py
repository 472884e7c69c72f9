from datetime import timedelta

import pytest

from compliance.rates import rate_facts
from tests.compliance.planted import TOPIC, PlantedLog, frame

pytestmark = pytest.mark.spark


def rates(spark, log, step_s):
    wanted = spark.createDataFrame([(TOPIC, "publish", step_s)], "topic string, direction string, step_s long")
    return rate_facts(frame(spark, [log], "interval"), wanted).orderBy("step").collect()


def test_a_line_is_spread_over_the_steps_that_it_touches(spark):
    log = PlantedLog()
    log.begin += timedelta(milliseconds=250)
    log.interval(100)
    assert [row.passed_messages for row in rates(spark, log, 1)] == pytest.approx([75, 25])


def test_rates_are_per_second_whatever_the_step(spark):
    log = PlantedLog()
    for _ in range(10):
        log.interval(100)
        log.beat()
    assert [row.passed_messages for row in rates(spark, log, 5)] == [100, 100]


def test_a_line_whose_end_is_before_its_start_counts_once(spark):
    log = PlantedLog()
    log.interval(100, end=log.begin - timedelta(hours=1))
    assert [row.passed_messages for row in rates(spark, log, 1)] == [100]


def test_other_topics_are_left_out(spark):
    log = PlantedLog(topic="persistent://acme/orders/other")
    log.interval(100)
    assert rates(spark, log, 1) == []
