"""`/sluice/limits`."""

import pytest

from limiter.token_bucket import Limit, rate
from tests.proxy.admin_client import Admin

_SHOP = "/sluice/limits?direction=publish&setting=topic_of_namespace&name=acme/shop"
_LIMITS = {"namespaces": {"acme/shop": {"publish": {"messages": 9}}}}


def in_force(admin: Admin) -> Limit | None:
    value = admin.policies.get(("publish", "acme/shop"))
    return value.limit if value else None


async def test_a_limit_is_set_live_shown_and_taken_back_to_the_files(make_admin) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    status, answer = await admin.ask("PUT", _SHOP, json={"messages": "30/min", "burst_messages": 5, "mode": "observe"})
    assert (status, answer["origin"], answer["limit"]["burst_messages"]) == (200, "rest", 5)
    assert answer["hidden"][0]["limit"] == {"messages": 9}
    assert in_force(admin) == Limit(rate(30, 60 * 10**9, 5), mode="observe")
    assert await admin.ask("GET", _SHOP) == (status, answer)

    status, answer = await admin.ask("DELETE", _SHOP)
    assert (status, answer["taken_back"], answer["in_force"]["origin"]) == (200, True, "file")
    assert in_force(admin) == Limit(rate(9))
    assert (await admin.ask("DELETE", _SHOP))[1]["taken_back"] is False


_FREE = "/sluice/limits?direction=publish&setting=tenant&name=free-1"
_SHOP_TOPIC = "/sluice/limits?direction=publish&setting=topic&name=persistent://acme/shop/a"
_WIDE_LIMITS = {
    "plans": {"free": {"publish": {"messages": 100, "burst_messages": 200}}},
    "tenants": {"free-*": "free"},
    "namespaces": {"acme/*": {"publish": {"messages": 9}}},
    "each_topic": {"publish": {"messages": 7}},
}


@pytest.mark.parametrize(
    ("path", "setting", "name", "limit"),
    [
        (_FREE, "tenant", "free-*", {"messages": 100, "burst_messages": 200}),
        (_SHOP, "topic_of_namespace", "acme/*", {"messages": 9}),
        (_SHOP_TOPIC, "topic_of_namespace", "acme/*", {"messages": 9}),
        (_SHOP_TOPIC.replace("acme", "other"), "topic_of_broker", "", {"messages": 7}),
    ],
)
async def test_wider_value_that_a_limit_hides_is_shown(make_admin, path: str, setting: str, name: str, limit) -> None:
    admin: Admin = await make_admin(limits=_WIDE_LIMITS)
    _, answer = await admin.ask("PUT", path, json={"messages": 3})
    beneath = answer["beneath"]
    assert (beneath["setting"], beneath["name"], beneath["limit"], beneath["origin"]) == (setting, name, limit, "file")
    _, answer = await admin.ask("DELETE", path)
    assert (answer["taken_back"], answer["in_force"]) == (True, beneath)
    _, answer = await admin.ask("PUT", path, data="null", headers={"Content-Type": "application/json"})
    assert (answer["limit"], answer["beneath"]) == ({}, beneath), "a value that limits nothing hides no wider one"


async def test_nothing_is_beneath_the_only_value(make_admin) -> None:
    admin: Admin = await make_admin(limits=_WIDE_LIMITS)
    path = _FREE.replace("free-1", "acme")
    assert (await admin.ask("PUT", path, json={"messages": 3}))[1]["beneath"] is None
    assert (await admin.ask("DELETE", path))[1] == {"taken_back": True, "in_force": None}


async def test_null_limits_nothing_although_the_file_does(make_admin) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    status, answer = await admin.ask("PUT", _SHOP, data="null", headers={"Content-Type": "application/json"})
    assert (status, answer["limit"], in_force(admin)) == (200, {}, Limit())


async def test_what_is_not_set_is_not_found(make_admin) -> None:
    admin: Admin = await make_admin()
    assert await admin.ask("GET", _SHOP) == (404, {"reason": "nothing is set for publish topic_of_namespace acme/shop"})


@pytest.mark.parametrize(
    ("query", "body", "problem"),
    [
        ("direction=publish", {}, "write ?direction=…&setting=…&name=…"),
        ("direction=publish&setting=topic&name=a%0Ab", {}, "write it in one line"),
        ("direction=publish&setting=role&name=x&colour=red", {}, "'colour' is not known here"),
        ("direction=publish&setting=role&name=x&name=y", {}, "a key occurs twice in the query"),
        ("direction=publish&setting=role&name=x", {}, "publish role x: {}: write messages, bytes or both"),
        ("direction=publish&setting=role&name=x", {"colour": 1}, "publish role x: colour: this key is not known here"),
        ("direction=publish&setting=role&name=x", {"messages": -5}, "publish role x: messages: -5: write a rate"),
        (
            "direction=publish&setting=role&name=x",
            {"messages": 5, "burst_messages": 99999999999999999999999999},
            "less than or equal to 9223372036854775807",
        ),
        (
            "direction=publish&setting=role&name=x",
            {"messages": "\u0661\u0662"},
            "messages: '\u0661\u0662': write a rate",
        ),
        ("direction=publish&setting=role&name=a%ff", {"messages": 5}, "the query is not UTF-8"),
        ("direction=publish&setting=role&name=x", [5], "the body is not a limit"),
        ("direction=publish&setting=role&name=x", {"relativeToPublishRate": True}, "leave it out here"),
        ("direction=dispatch&setting=role&name=x", {"messages": 5, "mode": "reject"}, "mode: 'reject'"),
        (
            "direction=subscribe&setting=topic&name=persistent://a/b/c",
            {"messages": "5/30s", "burst_messages": 5},
            "burst_messages: a subscribe limit has messages alone, which may all come at once",
        ),
    ],
)
async def test_a_wrong_request_changes_nothing_and_says_what_is_wrong(make_admin, query, body, problem) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("PUT", f"/sluice/limits?{query}", json=body)
    assert (status, problem in answer["reason"]) == (400, True), answer
    assert list(admin.store.policies()) == []


async def test_a_body_that_is_not_said_to_be_json_is_refused(make_admin) -> None:
    admin: Admin = await make_admin()
    assert (await admin.ask("PUT", _SHOP, data="null"))[0] == 415


async def test_pages_hold_every_limit_once(make_admin) -> None:
    topics = {f"persistent://acme/shop/{name} x": {"publish": {"messages": 5}} for name in "abcdefg"}
    admin: Admin = await make_admin(limits={"topics": topics, "proxy": {"dispatch": {"messages": 5}}})
    seen: list[str] = []
    query = {"limit": "3"}
    while True:
        _, answer = await admin.ask("GET", "/sluice/limits", params=query)
        seen += [limit["name"] for limit in answer["limits"]]
        if answer["next"] is None:
            break
        query["after"] = answer["next"]
    assert seen == ["", *topics]
    _, answer = await admin.ask("GET", "/sluice/limits?direction=publish&setting=topic&limit=2")
    assert (len(answer["limits"]), answer["left_out"]) == (2, 5)
    assert (await admin.ask("GET", "/sluice/limits?limit=10001"))[0] == 400


async def test_pulsars_tools_see_a_group_that_was_set_here(make_admin) -> None:
    admin: Admin = await make_admin()
    await admin.ask(
        "PUT", "/sluice/limits?direction=publish&setting=resource_group&name=gold", json={"messages": "120/min"}
    )
    status, answer = await admin.ask("GET", "/admin/v2/resourcegroups/gold")
    assert (status, answer["publishRateInMsgs"], answer["dispatchRateInMsgs"]) == (200, 2, -1)


async def _tagged(admin: Admin, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """Status and ETag."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with admin.client.request(method, path, json=body, headers=named) as answer:
        return answer.status, answer.headers.get("ETag", "")


@pytest.mark.parametrize(
    ("path", "bodies"),
    [
        (_SHOP, ({"messages": 5}, {"messages": 6})),
        ("/sluice/limits?direction=publish&setting=resource_group&name=g", ({"messages": 5}, {"messages": 6})),
        ("/admin/v2/resourcegroups/g", ({"publishRateInMsgs": 5}, {"publishRateInMsgs": 6})),
        (
            "/admin/v2/namespaces/acme/shop/dispatchRate",
            ({"dispatchThrottlingRateInMsg": 5}, {"dispatchThrottlingRateInMsg": 6}),
        ),
    ],
)
async def test_a_change_may_say_what_it_is_to_replace(
    make_admin, path: str, bodies: tuple[dict[str, object], dict[str, object]]
) -> None:
    admin: Admin = await make_admin()
    set_by = "POST" if "Rate" in path else "PUT"
    assert (await _tagged(admin, set_by, path, bodies[0], If_Match="*"))[0] == 412
    assert (await _tagged(admin, set_by, path, bodies[0], If_Match='"unset", "x"'))[0] in {200, 204}
    _, tag = await _tagged(admin, "GET", path)
    assert (await _tagged(admin, set_by, path, bodies[1], If_None_Match="*"))[0] == 412
    assert (await _tagged(admin, set_by, path, bodies[1], If_Match=f"W/{tag}"))[0] == 412
    assert (await _tagged(admin, "DELETE", path, If_Match='"other"'))[0] == 412
    assert await _tagged(admin, "GET", path) == (200, tag)
    status, next_tag = await _tagged(admin, set_by, path, bodies[1], If_Match=tag)
    assert (status in {200, 204}, next_tag != tag) == (True, True)
    assert (await _tagged(admin, "DELETE", path, If_Match=tag))[0] == 412
    assert (await _tagged(admin, "DELETE", path, If_Match=next_tag))[0] in {200, 204}


@pytest.mark.parametrize(
    "headers", [{"If_Match": "x"}, {"If_Match": ""}, {"If_None_Match": '"a'}, {"If_Match": "*", "If_None_Match": "*"}]
)
async def test_conditions_that_say_nothing_are_refused(make_admin, headers: dict[str, str]) -> None:
    admin: Admin = await make_admin()
    assert (await _tagged(admin, "PUT", _SHOP, {"messages": 5}, **headers))[0] == 400
    assert in_force(admin) is None
