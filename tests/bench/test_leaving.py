"""The book of a crowd of clients, and a crowd at the stand-in broker."""

import time

import pytest

from bench.leaving import CrowdProducer, CrowdSize, StreamCrowd, compared
from tests.loadgen.standin.conftest import running_broker
from tests.waiting import wait_for


def producer(number=0, receipts=()):
    made = CrowdProducer(number, "topic", None)
    made.receipts = list(receipts)
    return made


def test_pause_is_the_time_beyond_the_period():
    stream = producer(receipts=[(0, 1.0), (1, 2.0), (2, 3.4), (3, 4.0)])
    assert stream.longest_pause(0, 4, 1) == pytest.approx(0.4)
    assert stream.longest_pause(3.5, 4, 1) == pytest.approx(-0.4), "the pause was before"


def test_pause_lasts_to_the_end_where_no_receipt_comes():
    assert producer(receipts=[(0, 1.0), (1, 2.0)]).longest_pause(0, 9, 1) == 6


def test_messages_without_arrival_are_lost():
    comparison = compared([(0, 0, 1.1)], [producer(receipts=[(0, 1.0), (1, 2.0)])], 0, 9)
    assert (comparison.lost, comparison.twice, comparison.disordered) == (1, 0, 0)


def test_repeated_messages_are_not_out_of_order():
    arrivals = [(0, 0, 1.1), (0, 1, 2.5), (0, 0, 2.6), (0, 1, 2.7), (0, 2, 3.1)]
    comparison = compared(arrivals, [producer(receipts=[(0, 1.0), (1, 2.0), (2, 3.0)])], 0, 9)
    assert (comparison.lost, comparison.twice, comparison.disordered) == (0, 2, 0)
    assert comparison.longest_wait == pytest.approx(0.5)


def test_messages_after_a_later_one_are_out_of_order():
    arrivals = [(0, 1, 2.5), (1, 0, 2.5), (0, 0, 2.6)]
    assert compared(arrivals, [producer(receipts=[(0, 1.0), (1, 2.0)])], 0, 9).disordered == 1


def test_waits_count_in_their_interval():
    stream = producer(receipts=[(0, 1.0), (1, 5.0), (2, 8.0)])
    arrivals = [(0, 0, 2.0), (0, 1, 5.25), (0, 2, 9.5)]
    assert compared(arrivals, [stream], 3, 7).longest_wait == 0.25


def test_crowd_loses_nothing_where_nothing_leaves():
    with running_broker() as (_, address), StreamCrowd([address], CrowdSize(8, 2, 2, 0.05), "calm") as crowd:
        begun = time.monotonic()
        wait_for(lambda: all(len(each.receipts) > 2 for each in crowd.producers))
        crowd.end()
        sample = crowd.sample(begun, time.monotonic())
    counted = ("failed", "lost", "twice", "disordered", "lines")
    assert {key: sample[key] for key in counted} == dict.fromkeys(counted, 0)
    assert all(len(each.arrivals) > 4 for each in crowd.consumers), "two producers a topic"
