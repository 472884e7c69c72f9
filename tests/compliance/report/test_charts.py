import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

from compliance.figures.facts import RateFacts
from compliance.report.page import MOST_ABOVE, Mark, chart_unit, charts, filled, height, labels, smoothed
from compliance.report.sections import Event


def rate(step, **more):
    names = ("offered_messages", "offered_bytes", "passed_messages", "passed_bytes")
    values = {"proxy_id": "p", "direction": "publish", "level": "topic", "name": "t", "step_s": 1, "step": step}
    limits = {"limit_messages": 100.0, "limit_bytes": None, "burst_messages": 10.0, "burst_bytes": None}
    return RateFacts(**(values | dict.fromkeys(names, 50.0) | limits | more))


def test_steps_without_a_line_passed_nothing_and_keep_the_limit():
    numbers, series = filled([rate(10), rate(13, limit_messages=None)], "messages")
    assert numbers == [10, 11, 12, 13]
    assert series["passed"] == [50.0, 0.0, 0.0, 50.0]
    assert series["limit"] == [100.0, 100.0, 100.0, None]


def test_the_unit_is_the_one_whose_limit_is_used_more():
    assert chart_unit([rate(1, limit_bytes=60.0)]) == "bytes"
    assert chart_unit([rate(1, limit_bytes=600.0)]) == "messages"
    assert chart_unit([rate(1, limit_messages=None)]) == "messages"


def test_there_is_one_well_formed_picture_for_each_topic_and_direction():
    rates = [rate(1), rate(2), rate(1, direction="dispatch"), rate(1, name="<u>")]
    drawn = list(charts(rates))
    assert [(chart.name, chart.direction) for chart in drawn] == [
        ("t", "publish"),
        ("t", "dispatch"),
        ("<u>", "publish"),
    ]
    for chart in drawn:
        assert ET.fromstring(chart.svg).get("width") is None
    assert drawn[0].description == (
        "Rate over time: offered at most 50 messages/s, passed at most 50 messages/s, limit at most 100 messages/s."
    )


def test_the_band_is_what_the_burst_allows_over_one_step():
    _, series = filled([rate(1, step_s=5)], "messages")
    assert series["burst"] == [100 + 10 / 5]


def test_where_the_log_does_not_say_what_was_offered_nothing_is_drawn():
    _, series = filled([rate(1, offered_messages=None)], "messages")
    assert series["offered"] == [None]
    assert "offered" not in next(charts([rate(1, offered_messages=None)])).description


def test_the_longer_steps_of_a_limit_come_first():
    assert [chart.step_s for chart in charts([rate(1), rate(1, step_s=5)])] == [5, 1]


def test_what_happens_at_nearly_the_same_time_has_one_label():
    day = 86400
    marks = [
        Mark(number=number, proxy_id="p", at_s=at * day)
        for number, at in ((1, 0.5), (2, 10.0), (3, 10.2), (4, 50.0), (5, 101.0))
    ]
    assert labels(marks, 1.0, 100.0) == [(10.0, "2-3"), (50.0, "4")]


def at(second):
    return datetime.fromtimestamp(second, UTC)


def texts(chart):
    return [text.strip() for text in ET.fromstring(chart.svg).itertext() if text.strip()]


def test_a_chart_numbers_its_own_proxys_events_a_topics_all():
    events = [Event(at=at(3), kind="restart", proxy_id=proxy, text="") for proxy in ("other", "p")]
    own, without = (
        texts(next(charts([rate(1, **more), rate(9, **more)], events))) for more in ({}, {"proxy_id": "", "name": "u"})
    )
    assert "2" in own
    assert "1-2" not in own
    assert "1-2" in without


def test_the_worst_window_of_a_violation_is_shaded_in_the_charts_that_it_lies_in():
    rates = [rate(1), rate(9), rate(1, name="u"), rate(9, name="u")]
    key, window = ("p", "publish", "topic", "t"), (at(3), at(3))
    drawn = [texts(chart) for chart in charts(rates, (), {key: [window]})]
    assert ["worst" in words for words in drawn] == [True, False]
    assert "worst" not in texts(next(charts(rates, (), {key: [(at(20), at(30))]})))


def test_limit_stays_readable_whatever_was_offered():
    rates = [rate(second, offered_messages=50_000.0) for second in range(3)]
    (chart,) = charts(rates)
    assert "offered up to 50k" in chart.svg
    _, series = filled(rates, "messages")
    assert height(50_000.0, series) == MOST_ABOVE * 100
    (calm,) = charts([rate(1), rate(2)])
    assert "offered up to" not in calm.svg


def test_without_a_limit_a_picture_is_as_high_as_the_highest():
    _, series = filled([rate(1, limit_messages=None)], "messages")
    assert height(3_000.0, series) == 3_000.0


def test_offered_bursts_between_pauses_of_reading_are_a_mean():
    assert smoothed([0.0, 300.0, 0.0, 0.0, 300.0, 0.0], 3) == [0.0, 150.0, 100.0, 100.0, 100.0, 100.0]
    assert smoothed([5.0, 7.0], 1) == [5.0, 7.0]


def test_colours_of_a_picture_are_those_of_the_page():
    (chart,) = charts([rate(1), rate(2)])
    assert "var(--passed)" in chart.svg
    assert "#ffffff" not in chart.svg


def test_no_id_is_in_two_charts():
    drawn = list(charts([rate(1), rate(1, name="another")]))
    ids = [identifier for chart in drawn for identifier in re.findall(r'\bid="([^"]*)"', chart.svg)]
    assert len(drawn) == 2
    assert len(ids) == len(set(ids)) > 0
