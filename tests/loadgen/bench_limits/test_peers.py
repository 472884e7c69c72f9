"""Sluice as a process; a real broker behind both peers is what `test_main.py` starts."""

import sys

import pytest

from loadgen.bench_limits.errors import BenchError
from loadgen.bench_limits.peers import _sluice, _wait_ready
from loadgen.bench_limits.rest import Rest
from loadgen.real.process import TetheredProcess


def test_sluice_is_ready_while_it_is_measured_and_gone_afterwards(tmp_path, service_url):
    with _sluice(tmp_path, service_url) as peer:
        assert peer.name == "through Sluice"
        peer.limits.limit_publishing("n1", 10)
        peer.limits.limit_dispatch("n1", 10)
        assert peer.grouped == "grouped-by-sluice"
    assert not peer.limits.is_ready("/readyz")


def test_sluice_that_does_not_start_is_one_line(tmp_path):
    process = TetheredProcess([sys.executable, "-c", "print('first'); print('the port is taken')"], tmp_path / "log")
    with pytest.raises(BenchError) as failure:
        _wait_ready(Rest("http://127.0.0.1:1"), process)
    process.kill()
    assert str(failure.value) == "sluice serve ended: the port is taken"
