from datetime import timedelta

import pytest

from compliance.stream.runs import complete_up_to, merged, runs_of
from tests.compliance.planted import BEGIN, frame, planted

pytestmark = pytest.mark.spark


def up_to(spark, *logs):
    (row,) = complete_up_to(runs_of(frame(spark, logs))).selectExpr("unix_seconds(complete_up_to) AS s").collect()
    return None if row.s is None else row.s - int(BEGIN.timestamp())


def ended(proxy_id, seconds):
    log = planted(proxy_id, seconds)
    log.beat(last=True)
    return log


def silent(proxy_id):
    log = planted(proxy_id)
    log.limit(1)
    return log


def test_the_slowest_proxy_says_how_far_it_is_complete(spark):
    assert up_to(spark, planted("a", 10), planted("b", 4)) == 4


def test_a_proxy_without_heartbeats_is_complete_up_to_nothing(spark):
    assert up_to(spark, planted("a", 10), silent("b")) is None


def test_one_that_has_ended_holds_nobody_back_and_all_of_them_end_last(spark):
    assert up_to(spark, planted("a", 10), ended("b", 4)) == 10
    assert up_to(spark, ended("a", 7), ended("b", 4)) == 8


def test_a_proxy_is_as_far_as_its_latest_run(spark):
    later = planted("a", 5, boot_id="boot-2", begin=BEGIN + timedelta(seconds=100))
    assert up_to(spark, ended("a", 4), later) == 105


def test_runs_of_two_batches_are_those_of_both_together(spark):
    rows = frame(spark, [ended("a", 10)])
    one, other = (runs_of(rows.where(condition)) for condition in ("seq < 11", "seq >= 11"))
    assert merged(one.unionByName(other)).collect() == runs_of(rows).collect()


def test_copies_are_read_like_other_lines(spark):
    rows = frame(spark, [planted("a", 10)])
    (run,) = merged(runs_of(rows).unionByName(runs_of(rows.where("seq < 5")))).collect()
    assert run.read == 35
