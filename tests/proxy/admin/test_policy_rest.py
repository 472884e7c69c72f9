"""The part of Pulsar's admin REST that sets limits."""

import pytest

from limiter.policies import Value
from limiter.rates import NOTHING_PUBLISHED, Limit, rate
from tests.proxy.admin_client import Admin

NAMESPACE = "/admin/v2/namespaces/acme/shop"


async def test_what_is_set_is_in_force_and_can_be_read_back(make_admin) -> None:
    admin: Admin = await make_admin()
    assert await admin.ask("GET", f"{NAMESPACE}/publishRate") == (204, None)
    body = {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": 5000}
    assert await admin.ask("POST", f"{NAMESPACE}/publishRate", json=body) == (204, None)
    assert await admin.ask("GET", f"{NAMESPACE}/publishRate") == (200, body)
    assert admin.policies == {("publish", "acme/shop"): Value(Limit(rate(100), rate(5000)), "rest")}
    assert await admin.ask("DELETE", f"{NAMESPACE}/publishRate") == (204, None)
    assert admin.policies == {}


async def test_dispatch_rates_have_a_period(make_admin) -> None:
    admin: Admin = await make_admin()
    body = {
        "dispatchThrottlingRateInMsg": 30,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 60,
    }
    assert await admin.ask("POST", f"{NAMESPACE}/dispatchRate", json=body) == (204, None)
    assert await admin.ask("GET", f"{NAMESPACE}/dispatchRate") == (200, body)
    assert admin.policies["dispatch", "acme/shop"].limit == Limit(rate(30, 60 * 10**9))


@pytest.mark.parametrize("number", [-1, 0])
async def test_numbers_of_zero_and_below_mean_no_limit(make_admin, number: int) -> None:
    """Pulsar's own -1; and it is a value: the file's does not come back."""
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"publish": {"messages": 5}}}})
    body = {"publishThrottlingRateInMsg": number, "publishThrottlingRateInByte": number}
    await admin.ask("POST", f"{NAMESPACE}/publishRate", json=body)
    assert not admin.policies["publish", "acme/shop"].limit


async def test_10_000_messages_a_minute_are_a_rate_period_of_60_seconds(make_admin) -> None:
    """The example of Pulsar's page on message dispatch throttling; the default period is one second."""
    admin: Admin = await make_admin()
    body = {"dispatchThrottlingRateInMsg": 10_000, "ratePeriodInSecond": 60}
    await admin.ask("POST", f"{NAMESPACE}/dispatchRate", json=body)
    assert admin.policies["dispatch", "acme/shop"].limit == Limit(rate(10_000, 60 * 10**9))
    await admin.ask("POST", f"{NAMESPACE}/dispatchRate", json={"dispatchThrottlingRateInMsg": 10_000})
    assert admin.policies["dispatch", "acme/shop"].limit == Limit(rate(10_000))


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({}, Limit()),
        ({"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1}, Limit()),
        ({"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 700}, Limit(size=rate(700))),
        ({"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": -1}, Limit(rate(7))),
        ({"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": 700}, Limit(rate(7), rate(700))),
    ],
)
async def test_minus_1_which_is_the_default_means_no_dispatch_limit(
    make_admin, body: dict[str, int], limit: Limit
) -> None:
    """Of messages and of bytes apart; both at once are both in force."""
    admin: Admin = await make_admin()
    await admin.ask("POST", f"{NAMESPACE}/dispatchRate", json=body)
    assert admin.policies["dispatch", "acme/shop"].limit == limit


async def test_deleting_brings_the_files_value_back(make_admin) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"publish": {"messages": 5}}}})
    await admin.ask("POST", f"{NAMESPACE}/publishRate", json={"publishThrottlingRateInMsg": 9})
    await admin.ask("DELETE", f"{NAMESPACE}/publishRate")
    assert admin.policies == {("publish", "acme/shop"): Value(Limit(rate(5)), "file")}


async def test_missing_and_unknown_fields_are_as_pulsar_takes_them(make_admin) -> None:
    admin: Admin = await make_admin()
    body = {"publishThrottlingRateInMsg": 7, "someNewField": True}
    assert (await admin.ask("POST", f"{NAMESPACE}/publishRate", json=body))[0] == 204
    assert admin.policies["publish", "acme/shop"].limit == Limit(rate(7))


async def test_the_value_of_the_file_is_told_in_pulsars_terms(make_admin) -> None:
    """A publish rate has no period there: 120 a minute are 2 a second."""
    limits = {"publish": {"messages": "120/min"}, "dispatch": {"messages": "120/min", "bytes": 1000}}
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": limits}})
    _, publish = await admin.ask("GET", f"{NAMESPACE}/publishRate")
    assert publish == {"publishThrottlingRateInMsg": 2, "publishThrottlingRateInByte": -1}
    _, dispatch = await admin.ask("GET", f"{NAMESPACE}/dispatchRate")
    assert dispatch["ratePeriodInSecond"] == 60
    assert dispatch["dispatchThrottlingRateInMsg"] == 120
    assert dispatch["dispatchThrottlingRateInByte"] == 60_000


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b"\xff"),
        b'{"publishThrottlingRateInMsg": "many"}',
        b'{"publishThrottlingRateInMsg": 1.5}',
        b'{"publishThrottlingRateInMsg": 1e400}',
    ],
)
async def test_a_bad_body_is_refused_with_a_reason(make_admin, body: bytes) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("POST", f"{NAMESPACE}/publishRate", data=body)
    assert status == 400
    assert answer["reason"].startswith("the body is not a publishRate: ")
    assert admin.policies == {}


async def test_a_dispatch_rate_can_be_relative_to_the_publish_rate(make_admin) -> None:
    """What `pulsar-admin namespaces set-dispatch-rate -md 5 -rp` sends."""
    admin: Admin = await make_admin()
    body = {
        "dispatchThrottlingRateInMsg": 5,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 1,
    }
    assert await admin.ask("POST", f"{NAMESPACE}/dispatchRate", json=body) == (204, None)
    assert admin.policies["dispatch", "acme/shop"].limit == Limit(rate(5), published=NOTHING_PUBLISHED)
    assert await admin.ask("GET", f"{NAMESPACE}/dispatchRate") == (200, body)


async def test_a_relative_rate_of_the_file_is_told(make_admin) -> None:
    limits = {"dispatch": {"messages": 5, "relativeToPublishRate": True}}
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": limits}})
    _, dispatch = await admin.ask("GET", f"{NAMESPACE}/dispatchRate")
    assert (dispatch["dispatchThrottlingRateInMsg"], dispatch["relativeToPublishRate"]) == (5, True)


async def test_the_span_of_the_log_ends_before_the_value_changes(make_admin) -> None:
    admin: Admin = await make_admin()
    await admin.ask("POST", f"{NAMESPACE}/publishRate", json={"publishThrottlingRateInMsg": 7})
    await admin.ask("POST", f"{NAMESPACE}/publishRate", json={"publishThrottlingRateInMsg": 8})
    await admin.ask("DELETE", f"{NAMESPACE}/publishRate")
    assert admin.limits_before_changes == [None, Limit(rate(7)), Limit(rate(8))]


async def test_a_refused_change_ends_no_span(make_admin) -> None:
    admin: Admin = await make_admin()
    await admin.ask("POST", f"{NAMESPACE}/publishRate", data=b"{")
    assert admin.limits_before_changes == []


@pytest.mark.parametrize(
    ("setting", "field", "number"),
    [
        ("publishRate", "publishThrottlingRateInMsg", 2**31),
        ("publishRate", "publishThrottlingRateInMsg", 10**400),
        ("publishRate", "publishThrottlingRateInByte", 2**63),
        ("dispatchRate", "ratePeriodInSecond", 2**31),
    ],
)
async def test_a_number_that_pulsar_could_not_hold_is_refused(
    make_admin, setting: str, field: str, number: int
) -> None:
    admin: Admin = await make_admin()
    text = f'{{"{field}": {number}}}'
    status, answer = await admin.ask("POST", f"{NAMESPACE}/{setting}", data=text)
    assert status == 400
    assert field in answer["reason"]
    assert admin.policies == {}
