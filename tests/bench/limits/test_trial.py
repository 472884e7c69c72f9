"""Orders, both peers, topics, the rounds."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from adminrest.client import AdminClient
from bench.harness import BenchError, Figure, Row
from bench.limits import trial
from bench.limits.publisher import WARM_UP
from bench.limits.trial import (
    PEERS,
    LaneOrder,
    LimitsRow,
    Peer,
    TrialOrder,
    TrialStage,
    TrialTopic,
    await_ready,
    by_lane,
    by_turns,
    measure,
    sluice,
)
from loadgen.load.payload import Stamp, make_payload
from loadgen.real.process import TetheredProcess

RUN = b"this run"
ORDER = TrialOrder("", RUN, [LaneOrder(client="c", topic="t", index=index, end_s=1) for index in (1, 2)], 0.0)


def message(producer: int, run: bytes = RUN) -> bytes:
    return make_payload(Stamp(run, producer, 0), 100)


def test_arrivals_are_told_apart_by_lane_and_counted_from_second_0():
    arrived = [(10.5, message(1)), (10.75, message(2)), (11.0, message(1))]
    assert by_lane(arrived, ORDER, 10.0) == {1: [0.5, 1.0], 2: [0.75]}


def test_warming_up_and_other_runs_are_left_out():
    arrived = [(9.0, message(WARM_UP)), (10.5, message(1, run=b"that run"))]
    assert by_lane(arrived, ORDER, 10.0) == {1: [], 2: []}


@pytest.fixture
def stage(tmp_path) -> TrialStage:
    limits = Mock(spec=AdminClient)
    return TrialStage(Peer("peer", "pulsar://p", limits, "grouped"), "pulsar://b", Mock(spec=AdminClient), tmp_path)


def told(rest):
    return [call.args for call in rest.call.call_args_list]


def test_each_topic_has_a_namespace_of_its_own_that_the_peer_limits(stage):
    limited, free = stage.topic(500), stage.topic(None)
    assert limited.name != free.name
    rate = {"publishThrottlingRateInMsg": 500, "publishThrottlingRateInByte": -1}
    limit = f"/admin/v2/namespaces/bench/{limited.namespace}/publishRate"
    assert told(stage.peer.limits) == [("POST", limit, rate)]
    made = [call.args for call in stage.broker.make_namespace.call_args_list]
    assert made == [(f"bench/{limited.namespace}",), (f"bench/{free.namespace}",)]


def test_deliveries_are_limited_at_the_peer_and_only_where_wanted(stage):
    by_messages, by_bytes, free = stage.dispatch_topic(500), stage.dispatch_topic(size=1000), stage.dispatch_topic()
    assert told(stage.peer.limits) == [
        (
            "POST",
            f"/admin/v2/namespaces/bench/{topic.namespace}/dispatchRate",
            {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": size, "ratePeriodInSecond": 1},
        )
        for topic, messages, size in ((by_messages, 500, -1), (by_bytes, -1, 1000))
    ]
    assert len({by_messages.name, by_bytes.name, free.name}) == 3


def test_a_connection_is_one_whoever_publishes_on_it(stage):
    seen = [("/127.0.0.1:5", "10:00"), ("/127.0.0.1:5", "10:00"), ("/127.0.0.1:6", "10:01")]
    publishers = [{"address": address, "connectedSince": since} for address, since in seen]
    stage.broker.stats.return_value = {"publishers": publishers}
    assert stage.publishers("persistent://bench/n/t") == {"/127.0.0.1:5 10:00", "/127.0.0.1:6 10:01"}


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


def test_sluice_is_ready_while_it_is_measured_and_gone_afterwards(tmp_path, service_url):
    with sluice(tmp_path, service_url) as peer:
        assert peer.name == "through Sluice"
        stage = TrialStage(peer, service_url, peer.limits, tmp_path)
        stage.limit(TrialTopic("n1"), 10)
        assert peer.grouped == "grouped-by-sluice"
    assert not peer.limits.is_ready()


def test_sluice_that_does_not_start_is_one_line(tmp_path):
    process = TetheredProcess([sys.executable, "-c", "print('first'); print('the port is taken')"], tmp_path / "log")
    with pytest.raises(BenchError) as failure:
        await_ready(AdminClient("http://127.0.0.1:1"), process)
    process.kill()
    assert str(failure.value) == "sluice serve ended: the port is taken"


STAGES = [
    TrialStage(Peer(name, "pulsar://p", AdminClient("http://127.0.0.1:1"), "g"), "", AdminClient(""), Path())
    for name in ("own", "sluice")
]
FIGURES = (Figure("number", "number"),)


def test_each_round_s_samples_are_kept_and_told_apart_by_peer():
    rounds = iter(range(1, 10))

    def measured(stages):
        number = next(rounds)
        return [[{"number": number}], [{"number": -number}, {"number": -5}]]

    lines: list[str] = []
    row: LimitsRow = Row("row", "", FIGURES, measured, PEERS, rounds=2)
    samples = measure([row], STAGES, lines.append)
    own, sluices = samples["row"]["own"], samples["row"]["sluice"]
    assert own == [{"number": 1}, {"number": 2}]
    assert sluices == [{"number": -1}, {"number": -5}, {"number": -2}, {"number": -5}]
    assert lines[:2] == ["row, 1 of 2: own: 1 number", "row, 1 of 2: sluice: -3 (-5 to -1) number"]


def test_stages_are_measured_one_after_the_other():
    seen: list[str] = []

    def measured(stage):
        seen.append(stage.peer.name)
        return {"number": len(seen)}

    assert by_turns(measured)(STAGES) == [[{"number": 1}], [{"number": 2}]]
    assert seen == ["own", "sluice"]
