"""A small run holds the goals; the page that was written is the one that would be, and legible."""

import re
from pathlib import Path

import pytest

from loadgen.bench.harness import WIDTH
from loadgen.quota_sharing.__main__ import main
from loadgen.quota_sharing.page import SLUICE
from loadgen.quota_sharing.schemes import SCHEMES
from loadgen.quota_sharing.size import FleetScale, measure, member_bytes
from loadgen.quota_sharing.trials import (
    CONVERGING,
    EVENTS,
    TAKEOVER,
    SharingEvent,
    TrialSetting,
    run,
    streams_jain,
    whole_messages,
    worst,
)

DOCS = Path(__file__).parents[3] / "docs/explanation"
SMALL = TrialSetting(5, cycles=(24, 16), steps=25)
OF = {event.name: event for event in EVENTS}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_sluice_holds_its_goals_in_a_small_run(event: SharingEvent) -> None:
    outcome = worst([run(SLUICE, event, SMALL), run(SLUICE, event, TrialSetting(5, 0.2, 1, (24, 16), 25))])
    assert outcome.above < 1e-9
    assert outcome.jain > 0.99
    if event in CONVERGING:
        assert outcome.settled[0] is not None
        assert outcome.settled[0] <= 4


def test_what_a_dead_member_had_is_used_soon() -> None:
    killed = run(SLUICE, OF["one is killed"], TrialSetting(5, cycles=(24, 24), steps=25)).settled_ns(0.1)
    left = run(SLUICE, OF["one leaves"], SMALL).settled_ns(0.1)
    assert killed is not None
    assert 1.5e9 < killed <= 2.5e9
    assert left is not None
    assert left <= 0.5e9


def test_a_takeover_disturbs_nobody() -> None:
    trace = run(SLUICE, TAKEOVER, TrialSetting(5, cycles=(24, 40), steps=25))
    assert trace.disturbed < 1e-9
    settled = trace.settled_ns(0.1)
    assert settled is not None
    assert settled <= 5e9


def test_the_earlier_answers_fail_as_they_are_known_to() -> None:
    pulsar, proposal, _ = SCHEMES
    formula = run(pulsar, OF["uneven, then all want alike"], SMALL)
    assert formula.settled_ns(0.1) is None, "a split is locked in"
    assert run(pulsar, OF["limit to a tenth"], SMALL).above > 3, "each has the whole of a new limit"
    text = run(proposal, OF["a member joins"], TrialSetting(5, cycles=(24, 24), steps=25))
    assert text.settled_ns(0.1) is not None
    assert 0.1 < text.above < 0.5


def test_streams_and_low_limits() -> None:
    pulsar, _, sluice = SCHEMES
    assert streams_jain(sluice, 5) > 0.99
    assert 58 <= whole_messages(sluice, 3, 4, 20) <= 67
    assert whole_messages(pulsar, 3, 4, 20) > 67


def test_what_a_fleet_costs_is_measured() -> None:
    cost = measure(FleetScale(10, 100, 5))
    assert cost.idle.reports / 10 < 50
    assert cost.idle.published < cost.few.published < cost.all.published < 10 * 100 * 40
    assert cost.member_bytes > 100 * 100
    assert member_bytes(5000) <= 1_000_000  # the goal


def test_a_page_that_cannot_be_written_is_told_before_the_minutes_of_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["quota_sharing", "--write", str(tmp_path / "nowhere/page.md")])
    assert main() == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_page_is_legible_in_a_terminal_and_its_plots_are_small() -> None:
    text = (DOCS / "quota-sharing.md").read_text()
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []
    plots = re.findall(r"\]\((\S+\.svg)\)", text)
    assert len(plots) == 2
    for plot in plots:
        image = (DOCS / plot).read_text()
        assert len(image) <= 60_000
        assert "<dc:date>" not in image
