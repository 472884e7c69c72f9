"""A start that fails leaves nothing that the next run would take for a kill."""

import asyncio
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.assembly import ConfigSource
from proxy.config.model import Config, ConfigError
from proxy.policies.store import Store
from proxy.runtime import StartError
from proxy.serve import _serve
from tests.waiting import PATIENCE_S


def config(folder: Path, **more: Any) -> ConfigSource:
    values: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "access_log": {"dir": folder / "log"},
        "policies": {"store": folder / "policies.db"},
        "drain": {"state": folder / "state"},
    }
    read = Config.model_validate(values | more)
    return ConfigSource(None, lambda: read)


@contextmanager
def a_port_in_use() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


async def fails(source: ConfigSource) -> str:
    with pytest.raises((StartError, ConfigError)) as failure, capture_logs():
        async with asyncio.timeout(PATIENCE_S):
            await _serve(source)
    return str(failure.value)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert [path.name for path in (tmp_path / "log").iterdir() if path.name.endswith(".alive")] == []
    assert list((tmp_path / "state").glob("*.limits")) == []


@pytest.mark.parametrize("key", ["listen", "admin", "metrics"])
async def test_an_address_in_use_leaves_no_sign_of_a_kill(tmp_path: Path, key: str) -> None:
    with a_port_in_use() as address:
        assert f"{key}: cannot listen on {address}" in await fails(config(tmp_path, **{key: address}))


async def test_a_store_in_use_leaves_no_sign_of_a_kill(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "policies.db")):
        assert "another process uses it" in await fails(config(tmp_path))


@pytest.mark.parametrize("content", [b"", b"something else " * 100], ids=["empty", "text"])
async def test_a_file_that_is_no_store_leaves_no_sign_of_a_kill(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "policies.db").write_bytes(content)
    assert "policies.store" in await fails(config(tmp_path))


async def test_a_body_that_cannot_be_read_leaves_no_sign_of_a_kill(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "policies.db")):
        pass
    with closing(sqlite3.connect(tmp_path / "policies.db")) as base:
        base.execute("INSERT INTO policies VALUES ('publish', 'topic', 'persistent://a/b/c', 'no body', 'ann')")
        base.commit()
    assert "persistent://a/b/c" in await fails(config(tmp_path))


@pytest.mark.parametrize(
    "section",
    [
        {"authentication": {"mode": "terminate", "token": {"jwks": "gone"}}},
        {"tls": {"certificate": "gone", "key": "gone"}, "listen": "pulsar+ssl://127.0.0.1:0"},
        {"broker_tls": {"ca": "gone"}, "broker": "pulsar+ssl://127.0.0.1:1"},
        {"fleet": {"name": "f", "namespace": "public/sluice", "token_file": "gone"}, "proxy_id": "p"},
    ],
    ids=["keys of clients", "certificate", "authority of brokers", "token of the fleet"],
)
async def test_a_file_that_is_gone_leaves_no_sign_of_a_kill(tmp_path: Path, section: dict[str, Any]) -> None:
    assert "gone" in await fails(config(tmp_path, **section))
