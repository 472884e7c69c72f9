"""`sluice block`, `sluice unblock`, `sluice blocks` against the admin address of a proxy."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from proxy.block_rules import read_key
from sluice.cli import app
from tests.proxy.admin.test_kick_rest import Client
from tests.proxy.admin_client import Admin


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The operator's log of the proxy must not get into what the command says."""
    with capture_logs():
        yield


async def sluice(address: str, *arguments: str, columns: int = 200) -> Result:
    """Beside the loop that answers it."""
    command = [*arguments, "--admin", address]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command, env={"COLUMNS": str(columns)}))


def address_of(admin: Admin) -> str:
    return f"{admin.client.host}:{admin.client.port}"


async def test_blocking_showing_and_unblocking(make_admin) -> None:
    admin: Admin = await make_admin()
    where = ["--topic", "acme/shop/orders"]
    done = await sluice(address_of(admin), "block", "producer", "p [x]", *where, "--reason", "too loud")
    assert done.stdout == "blocked: producer p [x]; ended 0 connections, 0 producers and consumers\n"
    assert admin.engine.blocklist.rules.get(read_key("producer", "p [x]", "acme/shop/orders"))
    table = (await sluice(address_of(admin), "blocks")).stdout
    for cell in ("producer", "p [x]", "persistent://acme/shop/orders", "too loud", "rest", "0"):
        assert cell in table
    done = await sluice(address_of(admin), "unblock", "producer", "p [x]", *where)
    assert (done.exit_code, done.stdout) == (0, "unblocked: producer p [x]\n")
    assert (await sluice(address_of(admin), "blocks")).stdout == "nothing is blocked\n"


async def test_dry_run_counts_what_a_block_would_end(make_admin) -> None:
    admin: Admin = await make_admin()
    admin.engine.sessions.add(Client())
    would = await sluice(address_of(admin), "block", "address", "10.1.0.0/255.255.0.0", "--dry-run")
    assert would.stdout == "would block: address 10.1.0.0/16; would end 1 connections, 2 producers and consumers\n"
    would = await sluice(address_of(admin), "block", "address", "0.0.0.0/0", "--dry-run", "--json")
    answer = json.loads(would.stdout)
    assert (answer["blocked"], answer["connections"], answer["streams"]) == (False, 1, 2)
    assert len(admin.engine.blocklist.rules) == 0
    await sluice(address_of(admin), "block", "address", "10.1.0.0/16")
    rule = admin.engine.blocklist.rules.all()[0]
    would = await sluice(address_of(admin), "block", "address", "10.1.0.0/16", "--dry-run")
    assert would.stdout.startswith("blocked already: address 10.1.0.0/16, since 20")
    assert would.stdout.endswith("; would end 1 connections, 2 producers and consumers\n")
    assert admin.engine.blocklist.rules.all() == [rule]


async def test_earlier_proxy_blocks_nothing_by_a_dry_run() -> None:
    known, done = {"kind", "name", "topic", "namespace", "reason"}, list[str]()

    async def block(request: web.Request) -> web.Response:
        body = await request.json()
        if unknown := body.keys() - known:
            return web.json_response({"reason": f"block: unknown field `{unknown.pop()}`"}, status=400)
        done.append(body["name"])
        return web.json_response({"block": {"name": body["name"]}, "ended": {"connections": 1, "streams": 2}})

    earlier = web.Application()
    earlier.router.add_post("/sluice/blocks", block)
    async with TestServer(earlier) as server:
        address = f"{server.host}:{server.port}"
        refused = await sluice(address, "block", "producer", "p", "--dry-run")
        assert (refused.exit_code, done) == (2, [])
        assert "unknown field `dry_run`" in refused.output
        blocked = await sluice(address, "block", "producer", "p")
        assert blocked.stdout == "blocked: producer p; ended 1 connections, 2 producers and consumers\n"
        assert done == ["p"]


async def test_a_narrow_terminal_cuts_nothing_off(make_admin) -> None:
    admin: Admin = await make_admin()
    name = "".join(chr(ord("a") + number % 26) for number in range(120))
    await sluice(address_of(admin), "block", "role", name)
    table = (await sluice(address_of(admin), "blocks", columns=60)).stdout
    cells = [line.split("│")[2].strip() for line in table.splitlines() if line.startswith("│")]
    assert "".join(cells) == name


async def test_a_name_may_hold_whatever_a_query_holds(make_admin) -> None:
    admin: Admin = await make_admin()
    await sluice(address_of(admin), "block", "role", "a&b=c?d/ü %", "--reason", "&")
    assert admin.engine.blocklist.rules.get(read_key("role", "a&b=c?d/ü %"))
    await sluice(address_of(admin), "unblock", "role", "a&b=c?d/ü %")
    assert len(admin.engine.blocklist.rules) == 0


async def test_unblocking_what_is_not_blocked_says_so(make_admin) -> None:
    admin: Admin = await make_admin()
    done = await sluice(address_of(admin), "unblock", "address", "192.0.2.7")
    assert (done.exit_code, done.stdout) == (0, "not blocked: address 192.0.2.7; `sluice blocks` shows what is\n")


async def test_lifting_a_rule_of_the_file_says_that_it_comes_back(make_admin) -> None:
    admin: Admin = await make_admin(blocks=[{"role": "billing"}])
    done = await sluice(address_of(admin), "unblock", "role", "billing")
    assert done.stdout.startswith("unblocked: role billing; the configuration file has it as well")
    assert "file, lifted" in (await sluice(address_of(admin), "blocks")).stdout


async def test_a_mistake_is_one_line_and_exit_code_2(make_admin) -> None:
    admin: Admin = await make_admin()
    done = await sluice(address_of(admin), "block", "user", "u")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("sluice: 'user' cannot be blocked; write one of address, role, producer")


async def test_a_proxy_that_is_not_there_is_one_line_and_exit_code_1() -> None:
    done = await sluice("127.0.0.1:1", "blocks")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("sluice: 127.0.0.1:1: no answer (")


@pytest.mark.parametrize("status", [200, 404])
async def test_somebody_else_at_that_address_is_no_traceback(status: int) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="<html>", status=status)

    other = web.Application()
    other.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(other) as server:
        done = await sluice(f"{server.host}:{server.port}", "blocks")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("--admin must be the admin address of a running `sluice serve`")
