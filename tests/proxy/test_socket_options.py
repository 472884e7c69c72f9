"""The kernel's own keep-alive, on every connection that is accepted or made: real sockets."""

import socket
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import ClientSession, web

from proxy.admin.listener import Connections, Listener
from proxy.admin.refusals import RefusalLog
from proxy.counters import Counters
from proxy.session.keep_alive import vitals_of
from proxy.slices import Slices
from tests.manual_clock import ManualClock
from tests.proxy.endpoints import web_at
from tests.proxy.tcp import broker_on_loopback, connect_to
from tests.proxy.test_tls_served import Served
from tests.proxy.tls import Authorities
from tests.proxy.wire import connect, connected

KEEP_ALIVE = 21
_OPTIONS = {
    "SO_KEEPALIVE": (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "TCP_KEEPIDLE": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE),
    "TCP_KEEPINTVL": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE // 3),
    "TCP_KEEPCNT": (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
}
_RTO_MAX_MS = 44


def _has_longest_pause() -> bool:
    with socket.socket() as any_socket:
        try:
            return any_socket.getsockopt(socket.IPPROTO_TCP, _RTO_MAX_MS) > 0
        except OSError:
            return False


if _has_longest_pause():  # Linux 6.15 or newer
    _OPTIONS["TCP_RTO_MAX_MS"] = (socket.IPPROTO_TCP, _RTO_MAX_MS, 2000 * KEEP_ALIVE // 15)


def assert_kept_alive(connection: Any) -> None:
    values = {name: connection.getsockopt(level, option) for name, (level, option, _) in _OPTIONS.items()}
    assert values == {name: wanted for name, (_, _, wanted) in _OPTIONS.items()}
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0, "it ends peers that do not read"


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_both_legs_have_the_kernels_keep_alive(tmp_path: Path, *, is_tls: bool) -> None:
    authorities = Authorities(tmp_path)
    leaf = authorities.front.issue_cert("127.0.0.1")
    authorities.front.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with broker_on_loopback(tls=_server(leaf) if is_tls else None) as broker:
        served = Served(
            **authorities.settings(),
            broker=f"pulsar+ssl://{broker}" if is_tls else f"pulsar://{broker}",
            broker_tls={"ca": str(tmp_path / "ca.pem")} if is_tls else {},
            keep_alive=f"{KEEP_ALIVE}s",
        )
        plain, tls = await served.start()
        client = await connect_to(tls, tls=authorities.client()) if is_tls else await connect_to(plain)
        client.send(connect())
        assert await client.hear() == connected()
        (session,) = served.server.sessions
        for leg in (session.client, session.broker):
            assert leg._transport is not None
            connection = leg._transport.get_extra_info("socket")
            assert_kept_alive(connection)
            vitals = vitals_of(connection)
            assert vitals is not None
            assert vitals.since_data < 60
            assert vitals.unanswered == 0
        client.writer.close()
        await served.server.stop(5)


async def test_admin_connections_have_the_kernels_keep_alive() -> None:
    seen: list[Any] = []

    async def page(request: web.Request) -> web.Response:
        assert request.transport is not None
        assert_kept_alive(request.transport.get_extra_info("socket"))
        seen.append(request.path)
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/", page)])
    refused = RefusalLog(Counter(), ManualClock())
    listener = Listener(app, Connections(10, 30, refused, Slices(Counters())), keep_alive=KEEP_ALIVE)
    address = await listener.start(web_at("127.0.0.1:0"))
    try:
        async with ClientSession() as client, client.get(f"http://{address}/") as answer:
            assert answer.status == 200
    finally:
        await listener.stop()
    assert seen == ["/"]


def _server(leaf: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    return context
