"""Without Java; `make bench` runs it with a real broker."""

from dataclasses import replace

import pytest

from loadgen.bench.errors import BenchError
from loadgen.bench.peers import bare
from loadgen.bench.rows import perf
from loadgen.real.jars import ProcessFailed
from loadgen.real.perf import Traffic

TRAFFIC = Traffic(rate=1000, size=100, is_batched=False, messages=500)


@pytest.fixture
def real(stage):
    return replace(stage, real=lambda plan: stage.peers[plan.name])


def test_what_passes_through_the_peer_is_measured(real, name, monkeypatch):
    calls = []

    def passes(*call):
        calls.append(call)
        return 900.0

    monkeypatch.setattr(perf, "pass_through", passes)
    row = perf.row(TRAFFIC)
    found = [row.measure(real, name) for _ in range(2)]
    assert set(found[0]) == {figure.key for figure in row.figures}
    assert found[0]["rate"] == 90
    url, topic, traffic, folder = calls[0]
    assert (url, traffic) == (f"pulsar://127.0.0.1:{real.peers[name].port}", TRAFFIC)
    assert topic != calls[1][1], "a topic of its own each time"
    assert folder.parent == real.folder


def test_what_fails_is_one_line(real, monkeypatch):
    def fails(*_):
        raise ProcessFailed("pulsar-perf produce ended with code 1", "a\nstack\ntrace")

    monkeypatch.setattr(perf, "pass_through", fails)
    with pytest.raises(BenchError, match=r"\Apulsar-perf produce ended with code 1\Z"):
        perf.row(TRAFFIC).measure(real, bare.NAME)


def test_without_a_real_broker_nothing_is_measured(stage):
    with pytest.raises(BenchError, match="--real"):
        perf.row(TRAFFIC).measure(stage, bare.NAME)


@pytest.mark.parametrize(("is_batched", "most"), [(False, 1.6), (True, 1.2)])
def test_the_goal_is_beside_the_bare_forwarder(is_batched, most):
    row = perf.row(replace(TRAFFIC, is_batched=is_batched))
    goal, *_ = row.figures[0].goals
    assert (goal.beside, goal.bound) == (bare.NAME, most)
    assert row.is_real
