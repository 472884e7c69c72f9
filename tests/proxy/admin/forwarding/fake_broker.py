"""A broker's admin that does as it is told, and Sluice's admin address in front of it, as it is served."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict
from yarl import URL

from proxy.admin.listener import Connections, Listener
from tests.proxy.admin_client import Admin
from tests.proxy.endpoints import web_at
from tests.waiting import PATIENCE_S

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    """A request that a broker got."""

    method: str
    target: str
    headers: CIMultiDict[str]
    body: bytes


@dataclass
class FakeBroker:
    """Answers `{"ok":true}`, unless a test says otherwise."""

    handler: Handler | None = None
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Remember it, and do as told."""
        body = await request.read()
        self.asked.append(Asked(request.method, request.raw_path, CIMultiDict(request.headers), body))
        if self.handler is not None:
            return await self.handler(request)
        return web.json_response({"ok": True})

    @property
    def paths(self) -> list[str]:
        return [each.target for each in self.asked]


@contextlib.asynccontextmanager
async def fake_broker(handler: Handler | None = None) -> AsyncIterator[FakeBroker]:
    """One on a free port."""
    broker = FakeBroker(handler)
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_route("*", "/{rest:.*}", broker.answer)
    async with TestServer(app) as server:
        broker.url = f"http://127.0.0.1:{server.port}"
        yield broker


@contextlib.asynccontextmanager
async def raw_broker(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """The URL of one that does with connections whatever it likes."""
    writers: list[asyncio.StreamWriter] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError):
            await handle(reader, writer)

    async with await asyncio.start_server(keep, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in writers:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@dataclass
class Front:
    """Sluice's admin address.

    Attributes:
        admin: The parts behind it.
        url: Where it is.
        session: Asks it.
    """

    admin: Admin
    url: str
    session: aiohttp.ClientSession

    async def ask(self, method: str, target: str, **more: Any) -> tuple[int, bytes]:
        """The target goes out byte for byte."""
        async with self.session.request(method, URL(self.url + target, encoded=True), **more) as answer:
            return answer.status, await answer.read()

    async def reason(self, method: str, target: str, **more: Any) -> tuple[int, str]:
        """Of a refusal."""
        async with self.session.request(method, URL(self.url + target, encoded=True), **more) as answer:
            return answer.status, (await answer.json())["reason"]

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(+self.admin.engine.counters.admin_forwarded)


@contextlib.asynccontextmanager
async def front(url: str, admin_access: dict[str, Any] | None = None, **forward: Any) -> AsyncIterator[Front]:
    """It passes on to `url`; `forward` are further keys of `admin_forward`, but for those of the top."""
    top = {key: forward.pop(key) for key in ("broker", "allowed_brokers", "allowed_broker_networks") if key in forward}
    admin = Admin(admin_forward={"url": url, **forward}, admin_access=admin_access or {}, **top)
    listener = Listener(
        admin.app, Connections(20, admin.engine.config.admin_access.request_timeout, admin.refused, admin.engine.slices)
    )
    address = await listener.start(web_at("127.0.0.1:0"))
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield Front(admin, f"http://{address}", session)
    finally:
        await listener.stop()
        await admin.client.close()
        admin.store.close()


async def until(true: Callable[[], bool]) -> None:
    """Let others run until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110 - what becomes true tells nobody
            await asyncio.sleep(0.001)
