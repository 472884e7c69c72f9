"""JSON bodies of all routes are read alike.

JSON readers drop all values of a key but the last: a key occurs once. A template whose variable is empty writes null:
in limits of Sluice's own form it is a mistake, as an empty value is in YAML. pulsar-admin never writes null.
"""

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec
import pytest
from pydantic import BaseModel

from limiter.token_bucket import Limit, rate
from proxy.admin.routes.policies import WantedPolicies
from proxy.config.limits import DispatchLimit, RateLimit, TopicDispatchLimit
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeLimit, SubscribeRate
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
    status, answer = await admin.ask(method, path, data=body, headers={"Content-Type": "application/json"})
    assert (status, "this key occurs twice in one object; leave one out" in answer["reason"]) == (400, True), answer
    assert list(admin.store.policies()) == []


JSON = {"Content-Type": "application/json"}


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a key of the configuration may hold, or an entry of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not None:
        for part in get_args(annotation):
            yield from sections_in(part)


def places(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each key of a section and of those in it; `NAME` stands for the names of a key."""
    for key, field in model.model_fields.items():
        yield (*above, key)
        holds = field.annotation
        is_named = get_origin(holds) is dict
        if is_named:
            yield (*above, key, "NAME")
        for section in () if get_origin(holds) is tuple else sections_in(holds):
            yield from places(section, (*above, key, *["NAME"] * is_named))


def with_null(place: tuple[str, ...]) -> dict[str, Any]:
    written: Any = None
    for key in reversed(place):
        written = {key: written}
    return {"limits": {}, **written}


PLACES = [".".join(place) for place in places(WantedPolicies)]


@pytest.mark.parametrize("place", PLACES)
async def test_null_is_a_mistake_at_each_key_of_a_set(make_admin, place: str) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("PUT", "/sluice/policies", json=with_null(tuple(place.split("."))))
    assert (status, answer["reason"]) == (400, f"{place}: nothing is written here; leave the key out for its default")


def test_each_key_of_a_set_is_tried() -> None:
    assert len(PLACES) > 100
    assert {"limits.tenants.NAME.publish.bytes", "limits.plans.NAME.subscribe", "blocks"} < {*PLACES}


async def test_null_takes_no_plan_out_of_force(make_admin) -> None:
    limits = {"plans": {"gold": {"publish": {"messages": 5}}}, "namespaces": {"acme/shop": {"plan": "gold"}}}
    admin: Admin = await make_admin(limits=limits)
    wanted = {"plans": limits["plans"], "namespaces": {"acme/shop": {"plan": "gold", "publish": None}}}
    assert (await admin.ask("PUT", "/sluice/policies", json={"limits": wanted}))[0] == 400
    assert admin.policies["publish", "acme/shop"].limit == Limit(rate(5))


async def test_nulls_of_a_set_are_named_up_to_a_bound(make_admin) -> None:
    admin: Admin = await make_admin()
    blocks = [{"role": None} for _ in range(30)]
    status, answer = await admin.ask("PUT", "/sluice/policies", json={"limits": {}, "blocks": blocks})
    assert (status, "blocks.0.role, blocks.1.role, " in answer["reason"]) == (400, True)
    assert "blocks.19.role and others: nothing is written here" in answer["reason"]


async def test_null_is_a_name_where_it_is_text(make_admin) -> None:
    admin: Admin = await make_admin()
    wanted = {"limits": {"tenants": {"null": {"publish": {"messages": 5}}}}}
    assert (await admin.ask("PUT", "/sluice/policies", json=wanted))[0] == 200


OWN_KEYS = [
    *(("publish", "role", key) for key in RateLimit.model_fields),
    *(("dispatch", "role", key) for key in DispatchLimit.model_fields),
    *(("dispatch", "topic_of_namespace", key) for key in TopicDispatchLimit.model_fields),
    *(("subscribe", "topic_of_namespace", key) for key in SubscribeLimit.model_fields),
]


@pytest.mark.parametrize(("direction", "setting", "key"), OWN_KEYS)
async def test_null_is_a_mistake_at_each_key_of_a_limit(make_admin, direction: str, setting: str, key: str) -> None:
    admin: Admin = await make_admin()
    path = f"/sluice/limits?direction={direction}&setting={setting}&name=acme/shop"
    body = {"messages": 5, "bytes": 5} if direction != "subscribe" else {"messages": 5}
    status, answer = await admin.ask("PUT", path, json={**body, key: None})
    assert (status, answer["reason"]) == (400, f"{key}: nothing is written here; leave the key out for its default")
    assert list(admin.store.policies()) == []


PULSAR_KEYS = [
    (path, kind, key)
    for path, kind in (
        (f"{NAMESPACE}/publishRate", PublishRate),
        (f"{NAMESPACE}/dispatchRate", DispatchRate),
        (f"{NAMESPACE}/subscriptionDispatchRate", DispatchRate),
        (f"{NAMESPACE}/subscribeRate", SubscribeRate),
        (f"{TOPIC}/publishRate", PublishRate),
        (f"{TOPIC}/dispatchRate", DispatchRate),
    )
    for key in kind.__struct_fields__
]


@pytest.mark.parametrize(("path", "kind", "key"), PULSAR_KEYS)
async def test_null_is_no_rate_of_pulsars(make_admin, path: str, kind: type[msgspec.Struct], key: str) -> None:
    admin: Admin = await make_admin()
    body = {**msgspec.to_builtins(kind()), key: None}
    assert (await admin.ask("POST", path, json=body))[0] == 400
    assert list(admin.store.policies()) == []


@pytest.mark.parametrize("key", ResourceGroup.__struct_fields__)
async def test_null_leaves_a_rate_of_a_group_as_it_is(make_admin, key: str) -> None:
    """As a broker does, and as `pulsar-admin resourcegroups update` leaves out what it does not change."""
    admin: Admin = await make_admin()
    path, body = "/admin/v2/resourcegroups/gold", dict.fromkeys(ResourceGroup.__struct_fields__, 5)
    assert (await admin.ask("PUT", path, json=body))[0] == 204
    assert (await admin.ask("PUT", path, data=json.dumps({**body, key: None}), headers=JSON))[0] == 204
    assert await admin.ask("GET", path) == (200, body)


@pytest.mark.parametrize("key", ["kind", "name", "topic", "namespace", "reason"])
async def test_null_is_a_mistake_at_each_key_of_a_block(make_admin, key: str) -> None:
    admin: Admin = await make_admin()
    status, _ = await admin.ask("POST", "/sluice/blocks", json={"kind": "role", "name": "a", key: None})
    assert (status, list(admin.store.policies())) == (400, [])
