"""TLS on real sockets: several addresses at once, thousands of handshakes that fail."""

import asyncio
import contextlib
import ctypes
import gc
import os
import socket
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.access_log import AccessLog
from proxy.observe.intervals import Intervals
from proxy.observe.log_lines import Writer
from proxy.observe.totals import NamespaceTotals
from proxy.server import Server
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from proxy.session.session import Session
from tests.proxy.file_limits import policies_of
from tests.proxy.tcp import TcpPeer, broker_on_loopback, connect_to
from tests.proxy.tls import Authorities
from tests.proxy.wire import PING, connect, connected, unknown_command
from tests.waiting import PATIENCE_S

FAILURES = 2000
"""Handshakes that fail."""
AT_ONCE = 100


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("certificates"))


class Served:
    """A server, and what it counts.

    Args:
        settings: Its configuration.
    """

    def __init__(self, **settings: Any) -> None:
        config = Config.model_validate(settings)
        self.counters, access = Counters(), AccessLog(Writer("p", "boot"), None)
        self.engine = Engine(config, policies_of(config.limits), self.counters)
        intervals = Intervals(access, NamespaceTotals(), self.engine, interval_s=1, steady_s=0)
        self.server = Server(self.engine, SessionLog(self.counters, intervals, access))

    async def start(self) -> list[str]:
        return (await self.server.start()).split(", ")


async def securely(address: str, context: ssl.SSLContext) -> TcpPeer:
    host, _, port = address.rpartition(":")
    return TcpPeer(*await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost"))


async def test_plain_clients_and_those_with_tls_are_served_side_by_side(authorities: Authorities) -> None:
    async with broker_on_loopback() as broker:
        served = Served(broker=f"pulsar://{broker}", **authorities.settings())
        plain, secure = await served.start()
        clients = [await connect_to(plain), await securely(secure, authorities.client())]
        for client in clients:
            client.send(connect(), PING, unknown_command())
            assert [await client.hear() for _ in range(3)] == [connected(), PING, unknown_command()]
        await served.server.stop(5)
        assert [await client.hear() for client in clients] == [None] * 2
        for client in clients:
            client.writer.close()


async def test_a_stream_of_many_mebibytes_comes_back_as_it_was_sent(authorities: Authorities) -> None:
    """There and back; the broker of this test sends everything back."""
    async with broker_on_loopback() as broker:
        served = Served(broker=f"pulsar://{broker}", **authorities.settings())
        _, secure = await served.start()
        client = await securely(secure, authorities.client())
        client.send(connect())
        assert await client.hear() == connected()
        frames = [unknown_command(content=os.urandom(size)) for size in (1, 100, 16_384, 70_000, 200_000) * 40]
        client.send(*frames)
        for frame in frames:
            assert await client.hear() == frame
        client.writer.close()
        await served.server.stop(5)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
async def test_the_wildcard_of_ipv6_serves_ipv4_too_and_names_its_clients_so(authorities: Authorities) -> None:
    async with broker_on_loopback() as broker:
        served = Served(broker=f"pulsar://{broker}", listen=["[::]:0", "pulsar+ssl://[::]:0"], tls=authorities.tls())
        plain, secure = await served.start()
        ports = [address.rpartition(":")[2] for address in (plain, secure)]
        clients = [
            await connect_to(f"127.0.0.1:{ports[0]}"),
            await connect_to(f"::1:{ports[0]}"),
            await securely(f"127.0.0.1:{ports[1]}", authorities.client()),
            await securely(f"::1:{ports[1]}", authorities.client()),
        ]
        for client in clients:
            client.send(connect())
            assert await client.hear() == connected()
        sessions = [session for session in served.engine.sessions if isinstance(session, Session)]
        hosts = Counter(session.connection.client_host for session in sessions)
        assert hosts == {"127.0.0.1": 2, "::1": 2}
        for client in clients:
            client.writer.close()
        await served.server.stop(5)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
async def test_two_wildcards_on_one_port_share_it() -> None:
    with socket.socket() as free:
        free.bind(("0.0.0.0", 0))
        port = free.getsockname()[1]
    served = Served(listen=[f"0.0.0.0:{port}", f"[::]:{port}"])
    assert await served.start() == [f"0.0.0.0:{port}", f"[::]:{port}"]
    await served.server.stop(0)


async def test_an_address_that_cannot_be_had_leaves_the_others_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            await Served(listen=[f"127.0.0.1:{port}", f"127.0.0.1:{taken}"]).start()
    with socket.create_server(("127.0.0.1", port)):
        pass


def _hello(context: ssl.SSLContext) -> bytes:
    """The first that a client with this context says."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def _fail(address: str, opening: bytes, waits: bool) -> None:  # noqa: FBT001
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(opening)
    with contextlib.suppress(ConnectionError):
        if waits:
            await reader.read(65536)
    writer.transport.abort()


async def test_thousands_of_handshakes_that_fail_leave_nothing(authorities: Authorities) -> None:
    served = Served(broker="pulsar://127.0.0.1:1", **authorities.settings(client_auth="required"))
    _, secure = await served.start()
    hello = _hello(authorities.client())
    ways = [(connect(), True), (hello[:50], False), (hello, True), (hello + b"\x16\x03\x03\0\5hello", True)]

    async def crowd(count: int) -> None:
        for begin in range(0, count, AT_ONCE):
            numbers = range(begin, min(count, begin + AT_ONCE))
            await asyncio.gather(*(_fail(secure, *ways[number % len(ways)]) for number in numbers))
        async with asyncio.timeout(PATIENCE_S):
            while served.engine.sessions or served.server.sessions:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        gc.collect()

    await crowd(300)
    descriptors, objects, memory = _open_descriptors(), len(gc.get_objects()), _allocated()
    await crowd(FAILURES)
    assert _open_descriptors() == descriptors
    assert len(gc.get_objects()) - objects < FAILURES / 10, "no object for ten of them"
    assert _allocated() - memory < 200 * FAILURES, "OpenSSL takes a hundred times as much for one"
    counters = served.counters
    assert counters.connections_ended.total() == counters.connections_accepted == FAILURES + 300
    assert counters.connections_ended["tls_failed"] == counters.tls_failures.total() > FAILURES / 2
    engine = served.engine
    assert (engine.connector.under_way, engine.admission.taken, engine.memory.used) == (0, 0, 0)
    assert not engine.shared.reads.groups
    assert not engine.shared.tls_buffers().incoming.pending
    assert not engine.shared.tls_buffers().outgoing.pending
    await served.server.stop(5)


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


_MALLINFO = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _MallInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)


def _allocated() -> int:
    """Bytes that are allocated outside of Python's own memory, as OpenSSL's are."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)
