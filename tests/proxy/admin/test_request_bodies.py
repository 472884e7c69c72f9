"""JSON bodies of all routes are read alike. JSON readers drop all values of a key but the last: a key occurs once."""

import pytest

from tests.proxy.admin_client import Admin

NAMESPACE = "/admin/v2/namespaces/acme/shop"
TOPIC = "/admin/v2/persistent/acme/shop/orders"
RATE = '{"publishThrottlingRateInMsg": 5, "publishThrottlingRateInMsg": 100000}'
DISPATCH = '{"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInMsg": 100000}'
SUBSCRIBE = '{"subscribeThrottlingRatePerConsumer": 5, "subscribeThrottlingRatePerConsumer": 100000}'
OWN = '{"messages": "5/s", "messages": "100000/s"}'
BLOCK = '{"kind": "role", "name": "a", "name": "b"}'
GROUP = '{"publishRateInMsgs": 5, "publishRateInMsgs": 100000}'
SET = '{"limits": {"tenants": {"acme": {"publish": {"messages": 5}}, "acme": {}}}}'


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{NAMESPACE}/publishRate", RATE),
        ("POST", f"{NAMESPACE}/dispatchRate", DISPATCH),
        ("POST", f"{NAMESPACE}/subscriptionDispatchRate", DISPATCH),
        ("POST", f"{NAMESPACE}/subscribeRate", SUBSCRIBE),
        ("POST", f"{TOPIC}/publishRate", RATE),
        ("POST", f"{TOPIC}/dispatchRate", DISPATCH),
        ("PUT", "/admin/v2/resourcegroups/gold", GROUP),
        ("PUT", "/sluice/limits?direction=publish&setting=tenant&name=acme", OWN),
        ("PUT", "/sluice/policies", SET),
        ("POST", "/sluice/blocks", BLOCK),
    ],
)
async def test_a_key_that_occurs_twice_is_refused_and_named(make_admin, method: str, path: str, body: str) -> None:
    admin: Admin = await make_admin()
    status, said = await admin.ask(method, path, data=body, headers={"Content-Type": "application/json"})
    assert (status, "this key occurs twice in one object; leave one out" in said["reason"]) == (400, True), said
    assert list(admin.store.policies()) == []
