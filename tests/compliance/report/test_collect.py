import pytest

from compliance.figures.facts import EpisodeFacts
from compliance.figures.limits import episode_facts, episodes_of, limiter_facts
from compliance.figures.traffic import DAYS
from compliance.judging.bypasses import LIMITED, Suspicion
from compliance.judging.facts import UsageFacts
from compliance.judging.fleets import FleetNotes
from compliance.judging.judge import Judging, results_of
from compliance.report.collect import ReportTables
from tests.compliance.arrow import limits_of, lines_of, summed_of
from tests.compliance.planted import PlantedLog


@pytest.mark.parametrize(("most", "kept", "left_out"), [(3, "012", {"usage": 4}), (7, "0123456", {})])
def test_rows_beyond_the_limit_are_counted(most, kept, left_out):
    log = PlantedLog()
    for number in range(7):
        log.interval(number, topic=f"persistent://acme/orders/{number}")
    tables = ReportTables()
    rows = tables.kept("usage", summed_of(DAYS, log), UsageFacts, {"topic": "ascending"}, most)
    assert ("".join(row.topic[-1] for row in rows), tables.left_out) == (kept, left_out)


def test_of_too_many_limits_the_violated_ones_are_kept():
    log = PlantedLog()
    for number in range(5):
        log.limit(500 if number == 3 else 100, name=f"t{number}")
    for _ in range(3):
        log.limit(20, name="starved")
        log.second += 1
    judging = Judging({}, {}, FleetNotes(), Suspicion(summed_of(LIMITED, log), {}))
    judged = judging.figures(judging.parts(lines_of([log])))
    tables, limiters = ReportTables(), limiter_facts(judged["limiters"], judged["configured"])
    facts = tables.limits(results_of(judged["judged"]), limiters, {}, 2)
    assert {row.name for row in facts["limiters"]} == {row.name for row in facts["kept"]} == {"t3", "starved"}
    assert tables.left_out == {"limiters": 4}


@pytest.mark.parametrize("names", [("b", "c", "a", "d"), ("d", "a", "c", "b")])
def test_rows_that_tie_are_ordered_by_name_in_any_log(names):
    logs = []
    for name in names:
        log = PlantedLog(proxy_id=name)
        log.limit(10, throttled_ms=500.0)
        logs.append(log)
    order = {"throttled_s": "descending", "name": "ascending"}
    rows = ReportTables().kept("episodes", episode_facts(**episodes_of(limits_of(*logs))), EpisodeFacts, order)
    assert [row.proxy_id for row in rows] == ["a", "b", "c", "d"]
