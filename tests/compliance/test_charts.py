import xml.etree.ElementTree as ET

from compliance.charts import chart_unit, charts, filled
from compliance.facts import RateFacts


def rate(step, **more):
    names = ("offered_messages", "offered_bytes", "passed_messages", "passed_bytes")
    values = {"topic": "t", "direction": "publish", "step_s": 1, "step": step} | dict.fromkeys(names, 50.0)
    return RateFacts(**(values | {"limit_messages": 100.0, "limit_bytes": None} | more))


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
    rates = [rate(1), rate(2), rate(1, direction="dispatch"), rate(1, topic="<u>")]
    drawn = list(charts(rates))
    assert [(chart.topic, chart.direction) for chart in drawn] == [
        ("t", "publish"),
        ("t", "dispatch"),
        ("<u>", "publish"),
    ]
    for chart in drawn:
        assert ET.fromstring(chart.svg).get("width") is None
    assert drawn[0].description == (
        "Rate over time: offered at most 50 messages/s, passed at most 50 messages/s, limit at most 100 messages/s."
    )
