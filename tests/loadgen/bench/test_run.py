from typing import Any

from loadgen.bench.errors import BenchError
from loadgen.bench.figures import Figure
from loadgen.bench.rows.row import Row
from loadgen.bench.run import measure
from loadgen.bench.stage import Stage

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
    told: list[str] = []
    row = Row("r", "R", FIGURES, measured, ("a", "b", "absent"))
    found = measure([row], stage_of("a", "b"), 2, told.append)
    assert measured.calls == ["a", "b", "b", "a", "a", "b"], "whoever begins is another one each time"
    assert found == {"r": {"a": [{"turn": 4.0}, {"turn": 5.0}], "b": [{"turn": 3.0}, {"turn": 6.0}]}}
    assert told[0] == "r, 1: a: 4 turn"


def test_a_row_that_is_measured_once_counts_at_once():
    row = Row("r", "R", FIGURES, Measured(), ("a",), is_once=True)
    assert measure([row], stage_of("a"), 3, lambda _: None) == {"r": {"a": [{"turn": 1.0}]}}


def test_what_fails_is_told_and_the_others_go_on():
    told: list[str] = []
    row = Row("r", "R", FIGURES, Measured(fails_at=3), ("a", "b"))
    found = measure([row], stage_of("a", "b"), 1, told.append)
    assert found == {"r": {"a": [{"turn": 4.0}], "b": [None]}}
    assert "r: b failed: it fell over" in told
