import msgspec
import pytest

from limiter.levels import Setting
from limiter.token_bucket import NOTHING_PUBLISHED, Limit, rate
from proxy.policies.bodies import (
    BodyError,
    DispatchRate,
    PublishRate,
    ResourceGroup,
    SubscribeRate,
    _remembered,
    kept_as_own,
    kept_as_pulsar_s,
    limit_of,
    pulsar_body,
    read_body,
)
from proxy.policies.keys import PolicyKey, PolicyKind, rate_key

_PUBLISH = rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
_DISPATCH = rate_key("dispatch", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
_SUBSCRIBE = PolicyKey(PolicyKind.SUBSCRIBE, Setting.TOPIC_OF_NAMESPACE, "acme/shop")


@pytest.mark.parametrize(
    ("key", "body", "limit"),
    [
        (_PUBLISH, PublishRate(10, -1), Limit(rate(10))),
        (_PUBLISH, PublishRate(0, 1000), Limit(None, rate(1000))),
        (_DISPATCH, DispatchRate(10_000, -1, ratePeriodInSecond=60), Limit(rate(10_000, 60 * 10**9))),
        (_DISPATCH, DispatchRate(5, 6, ratePeriodInSecond=0), Limit(rate(5), rate(6))),
        (_SUBSCRIBE, SubscribeRate(3, 30), Limit(rate(3, 30 * 10**9, 3))),
        (_SUBSCRIBE, SubscribeRate(), Limit()),
    ],
)
def test_what_was_written_is_given_back_and_limits(key: PolicyKey, body: msgspec.Struct, limit: Limit) -> None:
    kept = kept_as_pulsar_s(body)

    assert pulsar_body(key, kept) == body
    assert limit_of(key, kept) == limit


def test_a_section_of_the_configuration_is_shown_to_pulsar_s_tools_per_second() -> None:
    kept = kept_as_own({"messages": "30/min", "bytes": "1MB", "mode": "observe"})

    assert limit_of(_PUBLISH, kept) == Limit(rate(30, 60 * 10**9), rate(1_000_000), mode="observe")
    assert pulsar_body(_PUBLISH, kept) == PublishRate(1, 1_000_000)


@pytest.mark.parametrize(
    ("shown", "body"),
    [
        (PublishRate, PublishRate(2**31 - 1, 2**63 - 1)),
        (DispatchRate, DispatchRate(2**31 - 1, 2**63 - 1, ratePeriodInSecond=1)),
        (SubscribeRate, SubscribeRate(2**31 - 1, 1)),
    ],
)
def test_what_is_larger_than_pulsar_s_fields_is_shown_as_the_most_that_they_hold(
    shown: type[PublishRate], body: msgspec.Struct
) -> None:
    """pulsar-admin could not read the answer."""
    assert shown.of(Limit(rate(2**63 - 1), rate(2**63 - 1, 10**6))) == body


def test_broken_period_is_shown_in_whole_seconds() -> None:
    assert DispatchRate.of(Limit(rate(6, 1_500_000_000))) == DispatchRate(4, 0, ratePeriodInSecond=1)
    assert SubscribeRate.of(Limit(rate(5, 100_000_000))) == SubscribeRate(50, 1)


def test_a_mode_is_given_to_bodies_that_know_numbers_only() -> None:
    assert limit_of(_PUBLISH, kept_as_pulsar_s(PublishRate(1)), "reject").mode == "reject"
    assert limit_of(_PUBLISH, kept_as_own({"messages": 1}), "reject").mode == "enforce"


def test_a_section_may_be_relative_to_the_publish_rate_where_it_is_of_one_topic() -> None:
    kept = kept_as_own({"messages": 5, "relativeToPublishRate": True})

    assert limit_of(_DISPATCH, kept) == Limit(rate(5), published=NOTHING_PUBLISHED)
    assert pulsar_body(_DISPATCH, kept) == DispatchRate(5, 0, relativeToPublishRate=True, ratePeriodInSecond=1)
    with pytest.raises(BodyError, match="relativeToPublishRate is for the dispatch of a topic or of a subscription"):
        limit_of(rate_key("dispatch", Setting.TENANT, "acme"), kept)


def test_a_dispatch_limit_cannot_reject() -> None:
    with pytest.raises(BodyError, match=r"dispatch topic_of_namespace acme/shop: .*mode"):
        limit_of(_DISPATCH, kept_as_own({"messages": 1, "mode": "reject"}))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"publishThrottlingRateInMsg": 1e99}', '{"publishThrottlingRateInMsg":"a"}']
)
def test_what_is_no_body_is_named(text: str) -> None:
    with pytest.raises(BodyError, match="the body is not a PublishRate"):
        read_body(text, PublishRate)


def test_fields_that_pulsar_does_not_know_are_ignored() -> None:
    assert read_body('{"publishThrottlingRateInMsg":1,"more":2}', PublishRate) == PublishRate(1)


def test_a_resource_group_limits_both_directions() -> None:
    group = read_body('{"publishRateInMsgs":5,"dispatchRateInBytes":700}', ResourceGroup)

    assert group.limits() == {"publish": Limit(rate(5)), "dispatch": Limit(None, rate(700))}


def test_equal_bodies_are_one_limit_whosever_they_are() -> None:
    kept = kept_as_pulsar_s(PublishRate(7, 8))
    other = rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/web")
    assert limit_of(_PUBLISH, kept) is limit_of(other, kept)
    assert limit_of(_PUBLISH, kept) is not limit_of(_PUBLISH, kept, "observe")


def test_long_bodies_are_read_but_not_remembered() -> None:
    kept = f'{{"form":"sluice","body":{{"messages":7}}{" " * 5000}}}'
    before = _remembered.cache_info().currsize

    assert limit_of(_PUBLISH, kept) == Limit(rate(7))
    assert _remembered.cache_info().currsize == before


@pytest.mark.parametrize(
    "body",
    [{"bytes": "5" + " " * 5000}, {"messages": 5, "burst_messages": " " * 5000 + "5"}, {"bytes": "0" * 99 + "5"}],
)
def test_no_number_of_a_body_is_longer_than_any_number(body: dict[str, object]) -> None:
    with pytest.raises(BodyError, match="at most 80"):
        limit_of(_PUBLISH, kept_as_own(body))
