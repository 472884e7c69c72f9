"""The lanes with a sender that keeps what it is given; the process with the official client and the stand-in broker."""

import subprocess
import sys
from typing import Any

from bench.limits.publisher import PacedLane
from bench.limits.trial import (
    LaneOrder,
    LaneResult,
    Result,
    TrialOrder,
    began_file,
    order_file,
    read,
    result_file,
    write,
)
from loadgen.load.offering import Lane, MessageOrigin, Settle

RUN = b"this run"


class KeepingSender:
    def __init__(self) -> None:
        self.waiting: list[Settle] = []

    def send(self, payload: bytes, settle: Settle) -> None:
        self.waiting.append(settle)


def paced(order: LaneOrder) -> tuple[PacedLane, KeepingSender]:
    sender = KeepingSender()
    return PacedLane(order, Lane(MessageOrigin(RUN, order.index, 100, order.pending), sender, lambda: 0.0)), sender


def order(**differing: Any) -> LaneOrder:
    return LaneOrder(**{"client": "c", "topic": "t", "index": 1, "end_s": 10.0, **differing})


def test_a_greedy_lane_fills_its_queue_at_once_and_again_when_receipts_come():
    lane, sender = paced(order(pending=50))
    lane.offer_due(0.0)
    lane.offer_due(0.01)
    assert len(sender.waiting) == 50
    for settle in sender.waiting[:20]:
        settle("")
    lane.offer_due(0.02)
    assert len(sender.waiting) == 70


def test_a_paced_lane_keeps_its_pace_whatever_comes_back():
    lane, sender = paced(order(rate=200, pending=20_000, begin_s=1.0))
    for tick in range(601):
        lane.offer_due(tick * 0.005)
    assert len(sender.waiting) == 401


def test_nothing_is_offered_outside_of_a_lane_s_span():
    lane, sender = paced(order(begin_s=1.0, end_s=2.0))
    lane.offer_due(0.999)
    lane.offer_due(2.0)
    assert sender.waiting == []


def test_a_batch_is_offered_at_once_and_no_more_after_it():
    lane, sender = paced(order(most=20, batch=20))
    lane.offer_due(0.0)
    lane.offer_due(0.005)
    for tick in range(10):
        lane.offer_due(tick * 0.1)
    assert len(sender.waiting) == 20


def test_what_came_of_a_lane_is_told():
    lane, sender = paced(order(most=3))
    lane.offer_due(0.0)
    lane.offer_due(1.0)
    sender.waiting[0]("")
    sender.waiting[1]("Timeout")
    assert lane.result() == LaneResult(1, [0.0], 1, {"Timeout": 1})


def publish(folder, lanes: list[LaneOrder], service_url: str) -> subprocess.CompletedProcess[str]:
    write(order_file(folder), TrialOrder(service_url, RUN, lanes, 10.0))
    command = [sys.executable, "-m", "bench.limits.publisher", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_process_publishes_every_lane_and_tells_when_it_began(tmp_path, service_url):
    topic = "persistent://public/default/t"
    lanes = [
        order(topic=topic, index=0, most=20, batch=20, end_s=0.2),
        order(topic=topic, index=1, most=2, batch=20, begin_s=0.1, end_s=0.2),
        order(topic=topic, index=2, most=5, client="other", end_s=0.2),
    ]
    done = publish(tmp_path, lanes, service_url)
    assert done.returncode == 0, done.stderr
    assert read(began_file(tmp_path), float) > 0
    result = read(result_file(tmp_path), Result)
    assert result.longest_pause_s > 0
    assert [(lane.index, len(lane.latencies), lane.unsettled) for lane in result.lanes] == [
        (0, 20, 0),
        (1, 2, 0),
        (2, 5, 0),
    ]


def test_an_address_that_is_none_is_one_line(tmp_path):
    done = publish(tmp_path, [order()], "nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("'nowhere': ")
    assert len(done.stderr.splitlines()) == 1
    assert not began_file(tmp_path).exists()
