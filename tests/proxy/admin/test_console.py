"""The console without a browser: its resources, their headers, and the REST that it has of its own."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from limiter.levels import Client, Setting
from limiter.limiter import Stream, StreamName
from protocol.topic_name import parse_topic
from proxy.admin.routes import console
from proxy.admin.tenant_scope import CONSOLE_PATHS
from proxy.observe.connection import Connection
from tests.proxy.admin_client import Admin

FILES = Path(console.__file__).parent.parent / "console"
OPS, ACME = "ops-0123456789abcd", "acme-0123456789ab"
TOKENS: dict[str, dict[str, Any]] = {
    "ops": {"access": "write", "token": OPS},
    "acme": {"access": "read", "token": ACME, "tenants": ["acme"]},
}
LIMITS = {
    "namespaces": {"acme/shop": {"publish_total": {"messages": 5}}, "other/x": {"publish_total": {"messages": 7}}}
}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.yaml"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(TOKENS))
    return path


def let_open(admin: Admin, topic: str, number: int = 1, **client: str) -> Stream:
    """A producer of a client."""
    name = parse_topic(topic)
    stream_name = StreamName("publish", name.tenant, name.namespace, name.full, number, client.get("producer_name", ""))
    connection = Connection(number, client.get("address", "192.0.2.7:40001"), client_role=client.get("role", ""))
    stream = Stream(stream_name, (), lambda _stream, _entry: None, connection)
    host = connection.client_address.rpartition(":")[0].strip("[]")
    of_client = Client(producer_name=stream_name.producer_name, role=connection.client_role, address=host)
    admin.engine.registry.open(stream, name, admin.engine.clock(), of_client)
    return stream


@pytest.mark.parametrize("path", sorted(CONSOLE_PATHS))
async def test_resources_need_no_token_and_forbid_all_else(make_admin, tokens: Path, path: str) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": str(tokens)})
    async with admin.client.get(path) as answer:
        assert answer.status == 200
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Set-Cookie" not in answer.headers
        tag = answer.headers["ETag"]
    async with admin.client.get(path, headers={"If-None-Match": tag}) as again:
        assert (again.status, await again.read()) == (304, b"")


def test_page_has_nothing_inline_and_nothing_of_other_hosts() -> None:
    page, script, style = (FILES.joinpath(f"console.{kind}").read_text() for kind in ("html", "js", "css"))
    assert set(re.findall(r'(?:src|href)="([^"#][^"]*)"', page)) == CONSOLE_PATHS - {"/console"}
    assert not re.search(r"<style|<script(?! src=)|\sstyle=|\son\w+=", page)
    for text in (page, script, style):
        assert not re.search(r"https?://|url\(|@import", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|DOMParser|Storage|cookie", script
    )


async def test_caller_is_shown_with_its_rights(make_admin, tokens: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": str(tokens)})

    async def caller(token: str) -> tuple[int, Any]:
        return await admin.ask("GET", "/sluice/caller", headers={"Authorization": f"Bearer {token}"})

    assert await caller(OPS) == (
        200,
        {"name": "ops", "access": "write", "tenants": None, "proxy_id": "p", "version": "0"},
    )
    status, shown = await caller(ACME)
    assert (status, shown["access"], shown["tenants"]) == (200, "read", ["acme"])
    assert (await caller("unknown-0123456789"))[0] == 401
    assert (await admin.ask("GET", "/sluice/caller"))[0] == 401


async def test_limits_at_work_are_those_of_the_callers_tenants(make_admin, tokens: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    let_open(admin, "persistent://acme/shop/a", 1)
    let_open(admin, "persistent://acme/shop/b", 2)
    let_open(admin, "persistent://other/x/a", 3)

    async def shown(token: str, query: str = "") -> list[tuple[str, int]]:
        status, page = await admin.ask("GET", f"/sluice/limiters{query}", headers={"Authorization": f"Bearer {token}"})
        assert status == 200
        return sorted((each["name"], each["streams"]) for each in page["limiters"])

    assert await shown(OPS) == [("acme/shop", 2), ("other/x", 1)]
    assert await shown(ACME) == [("acme/shop", 2)]
    assert await shown(ACME, "?name=other/x") == []
    assert await shown(OPS, "?search=her&level=namespace&direction=publish") == [("other/x", 1)]
    assert await shown(OPS, "?direction=dispatch") == []


async def test_limits_with_the_least_room_come_first(make_admin) -> None:
    names = [f"acme/n{number}" for number in range(9)]
    rate = {"messages": "1/h", "burst_messages": 10}
    admin: Admin = await make_admin(limits={"namespaces": {name: {"publish_total": rate} for name in names}})
    streams = [let_open(admin, f"persistent://{name}/t", number) for number, name in enumerate(names)]
    scheduler, now = admin.engine.scheduler, admin.engine.clock()
    scheduler.pass_entry(streams[7], 3, 30, now)
    scheduler.pass_entry(streams[4], 10, 10, now)
    _, page = await admin.ask("GET", "/sluice/limiters?limit=2")
    assert [each["name"] for each in page["limiters"]] == ["acme/n4", "acme/n7"]
    assert (page["limiters"][0]["passed_messages"], page["limiters"][1]["passed_bytes"]) == (10, 30)
    assert page["left_out"] == 7


async def test_last_hour_of_a_limit_is_of_the_callers_tenants(make_admin, tokens: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    streams = [
        let_open(admin, f"persistent://{name}/a", number) for number, name in enumerate(("acme/shop", "other/x"))
    ]
    for stream in streams:
        admin.engine.scheduler.pass_entry(stream, 3, 30, admin.engine.clock())
    for _ in admin.history.sampling():
        pass

    async def samples(token: str, name: str) -> list[dict[str, float]]:
        path = f"/sluice/limiters/history?direction=publish&level=namespace&name={name}"
        status, hour = await admin.ask("GET", path, headers={"Authorization": f"Bearer {token}"})
        assert (status, hour["step_s"]) == (200, 60)
        hour_samples: list[dict[str, float]] = hour["samples"]
        return hour_samples

    (sample,) = await samples(OPS, "other/x")
    assert sample["bytes_per_s"] == pytest.approx(10 * sample["messages_per_s"])
    assert sample["use"] > 1
    assert len(await samples(ACME, "acme/shop")) == 1
    assert await samples(ACME, "other/x") == await samples(ACME, "none/such") == []


@pytest.mark.parametrize(
    ("query", "stream_ids"),
    [
        ("search=ACME", []),
        ("search=acme", [1, 2]),
        ("search=billing", [2, 3]),
        ("search=198.51", [3]),
        ("search=till", [1]),
        ("role=billing&tenant=other", [3]),
        ("role=bill", []),
        ("address=198.51.100.9", [3]),
        ("address=198.51.100", []),
        ("direction=publish&level=namespace&name=acme/shop", [1, 2]),
        ("level=topic&name=acme/shop", []),
        ("direction=dispatch", []),
    ],
)
async def test_streams_are_found_by_client_and_by_limit(make_admin, query: str, stream_ids: list[int]) -> None:
    admin: Admin = await make_admin(limits=LIMITS)
    let_open(admin, "persistent://acme/shop/a", 1, producer_name="till-7", role="shop")
    let_open(admin, "persistent://acme/shop/b", 2, role="billing")
    let_open(admin, "persistent://other/x/a", 3, role="billing", address="198.51.100.9:4")
    _, page = await admin.ask("GET", f"/sluice/streams?{query}")
    assert sorted(each["stream_id"] for each in page["streams"]) == stream_ids
    assert page["totals"]["streams"] == len(stream_ids)


WIDE_LIMITS = {
    "plans": {"gold": {"publish": {"messages": "30/min", "burst_messages": 500, "peak_messages": "90/min"}}},
    "tenants": {"gold-*": "gold"},
    "each_topic": {"dispatch": {"bytes": "3MB", "mode": "observe"}, "publish": {"bytes": "1.5MiB"}},
    "producers": {"*": {"publish": {"messages": 7}}},
    "addresses": {"2001:db8::/32": {"publish": {"messages": 9}}},
}


async def value_of(admin: Admin, level: str, name: str, token: str = "") -> tuple[int, Any]:
    path = f"/sluice/limiters/value?direction=publish&level={level}&name={name}"
    return await admin.ask("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})


async def test_value_of_a_limit_is_whole_and_has_its_source(make_admin) -> None:
    admin: Admin = await make_admin(limits=WIDE_LIMITS)
    topic = "persistent://gold-1/a/t"
    let_open(admin, f"{topic}-partition-3", producer_name="p", address="[2001:db8::7]:4")
    status, shown = await value_of(admin, "tenant", "gold-1")
    whole = {"messages": "30/min", "burst_messages": 500, "peak_messages": "90/min"}
    assert (status, shown["limit"]) == (200, whole)
    assert shown["target"] == {"setting": "tenant", "name": "gold-1", "reach": "this limit"}
    (value,) = shown["values"]
    assert (value["name"], value["origin"], value["plan"], value["state"]) == ("gold-*", "file", "gold", "holds")
    targets = {}
    for level, name in (
        ("topic", f"{topic}-partition-3"),
        ("producer", f"p@{topic}"),
        ("address", "2001:db8::/64"),
    ):
        status, shown = await value_of(admin, level, name)
        assert status == 200
        targets[shown["target"]["setting"]] = (shown["target"]["name"], shown["target"]["reach"])
    assert targets == {
        "topic": (topic, "each partition"),
        "producer": ("p", "each topic"),
        "address": ("2001:db8::/64", "this limit"),
    }


WITHOUT_STREAMS = [
    ("tenant", "gold-2", "gold-*", "gold-2", "this limit"),
    ("tenant", "acme", None, "acme", "this limit"),
    ("namespace", "acme/shop", None, "acme/shop", "this limit"),
    ("topic", "persistent://acme/shop/a", "", "persistent://acme/shop/a", "this limit"),
    ("topic", "persistent://acme/shop/a-partition-1", "", "persistent://acme/shop/a", "each partition"),
    ("partitioned_topic", "persistent://acme/shop/a", None, "persistent://acme/shop/a", "this limit"),
    ("proxy", "", None, "", "this limit"),
]


@pytest.mark.parametrize(("level", "name", "source", "own", "reach"), WITHOUT_STREAMS)
async def test_value_of_a_limit_needs_no_stream(
    make_admin, level: str, name: str, source: Any, own: str, reach
) -> None:
    admin: Admin = await make_admin(limits=WIDE_LIMITS)
    status, shown = await value_of(admin, level, name)
    assert (status, shown["target"]) == (200, {"setting": level, "name": own, "reach": reach})
    assert [each["name"] for each in shown["values"] if each["state"] == "holds"] == (
        [] if source is None else [source]
    )
    assert bool(shown["limit"]) == bool(shown["base"]) == (source is not None)


@pytest.mark.parametrize(
    ("level", "name"),
    [
        ("tenant", "acme/shop"),
        ("tenant", ""),
        ("namespace", "acme"),
        ("topic", "acme/shop/a"),
        ("topic", "persistent://acme/shop/__change_events"),
        ("partitioned_topic", "persistent://acme/shop/a-partition-1"),
        ("producer", "p@persistent://acme/shop/a"),
        ("role", "app"),
    ],
)
async def test_value_without_streams_needs_a_full_name(make_admin, level: str, name: str) -> None:
    admin: Admin = await make_admin(limits=WIDE_LIMITS)
    assert (await value_of(admin, level, name))[0] == 404


async def test_limits_at_work_have_their_sources_by_name(make_admin) -> None:
    admin: Admin = await make_admin(limits={**WIDE_LIMITS, "proxy": {"publish": {"messages": 1000}}})
    stream = let_open(admin, "persistent://gold-1/a/t", producer_name="p")
    expected = {
        "proxy": ("proxy", "", ""),
        "tenant": ("tenant", "gold-*", "gold"),
        "topic": ("topic_of_broker", "", ""),
        "producer": ("producer", "*", ""),
    }

    async def sources() -> dict[str, list[tuple[str, str, str]]]:
        _, page = await admin.ask("GET", "/sluice/limiters")
        return {
            each["level"]: [(source["setting"], source["name"], source["plan"]) for source in each["sources"]]
            for each in page["limiters"]
        }

    assert {level: (source,) for level, source in expected.items()} == {
        level: tuple(level_sources) for level, level_sources in (await sources()).items() if level in expected
    }
    admin.engine.scheduler.pass_entry(stream, 10**6, 10, admin.engine.clock())
    admin.engine.registry.close(stream, admin.engine.clock())
    assert (await sources())["tenant"] == [expected["tenant"]], "its name alone gives the source without streams"


async def test_value_of_a_limit_is_of_the_callers_tenants(make_admin, tokens: Path) -> None:
    limits = {**LIMITS, "producers": {"*": {"publish": {"messages": 7}}}}
    admin: Admin = await make_admin(admin_access={"tokens": str(tokens)}, limits=limits)
    let_open(admin, "persistent://acme/shop/a", 1, producer_name="p")
    let_open(admin, "persistent://other/x/a", 2)
    status, shown = await value_of(admin, "namespace", "acme/shop", ACME)
    assert (status, shown["limit"], shown["target"]["name"]) == (200, {"messages": 5}, "acme/shop")
    for token, name, status in (
        (OPS, "other/x", 200),
        (ACME, "other/x", 404),
        (ACME, "other", 404),
        (ACME, "acme", 200),
    ):
        level = "namespace" if "/" in name else "tenant"
        assert (await value_of(admin, level, name, token))[0] == status
    assert (await value_of(admin, "proxy", "", ACME))[0] == 404
    status, shown = await value_of(admin, "producer", "p@persistent://acme/shop/a", ACME)
    assert (status, shown["limit"], shown["target"]) == (200, {"messages": 7}, None)


async def test_value_of_a_group_that_was_left_is_not_found(make_admin) -> None:
    groups = {group: {"publish": {"messages": messages}} for group, messages in (("few", 5), ("many", 9))}
    admin: Admin = await make_admin(limits={"resource_groups": groups})
    policies = admin.engine.registry.policies
    policies.attach(Setting.NAMESPACE, "acme/shop", "few")
    let_open(admin, "persistent://acme/shop/a", 1)
    assert (await value_of(admin, "resource_group", "few"))[1]["target"]["name"] == "few"
    policies.attach(Setting.NAMESPACE, "acme/shop", "many")
    assert (await value_of(admin, "resource_group", "few"))[0] == 404


async def test_numbers_that_browsers_round_are_texts(make_admin) -> None:
    most = 2**63 - 1
    limits = {"namespaces": {"acme/shop": {"publish_total": {"messages": 500, "bytes": most, "burst_bytes": most}}}}
    admin: Admin = await make_admin(limits=limits)
    let_open(admin, "persistent://acme/shop/a", 1)
    shown = (await value_of(admin, "namespace", "acme/shop"))[1]["limit"]
    assert shown == {"messages": 500, "bytes": str(most), "burst_bytes": str(most)}
    path = "/sluice/limits?direction=publish&setting=namespace&name=acme/shop"
    status, held = await admin.ask("PUT", path, json=shown | {"mode": "observe"})
    assert (status, held["limit"]) == (200, shown | {"mode": "observe"})


@pytest.fixture
def writers(tokens: Path) -> Path:
    """The same tokens, all of which may change."""
    tokens.write_text(tokens.read_text().replace("access: read", "access: write"))
    return tokens


async def test_change_begins_with_the_value_of_the_caller(make_admin, writers: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": str(writers)}, limits=LIMITS)
    let_open(admin, "persistent://acme/shop/a", 1)
    path = "/sluice/limits?direction=publish&setting=namespace&name=acme/shop"
    acme, ops = ({"Authorization": f"Bearer {token}"} for token in (ACME, OPS))
    assert (await admin.ask("PUT", path, headers=acme, json={"messages": 2}))[0] == 200
    shown = [(await value_of(admin, "namespace", "acme/shop", token))[1] for token in (OPS, ACME)]
    assert [(each["limit"], each["base"]) for each in shown] == [
        ({"messages": 2}, {"messages": 5}),
        ({"messages": 2}, {"messages": 2}),
    ]
    _, set_here = await admin.ask("GET", path, headers=ops)
    assert (set_here["own"], set_here["beneath"]["limit"]) == (None, {"messages": 5})
    _, set_here = await admin.ask("GET", f"{path}&layer=tenant", headers=ops)
    assert (set_here["own"]["limit"], set_here["own"]["author"]) == ({"messages": 2}, "acme")
    _, set_here = await admin.ask("PUT", path, headers=ops, json={"messages": 9})
    assert (set_here["own"]["limit"], set_here["beneath"]["limit"]) == ({"messages": 9}, {"messages": 5})
    _, set_here = await admin.ask("GET", path, headers=acme)
    assert (set_here["own"]["limit"], set_here["beneath"]["limit"]) == ({"messages": 2}, {"messages": 9})


async def test_request_for_another_process_is_refused(make_admin, tokens: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": str(tokens)}, limits=LIMITS)
    allowed = {"Authorization": f"Bearer {OPS}"}
    async with admin.client.get("/sluice/caller", headers=allowed) as answer:
        own = answer.headers["Sluice-Process"]
    assert own == "p/boot"
    path = "/sluice/limits?direction=publish&setting=namespace&name=acme/shop"
    for process, status in (("q/boot", 421), ("p/other", 421), (own, 200)):
        headers = {**allowed, "Sluice-Process": process}
        assert (await admin.ask("PUT", path, headers=headers, json={"messages": 4}))[0] == status
    assert len(admin.store.audited(10)) == 1
    other = {**allowed, "Sluice-Process": "q/boot"}
    for path, status in (
        ("/admin/v2/namespaces/acme/shop/publishRate", 421),
        ("/metrics", 421),
        ("/none/such", 421),
        ("/healthz", 200),
        ("/console", 200),
    ):
        async with admin.client.get(path, headers=other) as answer:
            assert (path, answer.status) == (path, status)
    async with admin.client.get("/sluice/caller") as answer:
        assert (answer.status, "Sluice-Process" in answer.headers) == (401, False)
