"""`POST /sluice/kick`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from proxy.blocking.blocklist import LookAtSessions
from proxy.kicks import KickChoice, KickEffect
from proxy.policies.store import Action
from tests.proxy.admin_client import Admin
from tests.proxy.policies.test_commands import sluice

TOKENS = """
ops: {access: write, token: operator-01234567}
acme: {access: write, token: of-acme-012345678, tenants: [acme]}
reader: {access: read, token: of-reader-0123456, tenants: [acme]}
"""


class Client:
    """A session that notes how it was kicked."""

    def __init__(self) -> None:
        self.kicks: list[Any] = []

    def rules_added(self, _look: LookAtSessions) -> Iterator[None]:
        yield from ()

    def kick(self, kick: KickChoice, effect: KickEffect) -> Iterator[None]:
        self.kicks.append(kick)
        effect.connections += kick.is_of_connections
        effect.streams += 2
        yield


@pytest.fixture
async def admin(make_admin, tmp_path: Path) -> Admin:
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    made: Admin = await make_admin(admin_access={"tokens": tmp_path / "tokens.yaml"})
    return made


def bearer(token: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {token}"}}


OPS, ACME, READER = bearer("operator-01234567"), bearer("of-acme-012345678"), bearer("of-reader-0123456")


async def test_kick_is_counted_and_audited_and_a_dry_one_is_not(admin: Admin) -> None:
    clients = [Client() for _ in range(3)]
    admin.engine.sessions.update(clients)
    path = "/sluice/kick?role=app&address=192.0.2.0/24"
    status, answer = await admin.ask("POST", f"{path}&dry_run=1", **OPS)
    assert (status, answer) == (200, {"kicked": False, "connections": 3, "streams": 6})
    assert admin.store.audited(1) == []
    assert await admin.ask("POST", path, **OPS) == (200, {"kicked": True, "connections": 3, "streams": 6})
    assert [kick.is_dry for kick in clients[0].kicks] == [True, False]
    (audited,) = admin.store.audited(9)
    assert (audited.who, audited.address) == ("ops", "127.0.0.1")
    assert isinstance(audited.change, Action)
    assert (audited.change.name, audited.change.effect) == (
        "role app, address 192.0.2.0/24",
        "ended 3 connections, 6 producers and consumers",
    )
    assert admin.engine.counters.kicked == {"connections": 3, "streams": 6}
    _, metrics = await admin.ask("GET", "/metrics", **OPS)
    assert 'sluice_kicked_total{kind="streams"} 6.0' in metrics


async def test_token_of_a_tenant_kicks_its_own_alone(admin: Admin) -> None:
    client = Client()
    admin.engine.sessions.add(client)
    for query in ("tenant=acme", "address=192.0.2.7", "connection=7", "topic=persistent://other/shop/t"):
        status, answer = await admin.ask("POST", f"/sluice/kick?{query}", **ACME)
        assert (status, answer["connections"]) == (200, 0)
        assert (client.kicks[-1].tenants, client.kicks[-1].is_of_connections) == (frozenset({"acme"}), False)
    assert (await admin.ask("POST", "/sluice/kick?tenant=other", **ACME))[0] == 403
    assert (await admin.ask("POST", "/sluice/kick?tenant=acme", **READER))[0] == 403
    assert len(client.kicks) == 4


@pytest.mark.parametrize(
    "local", ["\u202egnp.exe", "a\x1b[31m\n", "%2F", "t" * 4000], ids=["bidi", "controls", "percent", "long"]
)
async def test_topic_is_found_by_any_name_that_a_client_gave_it(admin: Admin, local: str) -> None:
    client, topic = Client(), f"persistent://acme/shop/{local}"
    admin.engine.sessions.add(client)
    query = urlencode({"topic": topic})
    assert (await admin.ask("POST", f"/sluice/kick?{query}", **ACME))[0] == 200
    assert client.kicks[0].topic == topic
    admin.engine.sessions.clear()
    assert (await admin.ask("GET", f"/sluice/streams?{query}", **ACME))[0] == 200


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "name what to kick: tenant, topic, role, address or connection"),
        ("dry_run=1", "name what to kick"),
        ("topic=a/b", "'a/b'"),
        ("address=here", "write an address as 192.0.2.7"),
        ("connection=x", "connection: 'x' is no number"),
        ("dry_run=2&role=a", "dry_run: '2' is neither 1 nor 0"),
        ("who=me", "who"),
        ("tenant=&address=0.0.0.0/0", "tenant: is empty; name one, or leave it out"),
        ("tenant=acme&role=", "role: is empty; name one, or leave it out"),
        ("connection=%D9%A3", "is no number"),
    ],
)
async def test_kick_without_sense_is_refused_with_the_remedy(admin: Admin, query: str, reason: str) -> None:
    status, answer = await admin.ask("POST", f"/sluice/kick?{query}", **OPS)
    assert status == 400
    assert reason in answer["reason"]


async def test_command_shows_what_ends_and_what_would(make_admin) -> None:
    admin: Admin = await make_admin()
    admin.engine.sessions.add(Client())
    would = await sluice(admin, "kick", "--role", "app", "--dry-run")
    assert would.stdout == "would end: 1 connections, 2 producers and consumers\n"
    done = await sluice(admin, "kick", "--tenant", "acme")
    assert done.stdout.endswith("ended: 0 connections, 2 producers and consumers\n")
    unset = await sluice(admin, "kick", "--tenant", "", "--address", "0.0.0.0/0")
    assert (unset.exit_code, "tenant: is empty" in unset.stderr) == (2, True)
    refused = await sluice(admin, "kick")
    assert (refused.exit_code, "name what to kick" in refused.stderr) == (2, True)
