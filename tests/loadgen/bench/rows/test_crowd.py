from dataclasses import replace

import pytest

from loadgen.bench.errors import BenchError
from loadgen.bench.rows import crowd


def test_a_crowd_larger_than_what_comes_at_once_is_greeted(stage, name):
    with crowd.crowd(stage, stage.peers[name].port, 20, 8) as opened:
        assert opened.seconds > 0


class NobodyGreeted:
    def connect_many(self, _port, count, _hello):
        return [-1] * count, 0, 1.0

    def welcome_many(self, _listener, count, _answer):
        return [-1] * count

    def reset_all(self, sockets):
        self.reset = sockets


def test_whoever_is_not_greeted_is_missed(stage):
    native = NobodyGreeted()
    with (
        pytest.raises(BenchError, match="0 of 3 connections were greeted"),
        crowd.crowd(replace(stage, native=native), stage.sink.port, 3, 3),
    ):
        pass
    assert native.reset == [-1] * 6
