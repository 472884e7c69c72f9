"""Tokens for some tenants: every route, asked by the holder of a token for another tenant."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from yarl import URL

from protocol.topic_name import parse_topic
from proxy.admin.tenant_scope import KICK, OF_CALLER, OF_NOBODY
from proxy.policies.room import TenantShare
from tests.proxy.admin.forwarding.fake_broker import FakeBroker, fake_broker
from tests.proxy.admin_client import Admin

ALL, ACME, ACME_READ, OTHER = "all-0123456789abc", "acme-0123456789ab", "acme-read-0123456", "other-0123456789a"
TOKENS: dict[str, dict[str, Any]] = {
    "ops": {"access": "write", "token": ALL},
    "acme": {"access": "write", "token": ACME, "tenants": ["acme"]},
    "acme-read": {"access": "read", "token": ACME_READ, "tenants": ["acme", "acme-too"]},
    "other": {"access": "write", "token": OTHER, "tenants": ["other"]},
}
STRICTER = {"publishThrottlingRateInMsg": 4, "publishThrottlingRateInByte": -1}
RATE = {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": -1}
LIMITS = {
    "namespaces": {"acme/shop": {"publish": {"messages": 5}}, "other/shop": {"publish": {"messages": 7}}},
    "roles": {"billing": {"publish": {"messages": 9}}},
}
OF_TENANT = {
    "domain": "persistent",
    "namespace": "shop",
    "topic": "orders",
    "subscription": "sub",
    "name": "group",
    "group": "group",
}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.yaml"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(TOKENS))
    return path


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with fake_broker() as broker:
        yield broker


async def asked(admin: Admin, token: str, method: str, path: str, **more: Any) -> int:
    status, _ = await admin.ask(method, path, headers={"Authorization": f"Bearer {token}"}, **more)
    return status


def routes_of(app: web.Application) -> Iterator[tuple[str, str]]:
    for route in app.router.routes():
        assert route.resource is not None
        yield route.method, route.resource.canonical


async def test_no_route_tells_or_changes_anything_of_another_tenant(tokens: Path) -> None:
    """Whatever is added to the REST is closed to such tokens, unless its path says whose it is."""
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    seen = 0
    async with admin.client:
        before = admin.policies
        for method, path in routes_of(admin.app):
            filled = path.format(**OF_TENANT, tenant="other", value="1")
            status = await asked(admin, ACME, method, filled, json=RATE)
            seen += 1
            is_open = path in OF_NOBODY | OF_CALLER  # which shows a tenant its own
            served = {"/readyz": 503, KICK: 400}  # no broker; no word
            served |= {f"/sluice/limiters/{part}": 400 for part in ("history", "value")}  # no limit
            assert status == (served.get(path, 200) if is_open else 403), (method, filled)
        assert admin.policies == before
    assert seen > 60


async def test_every_route_with_a_tenant_in_its_path_serves_that_tenant(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    served = 0
    async with admin.client:
        for method, path in routes_of(admin.app):
            if "{tenant}" not in path or ("/resourcegroup" in path and method not in {"GET", "HEAD"}):
                continue
            served += 1
            filled = path.format(**OF_TENANT, tenant="acme", value="1")
            assert await asked(admin, ACME, method, filled, json=STRICTER) != 403, (method, filled)
    assert served > 30


@pytest.mark.parametrize(
    ("path", "is_open"),
    [
        ("/sluice/streams", True),
        ("/sluice/streams?tenant=acme", True),
        ("/sluice/streams?tenant=other", False),
        ("/sluice/streams?tenant=acme&tenant=other", False),
        ("/sluice/streams?topic=persistent://other/shop/orders", True),
        ("/sluice/streams?tenant=", False),
        ("/sluice/limits", False),
        ("/sluice/limits?direction=publish&setting=topic_of_namespace", False),
        ("/sluice/limits?direction=publish&setting=topic_of_namespace&name=acme/shop", True),
        ("/sluice/limits?direction=publish&setting=topic_of_namespace&name=other/shop", False),
        ("/sluice/limits?direction=publish&setting=topic_of_namespace&name=acme/shop&name=other/shop", False),
        ("/sluice/limits?direction=publish&setting=tenant&setting=role&name=acme", False),
        ("/sluice/limits?direction=publish&setting=role&name=acme", False),
        ("/sluice/limits?direction=publish&setting=tenant&name=*", False),
        ("/sluice/limits?direction=publish&setting=proxy&name=", False),
        ("/sluice/limits?direction=publish&setting=nonsense&name=acme", False),
        ("/sluice/explain?topic=persistent://acme/shop/orders", True),
        ("/sluice/explain?topic=acme/shop/orders", True),
        ("/sluice/explain?topic=persistent://other/shop/orders", False),
        ("/sluice/explain?topic=persistent://acme/shop/orders&topic=persistent://other/shop/orders", False),
        ("/sluice/explain?topic=persistent://acme/shop/orders&role=billing", False),
        ("/sluice/explain?topic=persistent://acme/shop/orders&address=192.0.2.7", False),
        ("/sluice/explain?topic=nonsense://", False),
        ("/admin/v2/namespaces/acme/shop/resourcegroup", True),
        ("/metrics", False),
        ("/sluice/status", False),
        ("/sluice/fleet", False),
        ("/sluice/fleet?tenant=acme&limit=1", False),
        ("/sluice/audit", False),
        ("/sluice/policies", False),
        ("/sluice/blocks", False),
        ("/admin/v2/resourcegroups", False),
        ("/admin/v2/brokers/configuration", False),
    ],
)
async def test_queries_and_paths_about_all_are_open_for_one_tenant_at_a_time(
    tokens: Path,
    path: str,
    is_open: bool,  # noqa: FBT001 - a column
) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    async with admin.client:
        assert (await asked(admin, ACME, "GET", path) != 403) is is_open
        assert await asked(admin, ALL, "GET", path) != 403
        assert admin.engine.counters.admin_refused["tenant"] == (0 if is_open else 1)


_NOT_OTHER = "this token is for the tenant acme, and not for the tenant other"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/sluice/limits?direction=dispatch&setting=subscription&name=sub@persistent://other/shop/x", _NOT_OTHER),
        ("/sluice/limits?direction=dispatch&setting=subscription&name=sub@other/shop/x", "(SUB@persistent://TENANT/"),
        ("/sluice/limits?direction=publish&setting=tenant&name=other", _NOT_OTHER),
        ("/sluice/streams?tenant=acme&tenant=other", _NOT_OTHER),
        ("/sluice/explain?topic=persistent://other/shop/orders", _NOT_OTHER),
        ("/admin/v2/namespaces/other/shop/publishRate", _NOT_OTHER),
        ("/sluice/limits?setting=tenant&name=a%1Bb", r"and not for the tenant a\x1bb"),
        ("/sluice/limits?setting=role&name=billing", "name one limit of a tenant, a namespace, a topic or"),
        ("/sluice/limits?setting=subscription&name=sub", "name one limit of a tenant, a namespace, a topic or"),
        ("/sluice/explain?topic=persistent://acme/shop/x&role=a", "ask for one topic of its tenants, and for no role"),
        ("/sluice/audit", "this path is about all tenants, and takes an operator's token"),
    ],
)
async def test_a_refusal_names_the_tenant_or_what_to_ask(tokens: Path, path: str, reason: str) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    async with admin.client:
        status, answer = await admin.ask("GET", path, headers={"Authorization": f"Bearer {ACME}"})
    assert (status, reason in answer["reason"]) == (403, True), answer


async def test_the_audit_log_names_settings_as_operators_do(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    ops = {"Authorization": f"Bearer {ALL}"}
    async with admin.client:
        assert await asked(admin, ALL, "PUT", limit_of("acme/shop"), json={"messages": 4}) == 200
        assert await asked(admin, ACME, "PUT", limit_of("acme/shop"), json={"messages": 3}) == 200
        _, answer = await admin.ask("GET", "/sluice/audit", headers=ops)
    assert [(change["setting"], change["name"], change["origin"]) for change in answer["changes"]] == [
        ("topic_of_namespace", "acme/shop", "tenant"),
        ("topic_of_namespace", "acme/shop", "rest"),
    ]


async def test_explain_shows_a_tenants_limit_in_the_mode_that_holds(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    async with admin.client:
        body = {"messages": 3, "mode": "reject"}
        assert await asked(admin, ACME, "PUT", limit_of("acme/shop"), json=body) == 200
        acme = {"Authorization": f"Bearer {ACME}"}
        _, answer = await admin.ask("GET", "/sluice/explain?topic=persistent://acme/shop/orders", headers=acme)
    (level,) = [level for level in answer["publish"] if level["level"] == "topic"]
    assert [(value["origin"], value["state"], value["limit"]) for value in level["values"]] == [
        ("file", "holds", {"messages": 5}),
        ("tenant", "holds", {"messages": 3}),
    ]


async def test_a_tenant_changes_its_own_limits_as_far_as_its_token_may(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    own, others = ("/admin/v2/namespaces/acme/shop/publishRate", "/admin/v2/namespaces/other/shop/publishRate")
    async with admin.client:
        assert await asked(admin, ACME, "POST", own, json=STRICTER) == 204
        assert await asked(admin, ACME, "POST", others, json=STRICTER) == 403
        assert await asked(admin, OTHER, "DELETE", own) == 403
        assert await asked(admin, ACME_READ, "POST", own, json=RATE) == 403
        assert await asked(admin, ACME_READ, "GET", own) == 200
        assert await asked(admin, ACME_READ, "GET", "/admin/v2/namespaces/acme-too/shop/publishRate") == 200
        assert messages_of(admin, "acme/shop") == 4
        assert messages_of(admin, "other/shop") == 7
        for group in ("/admin/v2/namespaces/acme/shop/resourcegroup/group", "/sluice/tenants/acme/resourcegroup/group"):
            assert await asked(admin, ACME, "POST", group) == 403, "its limit is shared with other tenants"


def messages_of(admin: Admin, namespace: str) -> float | None:
    """The rate in force of each topic of a namespace."""
    policies, topic = admin.engine.registry.policies, parse_topic(f"persistent://{namespace}/orders")
    (rate,) = (entry.limit.messages for entry in policies.in_force("publish", topic) if entry.scope.level == "topic")
    return None if rate is None else rate.per_second


def limit_of(name: str, setting: str = "topic_of_namespace", direction: str = "publish") -> str:
    return f"/sluice/limits?direction={direction}&setting={setting}&name={name}"


NUMBERS = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1}
ATTACKS: list[tuple[str, str, Any]] = [
    ("PUT", limit_of("acme/shop"), {"messages": 100_000}),
    ("PUT", limit_of("acme/shop"), {"messages": "600/min"}),
    ("PUT", limit_of("acme/shop"), {"messages": 5, "burst_messages": 1000}),
    ("PUT", limit_of("acme/shop"), {"messages": 5, "mode": "observe"}),
    ("PUT", limit_of("acme/shop"), {"bytes": "1GB"}),
    ("PUT", limit_of("acme/shop"), None),
    ("DELETE", limit_of("acme/shop"), None),
    ("DELETE", limit_of("acme/shop") + "&layer=rest", None),
    ("DELETE", limit_of("acme/shop") + "&layer=tenant", None),
    ("PUT", limit_of("persistent://acme/shop/orders", "topic"), {"messages": 100_000}),
    ("PUT", limit_of("persistent://acme/shop/orders", "topic"), {"bytes": "1GB"}),
    ("PUT", limit_of("persistent://acme/shop/orders", "topic"), None),
    ("POST", "/admin/v2/namespaces/acme/shop/publishRate", NUMBERS),
    ("POST", "/admin/v2/namespaces/acme/shop/publishRate", NUMBERS | {"publishThrottlingRateInMsg": 0}),
    ("POST", "/admin/v2/namespaces/acme/shop/publishRate", NUMBERS | {"publishThrottlingRateInMsg": 10**6}),
    ("POST", "/admin/v2/namespaces/acme/shop/publishRate", None),
    ("DELETE", "/admin/v2/namespaces/acme/shop/publishRate", None),
    ("POST", "/admin/v2/persistent/acme/shop/orders/publishRate", NUMBERS),
    ("POST", "/admin/v2/persistent/acme/shop/orders/publishRate?isGlobal=true", NUMBERS),
    ("DELETE", "/admin/v2/persistent/acme/shop/orders/publishRate?isGlobal=true", None),
    ("POST", "/admin/v2/namespaces/acme/shop/resourcegroup/gold", None),
    ("DELETE", "/admin/v2/namespaces/acme/shop/resourcegroup", None),
    ("DELETE", "/sluice/tenants/acme/resourcegroup", None),
    ("PUT", "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": -1}),
    ("POST", "/admin/v2/brokers/configuration/maxPublishRatePerTopicInMessages/0", None),
    ("PUT", "/sluice/policies", {"limits": {}}),
    ("DELETE", "/sluice/blocks?kind=role&name=billing", None),
]


@pytest.mark.parametrize("is_by_rest", [False, True], ids=["cap in the file", "cap by REST"])
@pytest.mark.parametrize(("method", "path", "body"), ATTACKS)
async def test_no_request_of_a_tenant_raises_the_operators_cap(
    tokens: Path, method: str, path: str, body: Any, *, is_by_rest: bool
) -> None:
    cap = {"acme/shop": {"publish": {"messages": 5}}}
    admin = Admin(
        admin_access={"tokens": str(tokens)},
        limits={} if is_by_rest else {"namespaces": cap},
        blocks=[{"role": "billing"}],
    )
    async with admin.client:
        if is_by_rest:
            assert await asked(admin, ALL, "PUT", limit_of("acme/shop"), json={"messages": 5}) == 200
        await asked(admin, ACME, method, path, json=body)
        assert messages_of(admin, "acme/shop") == 5
        assert len(admin.engine.blocklist.rules) == 1
        assert await asked(admin, ALL, "PUT", limit_of("acme/shop"), json={"messages": 2}) == 200
        assert messages_of(admin, "acme/shop") == 2, "the operator lowers it, and the tenant has no say"


async def test_a_tenant_tightens_and_takes_back_its_own_limit_alone(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    acme = {"Authorization": f"Bearer {ACME}"}
    async with admin.client:
        status, answer = await admin.ask("PUT", limit_of("acme/shop"), json={"messages": 3}, headers=acme)
        file: dict[str, Any] = {"direction": "publish", "setting": "topic_of_namespace", "name": "acme/shop"}
        file |= {"author": "", "plan": "", "in_force": None}
        assert (status, answer["limit"], answer["origin"], answer["author"]) == (200, {"messages": 3}, "tenant", "acme")
        assert answer["hidden"] == [file | {"limit": {"messages": 5}, "origin": "file"}]
        status, answer = await admin.ask("PUT", limit_of("acme/shop"), json={"messages": 6}, headers=acme)
        assert (status, messages_of(admin, "acme/shop")) == (403, 3)
        assert "messages: the rate is higher; the operator gives messages 5 here (file)" in answer["reason"]
        assert await asked(admin, ALL, "PUT", limit_of("acme/shop"), json={"messages": 50}) == 200
        assert messages_of(admin, "acme/shop") == 3, "what the operator gives more, the tenant need not take"
        assert await asked(admin, ACME, "PUT", limit_of("acme/shop"), json={"messages": 40}) == 200
        assert messages_of(admin, "acme/shop") == 40
        status, answer = await admin.ask("DELETE", limit_of("acme/shop"), headers=acme)
        assert (answer["taken_back"], answer["in_force"]["limit"]) == (True, {"messages": 50})
        assert answer["in_force"]["author"] == "", "to tenants operators have no names"
        status, answer = await admin.ask("DELETE", limit_of("acme/shop"), headers=acme)
        assert (answer["taken_back"], messages_of(admin, "acme/shop")) == (False, 50)


async def test_hidden_names_no_value_that_is_partly_in_force(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    acme = {"Authorization": f"Bearer {ACME}"}
    async with admin.client:
        stricter = {"messages": 3, "mode": "reject"}
        status, answer = await admin.ask("PUT", limit_of("acme/shop"), json=stricter, headers=acme)
        assert (status, answer["limit"], answer["origin"]) == (200, {"messages": 3}, "tenant"), "the operator's mode"
        assert answer["hidden"] == [], "each of the two values holds in part"
        status, answer = await admin.ask("PUT", limit_of("acme/shop"), json={"bytes": "1kB"}, headers=acme)
        assert (status, answer["limit"], answer["hidden"]) == (200, {"messages": 5, "bytes": "1KB"}, [])


@pytest.mark.parametrize("name", ["x" * 600, "%1B" * 600], ids=["long", "long when escaped"])
async def test_refusal_cuts_a_long_name(tokens: Path, name: str) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    topic = f"persistent://acme/shop/{'y' * 600}"
    headers = {"Authorization": f"Bearer {ACME}"}
    async with admin.client:
        status, answer = await admin.ask("GET", f"/sluice/limits?setting=tenant&name={name}", headers=headers)
        assert (status, len(answer["reason"]) < 300) == (403, True)
        status, answer = await admin.ask("PUT", limit_of(topic, "topic"), json={"messages": 6}, headers=headers)
        assert (status, len(answer["reason"]) < 400) == (403, True)
        status, answer = await admin.ask("PUT", limit_of(topic, "topic"), json={"messages": "?"}, headers=headers)
        assert (status, len(answer["reason"]) < 500) == (400, True)


async def test_an_operator_sees_and_takes_back_what_a_tenant_set(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    ops = {"Authorization": f"Bearer {ALL}"}
    async with admin.client:
        assert await asked(admin, ACME, "PUT", limit_of("acme/shop"), json={"messages": 3}) == 200
        _, listed = await admin.ask("GET", "/sluice/limits?setting=topic_of_namespace", headers=ops)
        assert [(limit["name"], limit["origin"], limit["author"]) for limit in listed["limits"]] == [
            ("acme/shop", "tenant", "acme"),
            ("other/shop", "file", ""),
        ]
        _, answer = await admin.ask("GET", "/sluice/explain?topic=persistent://acme/shop/orders", headers=ops)
        (level,) = [level for level in answer["publish"] if level["level"] == "topic"]
        assert [(value["origin"], value["state"], value["author"]) for value in level["values"]] == [
            ("file", "hidden", ""),
            ("tenant", "holds", "acme"),
        ]
        assert await asked(admin, ALL, "DELETE", limit_of("acme/shop")) == 200
        assert messages_of(admin, "acme/shop") == 3, "that is the operator's own"
        assert await asked(admin, ALL, "DELETE", limit_of("acme/shop") + "&layer=tenant") == 200
        assert messages_of(admin, "acme/shop") == 5


async def test_pulsars_tools_show_a_tenant_its_own_and_what_applies(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    path, acme, ops = "/admin/v2/namespaces/acme/shop/publishRate", ACME, ALL
    async with admin.client:
        assert await asked(admin, acme, "POST", path, json=STRICTER) == 204
        shown = [
            (await admin.ask("GET", path + query, headers={"Authorization": f"Bearer {token}"}))[1]
            for token in (acme, ops)
            for query in ("", "?applied=true")
        ]
        assert [rate["publishThrottlingRateInMsg"] for rate in shown] == [4, 4, 5, 4]


async def test_a_condition_is_about_the_callers_own_layer(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    acme = {"Authorization": f"Bearer {ACME}"}
    async with admin.client:
        assert await asked(admin, ALL, "PUT", limit_of("acme/shop"), json={"messages": 5}) == 200
        for headers, status in (({"If-Match": "*"}, 412), ({"If-None-Match": "*"}, 200), ({"If-Match": "*"}, 200)):
            answer = await admin.ask("PUT", limit_of("acme/shop"), json={"messages": 3}, headers=acme | headers)
            assert answer[0] == status


async def test_a_flood_of_a_tenant_leaves_room_for_limits_and_blocks(tokens: Path) -> None:
    admin = Admin(admin_access={"tokens": str(tokens), "rate": "100000/s"}, limits=LIMITS)
    admin.store.room.share = TenantShare(policies=20, size=10**6)
    async with admin.client:
        names = [f"persistent://acme/shop/{number:04d}{'x' * 900}" for number in range(40)]
        done = [await asked(admin, ACME, "PUT", limit_of(name, "topic"), json={"messages": 1}) for name in names]
        assert done == [200] * 20 + [400] * 20
        assert await asked(admin, OTHER, "PUT", limit_of("other/shop"), json={"messages": 1}) == 200
        assert await asked(admin, ALL, "PUT", limit_of("acme", "tenant"), json={"messages": 1}) == 200
        assert await asked(admin, ALL, "POST", "/sluice/blocks", json={"kind": "role", "name": "billing"}) == 200


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/namespaces/acme%2Fshop%2F..%2F..%2Fother/shop/publishRate",
        "/admin/v2/namespaces/acme/../other/shop/publishRate",
        "/admin/v2/namespaces/acme%2f..%2fother/shop/publishRate",
        "/admin/v2/namespaces/ACME/shop/publishRate",
        "/admin/v2/namespaces/%61cme-not/shop/publishRate",
        "/admin/v2//namespaces/other/shop/publishRate",
        "/sluice/policies/",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_no_spelling_of_a_path_leads_to_another_tenant(tokens: Path, path: str, method: str) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    async with admin.client:
        before = admin.policies
        assert await asked(admin, ACME, method, path, json=RATE) in {400, 403, 404, 405}
        assert admin.policies == before


@pytest.mark.parametrize(
    ("method", "path", "is_passed_on"),
    [
        ("GET", "/admin/v2/namespaces/acme", True),
        ("GET", "/admin/v2/namespaces/acme/shop", True),
        ("GET", "/admin/v2/namespaces/other", False),
        ("DELETE", "/admin/v2/namespaces/other/shop", False),
        ("GET", "/admin/v2/persistent/acme/shop/orders/stats", True),
        ("GET", "/admin/v2/persistent/other/shop/orders/stats", False),
        ("GET", "/admin/v2/schemas/acme/shop/orders/schema", True),
        ("GET", "/admin/v2/schemas/other/shop/orders/schema", False),
        ("GET", "/lookup/v2/topic/persistent/acme/shop/orders", True),
        ("GET", "/lookup/v2/topic/persistent/other/shop/orders", False),
        ("GET", "/admin/v2/tenants/acme", True),
        ("DELETE", "/admin/v2/tenants/acme", False),
        ("GET", "/admin/v2/tenants/other", False),
        ("GET", "/admin/v2/tenants", False),
        ("GET", "/admin/v2/clusters", False),
        ("GET", "/admin/v2/brokers/health", False),
        ("GET", "/admin/v2/brokers/configuration/runtime", False),
        ("GET", "/admin/v3/functions/acme/shop", False),
        ("GET", "/admin/v2/namespaces/acme/antiAffinity/group?property=other", False),
        ("PUT", "/admin/v2/persistent/acme/shop/orders/shadowTopics", False),
        ("PUT", "/admin/v2/persistent/acme/shop/orders/properties", False),
        ("DELETE", "/admin/v2/persistent/acme/shop/orders%2Fproperties", False),
        ("GET", "/admin/v2/persistent/acme/shop/orders/properties", True),
        ("PUT", "/admin/v2/namespaces/acme/shop", True),
        ("POST", "/admin/v2/namespaces/acme/shop/resourcegroup/theirs", False),
        ("PUT", "/admin/v2/namespaces/acme/shop/persistence/bookieAffinity", False),
        ("POST", "/admin/v2/namespaces/acme/shop/persistence", True),
        ("POST", "/admin/v2/namespaces/acme/shop/offloadPolicies", False),
        ("DELETE", "/admin/v2/namespaces/acme/shop/removeOffloadPolicies", False),
        ("POST", "/admin/v2/persistent/acme/shop/orders/offloadPolicies", False),
        ("POST", "/admin/v2/persistent/acme/shop/a%2Fb/OffloadPolicies", False),
        ("GET", "/admin/v2/persistent/acme/shop/orders/offloadPolicies", True),
        ("POST", "/admin/v2/non-persistent/acme/shop/orders/resourceGroup", False),
        ("PUT", "/admin/v2/persistent/acme/shop/offloadPolicies", True),
        ("GET", "/admin/v2/namespaces/%61cme/shop", False),
        ("GET", "/admin/v2/namespaces/other%2F..%2Facme", False),
        ("GET", "/admin/v2/persistent/acme%2F..%2Fother/shop/orders/stats", False),
        ("GET", "/admin/v2/persistent/acme/..%2F..%2Fother/shop/stats", False),
        ("GET", "/admin/v2/persistent/acme/%2e%2e/other/orders/stats", False),
    ],
)
async def test_a_broker_gets_what_is_about_the_tenant_alone(
    tokens: Path,
    fake: FakeBroker,
    method: str,
    path: str,
    is_passed_on: bool,  # noqa: FBT001 - a column
) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, admin_forward={"url": fake.url})
    async with admin.client:
        target = URL(str(admin.client.make_url("/")).rstrip("/") + path, encoded=True)
        headers = {"Authorization": f"Bearer {ACME}"}
        async with admin.client.session.request(method, target, headers=headers) as answer:
            assert (answer.status == 200) is is_passed_on, await answer.text()
            assert answer.status in {200, 400, 403}
    assert len(fake.asked) == int(is_passed_on)


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.partitioned-topic-metadata+json"])
async def test_a_topic_is_made_without_properties_which_may_name_one_of_another_tenant(
    tokens: Path, fake: FakeBroker, kind: str
) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, admin_forward={"url": fake.url})
    topic = "/admin/v2/persistent/acme/shop/orders"
    body = b'{"PULSAR.SHADOW_SOURCE": "persistent://other/shop/orders"}'
    headers = {"Authorization": f"Bearer {ACME}", "Content-Type": kind}
    async with admin.client:
        for path in (topic, f"{topic}/partitions") if "vnd" in kind else (topic,):
            assert (await admin.ask("PUT", path, data=body, headers=headers))[0] == 403
        assert not fake.asked
        assert await asked(admin, ACME, "PUT", topic) == 200
    assert len(fake.asked) == 1


@pytest.mark.parametrize(
    ("path", "body", "kind", "is_passed_on"),
    [
        ("/admin/v2/namespaces/acme/shop", b'{"resource_group_name": "theirs"}', "application/json", False),
        ("/admin/v2/persistent/acme/shop/orders/partitions", b"4", "application/json", True),
        ("/admin/v2/persistent/acme/shop/orders/partitions", b"4", "application/json; charset=UTF-8", True),
        ("/admin/v2/persistent/acme/shop/orders/partitions", b"{}", "application/*", False),
        ("/admin/v2/persistent/acme/shop/orders/partitions", b"{}", "application/ vnd.x+json", False),
        ("/admin/v2/persistent/acme/shop/orders/partitions", b"{}", "application/json, x/y", False),
        ("/admin/v2/persistent/acme/shop/orders/partitions", b"{}", "", False),
    ],
)
async def test_a_body_is_json_and_names_nothing_that_tenants_share(
    tokens: Path,
    fake: FakeBroker,
    path: str,
    body: bytes,
    kind: str,
    is_passed_on: bool,  # noqa: FBT001 - a column
) -> None:
    admin = Admin(admin_access={"tokens": str(tokens)}, admin_forward={"url": fake.url})
    async with admin.client:
        status, _ = (await admin.ask("PUT", path, data=body, headers=_headers(kind)))[:2]
    assert status == (200 if is_passed_on else 403)
    assert len(fake.asked) == int(is_passed_on)


def _headers(kind: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {ACME}", "Content-Type": kind}


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@pytest.mark.parametrize(
    "settings",
    [
        {"fleet": {"name": "front", "namespace": "acme/fleet"}},
        {"policies": {"topic": "persistent://acme/fleet/front-policies"}},
        {"fleet": {"name": "front"}, "policies": {"topic": "persistent://acme/fleet/front-policies"}},
    ],
    ids=["the fleet's namespace", "a topic of policies alone", "such a topic elsewhere"],
)
async def test_a_tenants_token_reaches_no_namespace_of_a_fleet(
    tokens: Path, fake: FakeBroker, settings: dict[str, Any], method: str
) -> None:
    """What is done to the topic there changes the limits of all tenants; a token for all tenants may do it."""
    admin = Admin(admin_access={"tokens": str(tokens)}, admin_forward={"url": fake.url}, **settings)
    async with admin.client:
        for path in ("persistent/acme/fleet/front-policies", "namespaces/acme/fleet/permissions/stranger"):
            assert await asked(admin, ACME, method, f"/admin/v2/{path}") == 403
            assert not fake.asked
            assert await asked(admin, ALL, method, f"/admin/v2/{path}") == 200
            fake.asked.clear()
        assert await asked(admin, ACME, method, "/admin/v2/persistent/acme/shop/orders") == 200


async def test_the_broker_hears_of_the_caller_as_configured(tokens: Path, tmp_path: Path, fake: FakeBroker) -> None:
    own = tmp_path / "sluice.token"
    own.write_text("sluices-token\n")
    forward = {"url": fake.url, "token": str(own), "caller": "principal"}
    admin = Admin(admin_access={"tokens": str(tokens)}, admin_forward=forward)
    lie = {"X-Original-Principal": "admin", "Authorization": f"Bearer {ACME}"}
    async with admin.client:
        assert (await admin.ask("GET", "/admin/v2/namespaces/acme", headers=lie))[0] == 200
    (came,) = fake.asked
    assert came.headers.getall("X-Original-Principal") == ["acme"]
    assert came.headers["Authorization"] == "Bearer sluices-token"


async def test_callers_own_credentials_reach_the_broker_where_sluice_has_none(fake: FakeBroker) -> None:
    admin = Admin(admin_forward={"url": fake.url, "caller": "authorization"})
    lie = {"X-Original-Principal": "admin", "Authorization": "Bearer callers-token"}
    async with admin.client:
        assert (await admin.ask("GET", "/admin/v2/namespaces/acme", headers=lie))[0] == 200
    (came,) = fake.asked
    assert came.headers["Authorization"] == "Bearer callers-token"
    assert "X-Original-Principal" not in came.headers
