"""Reports on a time or a tenant alone."""

from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from accesslog.record import ThrottleLine
from compliance.excerpt import Excerpt
from compliance.job import ReportError, gather
from compliance.report.collect import ExtraQuestions
from compliance.report.report import make_report
from sluice.cli import app
from tests.compliance.planted import BEGIN, PlantedLog, exact_log
from tests.compliance.report.test_logs import tables_of
from tests.compliance.scenarios import in_a_fleet

spark_only = pytest.mark.spark


def at(seconds):
    return BEGIN + timedelta(seconds=seconds)


def reported(spark, *logs, tenant="", **times):
    """The report on the lines between `begin` and `end`, seconds from the first one."""
    excerpt = Excerpt(tenant=tenant, **{name: at(seconds) for name, seconds in times.items()})
    return make_report(gather(spark, tables_of(spark, *logs), lambda _: None, ExtraQuestions(excerpt=excerpt)))


def steady_log(seconds=60):
    """A stream of 50/s that has a line each ten seconds, while its limiter has one each second."""
    log = PlantedLog()
    for second in range(seconds):
        log.limit(50, throttled_ms=0.0)
        if second % 10 == 9:
            span = {"start": log.begin + timedelta(seconds=second - 9), "duration_ms": 10_000.0, "steady": True}
            log.interval(500, **span)
        log.beat()
    return log


@spark_only
def test_whole_stretches_within_are_judged(spark):
    """A line of ten seconds that lies across a bound would lack, or have, what its limiter passed on the other side."""
    report = reported(spark, steady_log(), begin=15, end=45)
    assert (report.overall.verdict, report.doubts) == ("compliant", [])
    [limit] = report.limiters
    assert limit.lines == 20
    assert limit.passed_messages == 30 * 50


@pytest.mark.slow
@spark_only
def test_parts_have_all_of_the_whole_once(spark):
    log = steady_log()
    parts = [reported(spark, log, end=25), reported(spark, log, begin=25)]
    whole = reported(spark, log)
    for table in ("topics", "tenant_days"):
        passed = [sum(row.passed_messages for row in getattr(part, table)) for part in (*parts, whole)]
        assert passed[0] + passed[1] == passed[2] == 3000
    assert sum(part.quality.lines for part in parts) == whole.quality.lines


@pytest.mark.slow
@spark_only
def test_a_violation_is_of_its_own_time(spark):
    log = exact_log(20)
    log.tick(150)
    for _ in range(20):
        log.tick(100)
    verdicts = [
        reported(spark, log, **times).overall.verdict
        for times in ({"end": 20}, {"begin": 15, "end": 30}, {"begin": 25}, {})
    ]
    assert verdicts == ["compliant", "violated", "compliant", "violated"]


@spark_only
def test_a_run_that_goes_on_has_a_whole_log_within(spark):
    report = reported(spark, exact_log(40), begin=10, end=30)
    [run] = report.quality.runs
    assert (run.first, run.last, run.ended, run.has_tail, run.coverage) == (at(10), at(30), True, False, 1.0)
    assert report.overall.complete_up_to == at(30)


@pytest.mark.slow
@spark_only
def test_gaps_and_losses_are_of_their_own_time(spark):
    log = exact_log(20)
    del log.lines[30:33]  # the lines of the eleventh second
    after = PlantedLog(boot_id="boot-2", begin=at(30))
    after.loss("boot-1", None, lost_from=at(20), lost_until=at(30))
    after.tick(100)
    early, late = reported(spark, log, after, end=8), reported(spark, log, after, begin=8, end=20)
    assert [(report.quality.missing, len(report.quality.gaps)) for report in (early, late)] == [(0, 0), (3, 1)]
    assert [len(report.quality.losses) for report in (early, late)] == [0, 0]
    [loss] = reported(spark, log, after, begin=8, end=25).quality.losses
    assert loss.lost_from == at(20)


@pytest.mark.slow
@spark_only
def test_who_is_cut_off_is_known_from_before(spark):
    """The second member is cut off from the fourth second to the sixth; all have shares from the first one on."""
    logs = in_a_fleet()
    [total] = reported(spark, *logs, begin=5, end=9).fleets.sums
    assert [member.proxy_id for member in total.cut_off] == ["fleet-b"]
    assert sorted(proxy for proxy, _ in total.members) == ["fleet-a", "fleet-b"]
    assert total.judged_s == 4
    [total] = reported(spark, *logs, begin=10).fleets.sums
    assert (total.verdict, total.cut_off) == ("violated", [])


@spark_only
def test_a_tenant_alone_has_no_limit_of_others(spark):
    log = PlantedLog()
    other = "persistent://beta/b/t"
    for _ in range(20):
        log.interval(50, limit_levels="topic proxy")
        log.interval(70, tenant="beta", namespace="b", topic=other, stream_id=2, limit_levels="topic proxy")
        log.limit(50, throttled_ms=0.0)
        log.limit(70, throttled_ms=0.0, tenant="beta", namespace="b", name=other)
        log.limit(120, rate=500.0, throttled_ms=0.0, level="proxy", name="", tenant="", namespace="")
        log.beat()
    for topic in (other, "persistent://acme-2/b/t"):
        log.reject(5, topic=topic)
    log.reject(3)
    report = reported(spark, log, tenant="acme")
    assert [row.rejected for row in report.throttling.refusals] == [3]
    assert (report.overall.verdict, report.doubts) == ("compliant", [])
    assert [(limit.level, limit.tenant) for limit in report.limiters] == [("topic", "acme")]
    assert {row.tenant for row in report.usage} == {"acme"}
    assert [tenant.name for tenant in report.tenants] == ["acme"]
    assert len(reported(spark, log).limiters) == 3


@spark_only
def test_a_tenant_alone_sees_no_changes_and_pauses_of_others(spark):
    log = PlantedLog()
    other = "persistent://beta/b/t"
    log.change()
    log.change(setting="tenant", name="beta")
    log.change(setting="topic", name=other)
    log.change(what="file", setting="", name="/etc/sluice/beta.yaml")
    for _ in range(20):
        log.interval(50)
        log.interval(70, tenant="beta", namespace="b", topic=other, stream_id=2, connection_id=2)
        log.limit(50, throttled_ms=0.0)
        log.beat()
    pause = {
        "end": at(20.3),
        "duration_ms": 300.0,
        "client_address": "192.0.2.1:4000",
        "side": "client",
        "cause": "hold",
    }
    for connection_id in (1, 2, 2):
        log.add(ThrottleLine, **pause, connection_id=connection_id)
    report, whole = reported(spark, log, tenant="acme"), reported(spark, log)
    [change] = [event.text for event in report.events if event.kind != "start"]
    assert change.startswith(f"publish limit of topic {log.topic}: ")
    assert sorted(event.kind for event in whole.events) == ["reload", "set", "set", "set", "start"]
    assert [[row.pauses for row in each.throttling.pauses] for each in (report, whole)] == [[1], [3]]


@pytest.mark.parametrize(
    ("setting", "name", "is_own"),
    [
        ("tenant", "acme", True),
        ("tenant", "acme-2", False),
        ("tenant", "ac*", False),
        ("namespace", "acme/shop", True),
        ("namespace", "*/shop", False),
        ("topic_of_namespace", "acme/*", True),
        ("topic", "persistent://acme/shop/t", True),
        ("topic", "non-persistent://acme/shop/t", True),
        ("topic", "persistent://acme-2/shop/t", False),
        ("topic_of_broker", "", False),
        ("subscription", "s@persistent://acme/shop/t", True),
        ("subscription", "acme/s@persistent://beta/shop/t", False),
        ("subscription", "s@persistent://beta/shop/t@persistent://acme/shop/t", False),
        ("producer", "acme", False),
        ("role", "acme", False),
        ("resource_group", "acme", False),
        ("", "", False),
    ],
)
def test_a_tenant_s_settings_are_known_by_their_names(setting, name, is_own):
    assert Excerpt(tenant="acme").has_setting(setting, name) is is_own
    assert Excerpt().has_setting(setting, name)


@spark_only
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"begin": 60},
            "no line of the log begins in that time; it has lines from 2026-11-21T11:29:00Z to 2026-11-21T",
        ),
        ({"tenant": "acne"}, "--tenant acne: no producer, consumer or limit of this tenant"),
    ],
)
def test_nothing_to_report_on_is_an_error(spark, asked, message):
    with pytest.raises(ReportError, match=message):
        reported(spark, exact_log(10), **asked)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "yesterday"], "yesterday: is no time of a log; give 2026-11-28"),
        (["--to", "9999-12-31"], "9999-12-31: is no time of a log"),
        (["--from", "0001-01-01T00:00+05:00"], "is no time of a log"),
        (["--from", "2026-11-28", "--to", "2026-11-28T01:00+02:00"], "is not before --to"),
    ],
)
def test_times_that_cannot_be_are_refused(words, message):
    ended = CliRunner().invoke(app, ["report", "--out", "nowhere", "--access-log", "nowhere", *words])
    assert ended.exit_code == 2
    assert message in " ".join(ended.output.replace("│", "").split())


def test_days_are_those_in_which_lines_may_begin():
    day = datetime(2026, 11, 21, tzinfo=UTC)
    excerpt = Excerpt(begin=day, end=day + timedelta(days=1))
    assert [excerpt.has_day(f"2026-11-{number}") for number in (20, 21, 22)] == [False, True, False]
    assert not excerpt.has_day("9999-12-31")
    assert [Excerpt().has_day("2026-11-21"), Excerpt(tenant="acme").has_day("2026-11-21")] == [True, True]
