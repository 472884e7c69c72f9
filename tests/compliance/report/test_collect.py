import pytest
from pyspark.sql import functions as F

from compliance.figures.facts import EpisodeFacts
from compliance.figures.rates import limiter_facts
from compliance.figures.traffic import DAYS
from compliance.figures.waiting import episode_facts
from compliance.judging.clocks import with_axis
from compliance.judging.facts import UsageFacts
from compliance.judging.judge import judged_limiters, with_waits
from compliance.report.collect import ReportTables, worst_limits
from tests.compliance.arrow import summed_of
from tests.compliance.planted import PlantedLog, frame


@pytest.mark.parametrize(("most", "kept", "left_out"), [(3, "012", {"usage": 4}), (7, "0123456", {})])
def test_rows_beyond_the_limit_are_counted(most, kept, left_out):
    log = PlantedLog()
    for number in range(7):
        log.interval(number, topic=f"persistent://acme/orders/{number}")
    found = ReportTables()
    rows = found.kept("usage", summed_of(DAYS, log), UsageFacts, {"topic": "ascending"}, most)
    assert ("".join(row.topic[-1] for row in rows), found.left_out) == (kept, left_out)


@pytest.mark.spark
def test_of_too_many_limits_the_violated_ones_are_kept(spark):
    log = PlantedLog()
    for number in range(5):
        log.limit(500 if number == 3 else 100, name=f"t{number}")
    for _ in range(3):
        log.limit(20, name="starved")
        log.second += 1
    lines = with_axis(frame(spark, [log], "limit"), {})
    found = judged_limiters(with_waits(lines), with_axis(frame(spark, [log], "interval"), {}), {})
    worst = worst_limits(limiter_facts(lines), found.where("facts is not null"), 2)
    assert {row.name for row in worst.collect()} == {"t3", "starved"}


@pytest.mark.spark
@pytest.mark.parametrize("names", [("b", "c", "a", "d"), ("d", "a", "c", "b")])
def test_rows_that_tie_are_in_one_order_wherever_their_lines_were(spark, names):
    logs = []
    for name in names:
        log = PlantedLog(proxy_id=name)
        log.limit(10, throttled_ms=500.0)
        logs.append(log)
    episodes = episode_facts(frame(spark, logs, "limit"))
    rows = ReportTables().rows(
        "episodes", episodes.repartition(4, "proxy_id"), EpisodeFacts, F.desc("throttled_s"), "name"
    )
    assert [row.proxy_id for row in rows] == ["a", "b", "c", "d"]
