"""A stream that says not to be under a limit that holds all of its name."""

import pytest

from compliance.judging.bypasses import falsely_exempt, outsiders
from compliance.judging.clocks import with_axis
from tests.compliance.planted import TOPIC, PlantedLog, frame

pytestmark = pytest.mark.spark


def found(spark, *logs):
    """Sorted, of all proxies: a query costs seconds, whatever it reads."""
    lines, limits = frame(spark, logs, "interval"), frame(spark, logs, "limit")
    rows = outsiders(with_axis(lines, {}), with_axis(limits, {}), []).collect()
    return sorted((row.proxy_id, row.level, row.name) for row in rows)


def spans(proxy_id, level="topic", name=None, *, told="", direction="publish", **stream):
    """Three spans: a stream under the limit, and one that says not to be."""
    log = PlantedLog(proxy_id)
    for _ in range(3):
        log.interval(10, limit_levels=level, direction=direction)
        log.interval(300, limit_levels=told, direction=direction, stream_id=9, **stream)
        log.limit(10, level=level, name=log.topic if name is None else name, direction=direction)
        log.beat()
    return log


NEW = "persistent://acme/orders/new"
NAMES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("namespace", "acme/orders", {}),
    ("topic", NEW, {}),
    ("partitioned_topic", NEW, {}),
    ("role", "billing", {"client_role": "billing"}),
    ("producer", f"p@{NEW}", {"producer_name": "p"}),
    ("resource_group", "gold", {"resource_group": "gold"}),
)
OWN = "persistent://acme/orders/__change_events"


def steady(proxy_id, *, told):
    """A stream with a line of ten seconds, in which its limit has one for each second."""
    log = PlantedLog(proxy_id)
    for second in range(10):
        log.limit(10, level="topic", name=log.topic)
        if second == 9:
            log.interval(100, limit_levels=told, start=log.begin, duration_ms=1e4, steady=True)
        log.beat()
    return log


def test_steady_line_is_compared_with_lines_in_its_time(spark):
    assert found(spark, steady("no topic", told="proxy"), steady("topic", told="topic")) == [
        ("no topic", "topic", PlantedLog("a").topic)
    ]


def test_whoever_publishes_under_a_name_is_under_its_limit(spark):
    """Consumers may be spared, and Pulsar's own topics are. A proxy for each name that is told, and that is not."""
    untold = [spans(f"no {level}", level, name, **stream) for level, name, stream in NAMES]
    told = [spans(level, level, name, told=f"tenant {level}", **stream) for level, name, stream in NAMES]
    spared = [
        spans("consumer", direction="dispatch"),
        spans("own", exempt=True, topic=OWN),
    ]
    accused = sorted((f"no {level}", level, name) for level, name, _ in NAMES)
    assert found(spark, *untold, *told, *spared) == accused


def exempt(name, topic=TOPIC, **more):
    log = PlantedLog(proxy_id=name, topic=topic)
    for _ in range(5):
        log.interval(500, exempt=True, limit_level="", limit_messages=None, limit_levels="exempt", **more)
        log.limit(10, level="namespace", name="acme/orders", throttled_ms=0.0)
        log.second += 1
    return log


def test_only_pulsars_own_topics_are_exempt_whatever_lines_say(spark):
    own = [
        exempt("events", "persistent://acme/orders/__change_events-partition-0"),
        exempt("acknowledgements", "persistent://acme/orders/new-s__transaction_pending_ack"),
        exempt("nothing passed", passed_messages=0),
    ]
    false = [
        exempt("ordinary"),
        exempt("like one", "persistent://acme/orders/__change_events_too"),
        exempt("not persistent", "non-persistent://acme/orders/__change_events"),
    ]
    found = falsely_exempt(frame(spark, own + false, "interval"), frame(spark, own + false, "limit")).collect()
    assert {(row.proxy_id, row.level) for row in found} == {(log.proxy_id, "namespace") for log in false}
    assert found[0].times == 5
