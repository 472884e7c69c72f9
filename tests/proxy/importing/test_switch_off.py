"""Commands of Pulsar's own tool; tests/real sees that its broker has what they end."""

import pytest

from proxy.config.showing import TakenValue
from proxy.importing.from_admin import OfTopic, broker_off, group_off, namespace_off, topic_off
from proxy.importing.keys import NUMBERS, SUBSCRIBE_PATH
from proxy.importing.result import ImportResult

TOPIC = "persistent://shop/orders/audit"


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("publish", "remove-publish-rate"),
        ("dispatch", "remove-dispatch-rate"),
        ("subscription_dispatch", "remove-subscription-dispatch-rate"),
        ("subscribe", "remove-subscribe-rate"),
    ],
)
def test_each_kind_of_rate_has_its_command(kind: str, command: str) -> None:
    assert namespace_off("shop/orders", kind) == f"pulsar-admin namespaces {command} shop/orders"
    assert topic_off(TOPIC, OfTopic(kind), is_global=False) == f"pulsar-admin topicPolicies {command} {TOPIC}"


def test_global_and_subscription_policies_have_quoted_options() -> None:
    assert topic_off(f"{TOPIC} x", OfTopic("subscription_dispatch", "it's"), is_global=True) == (
        f"pulsar-admin topicPolicies remove-subscription-dispatch-rate --global --subscription 'it'\"'\"'s' '{TOPIC} x'"
    )


def test_a_namespace_leaves_its_group() -> None:
    assert group_off("shop/orders") == "pulsar-admin namespaces remove-resource-group shop/orders"


def test_only_rates_that_were_taken_are_switched_off() -> None:
    findings = ImportResult(
        [TakenValue(NUMBERS[key].path, 1, "") for key in ("dispatchThrottlingRateInMsg", "maxProducersPerTopic")]
    )
    findings.taken.append(TakenValue(SUBSCRIBE_PATH, "5/30s", ""))
    broker_off(findings)
    assert [command.split()[4] for command in findings.switch_off] == [
        "dispatchThrottlingRateInMsg",
        "subscribeThrottlingRatePerConsumer",
    ]
    assert findings.by_hand == []
