import pytest

from limiter.token_bucket import Limit, rate
from proxy.policies.bodies import BodyError, group_limits, kept_as_own_group, own_group, pulsar_group


def test_pulsar_s_form_says_both_directions() -> None:
    limits = group_limits("gold", '{"publishRateInMsgs":5}', {})
    assert limits == {"publish": Limit(rate(5)), "dispatch": Limit()}
    assert own_group('{"publishRateInMsgs":5}') is None


def test_own_form_leaves_missing_directions_as_they_are() -> None:
    kept = kept_as_own_group({"publish": {"messages": "30/min", "mode": "observe"}})
    assert group_limits("gold", kept, {}) == {"publish": Limit(rate(30, 60 * 10**9), mode="observe")}
    assert group_limits("gold", kept_as_own_group({"dispatch": None}), {}) == {"dispatch": Limit()}


@pytest.mark.parametrize("kept", ["5", '{"form":"other"}', '{"form":"sluice","body":{"publish":{"messages":"x"}}}'])
def test_what_is_no_group_is_an_error(kept: str) -> None:
    with pytest.raises(BodyError):
        group_limits("gold", kept, {})


def test_pulsar_s_tools_see_rates_per_second() -> None:
    shown = pulsar_group({"publish": Limit(rate(120, 60 * 10**9), rate(1, 60 * 10**9)), "dispatch": None})
    assert (shown.publishRateInMsgs, shown.publishRateInBytes, shown.dispatchRateInMsgs) == (2, 1, None)


def test_what_is_larger_than_pulsar_s_fields_is_shown_as_the_most_that_they_hold() -> None:
    shown = pulsar_group({"publish": Limit(rate(2**63 - 1), rate(2**63 - 1, 10**6)), "dispatch": None})
    assert (shown.publishRateInMsgs, shown.publishRateInBytes) == (2**31 - 1, 2**63 - 1)
