"""From Pulsar's rates to a rate section of the configuration."""

from typing import Any

import pytest

from proxy.importing.from_admin import PulsarRate, take_group, take_rate
from proxy.importing.result import ImportResult
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate


def taken(rate: PulsarRate | None) -> dict[str, Any]:
    findings = ImportResult()
    assert take_rate(rate, ("x",), "topic policy", findings) == bool(findings.taken)
    return {entry.path[-1]: (entry.value, entry.origin) for entry in findings.taken}


def test_a_publish_rate_is_per_second() -> None:
    assert taken(PublishRate(5, 1000)) == {
        "messages": (5, "topic policy: publishThrottlingRateInMsg 5"),
        "bytes": (1000, "topic policy: publishThrottlingRateInByte 1000"),
    }


def test_a_dispatch_rate_may_have_a_period_and_be_relative() -> None:
    assert taken(DispatchRate(5, -1, relativeToPublishRate=True, ratePeriodInSecond=30)) == {
        "messages": ("5/30s", "topic policy: dispatchThrottlingRateInMsg 5, ratePeriodInSecond 30"),
        "relativeToPublishRate": (True, "topic policy: relativeToPublishRate"),
    }


@pytest.mark.parametrize("period", [-1, 0, 1])
def test_a_period_below_a_second_is_one(period: int) -> None:
    assert taken(DispatchRate(5, ratePeriodInSecond=period))["messages"][0] == 5


@pytest.mark.parametrize(
    "rate",
    [
        *(None, PublishRate(), PublishRate(0, -1), DispatchRate(0, 0, relativeToPublishRate=True)),
        *(SubscribeRate(), SubscribeRate(0, 10)),
    ],
)
def test_numbers_of_0_and_below_limit_nothing(rate: PulsarRate | None) -> None:
    assert taken(rate) == {}


@pytest.mark.parametrize(
    ("group", "limits", "sections"),
    [
        (ResourceGroup(), (False, False), set()),
        (ResourceGroup(0, -1, 0, None), (False, False), set()),
        (ResourceGroup(publishRateInMsgs=5), (True, False), {("g", "publish", "messages", 5)}),
        (ResourceGroup(dispatchRateInBytes=5), (False, True), {("g", "dispatch", "bytes", 5)}),
    ],
)
def test_a_group_limits_what_it_says(group: ResourceGroup, limits: tuple[bool, bool], sections: set[Any]) -> None:
    findings = ImportResult()
    assert take_group(group, ("g",), findings) == limits
    assert {(*entry.path, entry.value) for entry in findings.taken} == sections


def test_a_subscribe_rate_is_one_value() -> None:
    origin = "topic policy: subscribeThrottlingRatePerConsumer 5, ratePeriodInSecond 10"
    assert taken(SubscribeRate(5, 10)) == {"x": ("5/10s", origin)}
