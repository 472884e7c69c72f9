"""Both ends, a real broker that is somebody who only has an address, and the rounds."""

import os
import subprocess
import sys
from typing import Any

import pytest

import bench.data_path.stage
from bench.data_path.proxies import BARE_PLAN
from bench.data_path.stage import DataRow, RealBroker, Stage, measure, settle
from bench.harness import BenchError, Figure, Row
from loadgen.real.jars import JarsError
from protocol.commands import encode
from protocol.pulsar_pb2 import CommandPing

PING = encode(CommandPing())


def test_both_ends_of_a_connection_belong_together(stage, name):
    for open_streams in (stage.producers, stage.consumers):
        here, there = open_streams(stage.peers[name].port, 3)
        for number, (end, other) in enumerate(zip(here, there, strict=True)):
            other.settimeout(10)
            pings = PING * (number + 1)
            end.sendall(pings)
            heard = b""
            while len(heard) < len(pings):
                heard += other.recv(len(pings))
            assert heard == pings
            end.close()
            while rest := other.recv(1024):
                heard += rest
            assert heard == pings
            other.close()


_WORKS = "import time; print('begun', flush=True); sum(range(10_000_000)); print('done', flush=True); time.sleep(60)"


def test_a_measurement_begins_when_the_previous_has_settled():
    with subprocess.Popen([sys.executable, "-c", _WORKS], stdout=subprocess.PIPE) as working:
        assert working.stdout is not None
        assert working.stdout.readline() == b"begun\n"
        settle(working.pid)
        os.set_blocking(working.stdout.fileno(), False)
        assert working.stdout.read() == b"done\n"
        working.kill()
    settle(working.pid)


def test_one_that_never_rests_is_not_waited_for_for_ever():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as working:
        settle(working.pid, most_s=0.3)
        assert working.poll() is None
        working.kill()


class Broker:
    started = 0

    def __init__(self, _folder):
        self.service_port = 7

    def __enter__(self):
        Broker.started += 1
        return self

    def __exit__(self, *_):
        Broker.started -= 1


def test_peers_stay_before_one_broker_until_the_end(monkeypatch, tmp_path):
    monkeypatch.setattr(bench.data_path.stage, "StandaloneBroker", Broker)
    with RealBroker(tmp_path) as broker:
        assert Broker.started == 0, "it may never be wanted"
        peer = broker.peer(BARE_PLAN)
        assert broker.peer(BARE_PLAN) is peer
        assert Broker.started == 1
    assert Broker.started == 0


def test_a_broker_that_cannot_be_had_is_one_line(monkeypatch, tmp_path):
    def fails(_folder):
        raise JarsError("Maven ended with code 1\nand said much")

    monkeypatch.setattr(bench.data_path.stage, "StandaloneBroker", fails)
    with (
        RealBroker(tmp_path) as broker,
        pytest.raises(BenchError, match=r"\Ano real broker: Maven ended with code 1\Z"),
    ):
        broker.peer(BARE_PLAN)


FIGURES = (Figure("turn", "turn"),)


def stage_of(*names):
    nobody: Any = None  # what is measured here needs neither end
    return Stage(nobody, nobody, {}, dict.fromkeys(names, nobody), 1.0, nobody)


class Measured:
    def __init__(self, fails_at=0):
        self.calls = []
        self._fails_at = fails_at

    def __call__(self, _stage, name):
        self.calls.append(name)
        if len(self.calls) == self._fails_at:
            raise BenchError("it fell over")
        return {"turn": float(len(self.calls))}


def test_peers_take_turns_and_the_first_round_is_thrown_away():
    measured = Measured()
    lines: list[str] = []
    row: DataRow = Row("r", "R", FIGURES, measured, ("a", "b", "absent"))
    samples = measure([row], stage_of("a", "b"), 2, lines.append)
    assert measured.calls == ["a", "b", "b", "a", "a", "b"], "whoever begins is another one each time"
    assert samples == {"r": {"a": [{"turn": 4.0}, {"turn": 5.0}], "b": [{"turn": 3.0}, {"turn": 6.0}]}}
    assert lines[0] == "r, 1 of 2: b: 3 turn"


def test_a_row_that_is_measured_once_counts_at_once():
    row: DataRow = Row("r", "R", FIGURES, Measured(), ("a",), rounds=1)
    assert measure([row], stage_of("a"), 3, lambda _: None) == {"r": {"a": [{"turn": 1.0}]}}


def test_what_fails_is_told_and_the_others_go_on():
    lines: list[str] = []
    row: DataRow = Row("r", "R", FIGURES, Measured(fails_at=3), ("a", "b"))
    samples = measure([row], stage_of("a", "b"), 1, lines.append)
    assert samples == {"r": {"a": [{"turn": 4.0}], "b": [None]}}
    assert "r: b failed: it fell over" in lines
