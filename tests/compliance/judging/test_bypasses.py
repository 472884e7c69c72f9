"""A stream that says not to be under a limit that holds all of its name."""

import msgspec

from compliance.judging.bypasses import LIMITED, Suspicion
from compliance.judging.clocks import placed
from compliance.judging.facts import DoubtFacts
from compliance.judging.fleets import FleetNotes
from compliance.judging.judge import Judging
from tests.compliance.arrow import lines_of, summed_of
from tests.compliance.planted import TOPIC, PlantedLog


def doubts(*logs, kind):
    suspicion = Suspicion(summed_of(LIMITED, *logs), {})
    judging = Judging({}, {}, FleetNotes(), suspicion)
    outside = judging.figures(judging.parts(lines_of(logs)))["outside"]["facts"].to_pylist()
    all_doubts = [msgspec.msgpack.decode(doubt, type=DoubtFacts) for doubt in outside]
    return [doubt for doubt in all_doubts if doubt.what == kind]


def found(*logs):
    """Sorted, of all proxies."""
    return sorted((doubt.proxy_id, doubt.level, doubt.name) for doubt in doubts(*logs, kind="outside"))


def spans(proxy_id, level="topic", name=None, *, levels="", direction="publish", **stream):
    """Three spans: a stream under the limit, and one that says not to be."""
    log = PlantedLog(proxy_id)
    for _ in range(3):
        log.interval(10, limit_levels=level, direction=direction)
        log.interval(300, limit_levels=levels, direction=direction, stream_id=9, **stream)
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


def steady(proxy_id, *, levels):
    """A stream with a line of ten seconds, in which its limit has one for each second."""
    log = PlantedLog(proxy_id)
    for second in range(10):
        log.limit(10, level="topic", name=log.topic)
        if second == 9:
            log.interval(100, limit_levels=levels, start=log.begin, duration_ms=1e4, steady=True)
        log.beat()
    return log


def test_steady_line_is_compared_with_lines_in_its_time():
    assert found(steady("no topic", levels="proxy"), steady("topic", levels="topic")) == [
        ("no topic", "topic", PlantedLog("a").topic)
    ]


def test_whoever_publishes_under_a_name_is_under_its_limit():
    """Consumers may be spared, and Pulsar's own topics are. A proxy for each name that is told, and that is not."""
    untold = [spans(f"no {level}", level, name, **stream) for level, name, stream in NAMES]
    limited_logs = [spans(level, level, name, levels=f"tenant {level}", **stream) for level, name, stream in NAMES]
    spared = [
        spans("consumer", direction="dispatch"),
        spans("own", exempt=True, topic=OWN),
    ]
    accused = sorted((f"no {level}", level, name) for level, name, _ in NAMES)
    assert found(*untold, *limited_logs, *spared) == accused


def exempt(name, topic=TOPIC, **more):
    log = PlantedLog(proxy_id=name, topic=topic)
    for _ in range(5):
        log.interval(500, exempt=True, limit_level="", limit_messages=None, limit_levels="exempt", **more)
        log.limit(10, level="namespace", name="acme/orders", throttled_ms=0.0)
        log.second += 1
    return log


def test_only_pulsars_own_topics_are_exempt_whatever_lines_say():
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
    exempt_doubts = doubts(*own, *false, kind="exempt")
    assert {(doubt.proxy_id, doubt.level) for doubt in exempt_doubts} == {(log.proxy_id, "namespace") for log in false}
    assert exempt_doubts[0].times == 5


def test_a_span_with_a_change_names_the_limits_at_its_end_only():
    log = spans("changed")
    streams = placed(lines_of([log]), {})
    changes_us = {
        ("changed", "boot-1"): [streams["start_us"].to_pylist()[0] + second * 1_000_000 for second in range(3)]
    }
    judging = Judging({}, {}, FleetNotes(), Suspicion(summed_of(LIMITED, log), changes_us))
    assert len(judging.figures(judging.parts(lines_of([log])))["outside"]) == 0
