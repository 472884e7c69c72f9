import threading
from pathlib import Path

import pytest

from loadgen.bench_limits import run
from loadgen.bench_limits.figures import Figure
from loadgen.bench_limits.peers import Peer, Peers
from loadgen.bench_limits.rest import Rest
from loadgen.bench_limits.rows.row import Row
from loadgen.bench_limits.run import measure

REST = Rest("http://127.0.0.1:1")
PEERS = Peers(Peer("own", "pulsar://o", REST), Peer("sluice", "pulsar://s", REST), "pulsar://o", REST)
FIGURES = (Figure("number", "number"),)


@pytest.fixture(autouse=True)
def warmed_up(monkeypatch) -> list[str]:
    """In place of warming up: who was."""
    warmed: list[str] = []
    monkeypatch.setattr(run, "warm_up", lambda stage: warmed.append(stage.peer.name))
    return warmed


def test_peers_are_measured_by_turns_and_their_samples_are_kept_apart(warmed_up):
    seen = []

    def trial(stage):
        assert warmed_up == ["own", "sluice"]
        seen.append(stage.peer.name)
        return {"number": [len(seen)]}

    told: list[str] = []
    found = measure([Row("row", "", FIGURES, trial, rounds=2)], PEERS, Path(), told.append)
    assert seen == ["own", "sluice", "own", "sluice"]
    assert found == {"row": ({"number": [1, 3]}, {"number": [2, 4]})}
    assert told == [
        "row, 1 of 2, own: number: 1",
        "row, 1 of 2, sluice: number: 2",
        "row, 2 of 2, own: number: 3",
        "row, 2 of 2, sluice: number: 4",
    ]


def test_a_row_can_measure_both_at_the_same_time():
    both = threading.Barrier(2, timeout=20)

    def trial(_stage):
        both.wait()
        return {"number": [1]}

    measure([Row("row", "", FIGURES, trial, rounds=1, together=True)], PEERS, Path(), lambda _line: None)
    assert not both.broken
