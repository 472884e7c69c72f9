from datetime import timedelta
from itertools import groupby

import pytest

from compliance.figures.wanted import Wanted, wanted_figures, wanted_lines
from tests.compliance.arrow import lines_of
from tests.compliance.planted import BEGIN, TOPIC, PlantedLog, topic_of

BEGUN = BEGIN.timestamp()


def named(proxy_id, **more):
    return PlantedLog(proxy_id, topic=topic_of(proxy_id), **more)


def figures(logs, name, **wanted):
    """Rows of figures, in order."""
    of = Wanted(**wanted)
    rows = wanted_figures(wanted_lines(lines_of(logs), of), of)[name].to_pylist()
    return sorted(rows, key=lambda row: (row["name"], row.get("step")))


def of_each(rows):
    """By the name of the limit or topic, its rows."""
    return {name: list(own) for name, own in groupby(rows, key=lambda row: row["name"])}


def across_steps():
    log = named("across-steps", begin=BEGIN + timedelta(milliseconds=250))
    log.interval(100)
    return log


def long_steps():
    log = named("long-steps")
    for _ in range(10):
        log.interval(100)
        log.beat()
    return log


def backwards():
    log = named("backwards")
    log.interval(100, end=log.begin - timedelta(hours=1))
    return log


def stepped():
    log = named("stepped")
    log.interval(100, end=log.begin + timedelta(days=365))
    return log


def of_a_year():
    log, year = named("year"), timedelta(days=365)
    log.interval(100, end=log.begin + year, duration_ms=year.total_seconds() * 1e3)
    return log


def unwanted():
    log = named("unwanted")
    log.interval(100)
    return log


def test_rates_of_topics_cover_each_step_that_a_line_touches():
    """Each log's rows are compared whole."""
    steps = {across_steps: 1, long_steps: 5, backwards: 1, stepped: 1, of_a_year: 1}
    logs = {made: made() for made in (*steps, unwanted)}
    names = [("", "publish", "topic", logs[made].topic, step_s, BEGUN, BEGUN + 1000) for made, step_s in steps.items()]
    rows = of_each(figures(logs.values(), "rates", topics=names))
    rates = {made: [row["passed_messages"] for row in rows.pop(log.topic, [])] for made, log in logs.items()}
    assert rows == {}
    # A line is spread over the steps that it touches; rates are per second, whatever the step.
    assert rates[across_steps] == pytest.approx([75, 25])
    assert rates[long_steps] == [100, 100]
    # A line whose end is before its start is not spread backwards.
    assert rates[backwards] == []
    # A line is as long as its own clock says, whatever the wall clock was stepped by; one of a year stays two rows.
    assert len(rates[stepped]) == 1
    assert len(rates[of_a_year]) == 2
    assert rates[unwanted] == []


def with_lines(name):
    log = named(name)
    for _ in range(2):
        log.interval(60, offered=90, stream_id=1)
        log.interval(40, offered=70, stream_id=2)
        log.limit(100)
        log.beat()
    return log


def without_lines(name):
    log = named(name)
    log.interval(60, offered=90, stream_id=1, limit_level="topic", limit_messages=50.0)
    log.interval(40, offered=70, stream_id=2, limit_level="topic", limit_messages=50.0)
    return log


def ticking(name):
    log = named(name)
    for _ in range(9):
        log.tick(100)
    return log


def test_a_limit_has_its_own_account_and_what_its_streams_offered_in_the_wanted_time():
    """Of one whose limit has lines, one whose limit has none and goes by its streams, and one longer than is wanted."""
    logs = [with_lines("with-lines"), without_lines("without-lines"), ticking("ticking")]
    names = [
        (log.proxy_id, "publish", "topic", log.topic, 1, BEGUN, BEGUN + seconds)
        for log, seconds in zip(logs, (1000, 1000, 4), strict=True)
    ]
    rows = figures(logs, "rates", limits=names)
    values = ("offered_messages", "passed_messages", "limit_messages", "burst_messages")
    begun = int(BEGUN)
    assert {
        name: [(row["step"] - begun, *(row[value] for value in values)) for row in own]
        for name, own in of_each(rows).items()
    } == {
        topic_of("with-lines"): [(second, 160, 100, 100, 10) for second in range(2)],
        topic_of("without-lines"): [(0, 160, 100, 50, None)],
        topic_of("ticking"): [(second, 100, 100, 100, 10) for second in range(4)],
    }


def test_peaks_show_the_highest_average_beside_the_allowed_one():
    log = PlantedLog()
    for second in range(20):
        log.tick(110 if second == 12 else 100)
    peaks = {row["step_s"]: row for row in figures([log], "peaks", peaks=[("proxy-1", "publish", "topic", TOPIC)])}
    assert [peaks[1][name] for name in ("highest", "allowed")] == [110, 100 + 10 + 1]
    assert peaks[1]["at"] == BEGIN + timedelta(seconds=12)
    assert [peaks[10][name] for name in ("highest", "allowed")] == [101, 100 + 1.1]
    # The log is shorter than a minute: an average over all of it is the lower for it.
    assert peaks[60]["highest"] == pytest.approx(2010 / 60)
