import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.policies import Policies, Value
from limiter.rates import Direction, Limit, rate
from protocol.topic_name import parse_topic

TOPIC = "persistent://t/n/x"


def value(messages: int, origin: str = "file") -> Value:
    return Value(Limit(rate(messages)), origin)


def in_force(
    policies: Policies, topic: str = TOPIC, direction: Direction = "publish"
) -> list[tuple[str, str, int, str]]:
    """What applies, outermost first: level, name, messages a second, source."""
    found = policies.in_force(direction, parse_topic(topic))
    return [
        (one.scope.level, one.scope.name, one.limit.messages.tokens, one.source) for one in found if one.limit.messages
    ]


def test_nothing_configured_limits_nothing() -> None:
    assert in_force(Policies()) == []


def test_a_namespaces_value_is_each_topics_own() -> None:
    policies = Policies(namespaces={("publish", "t/n"): value(500)})
    assert in_force(policies, "persistent://t/n/x") == [("topic", "persistent://t/n/x", 500, "namespace file")]
    assert in_force(policies, "persistent://t/n/y") == [("topic", "persistent://t/n/y", 500, "namespace file")]


def test_a_topics_value_comes_before_its_namespaces() -> None:
    policies = Policies(topics={("publish", TOPIC): value(7, "rest")}, namespaces={("publish", "t/n"): value(500)})
    assert in_force(policies) == [("topic", TOPIC, 7, "topic rest")]


def test_a_total_applies_besides_and_stands_outside() -> None:
    policies = Policies(
        topics={("publish", TOPIC): value(7)},
        namespace_totals={("publish", "t/n"): value(1000, "rest")},
    )
    assert in_force(policies) == [("namespace", "t/n", 1000, "total rest"), ("topic", TOPIC, 7, "topic file")]


def test_a_topics_empty_value_lifts_its_namespaces() -> None:
    policies = Policies(topics={("publish", TOPIC): Value(Limit(), "file")}, namespaces={("publish", "t/n"): value(5)})
    assert in_force(policies) == []


def test_values_are_not_mixed_between_levels() -> None:
    """As with Pulsar: a topic's bytes alone leave it without the namespace's messages."""
    own = Value(Limit(size=rate(1000)), "file")
    policies = Policies(topics={("publish", TOPIC): own}, namespaces={("publish", "t/n"): value(5)})
    (found,) = policies.in_force("publish", parse_topic(TOPIC))
    assert found.limit == own.limit


def test_directions_never_meet() -> None:
    policies = Policies(namespaces={("dispatch", "t/n"): value(5)})
    assert in_force(policies) == []
    assert in_force(policies, direction="dispatch") == [("topic", TOPIC, 5, "namespace file")]


def test_a_partition_has_the_topics_value_and_a_limit_of_its_own() -> None:
    policies = Policies(topics={("publish", TOPIC): value(7)})
    for index in (0, 12):
        name = f"{TOPIC}-partition-{index}"
        assert in_force(policies, name) == [("topic", name, 7, "topic file")]


@pytest.mark.parametrize(
    "topic",
    [
        "persistent://t/n/__change_events",
        "persistent://t/n/__change_events-partition-1",
        "persistent://pulsar/system/anything",
        "persistent://t/n/__transaction_buffer_snapshot",
    ],
)
def test_pulsars_own_topics_are_exempt_from_every_level(topic: str) -> None:
    namespace = parse_topic(topic).namespace_name
    policies = Policies(
        topics={("publish", topic): value(1)},
        namespaces={("publish", namespace): value(1)},
        namespace_totals={("publish", namespace): value(1)},
    )
    assert in_force(policies, topic) == []


@given(
    topic=st.none() | st.integers(1, 9), namespace=st.none() | st.integers(1, 9), total=st.none() | st.integers(1, 9)
)
def test_the_first_level_that_is_set_wins_and_the_total_is_apart(topic, namespace, total) -> None:
    policies = Policies()
    if topic:
        policies.topics["publish", TOPIC] = value(topic)
    if namespace:
        policies.namespaces["publish", "t/n"] = value(namespace)
    if total:
        policies.namespace_totals["publish", "t/n"] = value(total)
    expected = [number for number in (total, topic or namespace) if number]
    assert [number for _, _, number, _ in in_force(policies)] == expected
