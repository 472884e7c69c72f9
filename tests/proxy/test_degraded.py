"""The list of degraded states: since when each lasts, and what the operator's log has of it."""

import re
from pathlib import Path

from structlog.testing import capture_logs

from proxy.degraded import CAUSES, LOOK_S, Degraded, DegradedStates
from tests.proxy.manual_loop import ManualLoop

CUT_OFF = Degraded("fleet_cut_off", "cut off", "connect")
CLOCK = Degraded("fleet_clock", "the clock is off", "set it")


class Parts:
    """Two parts of a proxy, and clocks that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.one: list[Degraded] = []
        self.other: list[Degraded] = []
        parts = (lambda: self.one, lambda: self.other)
        self.states = DegradedStates(parts, (), lambda: self.seconds, lambda: round(self.seconds * 1e9))

    def look(self, later_s: float = 0.0) -> list[tuple[str, int, float]]:
        self.seconds += later_s
        return [(state.cause, since_ns, for_s) for state, since_ns, for_s in self.states.now()]


def test_states_of_all_parts_are_listed_since_they_began() -> None:
    parts = Parts()
    assert parts.look() == []
    parts.one = [CUT_OFF]
    assert parts.look(1) == [("fleet_cut_off", 101 * 10**9, 0)]
    parts.other = [CLOCK]
    assert parts.look(2) == [("fleet_cut_off", 101 * 10**9, 2), ("fleet_clock", 103 * 10**9, 0)]
    assert parts.states.causes == {"fleet_cut_off", "fleet_clock"}
    parts.one = []
    assert parts.look(1) == [("fleet_clock", 103 * 10**9, 1)]
    parts.one = [CUT_OFF]
    assert parts.look(1)[0] == ("fleet_cut_off", 105 * 10**9, 0)


def test_lasting_state_is_logged_at_once_after_1_min_and_each_10() -> None:
    parts = Parts()
    with capture_logs() as logs:
        parts.one = [CUT_OFF]
        for _ in range(3600):
            parts.look(1)
        parts.one = []
        parts.look(1)
    lasting = [log["for_s"] for log in logs if log["event"] == "degraded" and log["reason"] == "cut off"]
    assert lasting == [0, 60, 660, 1260, 1860, 2460, 3060]
    assert {log["remedy"] for log in logs if log["log_level"] == "warning"} == {"connect"}
    assert logs[-1] == {"event": "degraded no more", "log_level": "info", "state": "fleet_cut_off", "after_s": 3600}


def test_causes_are_words_for_labels() -> None:
    assert all(cause.replace("_", "").isalpha() for cause in CAUSES)
    assert len(set(CAUSES)) == len(CAUSES)


def test_the_page_for_operators_has_each_cause() -> None:
    page = (Path(__file__).parents[2] / "docs/operating.md").read_text()
    section = page.partition("### Degraded")[2].partition("\n### ")[0]
    assert re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE) == [*CAUSES]


def test_a_part_that_announces_its_changes_costs_no_timer(loop: ManualLoop) -> None:
    part_states: list[Degraded] = []
    states = DegradedStates(announced=[lambda: part_states], clock=loop.time)
    loop.run(states.look)
    assert loop.timers == []
    part_states.append(CUT_OFF)
    with capture_logs() as logs:
        loop.run(states.look)
        loop.advance(3600)
    assert [log["for_s"] for log in logs] == [0, 60, 660, 1260, 1860, 2460, 3060]
    assert states.causes == {"fleet_cut_off"}
    part_states.clear()
    loop.run(states.look)
    assert loop.timers == []
    assert not states.causes


def test_parts_that_change_by_themselves_are_read_each_second(loop: ManualLoop) -> None:
    part_states: list[Degraded] = []
    states = DegradedStates([lambda: part_states], clock=loop.time)
    loop.run(states.look)
    part_states.append(CUT_OFF)
    assert not states.causes
    loop.advance(LOOK_S)
    assert states.causes == {"fleet_cut_off"}
    states.stop()
    assert loop.timers == []
