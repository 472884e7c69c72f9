"""Real worker processes, with a broker of the test's own behind them."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from accesslog.record import ConnectionLine, IntervalLine, Line
from proxy.config.model import Config
from proxy.observe.operator_log import set_up_operator_log
from proxy.serve import Proxy, Source, StartError
from proxy.workers.supervisor import Supervisor
from tests.proxy.tcp import TcpPeer, broker_on_loopback, connect_to
from tests.proxy.wire import TOPIC, connect, connected, producer, producer_success, sends

CLIENTS = 12


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

    async def until(self, path: str, what: str) -> str:
        async with asyncio.timeout(20):
            while what not in (text := await self.get(path)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
            return str(text)

    def processes(self) -> list[int]:
        return [post._process.pid for post in self.supervisor._posts if post._process is not None]


@asynccontextmanager
async def apart(limits: dict[str, Any], folder: Path | None = None) -> AsyncIterator[Apart]:
    set_up_operator_log()
    async with broker_on_loopback() as broker:
        values = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "broker": f"pulsar://{broker}", "workers": 2}
        log = {"access_log": {"dir": folder}} if folder else {}
        config = Config.model_validate(values | log | {"limits": limits, "linger": 1})
        proxy = Proxy(Source(None, lambda: config))
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


async def test_one_limit_holds_over_all_workers_and_all_is_told_in_one_place(tmp_path: Path) -> None:
    async with apart({"topics": {TOPIC: {"publish": {"messages": "1/h"}}}}, tmp_path / "log") as one:
        clients = await one.producers(CLIENTS)
        for client in clients:
            client.send(*sends(3))
        async with asyncio.timeout(20):
            while (shown := await one.get("/sluice/streams"))["totals"]["held_messages"] < 3 * CLIENTS - 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert sum(stream["offered_messages"] for stream in shown["streams"]) == 3 * CLIENTS
        assert sum(stream["passed_messages"] for stream in shown["streams"]) == 1
        assert sum([await heard(client, 3) for client in clients]) == 1
        metrics = await one.get("/metrics")
        assert "sluice_workers 2.0" in metrics
        assert f'sluice_connections{{role="data"}} {CLIENTS}.0' in metrics or f"{CLIENTS}.0" in metrics
        assert (await one.get("/sluice/status"))["connections"] == CLIENTS
        for client in clients:
            client.writer.close()
        await one.until("/metrics", f'sluice_connections_ended_total{{cause="client_closed"}} {CLIENTS}.0')
    (log,) = (tmp_path / "log").iterdir()
    lines: list[Line] = [msgspec.json.decode(line, type=Line) for line in log.read_bytes().splitlines()]
    assert [line.seq for line in lines] == list(range(len(lines)))
    ended = [line for line in lines if isinstance(line, ConnectionLine)]
    assert len({line.connection_id for line in ended}) == CLIENTS
    counted = [line for line in lines if isinstance(line, IntervalLine)]
    assert sum(line.passed_messages for line in counted) == 1
    assert sum(line.offered_messages for line in counted) == 3 * CLIENTS


async def test_without_limits_all_passes_and_is_counted() -> None:
    async with apart({}) as one:
        clients = await one.producers(4)
        for client in clients:
            client.send(*sends(50))
        assert [await heard(client, 50) for client in clients] == [50] * 4
        shown = await one.get("/sluice/streams")
        assert sum(stream["passed_messages"] for stream in shown["streams"]) == 200


async def test_a_changed_limit_reaches_who_waits_in_another_process() -> None:
    async with apart({}) as one:
        rate = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
        namespace = "/".join(TOPIC.removeprefix("persistent://").split("/")[:2])
        assert await one.post(f"/admin/v2/namespaces/{namespace}/publishRate", rate) < 300
        (client,) = await one.producers(1)
        client.send(*sends(30))
        await one.until("/metrics", 'sluice_held_streams{direction="publish",level="topic"} 1.0')
        rate["publishThrottlingRateInMsg"] = 100_000
        assert await one.post(f"/admin/v2/namespaces/{namespace}/publishRate", rate) < 300
        assert await heard(client, 30) >= 28


async def test_a_worker_that_dies_is_replaced_and_the_others_go_on() -> None:
    async with apart({"topics": {TOPIC: {"publish": {"messages": 1000}}}}) as one:
        clients = await one.producers(CLIENTS)
        os.kill(one.processes()[0], signal.SIGKILL)
        await one.until("/metrics", "sluice_workers_lost_total 1.0")
        await one.until("/metrics", "sluice_workers 2.0")
        for client in clients:
            client.send(*sends(1))
        served = 0
        for client in clients:
            try:
                served += await client.hear() is not None
            except ConnectionError:
                continue
        status = await one.get("/sluice/status")
        assert 0 <= served < CLIENTS
        assert status["connections"] == served
        (again,) = await one.producers(1)
        again.send(*sends(2))
        assert await heard(again, 2) == 2


async def test_a_block_set_and_lifted_at_run_time_reaches_all_workers() -> None:
    async with apart({}) as one:
        rule = {"kind": "topic", "name": TOPIC}
        assert await one.post("/sluice/blocks", rule) < 300
        refused = [await one.client() for _ in range(6)]
        for client in refused:
            client.send(connect(), producer())
        for client in refused:
            answers = [await client.hear() or b"" for _ in range(2)]
            assert any(b"is blocked by Sluice" in answer for answer in answers)
            assert producer_success() not in answers
        await one.until("/metrics", 'sluice_blocked_total{kind="topic"} 6.0')


async def test_subscribe_rates_are_refused_as_nobody_would_count_them() -> None:
    async with apart({}) as one:
        rate = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 30}
        assert await one.post("/admin/v2/namespaces/t/n/subscribeRate", rate) == 409


async def test_workers_end_with_the_proxy() -> None:
    async with apart({}) as one:
        processes = one.processes()
        assert len(set(processes)) == 2
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


async def test_a_port_where_somebody_else_listens_is_not_shared() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        config = Config.model_validate({"listen": listen, "admin": "127.0.0.1:0", "workers": 2})
        proxy = Proxy(Source(None, lambda: config))
        with pytest.raises(StartError, match="listen"):
            await proxy.start()
        await proxy.stop()


async def test_stored_subscribe_rates_keep_it_from_starting(tmp_path: Path) -> None:
    values = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "policies": {"store": tmp_path / "policies.db"}}

    def proxy(workers: int) -> Proxy:
        config = Config.model_validate(values | {"workers": workers})
        return Proxy(Source(None, lambda: config))

    alone = proxy(1)
    _, admin = await alone.start()
    rate = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 30}
    async with (
        aiohttp.ClientSession(f"http://{admin}") as session,
        session.post("/admin/v2/namespaces/t/n/subscribeRate", json=rate) as answer,
    ):
        assert answer.status < 300
    await alone.stop()
    with pytest.raises(StartError, match="workers: 1"):
        proxy(2)
