"""A proxy with two real worker processes, a broker of the test's own behind them, and their access log."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from accesslog.record import AnyLine, IntervalLine
from proxy.config.model import Config
from proxy.observe.operator_log import set_up_operator_log
from proxy.serve import ConfigSource, Proxy
from proxy.workers.supervisor import Supervisor
from tests.proxy.tcp import TcpPeer, broker_on_loopback, connect_to
from tests.proxy.wire import connect, connected, producer, producer_success


class Apart:
    """A proxy with two workers."""

    def __init__(self, proxy: Proxy, listen: str, admin: str) -> None:
        self.proxy = proxy
        self.listen = listen
        self._admin = admin
        assert isinstance(proxy.server, Supervisor)
        self.supervisor = proxy.server
        self.clients: list[TcpPeer] = []

    async def client(self) -> TcpPeer:
        self.clients.append(await connect_to(self.listen))
        return self.clients[-1]

    async def producers(self, count: int) -> list[TcpPeer]:
        """So many clients, each with a producer that is let in."""
        clients = [await self.client() for _ in range(count)]
        for client in clients:
            client.send(connect(), producer())
        for client in clients:
            assert [await client.hear() for _ in range(2)] == [connected(), producer_success()]
        return clients

    async def get(self, path: str) -> Any:
        async with aiohttp.ClientSession(f"http://{self._admin}") as session, session.get(path) as answer:
            return await (answer.json() if answer.content_type == "application/json" else answer.text())

    async def post(self, path: str, body: object) -> int:
        async with aiohttp.ClientSession(f"http://{self._admin}") as session, session.post(path, json=body) as answer:
            return answer.status

    async def put(self, path: str, body: object) -> int:
        async with aiohttp.ClientSession(f"http://{self._admin}") as session, session.put(path, json=body) as answer:
            return answer.status

    async def until(self, path: str, what: str) -> str:
        async with asyncio.timeout(20):
            while what not in (text := await self.get(path)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
            return str(text)

    def processes(self) -> list[int]:
        return [worker._process.pid for worker in self.supervisor._workers if worker._process is not None]


@asynccontextmanager
async def apart(
    limits: dict[str, Any],
    folder: Path | None = None,
    arrived: Counter[str] | None = None,
    *,
    stores: bool = False,
    **settings: Any,
) -> AsyncIterator[Apart]:
    set_up_operator_log()
    async with broker_on_loopback(arrived, stores=stores) as broker:
        values = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "broker": f"pulsar://{broker}", "workers": 2}
        log = {"access_log": {"dir": folder}} if folder else {}
        config = Config.model_validate(values | log | {"limits": limits, "linger": 1} | settings)
        proxy = Proxy(ConfigSource(None, lambda: config))
        one = Apart(proxy, *await proxy.start())
        try:
            yield one
        finally:
            for client in one.clients:
                client.writer.close()
            await proxy.stop()


async def heard(client: TcpPeer, most: int) -> int:
    """How many frames come within a moment."""
    for count in range(most):
        try:
            await asyncio.wait_for(client.hear(), 0.3)
        except TimeoutError:
            return count
    return most


def written(folder: Path) -> list[AnyLine]:
    """What the access log says."""
    (log,) = folder.iterdir()
    return [msgspec.json.decode(line, type=AnyLine) for line in log.read_bytes().splitlines()]


def intervals(folder: Path) -> list[IntervalLine]:
    """Of streams; those of limits count the same again."""
    return [line for line in written(folder) if isinstance(line, IntervalLine)]
