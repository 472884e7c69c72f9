"""Brokers that send requests on, are slow, dead, or want to know who asks."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from proxy.admin.forwarding.broker import CLOCK_S
from proxy.config.model import ConfigError
from tests.proxy.admin.forwarding.fake_broker import FakeBroker, fake_broker, front, raw_broker
from tests.proxy.certificates import Authority
from tests.proxy.loop_time import later
from tests.proxy.rereading import read_again

new_event_loop = asyncio.new_event_loop
"""Its clock can be moved by hand."""

TENANTS = "/admin/v2/tenants"
STATS = "/admin/v2/persistent/acme/shop/a%2Fb/stats"


def sends_on(to: str, status: int = 307) -> Any:
    async def handler(request: web.Request) -> web.Response:
        onward = to + request.raw_path.partition("?")[0] + "?authoritative=true"
        return web.Response(status=status, headers={"Location": onward})

    return handler


def port_of(broker: FakeBroker) -> str:
    return broker.url.rpartition(":")[2]


@pytest.mark.parametrize(
    ("offset_s", "least", "most"),
    [(0, 0.0, 0.0), (3600, 3590.0, 3600.0), (-3600, -3600.0, -3590.0)],
)
async def test_a_broker_s_time_is_compared(offset_s: int, least: float, most: float) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(headers={"Date": formatdate(time.time() + offset_s, usegmt=True)})

    async with fake_broker(handler) as broker, front(broker.url) as sluice:
        assert sluice.admin.forwarder is not None
        clocks = await sluice.admin.forwarder.broker.clocks_ahead_s()
        ahead_s = clocks[broker.url]
        assert isinstance(ahead_s, float)
        assert least <= ahead_s <= most


async def test_a_broker_that_says_no_time_is_named() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(headers={"Date": "soon"})

    async with fake_broker(handler) as broker, front(broker.url) as sluice:
        assert sluice.admin.forwarder is not None
        clocks = await sluice.admin.forwarder.broker.clocks_ahead_s()
        assert clocks[broker.url] == "its answer has no date"


async def test_a_broker_that_is_slow_to_say_its_time_is_named() -> None:
    asked = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with fake_broker(handler) as broker, front(broker.url) as sluice:
        assert sluice.admin.forwarder is not None
        task = asyncio.ensure_future(sluice.admin.forwarder.broker.clocks_ahead_s())
        await asked.wait()
        await later(CLOCK_S)
        assert await task == {broker.url: "no answer within 3 s"}


async def test_each_configured_broker_is_asked_for_its_time() -> None:
    async def says_time(_: web.Request) -> web.Response:
        return web.Response(headers={"Date": formatdate(time.time(), usegmt=True)})

    at = ["pulsar://localhost:6650", "pulsar://nowhere.invalid:6650"]
    async with (
        fake_broker(says_time) as broker,
        fake_broker(says_time) as other,
        front(broker.url, brokers=[f"127.0.0.1:{port_of(other)}", "*.example:8080"], broker=at) as sluice,
    ):
        assert sluice.admin.forwarder is not None
        clocks = await sluice.admin.forwarder.broker.clocks_ahead_s()
        at_names = [f"http://{host}:{port_of(broker)}" for host in ("localhost", "nowhere.invalid")]
        assert list(clocks) == [broker.url, other.url, *at_names]
        assert "nowhere.invalid" in str(clocks[at_names[1]])
        assert all(isinstance(clocks[url], float) for url in (broker.url, other.url, at_names[0]))


@pytest.mark.parametrize("status", [307, 308])
async def test_a_broker_that_owns_it_is_asked_with_path_and_body_and_token(status: int, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("ours")
    async with (
        fake_broker() as owner,
        fake_broker(sends_on(owner.url, status)) as first,
        front(first.url, brokers=[f"127.0.0.1:{port_of(owner)}"], token=tmp_path / "token") as sluice,
    ):
        assert (await sluice.ask("PUT", STATS + "?x=1", data=b"{}"))[0] == 200
        assert sluice.outcomes == {"done": 1}
    (asked,) = owner.asked
    assert (asked.method, asked.target, asked.body) == ("PUT", STATS + "?authoritative=true", b"{}")
    assert asked.headers["Authorization"] == "Bearer ours"
    assert asked.headers["Host"] == f"127.0.0.1:{port_of(owner)}"


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("code", [301, 302, 303])
async def test_redirects_that_forget_the_method_are_not_followed(method: str, code: int) -> None:
    async with (
        fake_broker() as owner,
        fake_broker(sends_on(owner.url, code)) as first,
        front(first.url, brokers=[f"127.0.0.1:{port_of(owner)}"]) as sluice,
    ):
        status, reason = await sluice.reason(method, TENANTS)
        assert status == 502
        assert f"with status {code}, which cannot be followed" in reason
        assert owner.asked == []


async def test_an_upgrade_is_no_answer() -> None:
    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        await writer.drain()

    async with raw_broker(upgrade) as url, front(url) as sluice:
        status, reason = await sluice.reason("GET", TENANTS, headers={"Connection": "Upgrade", "Upgrade": "websocket"})
        assert (status, "the broker says 101, which is no answer" in reason) == (502, True)
        assert sluice.outcomes == {"failed": 1}


async def test_refusal_of_a_forbidden_broker_names_it_and_the_key() -> None:
    async with fake_broker() as other, fake_broker(sends_on(other.url)) as first, front(first.url) as sluice:
        status, reason = await sluice.reason("GET", TENANTS)
        assert status == 502
        assert reason == (
            f"GET {TENANTS}: the broker sent the request on to 127.0.0.1:{port_of(other)}, which is not allowed; "
            "if it is a broker of yours, name it in admin_forward.brokers"
        )
        assert other.asked == []
        assert sluice.outcomes == {"redirect": 1}


@pytest.mark.parametrize(
    "location",
    [
        "https://127.0.0.1:{port}/admin/v2/x",
        "/metrics",
        "/admin/v2/x%2F..%2Fy",
        "/admin/v2/x;y",
        "ftp://x/admin/y",
        "http://[::1/admin/",
        "",
    ],
)
async def test_what_is_no_address_of_an_admin_is_not_asked(location: str) -> None:
    async with fake_broker() as broker, front(broker.url) as sluice:

        async def handler(_request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": location.format(port=port_of(broker))})

        broker.handler = handler
        status, reason = await sluice.reason("GET", TENANTS)
        assert (status, "the broker sent the request on " in reason) == (502, True)
        assert len(broker.asked) == 1


async def test_brokers_that_send_in_circles_are_left() -> None:
    async with fake_broker() as broker, front(broker.url) as sluice:
        broker.handler = sends_on(broker.url)
        status, reason = await sluice.reason("GET", TENANTS)
        assert (status, "more than 5 times" in reason) == (502, True)
        assert len(broker.asked) == 6


async def test_a_body_that_is_not_kept_is_not_sent_twice() -> None:
    async with fake_broker() as broker, front(broker.url) as sluice:
        broker.handler = sends_on(broker.url)

        async def body() -> Any:
            for _ in range(3):
                yield bytes(1024 * 1024)

        status, reason = await sluice.reason("PUT", TENANTS, data=body())
        assert (status, "its body is too large to be sent twice" in reason) == (502, True)


async def test_a_broker_that_is_not_there_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with front(url) as sluice:
        status, reason = await sluice.reason("GET", TENANTS)
        assert status == 502
        assert reason.startswith(f"GET {TENANTS}: {url} cannot be reached: ")
        assert reason.endswith("see that the broker runs, and that admin_forward.url is its web service")
        assert sluice.outcomes == {"unreachable": 1}


async def test_who_speaks_no_http_is_no_broker() -> None:
    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example\r\n\r\n")
        writer.close()

    async with raw_broker(handle) as url, front(url) as sluice:
        assert (await sluice.reason("GET", TENANTS))[0] == 502


async def test_a_name_that_leads_nowhere_is_told() -> None:
    async with front("http://no-such-host.invalid:8080") as sluice:
        status, reason = await sluice.reason("GET", TENANTS)
        assert (status, "no-such-host.invalid cannot be resolved" in reason) == (502, True)


async def test_a_slow_broker_is_not_waited_for() -> None:
    never = asyncio.Event()

    async def handler(_request: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    async with fake_broker(handler) as broker, front(broker.url, timeout="50ms") as sluice:
        for method in ("GET", "PUT"):
            status, reason = await sluice.reason(method, TENANTS)
            assert (status, reason) == (
                504,
                f"{method} {TENANTS}: {broker.url}: no answer of the broker within 0.05 s (admin_forward.timeout)",
            )
        assert sluice.outcomes == {"slow": 2}


async def test_an_answer_may_take_longer_than_the_timeout_but_not_stand_still() -> None:
    parts: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while part := await parts.get():
            await response.write(part)
        return response

    async with fake_broker(handler) as broker, front(broker.url, timeout="4s") as sluice:
        parts.put_nowait(b"x")
        async with sluice.session.get(sluice.url + TENANTS) as answer:
            for part in (b"x", b"x", b""):
                assert await answer.content.readexactly(1) == b"x"
                await later(3)
                parts.put_nowait(part)
            assert await answer.read() == b""
        parts.put_nowait(b"x")
        async with sluice.session.get(URL(sluice.url + STATS, encoded=True)) as answer:
            assert await answer.content.readexactly(1) == b"x"
            await later(5)
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        assert sluice.outcomes == {"done": 1, "broken_off": 1}


async def test_a_broker_that_takes_no_more_of_a_body_is_not_waited_for() -> None:
    never = asyncio.Event()

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket can
        await never.wait()

    async def body() -> Any:
        for _ in range(20):
            yield bytes(1024 * 1024)

    async with raw_broker(handle) as url, front(url, timeout="100ms") as sluice:
        assert (await sluice.ask("PUT", TENANTS, data=body()))[0] == 504


@pytest.mark.parametrize("has_token", [True, False])
async def test_a_broker_that_does_not_take_sluices_token_is_no_fault_of_the_caller(
    tmp_path: Path, *, has_token: bool
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=401)

    (tmp_path / "token").write_text("ours")
    more: dict[str, Any] = {"token": tmp_path / "token"} if has_token else {}
    async with fake_broker(handler) as broker, front(broker.url, **more) as sluice:
        status, reason = await sluice.reason("GET", TENANTS)
        assert status == 502
        assert reason.startswith(f"GET {TENANTS}: {broker.url}: the broker does not take ")
        assert reason.endswith("admin_forward.token (401)")
        assert sluice.outcomes == {"token": 1}


@pytest.mark.parametrize(("content", "problem"), [("", "must hold one token"), (None, "cannot be read: No such file")])
async def test_a_token_that_cannot_be_used_is_told_at_the_start(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(ConfigError, match=f"admin_forward.token: .*token: {problem}"):
        async with front("http://127.0.0.1:1", token=tmp_path / "token"):
            pass


@asynccontextmanager
async def broker_with_tls(authority: Authority) -> AsyncIterator[str]:
    """The URL of a broker's admin whose certificate this authority has signed."""
    files = authority.server()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["certificate"], files["key"])
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", FakeBroker().answer)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    try:
        yield f"https://localhost:{server.port}"
    finally:
        await server.close()


async def test_over_tls_the_broker_must_have_a_certificate_that_is_trusted(authority: Authority) -> None:
    async with broker_with_tls(authority) as url:
        async with front(url, ca=authority.certificate) as sluice:
            assert (await sluice.ask("GET", TENANTS))[0] == 200
        async with front(url) as sluice:
            status, reason = await sluice.reason("GET", TENANTS)
        assert (status, "admin_forward.ca names the authority that signed its certificate" in reason) == (502, True)


async def test_an_authority_that_is_read_again_is_in_force_once_it_is_taken(
    authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(Authority(tmp_path / "other", "other").certificate.read_bytes())
    async with broker_with_tls(authority) as url, front(url, ca=file) as sluice:
        assert sluice.admin.forwarder is not None
        broker = sluice.admin.forwarder.broker
        statuses, expiries = [(await sluice.ask("GET", TENANTS))[0]], [*broker.expiries()]
        file.write_bytes(authority.certificate.read_bytes())
        take = read_again(broker)
        statuses.append((await sluice.ask("GET", TENANTS))[0])
        take()
        statuses.append((await sluice.ask("GET", TENANTS))[0])
        expiries += broker.expiries()
        file.write_text("broken")
        with pytest.raises(ConfigError, match=r"admin_forward\.ca: .*: holds no certificate in PEM"):
            read_again(broker)
        statuses.append((await sluice.ask("GET", TENANTS))[0])
    assert statuses == [502, 502, 200, 200]
    assert [(each.key, each.subject) for each in expiries] == [
        ("admin_forward.ca", "CN=other"),
        ("admin_forward.ca", "CN=ca"),
    ]
