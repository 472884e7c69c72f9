"""From a broker's answers to values of the configuration."""

from typing import Any

import pytest

from proxy.importing.from_admin import BrokerState, NamespacePolicies, OfTopic, TopicPolicies, take_state
from proxy.importing.result import ImportResult
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate

TOPIC = "persistent://shop/orders/audit"
NAMESPACE = "pulsar-admin namespaces"
POLICIES = "pulsar-admin topicPolicies"


def found_in(**parts: Any) -> ImportResult:
    findings = ImportResult()
    take_state(BrokerState(running={"clusterName": "here"}, dynamic={}, **parts), findings)
    return findings


def of_namespace(**policies: Any) -> ImportResult:
    return found_in(namespaces={"shop/orders": NamespacePolicies(**policies)})


def of_topic(**policies: Any) -> ImportResult:
    return found_in(topics={TOPIC: TopicPolicies(**policies)})


def taken(findings: ImportResult) -> dict[tuple[str, ...], Any]:
    return {entry.path[1:]: entry.value for entry in findings.taken}


def test_a_namespaces_rates_are_taken_and_switched_off() -> None:
    findings = of_namespace(
        publish={"here": PublishRate(1)},
        dispatch={"here": DispatchRate(2)},
        subscription_dispatch={"here": DispatchRate(3)},
        subscribe={"here": SubscribeRate(4)},
    )
    assert taken(findings) == {
        ("namespaces", "shop/orders", "publish", "messages"): 1,
        ("namespaces", "shop/orders", "dispatch", "messages"): 2,
        ("namespaces", "shop/orders", "subscription_dispatch", "messages"): 3,
        ("namespaces", "shop/orders", "subscribe"): "4/30s",
    }
    assert findings.switch_off == [
        f"{NAMESPACE} remove-publish-rate shop/orders",
        f"{NAMESPACE} remove-dispatch-rate shop/orders",
        f"{NAMESPACE} remove-subscription-dispatch-rate shop/orders",
        f"{NAMESPACE} remove-subscribe-rate shop/orders",
    ]
    assert findings.left == []


def test_rates_of_other_clusters_and_rates_that_limit_nothing_are_not_taken() -> None:
    findings = of_namespace(
        publish={"there": PublishRate(1)}, dispatch={"here": DispatchRate(-1, 0)}, subscribe={"here": SubscribeRate(0)}
    )
    assert (findings.taken, findings.switch_off) == ([], [])


def test_a_dispatch_rate_may_stand_where_older_brokers_wrote_it() -> None:
    findings = of_namespace(dispatch={}, dispatch_of_old={"here": DispatchRate(2)})
    assert [entry.value for entry in findings.taken] == [2]


@pytest.mark.parametrize(
    ("policies", "subject"),
    [
        ({"replicator_dispatch": {"here": DispatchRate(5)}}, "replicatorDispatchRate"),
        ({"max_producers_per_topic": 3}, "max_producers_per_topic 3"),
        ({"max_consumers_per_topic": 0}, "max_consumers_per_topic 0"),
        ({"max_consumers_per_subscription": 3}, "max_consumers_per_subscription 3"),
        ({"max_subscriptions_per_topic": 3}, "max_subscriptions_per_topic 3"),
        ({"max_topics_per_namespace": 3}, "max_topics_per_namespace 3"),
        ({"max_unacked_messages_per_consumer": 3}, "max_unacked_messages_per_consumer 3"),
        ({"max_unacked_messages_per_subscription": 3}, "max_unacked_messages_per_subscription 3"),
    ],
)
def test_what_has_no_place_is_told_with_the_namespace(policies: dict[str, Any], subject: str) -> None:
    findings = of_namespace(**policies)
    assert [limit.what for limit in findings.left] == [f"namespace shop/orders: {subject}"]
    assert (findings.taken, findings.switch_off) == ([], [])


def test_a_group_has_the_namespaces_that_are_bound_to_it() -> None:
    findings = found_in(
        groups={"gold": ResourceGroup(publishRateInMsgs=9, dispatchRateInMsgs=8)},
        namespaces={name: NamespacePolicies(resource_group="gold") for name in ("b/b", "a/a")},
    )
    assert taken(findings) == {
        ("resource_groups", "gold", "publish", "messages"): 9,
        ("resource_groups", "gold", "dispatch", "messages"): 8,
        ("resource_groups", "gold", "namespaces"): ("a/a", "b/b"),
    }
    assert findings.switch_off == [f"{NAMESPACE} remove-resource-group a/a", f"{NAMESPACE} remove-resource-group b/b"]
    assert "Pulsar does not enforce its dispatch rates" in findings.notes[0]


def test_groups_that_limit_nothing_or_are_not_there_are_told() -> None:
    findings = found_in(
        groups={"idle": ResourceGroup(), "a\nb": ResourceGroup(1)},
        namespaces={"a/a": NamespacePolicies(resource_group="idle"), "b/b": NamespacePolicies(resource_group="gone")},
    )
    assert [limit.what for limit in findings.left] == [
        "resource group gone of b/b",
        "resource group 'a\\nb'",
        "resource group idle",
    ]
    assert findings.taken == []


def test_a_topics_rates_are_taken_and_switched_off() -> None:
    findings = of_topic(
        local={
            OfTopic("publish"): PublishRate(1),
            OfTopic("subscribe"): SubscribeRate(5, 10),
            OfTopic("subscription_dispatch", "my sub"): DispatchRate(4),
            OfTopic("subscription_dispatch"): DispatchRate(3),
        }
    )
    assert taken(findings) == {
        ("topics", TOPIC, "publish", "messages"): 1,
        ("topics", TOPIC, "subscribe"): "5/10s",
        ("topics", TOPIC, "subscription_dispatch", "messages"): 3,
        ("topics", TOPIC, "subscriptions", "my sub", "dispatch", "messages"): 4,
    }
    assert findings.switch_off == [
        f"{POLICIES} remove-publish-rate {TOPIC}",
        f"{POLICIES} remove-subscribe-rate {TOPIC}",
        f"{POLICIES} remove-subscription-dispatch-rate {TOPIC}",
        f"{POLICIES} remove-subscription-dispatch-rate --subscription 'my sub' {TOPIC}",
    ]


def test_a_clusters_own_value_holds_before_that_of_all_and_both_are_to_go() -> None:
    of = OfTopic("publish")
    findings = of_topic(local={of: PublishRate(1)}, everywhere={of: PublishRate(2, 2000)})
    assert taken(findings) == {("topics", TOPIC, "publish", "messages"): 1}
    assert [command.split()[2:4] for command in findings.switch_off] == [
        ["remove-publish-rate", TOPIC],
        ["remove-publish-rate", "--global"],
    ]


def test_a_value_that_limits_nothing_counts_as_not_set() -> None:
    of = OfTopic("dispatch")
    findings = of_topic(local={of: DispatchRate(-1)}, everywhere={of: DispatchRate(2)})
    assert [(entry.value, entry.origin.split(":")[0]) for entry in findings.taken] == [(2, "global topic policy")]
    assert len(findings.switch_off) == 1


def test_what_a_topic_has_no_place_for_is_told() -> None:
    findings = of_topic(local={OfTopic("subscription_dispatch", "a\nb"): DispatchRate(4)})
    assert [limit.what for limit in findings.left] == [f"{TOPIC}: dispatchRate of subscription 'a\\nb'"]
    assert findings.taken == []


def test_names_and_topics_that_could_not_be_read_are_told() -> None:
    findings = found_in(strange=["a/b/c"], unlisted=[TOPIC], unseen={"a/b/c\0"}, has_topic_policies=False)
    assert [limit.what for limit in findings.left] == ["a/b/c"]
    assert findings.notes[0].startswith(f"{TOPIC}: the broker cannot list its subscriptions")
    assert findings.notes[1].startswith(r"'a/b/c\x00': has characters that cannot be seen, and was not asked for")
    assert "(405)" in findings.notes[2]


def test_names_longer_than_the_file_takes_them_are_left() -> None:
    long, fits = "x" * 1025, "y" * 1024
    policies = NamespacePolicies(publish={"here": PublishRate(1)}, resource_group="gold")
    own = TopicPolicies(local={OfTopic("publish"): PublishRate(1)})
    findings = found_in(
        namespaces={f"shop/{name}": policies for name in (long, fits)},
        groups={"gold": ResourceGroup(publishRateInMsgs=1)},
        topics={f"persistent://shop/orders/{name}": own for name in (long, fits)},
    )

    assert taken(findings) == {
        ("namespaces", f"shop/{fits}", "publish", "messages"): 1,
        ("resource_groups", "gold", "publish", "messages"): 1,
        ("resource_groups", "gold", "namespaces"): (f"shop/{fits}",),
        ("topics", f"persistent://shop/orders/{fits}", "publish", "messages"): 1,
    }
    assert [left.what for left in findings.left] == [
        f"namespace shop/{long}: publish",
        f"namespace shop/{long}: resource group",
        f"persistent://shop/orders/{long}",
    ]
