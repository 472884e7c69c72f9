"""What each key of a broker becomes, and which values cannot be meant."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.showing import yaml_text
from proxy.importing.keys import (
    BY_ENTRY,
    EVEN_WITHOUT_BACKLOG,
    IMPORTED,
    NUMBERS,
    PRECISE,
    RELATIVE,
    WITHOUT_MEANING,
    BrokerKey,
    take_keys,
)
from proxy.importing.result import ImportFailed, ImportResult, check_text

RATE, PERIOD = "subscribeThrottlingRatePerConsumer", "subscribeRatePeriodPerConsumerInSecond"


def take(**keys: str) -> ImportResult:
    return take_keys(BrokerKey(key, value, f"broker.conf:{line}") for line, (key, value) in enumerate(keys.items(), 1))


def taken(**keys: str) -> dict[str, Any]:
    return {".".join(entry.path): entry.value for entry in take(**keys).taken}


def problems(**keys: str) -> list[str]:
    with pytest.raises(ImportFailed) as failed:
        take(**keys)
    return failed.value.problems


@pytest.mark.parametrize(
    ("key", "path", "value"),
    [
        ("maxPublishRatePerTopicInMessages", "limits.each_topic.publish.messages", 7),
        ("maxPublishRatePerTopicInBytes", "limits.each_topic.publish.bytes", 7),
        ("brokerPublisherThrottlingMaxMessageRate", "limits.proxy.publish.messages", 7),
        ("brokerPublisherThrottlingMaxByteRate", "limits.proxy.publish.bytes", 7),
        ("dispatchThrottlingRateInMsg", "limits.proxy.dispatch.messages", 7),
        ("dispatchThrottlingRateInByte", "limits.proxy.dispatch.bytes", 7),
        ("dispatchThrottlingRatePerTopicInMsg", "limits.each_topic.dispatch.messages", 7),
        ("dispatchThrottlingRatePerTopicInByte", "limits.each_topic.dispatch.bytes", 7),
        ("dispatchThrottlingRatePerSubscriptionInMsg", "limits.each_subscription.dispatch.messages", 7),
        ("dispatchThrottlingRatePerSubscriptionInByte", "limits.each_subscription.dispatch.bytes", 7),
        ("maxConcurrentLookupRequest", "max_lookups_in_flight", 7),
        ("brokerMaxConnections", "max_connections", 7),
        ("brokerMaxConnectionsPerIp", "admission.max_connections_per_address", 7),
        ("maxProducersPerTopic", "admission.max_producers_per_topic", 7),
        ("maxConsumersPerTopic", "admission.max_consumers_per_topic", 7),
        ("maxConsumersPerSubscription", "admission.max_consumers_per_subscription", 7),
        ("maxPendingPublishRequestsPerConnection", "publish.max_pending", 7),
        ("maxMessagePublishBufferSizeInMB", "publish.hold_total", "7MiB"),
    ],
)
def test_a_number_becomes_a_value(key: str, path: str, value: object) -> None:
    findings = take(**{key: " 7 "})
    assert [(".".join(entry.path), entry.value, entry.origin) for entry in findings.taken] == [
        (path, value, f"{key}=7")
    ]
    assert (findings.off, findings.left, findings.others) == ([], [], [])


@pytest.mark.parametrize("key", sorted(set(NUMBERS) - {"maxConcurrentLookupRequest"}))
@pytest.mark.parametrize("value", ["0", "-1", "", "  "])
def test_numbers_of_0_and_below_and_none_at_all_are_off(key: str, value: str) -> None:
    findings = take(**{key: value})
    assert (findings.taken, findings.off, findings.left, findings.others) == ([], [key], [], [])


@pytest.mark.parametrize("key", ["brokerMaxConnections", "maxMessagePublishBufferSizeInMB"])
def test_what_cannot_be_off_here_is_told(key: str) -> None:
    (note,) = take(**{key: "0"}).notes
    assert note.startswith(f"broker.conf:1: {key}=0: ")
    assert take(**{key: "5"}).notes == []


@pytest.mark.parametrize("value", ["0", "-1"])
def test_no_lookup_at_all_cannot_be_meant(value: str) -> None:
    (problem,) = problems(maxConcurrentLookupRequest=value)
    assert problem.startswith(f"broker.conf:1: maxConcurrentLookupRequest: '{value}': ")
    assert "above 0" in problem


def test_bytes_may_be_more_than_messages() -> None:
    assert taken(maxPublishRatePerTopicInBytes="4294967296") == {"limits.each_topic.publish.bytes": 2**32}
    assert "2147483647" in problems(maxPublishRatePerTopicInMessages="4294967296")[0]


@pytest.mark.parametrize(
    ("keys", "rate"),
    [
        ({RATE: "5"}, "5/30s"),
        ({RATE: "5", PERIOD: "10"}, "5/10s"),
        ({RATE: "5", PERIOD: ""}, "5/30s"),
        ({PERIOD: "10"}, None),
        ({RATE: "0", PERIOD: "10"}, None),
        ({RATE: "-1"}, None),
    ],
)
def test_a_subscribe_rate_is_two_keys(keys: dict[str, str], rate: str | None) -> None:
    assert taken(**keys).get("admission.subscribe_rate_per_consumer") == rate


def test_a_subscribe_rate_names_both_keys() -> None:
    assert take(**{RATE: "5", PERIOD: "10"}).taken[0].origin == f"{RATE}=5, {PERIOD}=10"
    assert "by default" in take(**{RATE: "5"}).taken[0].origin


@pytest.mark.parametrize("key", [PRECISE, BY_ENTRY, EVEN_WITHOUT_BACKLOG])
def test_flags_keep_their_names(key: str) -> None:
    assert taken(**{key: "True"}) == {f"dispatch.{key}": True}
    assert taken(**{key: "false"}) == {f"dispatch.{key}": False}


def test_pulsars_own_default_is_taken_and_worth_a_look() -> None:
    assert PRECISE in take(**{PRECISE: "false"}).notes[0]
    assert take(**{PRECISE: "true"}).notes == []


def test_relative_rates_are_relative_wherever_there_is_one() -> None:
    keys = {"dispatchThrottlingRatePerTopicInMsg": "7", "dispatchThrottlingRateInMsg": "9", RELATIVE: "true"}
    assert taken(**keys) == {
        "limits.proxy.dispatch.messages": 9,
        "limits.each_topic.dispatch.messages": 7,
        "limits.each_topic.dispatch.relativeToPublishRate": True,
    }


def test_nothing_is_relative_without_a_rate_of_topics_or_subscriptions() -> None:
    findings = take(**{RELATIVE: "true", "dispatchThrottlingRateInMsg": "9"})
    assert [entry.path for entry in findings.taken] == [("limits", "proxy", "dispatch", "messages")]
    assert findings.left[0].what == f"broker.conf:1: {RELATIVE}=true"
    assert take(**{RELATIVE: "false"}).off == [RELATIVE]


def test_two_ways_of_counting_exclude_each_other_and_both_lines_are_named() -> None:
    first, second = problems(**{PRECISE: "true", BY_ENTRY: "TRUE"})
    assert first.startswith(f"broker.conf:1: {PRECISE}: 'true': this and {BY_ENTRY} (broker.conf:2) exclude")
    assert second.startswith(f"broker.conf:2: {BY_ENTRY}: 'TRUE': this and {PRECISE} (broker.conf:1) exclude")
    assert taken(**{PRECISE: "false", BY_ENTRY: "true"}) == {f"dispatch.{PRECISE}": False, f"dispatch.{BY_ENTRY}": True}


def test_every_problem_is_told_at_once() -> None:
    lines = problems(
        maxPublishRatePerTopicInMessages="many",
        dispatchThrottlingRateInMsg="-5",
        subscribeThrottlingRatePerConsumer="x",
        subscribeRatePeriodPerConsumerInSecond="0",
        preciseDispatcherFlowControl="yes",
        dispatchThrottlingRateRelativeToPublishRate="1",
    )
    assert {problem.split(": ")[1] for problem in lines} == {
        "maxPublishRatePerTopicInMessages",
        "dispatchThrottlingRateInMsg",
        RATE,
        PERIOD,
        PRECISE,
        RELATIVE,
    }
    assert len(lines) == 6


def test_limits_without_meaning_here_are_left_with_the_reason() -> None:
    findings = take(dispatchThrottlingRatePerReplicatorInMsg="100", brokerPublisherThrottlingTickTimeMillis="50")
    assert [limit.what for limit in findings.left] == [
        "broker.conf:1: dispatchThrottlingRatePerReplicatorInMsg=100",
        "broker.conf:2: brokerPublisherThrottlingTickTimeMillis=50",
    ]
    assert "replication" in findings.left[0].why


def test_other_keys_are_named_without_their_values() -> None:
    assert take(clusterName="c", tokenSecretKey="secret").others == ["clusterName", "tokenSecretKey"]


KEYS = sorted({*IMPORTED, *WITHOUT_MEANING, "clusterName", "strangeThrottling"})


@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["0", "-1", "", "1", "30", "true", "false", "x", "-7"])))
def test_no_key_is_dropped_silently(keys: dict[str, str]) -> None:
    try:
        findings = take(**keys)
    except ImportFailed as failed:
        refused = {problem.split(": ")[1] for problem in failed.problems}
        findings = take(**{key: value for key, value in keys.items() if key not in refused})
        keys = {key: value for key, value in keys.items() if key not in refused}
    origins = " ".join([entry.origin for entry in findings.taken] + [limit.what for limit in findings.left])
    for key in keys:
        assert key in findings.off or key in findings.others or f"{key}=" in origins


LEGAL = st.sampled_from(["0", "-1", "", "1", "30", "2147483647"])
ACCEPTED = {
    **dict.fromkeys(NUMBERS, LEGAL),
    "maxConcurrentLookupRequest": st.sampled_from(["1", "30"]),
    RATE: LEGAL,
    PERIOD: st.sampled_from(["1", "30", "2147483647"]),
    RELATIVE: st.sampled_from(["true", "false"]),
    PRECISE: st.just("false"),
    BY_ENTRY: st.sampled_from(["true", "false"]),
}


@given(st.fixed_dictionaries({}, optional=ACCEPTED))
def test_what_is_taken_is_always_a_configuration(keys: dict[str, str]) -> None:
    check_text(yaml_text("", take(**keys).taken))
