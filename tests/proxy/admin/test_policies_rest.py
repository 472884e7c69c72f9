"""`/sluice/policies`."""

import msgspec
import pytest
import yaml

from limiter.names import MOST_FORMS
from proxy.admin.routes.policies import read_set
from proxy.bulk import PIECE
from proxy.config.model import Config
from proxy.policies.bodies import BodyError
from tests.proxy.admin_client import Admin

_PATH = "/sluice/policies"
_LIMITS = {"namespaces": {"acme/shop": {"publish": {"messages": 9}}}, "proxy": {"dispatch": {"bytes": "10MB"}}}


async def test_what_is_in_force_is_given_as_a_configuration(make_admin) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    await admin.ask(
        "POST",
        "/admin/v2/persistent/acme/shop/orders/dispatchRate",
        json={"dispatchThrottlingRateInMsg": 30, "ratePeriodInSecond": 60, "relativeToPublishRate": True},
    )
    status, text = await admin.ask("GET", _PATH)
    config = yaml.safe_load(text)
    Config.model_validate(config)
    topics = {"persistent://acme/shop/orders": {"dispatch": {"messages": "30/min", "relativeToPublishRate": True}}}
    assert (status, config) == (200, {"limits": _LIMITS | {"topics": topics}, "blocks": []})


async def test_another_set_is_made_to_hold_at_once_and_told(make_admin) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    wanted = {"limits": {"proxy": {"dispatch": {"bytes": "10MB"}, "publish": {"messages": 7}}}}

    status, tried = await admin.ask("PUT", f"{_PATH}?dry_run=1", json=wanted)
    assert (status, tried["applied"], list(admin.store.policies())) == (200, False, [])
    status, done = await admin.ask("PUT", _PATH, json=wanted)
    assert (status, done) == (200, tried | {"applied": True})
    assert [change["key"] for change in done["changes"]] == [
        "limits.proxy.publish",
        "limits.namespaces.acme/shop.publish",
    ]
    assert done["hidden"] == ["limits.namespaces.acme/shop.publish"]
    assert yaml.safe_load((await admin.ask("GET", _PATH))[1]) == wanted | {"blocks": []}
    assert len(admin.limits_before_changes) == 1, "one change, all of it at once"
    assert (await admin.ask("PUT", _PATH, json=wanted))[1]["changes"] == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "limits: this key must be given here"),
        ([], "[]: this is a list; a section of keys belongs here"),
        ({"limits": {"proxy": 5}}, "limits.proxy: 5: this is a number; a section of keys belongs here"),
        ({"limits": {"proxy": {"publish": {"messages": "x"}}}}, "limits.proxy.publish.messages: 'x': write a rate"),
        ({"limits": {"topics": {"a://b": {}}}}, "is not a topic name"),
        ({"limits": {}, "colour": 1}, "colour: this key is not known here; known are limits, admission, blocks"),
        ({"limits": {"roles": {f"r{number}": 5 for number in range(30)}}}, "and 10 more"),
    ],
)
async def test_a_wrong_set_changes_nothing_and_says_what_is_wrong(make_admin, body: object, problem: str) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    status, answer = await admin.ask("PUT", _PATH, json=body)
    assert (status, problem in answer["reason"]) == (400, True), answer
    assert list(admin.store.policies()) == []


async def test_patterns_of_a_whole_set_have_few_forms(make_admin) -> None:
    admin: Admin = await make_admin(admin_access={"max_policies_body": "1MiB"})
    names = {f"acme/n{number}": {"publish": {"messages": 5}} for number in range(2 * PIECE)}
    patterns = {f"{'a' * length}*/n": {"publish": {"messages": 5}} for length in range(1, MOST_FORMS + 2)}
    wanted = dict([*list(patterns.items())[:8], *names.items(), *list(patterns.items())[8:]])
    status, answer = await admin.ask("PUT", _PATH, json={"limits": {"namespaces": wanted}})
    assert (status, "the publish limits of topic_of_namespace have patterns of 16 forms" in str(answer)) == (400, True)
    assert list(admin.store.policies()) == []


async def test_a_wrong_query_or_body_is_refused(make_admin) -> None:
    admin: Admin = await make_admin()
    assert (await admin.ask("GET", f"{_PATH}?format=xml"))[0] == 400
    assert (await admin.ask("PUT", f"{_PATH}?dry_run=yes", json={"limits": {}}))[0] == 400
    assert (await admin.ask("PUT", _PATH, data="{", headers={"Content-Type": "application/json"}))[0] == 400
    assert (await admin.ask("PUT", _PATH, data='{"limits": {}}'))[0] == 415


@pytest.mark.parametrize("plans", [1, PIECE + 1])
@pytest.mark.parametrize("names", [1, PIECE + 1])
def test_plan_is_given_to_any_number_of_names(plans: int, names: int) -> None:
    given = {f"p{number}": {"publish": {"messages": 5}} for number in range(plans)}
    tenants = {f"t{number}": f"p{plans - 1}" for number in range(names)}
    read = read_set(msgspec.json.encode({"limits": {"plans": given, "tenants": tenants}}))
    assert len(read.values) == names
    wrong = {**tenants, "t0": "p", "u0": [], "u1": {"plan": []}}
    with pytest.raises(BodyError, match=r"limits\.tenants\.t0\.plan: 'p' is no plan"):
        read_set(msgspec.json.encode({"limits": {"plans": given, "tenants": wrong}}))
