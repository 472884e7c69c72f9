"""`sluice top`, as people call it."""

import asyncio
import json
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from proxy.cli.top_view import counted
from tests.proxy.admin_client import Admin
from tests.proxy.cli.test_poll import hold_one
from tests.waiting import PATIENCE_S

SLUICE_TOP = (sys.executable, "-m", "sluice", "top")


async def sluice_top(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(*SLUICE_TOP, *arguments, stdout=PIPE, stderr=PIPE)
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), err.decode()


async def test_one_table_says_who_waits_for_what(make_admin) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"publish_total": {"messages": "1/h"}}}})
    hold_one(admin)
    code, out, err = await sluice_top("--admin", f"127.0.0.1:{admin.client.port}", "--once", "--interval", "100ms")
    assert (code, err) == (0, "")
    heading, columns, row, empty = out.split("\n")[:4]
    assert "1 stream, 1 held · 1 message, 100 B held" in heading
    assert columns.startswith("topic")
    assert row.split()[:7] == ["acme/shop/orders", "pub", "p", "a:1", "0", "0", "1"]
    assert row.endswith("namespace acme/shop 1/h")
    assert empty == ""


async def test_a_tenants_token_shows_its_own_streams(make_admin, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.touch(mode=0o600)
    tokens.write_text(
        "acme: {access: read, token: acme-0123456789ab, tenants: [acme]}\n"
        "other: {access: read, token: other-0123456789a, tenants: [other]}\n"
    )
    admin: Admin = await make_admin(
        admin_access={"tokens": tokens}, limits={"namespaces": {"acme/shop": {"publish_total": {"messages": "1/h"}}}}
    )
    hold_one(admin)
    for token, streams in (("acme-0123456789ab", 1), ("other-0123456789a", 0)):
        (tmp_path / "token").write_text(token)
        at = ("--admin", f"127.0.0.1:{admin.client.port}", "--token-file", str(tmp_path / "token"))
        code, out, err = await sluice_top(*at, "--once", "--interval", "100ms")
        assert (code, err) == (0, "")
        assert f"{counted(streams, 'stream')}, {streams} held" in out
        assert ("acme/shop/orders" in out) == bool(streams)


async def test_streams_are_chosen_by_tenant_and_topic(make_admin) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"publish_total": {"messages": "1/h"}}}})
    hold_one(admin)
    at = ("--admin", f"127.0.0.1:{admin.client.port}", "--once", "--interval", "100ms", "--json")
    for choice, streams in (
        (("--tenant", "acme"), 1),
        (("--tenant", "other"), 0),
        (("--topic", "persistent://acme/shop/orders", "--held"), 1),
        (("--role", "nobody"), 0),
        (("--search", "orders"), 1),
    ):
        code, out, err = await sluice_top(*at, *choice)
        assert (code, err) == (0, "")
        assert len(json.loads(out)["streams"]) == streams, choice


async def test_no_proxy_is_one_line_and_exit_code_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    code, out, err = await sluice_top("--admin", address, "--once")
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"sluice: {address}: no answer (")


@pytest.mark.parametrize("interval", ["soon", "50ms", "2h"])
async def test_a_bad_interval_is_a_usage_error(interval: str) -> None:
    code, _, err = await sluice_top("--interval", interval)
    assert code == 2
    assert "--interval" in err
