"""A change of a limit shows in its lines, or the limit is unknown."""

from datetime import timedelta
from typing import Any

import pytest

from compliance.judging.change_watch import removed_us
from compliance.judging.facts import moment
from tests.compliance.judging.pure import notes_of, verdicts
from tests.compliance.planted import BEGIN, TOPIC, PlantedLog

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
Fields = dict[str, Any]

IN_VAIN: dict[str, tuple[Fields, Fields]] = {
    "the first value over a file's": ({"source": "topic file"}, NEW),
    "another value of a setting": ({"source": "topic rest"}, {"before": '{"a": 100}', "after": '{"a": 10}'}),
    "a value that is removed": ({"source": "topic rest"}, {"before": '{"a": 100}', "after": None}),
    "the value of a file's plan": ({"source": "topic file plan gold"}, NEW),
    "over a wider setting": ({"source": "namespace rest"}, NEW),
    "over a pattern of namespaces": (
        {"source": "pattern namespace rest"},
        {"setting": "topic_of_namespace", "name": "acme/orders"} | NEW,
    ),
    "over the value for each": (
        {"source": "each total file", "level": "tenant", "name": "acme"},
        {"setting": "tenant", "name": "acme"} | NEW,
    ),
    "over a pattern of tenants": (
        {"source": "pattern total file", "level": "tenant", "name": "acme"},
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
AS_IT_SHOULD: dict[str, tuple[Fields, ...]] = {
    "a narrower one goes before": (
        {"source": "topic file"},
        {"setting": "topic_of_namespace", "name": "acme/orders"} | NEW,
    ),
    "a body without a rate": (
        {"source": "topic file", "direction": "dispatch"},
        {"what": "dispatch", "before": None, "after": PERIOD},
    ),
    "a key with the value zero": ({"source": "broker dynamic"}, PER_TOPIC | {"before": None, "after": "0"}),
    "the other direction of a group": (GOLD | {"source": "group file", "direction": "dispatch"}, OF_GROUP),
    "another producer": (PRODUCER | {"source": "producer file"}, {"setting": "producer", "name": "other"} | NEW),
    "another tenant": ({"source": "topic file"}, {"name": "persistent://globex/orders/new"} | NEW),
    "the same text": ({"source": "topic rest"}, {"before": RATES, "after": RATES}),
    "it has effect": ({"source": "topic file"}, NEW, {"source": "topic rest", "rate": 50.0}),
    "the same value from elsewhere": ({"source": "topic file"}, NEW, {"source": "topic rest"}),
}


def of_change(log: PlantedLog) -> set[str]:
    (result,) = verdicts(log.lines).values()
    return {doubt.what for doubt in result.doubts} & {"change"}


def changed(own: Fields, change: Fields, after: Fields | None = None) -> PlantedLog:
    """A limit that is changed after five seconds; its lines may have something else from then on."""
    log = PlantedLog()
    for second in range(10):
        if second == 5:
            log.change(**change)
        log.limit(10, throttled_ms=0.0, **(own | (after or {} if second >= 5 else {})))
        log.second += 1
    return log


@pytest.mark.parametrize("case", IN_VAIN.values(), ids=IN_VAIN)
def test_limit_is_unknown_if_it_takes_no_change(case: tuple[Fields, Fields]) -> None:
    assert of_change(changed(*case)) == {"change"}


@pytest.mark.parametrize("case", AS_IT_SHOULD.values(), ids=AS_IT_SHOULD)
def test_limit_is_known_if_no_change_is_in_vain(case: tuple[Fields, ...]) -> None:
    assert of_change(changed(*case)) == set()


def test_line_that_begins_at_a_change_may_have_the_old_value() -> None:
    """Of many limits that change at once, each one's line goes on until its own turn."""
    log = PlantedLog()
    log.limit(10, source="topic rest")
    log.second += 1
    log.change(before='{"a": 100}', after='{"a": 50}')
    log.limit(10, source="topic rest")
    log.second += 1
    log.limit(10, source="topic rest", rate=50.0)
    log.second += 1
    log.limit(10, source="topic rest", rate=50.0)
    assert of_change(log) == set()


@pytest.mark.parametrize("rounding_us", [-2, -1, 0, 1, 2])
def test_line_that_begins_at_a_change_is_known_despite_rounding(rounding_us: int) -> None:
    """A line's begin is its end less its duration, which are rounded apart."""
    log = PlantedLog()
    for second in range(4):
        if second == 2:
            log.change(before='{"a": 100}', after='{"a": 50}')
        rate, duration_ms = (100.0, 1000.0) if second < 2 else (50.0, 1000 - rounding_us / 1000)
        log.limit(10, throttled_ms=0.0, source="topic rest", rate=rate, duration_ms=duration_ms)
        log.second += 1
    assert of_change(log) == set()


@pytest.mark.parametrize("between", [0, 1])
def test_change_that_is_undone_at_once_is_not_in_vain(between: int) -> None:
    """A hundred becomes fifty and a hundred again; with a line in between, that one should have had fifty."""
    log = PlantedLog()
    for second in range(12):
        if second == 5:
            log.change(before='{"a": 100}', after='{"a": 50}')
        if second == 5 + 2 * between:
            log.change(before='{"a": 50}', after='{"a": 100}')
        log.limit(10, throttled_ms=0.0, source="topic rest")
        log.second += 1
    assert of_change(log) == ({"change"} if between else set())


def test_each_of_two_changes_shows_in_its_own_line() -> None:
    log = PlantedLog()
    for second in range(12):
        if second % 3 == 2:
            log.change(before=f'{{"a": {99 + second // 3}}}', after=f'{{"a": {100 + second // 3}}}')
        log.limit(10, throttled_ms=0.0, source="topic rest", rate=100.0 + (second - 2) // 3 if second >= 2 else 99.0)
        log.second += 1
    assert of_change(log) == set()


@pytest.mark.parametrize("is_in_vain", [True, False])
def test_clock_that_is_set_back_after_a_change_hides_nothing(*, is_in_vain: bool) -> None:
    log = PlantedLog()
    for second in range(20):
        log.ahead_s = -11.0 if second >= 13 else 0.0
        if second == 8:
            log.change(**NEW)
        log.limit(10, throttled_ms=0.0, source="topic rest", rate=50.0 if second >= 8 and not is_in_vain else 100.0)
        log.second += 1
    assert of_change(log) == ({"change"} if is_in_vain else set())


REMOVED: dict[str, tuple[Fields, Fields]] = {
    "at run time": ({"source": "topic rest"}, {"before": RATES, "after": None}),
    "by a value that limits nothing": ({"source": "topic rest"}, {"before": RATES, "after": RATES.replace("50", "-1")}),
    "in the file": (
        {"source": "topic file"},
        {"what": "file", "setting": "", "name": "", "before": f"publish topic {TOPIC}: messages 100", "after": None},
    ),
    "in the file, of a plan": (
        {"source": "each total file plan gold", "level": "tenant", "name": "acme"},
        {
            "what": "file",
            "setting": "",
            "name": "",
            "before": "publish tenant *: messages 100 (plan gold); publish tenant globex: bytes 1k; block role 'r': no",
            "after": "publish tenant globex: bytes 2k",
        },
    ),
}
THERE: dict[str, tuple[Fields, Fields]] = {
    "another limit is removed": (
        {"source": "topic rest"},
        {"setting": "producer", "name": "p", **REMOVED["at run time"][1]},
    ),
    "it has another value": (
        {"source": "topic file"},
        {
            "what": "file",
            "setting": "",
            "name": "",
            "before": f"publish topic {TOPIC}: messages 100",
            "after": f"publish topic {TOPIC}: messages 50",
        },
    ),
    "the file's value is not its own": (
        {"source": "topic rest"},
        REMOVED["in the file"][1],
    ),
    "the text is cut": (
        {"source": "topic file"},
        REMOVED["in the file"][1] | {"after": "publish topic persistent://a/b/c: messages 1; … and 7 more"},
    ),
}


def removed_of(log: PlantedLog) -> Any:
    """When its only limit was removed."""
    ((key, result),) = verdicts(log.lines).items()
    at_us = removed_us(notes_of(log.lines).of_limiter(*key).values, result.last)
    return None if at_us is None else moment(at_us)


def removed_at(own: Fields, change: Fields, *, later: Fields | None = None, idle: int = 0) -> Any:
    """When a limit was removed that passed something until then, or until a while before."""
    log = PlantedLog()
    for _ in range(5):
        log.limit(10, throttled_ms=0.0, **own)
        log.second += 1
    log.second += idle
    log.change(**change)
    log.second += 3
    if later is not None:
        log.change(**later)
    return removed_of(log)


@pytest.mark.parametrize("idle", [0, 7])
@pytest.mark.parametrize("case", REMOVED.values(), ids=REMOVED)
def test_limit_is_removed_by_a_change_of_its_own_setting(case: tuple[Fields, Fields], idle: int) -> None:
    assert removed_at(*case, idle=idle) == BEGIN + timedelta(seconds=5 + idle)


@pytest.mark.parametrize("case", THERE.values(), ids=THERE)
def test_limit_is_there_if_its_setting_has_a_value(case: tuple[Fields, Fields]) -> None:
    assert removed_at(*case) is None


def test_limit_that_is_set_again_is_not_removed() -> None:
    own, change = REMOVED["at run time"]
    assert removed_at(own, change, later=NEW) is None


def test_limit_that_has_further_lines_is_not_removed() -> None:
    log = changed({"source": "topic rest"}, {"before": RATES, "after": None}, {"source": "namespace file"})
    assert removed_of(log) is None
