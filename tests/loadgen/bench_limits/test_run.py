from pathlib import Path

import pytest

from loadgen.bench_limits import run
from loadgen.bench_limits.figures import Figure
from loadgen.bench_limits.peers import Peer, Peers
from loadgen.bench_limits.rest import Rest
from loadgen.bench_limits.rows.row import Row

REST = Rest("http://127.0.0.1:1")
PEERS = Peers(Peer("own", "pulsar://o", REST, "g"), Peer("sluice", "pulsar://s", REST, "h"), "pulsar://o", REST)
FIGURES = (Figure("number", "number"),)


@pytest.fixture(autouse=True)
def warmed_up(monkeypatch) -> list[str]:
    """In place of warming up: who was."""
    warmed: list[str] = []
    monkeypatch.setattr(run, "warm_up", lambda stage: warmed.append(stage.peer.name))
    return warmed


def test_each_round_s_samples_are_kept_and_told_apart_by_peer(warmed_up):
    rounds = iter(range(1, 10))

    def measure(stages):
        assert warmed_up == ["own", "sluice"]
        number = next(rounds)
        return [{"number": [number]}, {"number": [-number]}]

    told: list[str] = []
    found = run.measure([Row("row", "", FIGURES, measure, rounds=2)], PEERS, Path(), told.append)
    assert found == {"row": ({"number": [1, 2]}, {"number": [-1, -2]})}
    assert told == ["row, 1 of 2: number: own 1, sluice -1", "row, 2 of 2: number: own 2, sluice -2"]
