"""Without Java: the broker is somebody who only has an address."""

import pytest

from loadgen.bench import real
from loadgen.bench.errors import BenchError
from loadgen.bench.peers import bare
from loadgen.bench.real import RealBroker
from loadgen.real.jars import JarsError


class Broker:
    started = 0

    def __init__(self, _folder):
        self.service_url = "pulsar://127.0.0.1:7"

    def __enter__(self):
        Broker.started += 1
        return self

    def __exit__(self, *_):
        Broker.started -= 1


def test_peers_stay_before_one_broker_until_the_end(monkeypatch, tmp_path):
    monkeypatch.setattr(real, "StandaloneBroker", Broker)
    with RealBroker(tmp_path) as broker:
        assert Broker.started == 0, "it may never be wanted"
        peer = broker.peer(bare.PLAN)
        assert broker.peer(bare.PLAN) is peer
        assert Broker.started == 1
    assert Broker.started == 0


def test_a_broker_that_cannot_be_had_is_one_line(monkeypatch, tmp_path):
    def fails(_folder):
        raise JarsError("Maven ended with code 1\nand said much")

    monkeypatch.setattr(real, "StandaloneBroker", fails)
    with (
        RealBroker(tmp_path) as broker,
        pytest.raises(BenchError, match=r"\Ano real broker: Maven ended with code 1\Z"),
    ):
        broker.peer(bare.PLAN)
