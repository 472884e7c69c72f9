import sys
from unittest.mock import Mock

import pytest

from loadgen.bench_limits import trial
from loadgen.bench_limits.errors import BenchError
from loadgen.bench_limits.orders import LaneOrder, Order
from loadgen.bench_limits.peers import Peer
from loadgen.bench_limits.publisher import WARM_UP
from loadgen.bench_limits.rest import Rest
from loadgen.bench_limits.trial import Stage, by_lane
from loadgen.load.payload import Stamp, make_payload
from loadgen.real.process import TetheredProcess

RUN = b"this run"
ORDER = Order("", RUN, [LaneOrder(client="c", topic="t", index=index, end_s=1) for index in (1, 2)], 0.0)


def message(producer: int, run: bytes = RUN) -> bytes:
    return make_payload(Stamp(run, producer, 0), 100)


def test_arrivals_are_told_apart_by_lane_and_counted_from_second_0():
    arrived = [(10.5, message(1)), (10.75, message(2)), (11.0, message(1))]
    assert by_lane(arrived, ORDER, 10.0) == {1: [0.5, 1.0], 2: [0.75]}


def test_warming_up_and_other_runs_are_left_out():
    arrived = [(9.0, message(WARM_UP)), (10.5, message(1, run=b"that run"))]
    assert by_lane(arrived, ORDER, 10.0) == {1: [], 2: []}


@pytest.fixture
def stage(tmp_path) -> Stage:
    limits = Mock(spec=Rest)
    return Stage(Peer("peer", "pulsar://p", limits, "grouped"), "pulsar://b", Mock(spec=Rest), tmp_path)


def test_each_topic_has_a_namespace_of_its_own_that_the_peer_limits(stage):
    limited, free = stage.topic(500), stage.topic(None)
    assert limited.name != free.name
    stage.peer.limits.limit_publishing.assert_called_once_with(limited.namespace, 500)
    assert [call.args for call in stage.broker.make_namespace.call_args_list] == [
        (limited.namespace,),
        (free.namespace,),
    ]


def test_deliveries_are_limited_at_the_peer_and_only_where_wanted(stage):
    by_messages, by_bytes, free = stage.dispatch_topic(500), stage.dispatch_topic(size=1000), stage.dispatch_topic()
    assert [call.args for call in stage.peer.limits.limit_dispatch.call_args_list] == [
        (by_messages.namespace, 500, -1),
        (by_bytes.namespace, -1, 1000),
    ]
    assert len({by_messages.name, by_bytes.name, free.name}) == 3
    stage.peer.limits.limit_publishing.assert_not_called()


def test_topics_of_a_resource_group_share_its_namespace_and_nothing_else(stage):
    one, other = stage.grouped_topic(), stage.grouped_topic()
    assert one.namespace == other.namespace == "grouped"
    assert one.name != other.name


def test_publishers_that_end_early_are_told_with_their_last_word(tmp_path):
    process = TetheredProcess([sys.executable, "-c", "print('no such broker')"], tmp_path / "log")
    with pytest.raises(BenchError, match=r"^the publishers ended early: no such broker$"):
        trial._await(process, tmp_path / "never", 20)
    process.kill()


def test_publishers_that_hang_are_not_waited_for_for_ever(tmp_path):
    process = TetheredProcess([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")
    with pytest.raises(BenchError, match=r"^the publishers do not get on: they said nothing$"):
        trial._await(process, tmp_path / "never", 0)
    process.kill()
