"""Real sockets: plain, TLS, client certificates; with asyncio's loop and with uvloop, which the proxy runs in."""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

from proxy.admin.listener import Connections, Listener
from proxy.admin.refusals import RefusalLog
from proxy.counters import Counters
from proxy.slices import AT_ONCE, Slices, Work
from tests.manual_clock import ManualClock
from tests.proxy.certificates import Authority
from tests.proxy.conftest import ClosingLoop
from tests.proxy.endpoints import web_at
from tests.waiting import PATIENCE_S

LOOPS = pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, ClosingLoop], ids=["asyncio", "uvloop"])
GET = b"GET /name HTTP/1.1\r\nHost: a\r\n\r\n"


class Served:
    """A listener whose only page says the common name of the caller's certificate."""

    def __init__(self, context: ssl.SSLContext | None = None, most: int = 10, patience_s: float = 30) -> None:
        self.counts: Counter[str] = Counter()
        app = web.Application()
        app.add_routes([web.get("/name", _name)])
        self.connections = Connections(most, patience_s, RefusalLog(self.counts, ManualClock()), Slices(Counters()))
        self.listener = Listener(app, self.connections, lambda: context)
        self.address = ""

    async def open(self, **tls: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", int(self.address.rpartition(":")[2]), **tls)  # type: ignore[arg-type]

    async def ask(self, context: ssl.SSLContext | None = None) -> bytes:
        """The last line of the answer; empty if there is none."""
        try:
            reader, writer = await self.open(**({"ssl": context, "server_hostname": "localhost"} if context else {}))
        except (ssl.SSLError, ConnectionError):
            return b""
        try:
            writer.write(GET)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            return await reader.readuntil(b"\n")
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            return b""
        finally:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()


async def _name(request: web.Request) -> web.Response:
    certificate = request.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for _, value in part]
    return web.Response(text=f"{names}\n")


@asynccontextmanager
async def serving(served: Served, address: str = "127.0.0.1:0") -> AsyncIterator[Served]:
    served.address = await served.listener.start(web_at(address))
    try:
        yield served
    finally:
        await served.listener.stop()
        assert len(served.connections) == 0


def run(make_loop: Callable[[], asyncio.AbstractEventLoop], test: Awaitable[None]) -> None:
    trouble: list[object] = []
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.get_loop().set_exception_handler(lambda _loop, context: trouble.append(context))
        runner.run(asyncio.wait_for(test, PATIENCE_S))
    assert trouble == []


def server_context(authority: Authority, *, mutual: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(**_chain(*map(Path, authority.server().values())))
    if mutual:
        context.load_verify_locations(authority.certificate)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(authority: Authority, *files: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if files:
        context.load_cert_chain(**_chain(*files))
    return context


def _chain(certificate: Path, key: Path) -> dict[str, str]:
    return {"certfile": str(certificate), "keyfile": str(key)}


@LOOPS
def test_requests_are_answered_one_after_the_other_on_one_connection(make_loop) -> None:
    async def test() -> None:
        async with serving(Served()) as served:
            reader, writer = await served.open()
            for _ in range(3):
                writer.write(GET)
                assert await reader.readuntil(b"[]\n")
            await _close(writer)

    run(make_loop, test())


@LOOPS
def test_with_tls_callers_are_known_by_their_certificates(make_loop, authority: Authority) -> None:
    alice = client_context(authority, *authority.sign("alice"))

    async def test() -> None:
        async with serving(Served(server_context(authority, mutual=True))) as served:
            assert await served.ask(alice) == b"['alice']\n"
            assert await served.ask(client_context(authority)) == b"[]\n"
            assert served.counts == {}

    run(make_loop, test())


@LOOPS
def test_a_certificate_of_somebody_elses_authority_and_plain_http_get_no_answer(
    make_loop, authority: Authority, tmp_path: Path
) -> None:
    stranger = client_context(authority, *Authority(tmp_path, "other").sign("alice"))

    async def test() -> None:
        async with serving(Served(server_context(authority, mutual=True))) as served:
            assert await served.ask(stranger) == b""
            assert await served.ask() == b""
            assert await served.ask(client_context(authority)) == b"[]\n"
            assert served.counts == {"tls": 2}

    run(make_loop, test())


@LOOPS
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_many_that_say_nothing_keep_nobody_out(make_loop, authority: Authority, *, is_secure: bool) -> None:
    server = server_context(authority) if is_secure else None
    client = client_context(authority) if is_secure else None

    async def test() -> None:
        async with serving(Served(server, most=5)) as served:
            silent = [await served.open() for _ in range(20)]
            for _ in range(3):
                assert await served.ask(client) == b"[]\n"
            assert len(served.connections) <= 5
            assert served.counts["connections"] >= 15
            for _, writer in silent:
                await _close(writer)

    run(make_loop, test())


@LOOPS
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("fragment", [b"", b"GET /name HTTP/1.1\r\nHost: a\r\nX: "], ids=["nothing", "half a header"])
def test_who_does_not_finish_a_request_is_ended(
    make_loop, authority: Authority, monkeypatch: pytest.MonkeyPatch, fragment: bytes, *, is_secure: bool
) -> None:
    monkeypatch.setattr("proxy.admin.listener.GRACE_S", 0.0)
    server = server_context(authority) if is_secure else None

    async def test() -> None:
        async with serving(Served(server, patience_s=0.05)) as served:
            reader, writer = await served.open()
            writer.write(fragment)
            assert await _until_end(reader) == b""
            assert sum(served.counts.values()) == 1
            await _close(writer)

    run(make_loop, test())


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@LOOPS
def test_a_name_is_listened_on_at_each_of_its_addresses_and_ends(make_loop) -> None:
    async def test() -> None:
        async with serving(Served(), "localhost:0") as served:
            assert served.address.startswith("localhost:")
            assert await served.ask() == b"[]\n"
        with pytest.raises(ConnectionRefusedError):
            await served.open()

    run(make_loop, test())


@LOOPS
def test_an_address_that_somebody_has_is_an_error(make_loop) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            served = Served()
            with pytest.raises(OSError, match="in use"):
                await served.listener.start(web_at(f"127.0.0.1:{taken.getsockname()[1]}"))
            await served.listener.stop()

    run(make_loop, test())


@LOOPS
@pytest.mark.parametrize("headers", [b"X: " + b"x" * 5000 + b"\r\n", b"X: x\r\n" * 65], ids=["long", "many"])
def test_headers_are_few_and_short(make_loop, headers: bytes) -> None:
    async def test() -> None:
        async with serving(Served()) as served:
            reader, writer = await served.open()
            writer.write(GET.removesuffix(b"\r\n") + headers + b"\r\n")
            assert b" 400 " in await reader.readline()
            await _close(writer)

    run(make_loop, test())


class Turns:
    """Counts the steps of TLS handshakes in each turn of the loop."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.steps = [0]
        turns = self

        class Counted(ssl.SSLObject):
            def do_handshake(self) -> None:
                turns.steps[-1] += 1
                super().do_handshake()

        context.sslobject_class = Counted

    async def done(self, steps: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while sum(self.steps) < steps:  # noqa: ASYNC110 - the loop has other work in each turn
                await asyncio.sleep(0)

    def begin(self) -> None:
        self.steps.append(0)
        asyncio.get_running_loop().call_soon(self.begin)


def hello_of(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@LOOPS
@pytest.mark.parametrize("first", [0, 7], ids=["whole", "in two parts"])
def test_hellos_at_once_are_answered_a_few_in_each_turn(
    authority: Authority, make_loop: Callable[[], asyncio.AbstractEventLoop], first: int
) -> None:
    clients, context = 60, server_context(authority)
    turns, hello = Turns(context), hello_of(client_context(authority))

    async def test() -> None:
        turns.begin()
        async with serving(Served(context, most=clients)) as served:
            opened = [await served.open() for _ in range(clients)]
            await turns.done(clients)  # of each the step that finds no hello
            turns.steps[:] = [0]
            for number, part in enumerate(filter(None, (hello[:first], hello[first:])), 1):
                for _, writer in opened:
                    writer.write(part)
                await turns.done(number * clients)
            for reader, writer in opened:
                assert (await reader.readexactly(1))[0] == 22
                await _close(writer)

    run(make_loop, test())
    assert max(turns.steps) <= AT_ONCE[Work.HANDSHAKES]
