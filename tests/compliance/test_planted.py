"""Verdicts are right: what an independent model planted is found, each of it, and nothing else is."""

from datetime import timedelta

import msgspec
import pytest

from tests.access_log_files import content_of
from tests.compliance import model
from tests.compliance.modelled import SEEDS
from tests.compliance.planted import BEGIN

pytestmark = pytest.mark.spark
C, V, U = "compliant", "violated", "unknown"


@pytest.fixture(scope="module")
def report(planted_logs):
    return planted_logs


def limiter(report, name):
    (verdict,) = (verdict for verdict in report[0].limiters if verdict.proxy_id == name)
    return verdict


@pytest.mark.parametrize(
    ("name", "containment", "entitlement"),
    [
        ("plain", C, C),
        ("batched", C, C),
        ("over", V, C),
        ("edge", C, C),
        ("starved", C, V),
        ("ahead", C, C),
        ("back", C, C),
        ("lost", U, U),
        ("restarted", C, C),
        ("changed", C, C),
        ("changed-over", V, C),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_planted_log_gets_its_verdict(report, name, seed, containment, entitlement):
    verdict = limiter(report, f"{name}-{seed}")
    assert (verdict.containment, verdict.entitlement) == (containment, entitlement)


@pytest.mark.parametrize("name", ["over", "changed-over"])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_message_too_many_is_one_and_its_second_is_all_that_is_not_contained(report, name, seed):
    verdict = limiter(report, f"{name}-{seed}")
    assert 1 <= verdict.worst_containment.excess < 2
    assert name != "over" or verdict.worst_containment.excess == pytest.approx(1)
    lines, _ = model.simulate(seed, change_at_ms=370 if name == "changed-over" else None)
    in_use_s = sum(line.duration_ms / 1e3 for line in lines if line.offered or line.passed or line.waited_ms)
    assert verdict.containment_share == pytest.approx(1 - 1 / in_use_s)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shortfall_lies_where_it_was_planted(report, seed):
    least = limiter(report, f"starved-{seed}").worst_entitlement
    _, greedy = model.simulate(seed)
    assert least.start < BEGIN + timedelta(seconds=greedy + 17)
    assert least.end > BEGIN + timedelta(seconds=greedy + 14)
    assert limiter(report, f"starved-{seed}").entitlement_share < 1


@pytest.mark.parametrize("name", ["over", "starved", "plain"])
def test_the_evidence_is_the_line_that_stands_there(report, name):
    verdict = limiter(report, f"{name}-0")
    for window in (verdict.worst_containment, verdict.worst_entitlement):
        for place in (window.first_line, window.last_line):
            text = content_of(report[1] / place.file).splitlines()[place.line - 1]
            line = msgspec.json.decode(text)
            assert (line["kind"], line["proxy_id"], line["seq"]) == ("limit", f"{name}-0", place.seq)


def test_nothing_else_is_violated(report):
    modelled = {f"{name}-{seed}" for name in ("over", "changed-over", "starved") for seed in SEEDS}
    by_hand = {
        "over",
        "changed-and-over",
        "starved",
        "lost-and-over",
        "stepped-and-over",
        "bypassed",
        "hostile",
        "no-lines",
        "torn-tail",
        "midnight",
    }
    assert {verdict.proxy_id for verdict in report[0].limiters if verdict.is_violated} == modelled | by_hand


def test_losses_clock_steps_and_restarts_are_found_where_planted(report):
    runs = report[0].quality.runs
    lost = {"lost", "lost-and-over", "declared", *(f"lost-{seed}" for seed in SEEDS)}
    assert {run.proxy_id for run in runs if run.missing} == lost
    stepped = {
        "stepped",
        "stepped-and-over",
        "in-no-time",
        "ahead-between",
        "end-of-time",
        *(f"{name}-{seed}" for name in ("ahead", "back") for seed in SEEDS),
    }
    assert {run.proxy_id for run in runs if run.clock_steps} == stepped
    assert {run.proxy_id for run in runs if run.duplicates} == {"twice", "conflict"}
    assert {(run.proxy_id, run.boot_id) for run in runs if run.is_lossy} == {
        ("declared", "boot-1"),
        ("killed", "boot-1"),
    }
    restarts = {event.proxy_id for event in report[0].events if event.kind == "restart"}
    assert restarts == {"restarted", "killed", "cut-off", *(f"restarted-{seed}" for seed in SEEDS)}


def test_changes_of_limits_are_told_with_both_values(report):
    changes = [event for event in report[0].events if event.kind == "limit"]
    modelled = {f"changed{more}-{seed}" for more in ("", "-over") for seed in SEEDS}
    assert {event.proxy_id for event in changes} == modelled | {"changed", "changed-and-over", "removed"}
    assert all(" messages/s to " in event.text for event in changes if event.proxy_id != "removed")


def test_tenant_namespace_and_topics_get_the_gravest_verdict(report):
    rollups = {(row.scope, row.name): row for row in report[0].rollups}
    assert rollups["tenant", "acme"].verdict == rollups["namespace", "acme/orders"].verdict == V
    assert rollups["topic", "persistent://acme/orders/plain-0"].verdict == C
    assert rollups["topic", "persistent://acme/orders/lost-0"].verdict == U
    assert rollups["tenant", "acme"].violated == sum(verdict.is_violated for verdict in report[0].limiters)
