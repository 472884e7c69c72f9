"""`sluice serve` as a process: what it refuses to start with, and what its addresses give to whom."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
import yaml
from typer.testing import CliRunner

from sluice.cli import app
from tests.proxy.certificates import Authority
from tests.waiting import PATIENCE_S

SLUICE = [sys.executable, "-m", "sluice", "serve"]
WRITE = {"Authorization": "Bearer write-0123456789"}
TOKENS = {"ops": {"access": "write", "token": "write-0123456789"}}


def written(path: Path, content: object) -> Path:
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content))
    return path


def config(folder: Path, **access: object) -> Path:
    addresses = dict.fromkeys(("listen", "admin", "metrics"), "127.0.0.1:0")
    return written(folder / "sluice.yaml", {**addresses, "admin_access": access})


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[dict[str, Any]]:
    """The line that says where it serves."""
    process = await asyncio.create_subprocess_exec(*SLUICE, "--config", str(path), stderr=PIPE)
    try:
        yield await asyncio.wait_for(_serving_line(process), PATIENCE_S)
    finally:
        process.kill()
        await process.communicate()


async def _serving_line(process: Process) -> dict[str, Any]:
    assert process.stderr is not None
    while (line := json.loads(await process.stderr.readline()))["event"] != "serving":
        pass
    return dict(line)


async def statuses(address: str, *paths: str, headers: dict[str, str] | None = None) -> list[int]:
    async with aiohttp.ClientSession(f"http://{address}", headers=headers) as session:
        return [(await session.get(path)).status for path in paths]


async def test_metrics_have_an_address_of_their_own_where_nothing_else_is(tmp_path: Path) -> None:
    tokens = written(tmp_path / "tokens.yaml", TOKENS)
    paths = ("/metrics", "/healthz", "/readyz", "/sluice/blocks", "/sluice/streams", "/")
    async with serving(config(tmp_path, tokens=str(tokens))) as at:
        assert await statuses(at["metrics"], *paths) == [200, 200, 503, 404, 404, 404]
        assert (await statuses(at["admin"], *paths))[:2] == [401, 200]
        assert (await statuses(at["admin"], *paths, headers=WRITE))[3:] == [200, 200, 404]
        async with aiohttp.ClientSession(f"http://{at['metrics']}") as session:
            async with session.post("/sluice/blocks", json={}, headers=WRITE) as answer:
                assert answer.status == 404
            async with session.get("/metrics") as answer:
                assert 'sluice_admin_refused_total{kind="missing"} 4.0' in await answer.text()


async def test_with_tls_nothing_is_said_in_the_clear(tmp_path: Path, authority: Authority) -> None:
    async with serving(config(tmp_path, tls=authority.server())) as at:
        with pytest.raises(aiohttp.ClientError):
            await statuses(at["admin"], "/healthz")
        assert await statuses(at["metrics"], "/healthz") == [200]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"admin": "0.0.0.0:0"},
            "{path}:1: admin: '0.0.0.0:0': any host that reaches this address could change limits; ",
        ),
        ({"admin_access": {"tokens": "/no/such"}}, "admin_access.tokens: /no/such: cannot be read: No such file"),
        (
            {"admin_access": {"tls": {"certificate": "/no/such", "key": __file__}}},
            "admin_access.tls.certificate: /no/such: cannot be read: No such file",
        ),
    ],
)
def test_what_cannot_be_locked_is_not_opened(tmp_path: Path, settings: dict[str, object], line: str) -> None:
    path = written(tmp_path / "sluice.yaml", {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", **settings})
    ended = CliRunner().invoke(app, ["serve", "--config", str(path)])
    structlog.reset_defaults()
    assert ended.exit_code == 1
    (message,) = ended.stderr.splitlines()
    assert message.startswith("sluice: " + line.format(path=path))
