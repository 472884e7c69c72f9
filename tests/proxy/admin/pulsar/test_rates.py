"""What is asked and answered here was seen at a 4.0.8 broker, but for what the names of tests say."""

from typing import Any

import pytest
from yarl import URL

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import NOTHING_PUBLISHED, Limit, rate
from proxy.policies.store import StoredChange
from tests.proxy.admin.pulsar.serving import Serving, file_says, serving

_NAMESPACE = "/namespaces/acme/shop"
_TOPIC = "/persistent/acme/shop/orders"
_ORDERS = "persistent://acme/shop/orders"
_PUBLISH = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}
_DISPATCH = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": 600,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 7,
}
_NO_DISPATCH = {
    "dispatchThrottlingRateInMsg": 0,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
_SUBSCRIBE = {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 10}
_PATHS = [
    (f"{_NAMESPACE}/publishRate", _PUBLISH, (200, "")),
    (f"{_NAMESPACE}/dispatchRate", _DISPATCH, (200, "")),
    (f"{_NAMESPACE}/subscriptionDispatchRate", _DISPATCH, (200, "")),
    (f"{_NAMESPACE}/subscribeRate", _SUBSCRIBE, (200, "")),
    (f"{_TOPIC}/publishRate", _PUBLISH, (204, "")),
    (f"{_TOPIC}/dispatchRate", _DISPATCH, (200, "")),
    (f"{_TOPIC}/subscriptionDispatchRate", _DISPATCH, (200, "")),
    (f"{_TOPIC}/subscribeRate", _SUBSCRIBE, (200, "")),
    (f"{_TOPIC}/s1/dispatchRate", _DISPATCH, (200, "")),
    ("/non-persistent/acme/shop/orders/publishRate", _PUBLISH, (204, "")),
]


@pytest.mark.parametrize(("path", "body", "unset"), _PATHS)
async def test_a_rate_is_given_back_as_it_was_set_until_it_is_taken_back(
    path: str, body: dict[str, Any], unset: tuple[int, str]
) -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("GET", path) == unset

        assert await pulsar.ask("POST", path, body) == (204, "")
        assert await pulsar.ask("GET", path) == (200, body)

        assert await pulsar.ask("DELETE", path) == (204, "")
        assert await pulsar.ask("GET", path) == unset


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{}",
        '{"publishThrotlingRateInMsg": 60}',
        '{"ratePeriodInSecond": 60, "relativeToPublishRate": true}',
    ],
)
@pytest.mark.parametrize(("path", "body", "_unset"), _PATHS)
async def test_a_body_without_a_rate_is_refused(
    path: str, body: dict[str, Any], _unset: tuple[int, str], text: str
) -> None:
    """A broker takes each of them for no limit; here it would take the configuration file's limit out of force."""
    async with serving() as pulsar:
        await pulsar.ask("POST", path, body)

        headers = {"Content-Type": "application/json"}
        status, answer = await pulsar.ask("POST", path, data=text, headers=headers)

        assert (status, next(iter(body)) in answer["reason"], "DELETE" in answer["reason"]) == (412, True, True)
        assert await pulsar.ask("GET", path) == (200, body)


async def test_unknown_keys_beside_a_rate_are_ignored() -> None:
    async with serving() as pulsar:
        path = f"{_NAMESPACE}/publishRate"
        assert await pulsar.ask("POST", path, _PUBLISH | {"ofTheNextRelease": 1}) == (204, "")
        assert await pulsar.ask("GET", path) == (200, _PUBLISH)


@pytest.mark.parametrize("period", [-1, -2])
@pytest.mark.parametrize(("name", "body"), [("dispatchRate", _DISPATCH), ("subscribeRate", _SUBSCRIBE)])
async def test_a_negative_period_is_refused(name: str, body: dict[str, Any], period: int) -> None:
    async with serving() as pulsar:
        path = f"{_NAMESPACE}/{name}"
        status, answer = await pulsar.ask("POST", path, body | {"ratePeriodInSecond": period})
        assert (status, f"ratePeriodInSecond: {period} is no period" in answer["reason"]) == (400, True)
        assert await pulsar.ask("GET", path) == (200, "")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *(("a+b", "a b"), ("a%20b", "a b"), ("a%2Bb", "a+b"), ("a%252Bb", "a%2Bb"), ("a%2520b", "a%20b")),
        *(("%C3%A9", "é"), ("a%25b", "a%b"), ("a%3Bb", "a;b"), ("a%3Fb", "a?b"), ("a%23b", "a#b"), ("a&b=c", "a&b=c")),
    ],
)
async def test_a_plus_in_a_path_is_a_space(written: str, name: str) -> None:
    """In names of topics and subscriptions: so pulsar-admin encodes them, and a broker decodes them."""
    topic, subscription = f"persistent://acme/shop/{name}", f"{name}@persistent://acme/shop/{name}"
    async with serving() as pulsar:
        for place in f"persistent/acme/shop/{written}", f"persistent/acme/shop/{written}/{written}":
            url = URL(f"/admin/v2/{place}/dispatchRate", encoded=True)
            async with pulsar.client.post(url, json={"dispatchThrottlingRateInMsg": 7}) as response:
                assert response.status == 204
        assert pulsar.messages("dispatch", Setting.TOPIC, topic) == 7
        assert pulsar.messages("dispatch", Setting.SUBSCRIPTION, subscription) == 7


@pytest.mark.parametrize("written", ["a;b", "%FF"])
@pytest.mark.parametrize("path", ["{}/publishRate", "orders/{}/dispatchRate"])
async def test_a_name_that_is_read_in_two_ways_is_refused(path: str, written: str) -> None:
    async with serving() as pulsar:
        url = URL(f"/admin/v2/persistent/acme/shop/{path.format(written)}", encoded=True)
        async with pulsar.client.post(url, json=_PUBLISH) as response:
            assert response.status == 412
            assert "percent encoding" in (text := await response.text()) or "%3B" in text


@pytest.mark.parametrize(("path", "body", "_unset"), _PATHS)
async def test_a_number_below_minus_1_is_refused(path: str, body: dict[str, Any], _unset: tuple[int, str]) -> None:
    """A broker takes it for no limit; here it would take the configuration file's limit out of force."""
    async with serving() as pulsar:
        for field in [name for name in body if "Throttling" in name]:
            status, answer = await pulsar.ask("POST", path, {field: -2})
            assert (status, f"{field}: -2 is no rate: write -1" in answer["reason"]) == (400, True)
        assert await pulsar.ask("GET", path) == _unset


async def test_what_a_dispatch_rate_leaves_out_is_0_and_1_s() -> None:
    """A broker shows a period of 0, and counts it as 1 s."""
    async with serving() as pulsar:
        await pulsar.ask("POST", f"{_TOPIC}/s1/dispatchRate", {"dispatchThrottlingRateInMsg": 5})

        dispatch_rate = _NO_DISPATCH | {"dispatchThrottlingRateInMsg": 5}
        assert await pulsar.ask("GET", f"{_TOPIC}/s1/dispatchRate") == (200, dispatch_rate)
        name = f"s1@{_ORDERS}"
        assert pulsar.messages("dispatch", Setting.SUBSCRIPTION, name) == 5


@pytest.mark.parametrize(
    ("path", "applied"),
    [
        (f"{_TOPIC}/publishRate", (204, "")),
        (f"{_TOPIC}/dispatchRate", (200, _NO_DISPATCH)),
        (f"{_TOPIC}/subscriptionDispatchRate", (200, _NO_DISPATCH)),
        (f"{_TOPIC}/s1/dispatchRate", (200, _NO_DISPATCH)),
        (f"{_TOPIC}/subscribeRate", (200, {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30})),
    ],
)
async def test_where_nothing_is_set_what_applies_is_nothing(path: str, applied: tuple[int, Any]) -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("GET", f"{path}?applied=true") == applied


async def test_what_applies_to_a_topic_is_its_own_then_its_namespace_s_then_the_broker_s() -> None:
    async with serving() as pulsar:
        path = f"{_TOPIC}/dispatchRate"
        await pulsar.ask("POST", "/brokers/configuration/dispatchThrottlingRatePerTopicInMsg/9")
        assert await applied(pulsar, path) == 9

        await pulsar.ask("POST", f"{_NAMESPACE}/dispatchRate", _DISPATCH)
        assert await pulsar.ask("GET", f"{path}?applied=true") == (200, _DISPATCH)

        await pulsar.ask("POST", path, {"dispatchThrottlingRateInMsg": 4})
        assert await applied(pulsar, path) == 4
        assert await pulsar.ask("GET", f"{_NAMESPACE}/dispatchRate") == (200, _DISPATCH)


async def test_a_value_that_limits_nothing_does_not_apply() -> None:
    async with serving() as pulsar:
        await pulsar.ask("POST", f"{_NAMESPACE}/publishRate", _PUBLISH)
        await pulsar.ask("POST", f"{_TOPIC}/publishRate", {"publishThrottlingRateInMsg": -1})

        assert await pulsar.ask("GET", f"{_TOPIC}/publishRate?applied=true") == (200, _PUBLISH)


async def test_where_nothing_limits_the_narrowest_value_is_shown_as_it_was_written() -> None:
    async with serving() as pulsar:
        path, nothing = f"{_TOPIC}/dispatchRate", _NO_DISPATCH | {"dispatchThrottlingRateInMsg": -1}
        await pulsar.ask("POST", f"{_NAMESPACE}/dispatchRate", nothing)
        assert await pulsar.ask("GET", f"{path}?applied=true") == (200, nothing)

        await pulsar.ask("POST", path, _NO_DISPATCH | {"ratePeriodInSecond": 9})
        assert await pulsar.ask("GET", f"{path}?applied=true") == (200, _NO_DISPATCH | {"ratePeriodInSecond": 9})


async def test_what_applies_to_a_subscription_goes_through_all_four() -> None:
    async with serving() as pulsar:
        path = f"{_TOPIC}/s1/dispatchRate"
        for number, at in enumerate(
            [f"{_NAMESPACE}/subscriptionDispatchRate", f"{_TOPIC}/subscriptionDispatchRate", path], start=1
        ):
            await pulsar.ask("POST", at, {"dispatchThrottlingRateInMsg": number})
            assert await applied(pulsar, path) == number


async def test_a_global_policy_of_a_topic_is_another_one() -> None:
    async with serving() as pulsar:
        path = f"{_TOPIC}/publishRate"
        await pulsar.ask("POST", f"{path}?isGlobal=true", _PUBLISH)

        assert await pulsar.ask("GET", path) == (204, "")
        assert await pulsar.ask("GET", f"{path}?isGlobal=true") == (200, _PUBLISH)
        assert await pulsar.ask("GET", f"{path}?applied=true") == (200, _PUBLISH)
        assert pulsar.messages("publish", Setting.TOPIC, _ORDERS) == 10


async def test_the_file_s_value_is_shown_where_none_was_set() -> None:
    async with serving(file_says(acme_shop=Value(Limit(rate(7)), "file"))) as pulsar:
        assert await pulsar.ask("GET", f"{_NAMESPACE}/publishRate") == (
            200,
            {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": 0},
        )


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("/namespaces/ac%20me/shop/publishRate", (412, "Namespace name is not valid")),
        (f"{_TOPIC}%0A/publishRate", (412, "Topic name is not valid: more than 1024 characters, or not in one line")),
        (
            f"{_TOPIC}-partition-1/publishRate",
            (412, f"Not allowed to set/get topic policy for a partition: set it for {_ORDERS}"),
        ),
        (
            f"{_TOPIC}/replicatorDispatchRate",
            (412, "replication does not go through Sluice: set this rate at the broker's own admin address"),
        ),
    ],
)
async def test_what_cannot_be_set_is_refused_with_a_reason(path: str, refusal: tuple[int, str]) -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("POST", path, _PUBLISH) == (refusal[0], {"reason": refusal[1]})
        assert list(pulsar.store.policies()) == []


async def test_a_body_that_is_not_said_to_be_json_is_refused() -> None:
    async with serving() as pulsar:
        status, answer = await pulsar.ask("POST", f"{_NAMESPACE}/publishRate", data='{"publishThrottlingRateInMsg":1}')

        assert (status, answer) == (415, {"reason": "send the body with the header Content-Type: application/json"})


async def test_a_body_with_a_wrong_value_is_refused_by_name() -> None:
    async with serving() as pulsar:
        status, answer = await pulsar.ask("POST", f"{_NAMESPACE}/publishRate", {"publishThrottlingRateInMsg": "x"})

        assert status == 400
        assert answer["reason"].startswith("the body is not a PublishRate: Expected `int`, got `str` - at `$.publish")


async def test_a_topic_s_name_may_hold_what_has_to_be_escaped() -> None:
    async with serving() as pulsar:
        await pulsar.ask("POST", "/persistent/acme/shop/a%2Fb%20c/publishRate", _PUBLISH)

        assert pulsar.messages("publish", Setting.TOPIC, "persistent://acme/shop/a/b c") == 10


async def test_the_audit_log_names_the_caller() -> None:
    async with serving() as pulsar:
        await pulsar.ask("POST", f"{_NAMESPACE}/publishRate", _PUBLISH)

        (change,) = pulsar.store.audited(10)
        assert (change.who, change.address) == ("ann", "10.0.0.1")
        assert isinstance(change.change, StoredChange)
        assert str(change.change.key) == "publish topic_of_namespace acme/shop"


async def applied(pulsar: Serving, path: str) -> int:
    status, body = await pulsar.ask("GET", f"{path}?applied=true")
    assert status == 200
    return int(body["dispatchThrottlingRateInMsg"])


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1}, Limit()),
        ({"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 700}, Limit(size=rate(700))),
        ({"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": 700}, Limit(rate(7), rate(700))),
        ({"dispatchThrottlingRateInMsg": 10_000, "ratePeriodInSecond": 60}, Limit(rate(10_000, 60 * 10**9))),
        (
            {"dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": True},
            Limit(rate(5), published=NOTHING_PUBLISHED),
        ),
    ],
)
async def test_minus_1_means_no_limit_and_10_000_a_minute_are_a_rate_period_of_60(
    body: dict[str, Any], limit: Limit
) -> None:
    """The examples of Pulsar's page on message dispatch throttling."""
    async with serving() as pulsar:
        await pulsar.ask("POST", f"{_NAMESPACE}/dispatchRate", body)

        value = pulsar.policies.get("dispatch", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
        assert value is not None
        assert value.limit == limit


@pytest.mark.parametrize(
    ("setting", "field", "number"),
    [
        ("publishRate", "publishThrottlingRateInMsg", 2**31),
        ("publishRate", "publishThrottlingRateInMsg", 10**400),
        ("publishRate", "publishThrottlingRateInByte", 2**63),
        ("dispatchRate", "ratePeriodInSecond", 2**31),
        ("subscribeRate", "subscribeThrottlingRatePerConsumer", 1.5),
    ],
)
async def test_numbers_that_pulsar_cannot_hold_are_refused(setting: str, field: str, number: float) -> None:
    async with serving() as pulsar:
        status, answer = await pulsar.ask("POST", f"{_NAMESPACE}/{setting}", {field: number})

        assert status == 400
        assert field in answer["reason"] or "out of range" in answer["reason"]
        assert list(pulsar.store.policies()) == []


async def test_a_file_s_limit_is_shown_in_pulsar_s_terms() -> None:
    """A publish rate has no period there: 120 a minute are 2 a second."""
    file = file_says(acme_shop=Value(Limit(rate(120, 60 * 10**9)), "file"))
    async with serving(file) as pulsar:
        _, publish = await pulsar.ask("GET", f"{_NAMESPACE}/publishRate")

        assert publish == {"publishThrottlingRateInMsg": 2, "publishThrottlingRateInByte": 0}
