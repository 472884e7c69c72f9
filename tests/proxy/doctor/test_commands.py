"""`sluice doctor`: what it says, and its exit code."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

import proxy.stream_comparison as module
from limiter.limiter import Stream, StreamName
from protocol.topic_name import parse_topic
from proxy.observe.connection import Connection
from sluice.cli import app
from tests.proxy.admin_client import Admin
from tests.proxy.importing.broker_admin import BrokerAdmin, broker_admin

TOPIC = "persistent://acme/shop/orders"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "AGAIN_S", 0)
    with capture_logs():
        yield


def open_stream(admin: Admin) -> None:
    name = StreamName("publish", "acme", "shop", TOPIC, 1, "p")
    stream = Stream(name, (), lambda _stream, _entry: None, Connection(1))
    admin.engine.registry.open(stream, parse_topic(TOPIC), admin.engine.clock())


async def doctor(admin: Admin, broker: BrokerAdmin, *more: str) -> Result:
    address = f"{admin.client.host}:{admin.client.port}"
    command = ["doctor", "--streams", "--admin", address, "--broker-admin", broker.url, *more]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command))


async def test_nothing_differs(make_admin: Any) -> None:
    async with broker_admin() as broker:
        done = await doctor(await make_admin(), broker)
    line = "no difference in 0 producers and consumers, on the topics that the proxy knows of (0)\n"
    assert (done.exit_code, done.stdout) == (0, line)
    assert done.stderr == "sluice: no other topic was looked at, which --everywhere does\n"


async def test_who_looks_everywhere_is_told_of_nothing_left_out(make_admin: Any) -> None:
    async with broker_admin() as broker:
        done = await doctor(await make_admin(), broker, "--everywhere")
    line = "no difference in 0 producers and consumers, on all topics of the proxy's namespaces (0)\n"
    assert (done.exit_code, done.stdout, done.stderr) == (0, line, "")


async def test_what_no_name_tells_apart_is_counted(make_admin: Any) -> None:
    admin: Admin = await make_admin()
    open_stream(admin)
    open_stream(admin)
    of_broker = {"persistent/acme/shop/orders/stats": {"publishers": [{"producerName": "p", "producerId": 1}] * 2}}
    async with broker_admin(**of_broker) as broker:
        done = await doctor(admin, broker, "--everywhere")
    assert done.exit_code == 0
    assert done.stderr == "sluice: 2 consumers have one name with others: only their number is compared\n"


async def test_what_differs_is_listed(make_admin: Any) -> None:
    admin: Admin = await make_admin()
    open_stream(admin)
    async with broker_admin() as broker:
        done = await doctor(admin, broker)
    assert done.exit_code == 3
    assert done.stdout.startswith("only Sluice has producer ")
    assert "1 differences in 1 " in done.stderr


@pytest.mark.parametrize(
    ("more", "words", "code"),
    [
        (("--broker-admin", "nonsense"), "--broker-admin", 2),
        (("--broker-admin", "http://127.0.0.1:1"), "no answer", 1),
        (("--admin", "127.0.0.1:1"), "--admin must be the admin address of a running `sluice serve`", 1),
        (("--broker-token-file", "no-such-file"), "cannot be read", 1),
    ],
)
async def test_who_could_not_look_says_why(make_admin: Any, more: tuple[str, ...], words: str, code: int) -> None:
    admin: Admin = await make_admin()
    open_stream(admin)
    async with broker_admin() as broker:
        done = await doctor(admin, broker, *more)
    assert done.exit_code == code
    assert words in done.stderr
    assert done.stdout == ""


async def test_a_refusing_broker_is_told_with_this_commands_options(make_admin: Any, tmp_path: Path) -> None:
    admin: Admin = await make_admin()
    open_stream(admin)
    (tmp_path / "token").write_text("a-token")
    async with broker_admin(**{"persistent/acme/shop/orders/stats": (401, {})}) as broker:
        done = await doctor(admin, broker, "--broker-token-file", str(tmp_path / "token"))
        assert broker.tokens == {"Bearer a-token"}
    assert done.exit_code == 1
    assert "--broker-token-file FILE" in done.stderr


async def test_it_says_what_it_can_look_at(make_admin: Any) -> None:
    done = await asyncio.to_thread(lambda: CliRunner().invoke(app, ["doctor", "--broker-admin", "http://broker:8080"]))
    assert done.exit_code == 2
    assert "--streams" in done.stderr
