"""What lines say of each other across a run, on Spark: changes in vain, false exemption, streams that vanish."""

from datetime import timedelta

import pytest
from pyspark.sql import functions as F

from compliance.judging.clocks import axes_of, beat_pairs, with_axis
from compliance.judging.contradictions import falsely_exempt, unbalanced, vanished, without_effect
from compliance.judging.judge import with_waits
from tests.compliance.arrow import kept_of
from tests.compliance.planted import BEGIN, TOPIC, PlantedLog, frame

pytestmark = pytest.mark.spark

RATES = '{"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": -1}'
PERIOD = '{"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}'
GROUP = '{"publishRateInMsgs": 50, "publishRateInBytes": -1, "dispatchRateInMsgs": -1, "dispatchRateInBytes": -1}'
NEW = {"before": None, "after": RATES}
PER_TOPIC = {"what": "dynamic", "setting": "", "name": "maxPublishRatePerTopicInMessages"}
OF_GROUP = {"what": "group", "setting": "", "name": "gold", "before": None, "after": GROUP}
GOLD = {"level": "resource_group", "name": "gold"}
PRODUCER = {"level": "producer", "name": f"p@{TOPIC}"}
SUBSCRIPTION = {"level": "subscription", "name": f"s@{TOPIC}-partition-3", "direction": "dispatch"}
DISPATCHED = '{"dispatchThrottlingRateInMsg": 50, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}'

IN_VAIN = {
    "the first value over a file's": ({"source": "topic file"}, NEW),
    "over a wider setting": ({"source": "namespace rest"}, NEW),
    "over what is set for each": (
        {"source": "each total file", "level": "tenant", "name": "acme"},
        {"setting": "tenant", "name": "acme"} | NEW,
    ),
    "a key of the broker's over the file": ({"source": "broker file"}, PER_TOPIC | {"before": None, "after": "50"}),
    "a key of the broker's again": ({"source": "broker dynamic"}, PER_TOPIC | {"before": "70", "after": "50"}),
    "a group": (GOLD | {"source": "group file"}, OF_GROUP),
    "a producer": (PRODUCER | {"source": "producer file"}, {"setting": "producer", "name": "p"} | NEW),
    "each producer": (PRODUCER | {"source": "each producer file"}, {"setting": "producer", "name": "*"} | NEW),
    "a subscription": (
        SUBSCRIPTION | {"source": "subscription file"},
        {"what": "dispatch", "setting": "subscription", "name": f"s@{TOPIC}", "before": None, "after": DISPATCHED},
    ),
    "all subscriptions of a topic": (
        SUBSCRIPTION | {"source": "namespace file"},
        {"what": "dispatch", "setting": "subscription_of_topic", "name": TOPIC, "before": None, "after": DISPATCHED},
    ),
}
AS_IT_SHOULD = {
    "a narrower one goes before": (
        {"source": "topic file"},
        {"setting": "topic_of_namespace", "name": "acme/orders"} | NEW,
    ),
    "what is set limits nothing": (
        {"source": "topic file", "direction": "dispatch"},
        {"what": "dispatch", "before": None, "after": PERIOD},
    ),
    "a key that is of nothing": ({"source": "broker dynamic"}, PER_TOPIC | {"before": None, "after": "0"}),
    "the other direction of a group": (GOLD | {"source": "group file", "direction": "dispatch"}, OF_GROUP),
    "another producer": (PRODUCER | {"source": "producer file"}, {"setting": "producer", "name": "other"} | NEW),
    "it has effect": ({"source": "topic file"}, NEW, {"source": "topic rest", "rate": 50.0}),
    "the same value from elsewhere": ({"source": "topic file"}, NEW, {"source": "topic rest"}),
}


def changed(name, own, change, behind=None):
    """A limit of one proxy, which is changed after five seconds; behind that its lines may say something else."""
    log = PlantedLog(proxy_id=name)
    for second in range(10):
        if second == 5:
            log.change(**change)
        log.limit(10, throttled_ms=0.0, **(own | (behind or {} if second >= 5 else {})))
        log.second += 1
    return log


def test_a_change_without_effect_is_found_at_every_level(spark):
    logs = [changed(name, *of) for name, of in (IN_VAIN | AS_IT_SHOULD).items()]
    changes, limits = (with_axis(frame(spark, logs, kind), {}) for kind in ("change", "limit"))
    found = without_effect(changes, limits).collect()
    assert {row.proxy_id for row in found} == set(IN_VAIN)
    assert {row.what for row in found} == {"change"}


def test_a_clock_that_is_set_back_behind_a_change_makes_it_no_change_in_vain(spark):
    """In some logs each line behind the step is earlier by the clock than the change, in some the change is in vain."""
    logs = []
    for is_in_vain in (True, False):
        for beats in (1, 4):
            log = PlantedLog(proxy_id=f"{is_in_vain}, {beats}")
            origin, beaten = log.begin, 0
            for second in range(20):
                is_changed = second >= 8
                if second == 8:
                    log.change(**NEW)
                log.begin = origin - timedelta(seconds=11 if second >= 13 else 0)
                rest = (
                    {"source": "topic rest", "rate": 50.0}
                    if is_changed and not is_in_vain
                    else {"source": "topic rest"}
                )
                log.limit(10, throttled_ms=0.0, **rest)
                if second % beats == beats - 1:
                    was = origin if beaten < 13 else log.begin
                    lasts_ms = 1000.0 * (second + 1 - beaten)
                    log.beat(start=was + timedelta(seconds=beaten), duration_ms=lasts_ms)
                    beaten, log.second = second + 1, second
                log.second += 1
            logs.append(log)
    axes = axes_of(beat_pairs(frame(spark, logs, "heartbeat"), kept_of(spark, *logs)[1]), frame(spark, logs, "limit"))
    assert {run[0]: axis.ahead for run, axis in axes.items()} == {
        log.proxy_id: [
            (
                next(one.seq for one in log.lines if one.start < BEGIN + timedelta(seconds=3) and one.seq > 9),
                -11 * 10**6,
            )
        ]
        for log in logs
    }
    changes, limits = (with_axis(frame(spark, logs, kind), axes) for kind in ("change", "limit"))
    assert {row.proxy_id for row in without_effect(changes, limits).collect()} == {"True, 1", "True, 4"}


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


def holding(name, seconds, *, ends=False, beats=0):
    """A stream that holds ten messages has lines for some of ten seconds, and perhaps one that drops them."""
    log = PlantedLog(proxy_id=name)
    for second in range(10):
        held = {"held_messages": 10, "held_bytes": 1000, "throttled_ms": 1000.0, "limit_levels": "topic"}
        if second < seconds:
            log.interval(0, 10 if second == 0 else 0, **held)
        elif second == seconds and ends:
            log.interval(0, 0, dropped_messages=10, dropped_bytes=1000, held_messages=0, held_bytes=0)
        log.interval(5, stream_id=2, limit_levels="topic") if not beats else None
        log.limit(5)
        log.beat()
    for beat in range(beats):
        start = log._head["start"] + timedelta(seconds=30 * beat)
        log.beat(start=start, end=start + timedelta(seconds=30), duration_ms=30_000.0)
    return log


def test_a_stream_that_holds_something_does_not_vanish(spark):
    gone = [holding("gone", 5), holding("gone while all rest", 10, beats=4)]
    excused = [holding("excused", 5), holding("excused while all rest", 10, beats=4)]
    there = [
        holding("to the end", 10),
        holding("in the last interval but one", 9),
        holding("dropped", 5, ends=True),
        holding("long intervals", 10, beats=2),
    ]
    logs = gone + excused + there
    lines, limits = (with_axis(frame(spark, logs, kind), {}) for kind in ("interval", "limit"))
    beats = frame(spark, logs, "heartbeat").withColumn("start_us", F.unix_micros("start"))
    found = vanished(lines, limits, beats, [(log.proxy_id, log.boot_id) for log in excused]).collect()
    assert {(row.proxy_id, row.level) for row in found} == {(log.proxy_id, "topic") for log in gone}
    assert {row.said for row in found} == {f"a stream of {TOPIC} held 10 messages, and has no more lines"}


def test_a_stream_that_holds_longer_than_it_waits_is_doubted(spark):
    """Each of the three ways to see it, one that hides it, one that waited as it should, one that refused."""
    found = {}
    held: dict[str, object] = {"held_messages": 50, "held_bytes": 5000, "limit_levels": "topic"}
    since: dict[str, object] = {"held_since": BEGIN - timedelta(seconds=1)}
    logs = []
    cases: dict[str, dict[str, object]] = {
        "honest": since | {"throttled_ms": 1000.0, "delay_max_ms": 1500.0},
        "since": since | {"throttled_ms": 900.0},
        "delay": {"held_messages": 0, "held_bytes": 0, "delay_max_ms": 953.0, "throttled_ms": 700.0},
        "stays": {"throttled_ms": 0.0},
        "silent": {"throttled_ms": 1000.0, "held_since": None},
        "late": since | {"throttled_ms": 1001.9},
        "beyond": since | {"throttled_ms": 1002.1},
    }
    for name, more in cases.items():
        log = PlantedLog(proxy_id=name)
        for second in range(3):
            mine = held | more
            offered = 50 if not second or not mine["held_messages"] else 10
            begun = {"held_since": log.begin} if more.get("held_since") and not second else {}
            passed = offered if second or not mine["held_messages"] else 0
            waited = {"delay_max_ms": 0.0} if not second and name == "honest" else {}
            log.interval(passed, offered=offered, **(mine | begun | waited))
            log.limit(passed)
            log.beat()
        logs.append(log)
    refusing = PlantedLog(proxy_id="refusing")
    nothing_held = held | {"held_messages": 0, "held_bytes": 0}
    refusing.interval(20, offered=50, **(nothing_held | {"rejected_messages": 30, "rejected_bytes": 3000}))
    refusing.limit(20)
    lines = frame(spark, [*logs, refusing])
    intervals, limits = (lines.where(F.col("kind") == kind) for kind in ("interval", "limit"))
    for row in unbalanced(with_waits(intervals), limits, []).collect():
        found[row.proxy_id] = row.what, row.said, row.times
    assert found == {
        "since": (
            "stream",
            "a stream held something for at least 1000.000 ms, and its line has a wait of 900.000 ms",
            3,
        ),
        "delay": (
            "stream",
            "a stream held something for at least 953.000 ms, and its line has a wait of 700.000 ms",
            3,
        ),
        "beyond": (
            "stream",
            "a stream's line has a wait that is 2.100 ms longer than the line, which lasts 1000.000 ms",
            3,
        ),
        "silent": ("stream", "a stream held 50 messages, and its line lacks held_since", 3),
        "stays": (
            "stream",
            "a stream held something for at least 1000.000 ms, and its line has a wait of 0.000 ms",
            2,
        ),
    }
