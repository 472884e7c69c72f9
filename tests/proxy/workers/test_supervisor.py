"""Real worker processes, with a broker of the test's own behind them."""

import asyncio
import os
import signal
import socket
import sys
from collections import Counter
from pathlib import Path
from struct import pack

import pytest

from accesslog.record import ConnectionLine
from proxy.config.model import Config
from proxy.serve import ConfigSource, Proxy, StartError
from tests.proxy.wire import TOPIC, connect, flow, messages, name_of, producer, sends, subscribe
from tests.proxy.workers.apart import apart, heard, intervals, written

CLIENTS = 12


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
        assert f'sluice_connections{{role="lookup"}} {CLIENTS}.0' in metrics
        assert (await one.get("/sluice/status"))["connections"] == CLIENTS
        for client in clients:
            client.writer.close()
        await one.until("/metrics", f'sluice_connections_ended_total{{cause="client_closed"}} {CLIENTS}.0')
    lines = written(tmp_path / "log")
    assert [line.seq for line in lines] == list(range(len(lines)))
    ended = [line for line in lines if isinstance(line, ConnectionLine)]
    assert len({line.connection_id for line in ended}) == CLIENTS
    counted = intervals(tmp_path / "log")
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


@pytest.mark.parametrize("way", ["tells the end", "closes", "resets"])
async def test_what_may_pass_does_even_if_its_client_leaves_at_once(way: str, tmp_path: Path) -> None:
    """All of it is on its way to be judged when the client goes, and more than may be on its way at one time."""
    at_broker = Counter[str]()
    limits = {"topics": {TOPIC: {"publish": {"messages": 1_000_000}}}}
    async with apart(limits, tmp_path / "log", at_broker) as one:
        for client in await one.producers(4):
            client.send(*sends(1000))
            await client.writer.drain()
            if way == "tells the end":
                client.writer.write_eof()
                assert await client.hear() is None
            elif way == "resets":
                client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            client.writer.close()
        await one.until("/metrics", '"} 4.0')
    counted = intervals(tmp_path / "log")
    assert sum(line.dropped_messages for line in counted) == 0
    assert at_broker["SEND"] == sum(line.passed_messages for line in counted) <= 4000
    if way != "resets":
        assert at_broker["SEND"] == 4000


async def test_what_must_wait_is_dropped_and_counted_when_its_client_leaves(tmp_path: Path) -> None:
    at_broker = Counter[str]()
    async with apart({"topics": {TOPIC: {"publish": {"messages": "1/h"}}}}, tmp_path / "log", at_broker) as one:
        (client,) = await one.producers(1)
        client.send(*sends(600))
        client.writer.write_eof()
        assert await client.hear() is None
    (line,) = [line for line in intervals(tmp_path / "log") if line.offered_messages]
    assert (line.passed_messages, line.dropped_messages) == (at_broker["SEND"], 599) == (1, 599)


async def test_what_is_let_go_while_clients_leave_is_counted_as_it_arrives(tmp_path: Path) -> None:
    at_broker = Counter[str]()
    limits = {"topics": {TOPIC: {"publish": {"messages": 20_000}}}}
    async with apart(limits, tmp_path / "log", at_broker) as one:
        clients = await one.producers(CLIENTS)
        for client in clients:
            client.send(*sends(1000))
            await client.writer.drain()
        for client in clients:
            client.writer.write_eof()
        for client in clients:
            assert await client.hear() is None
    counted = intervals(tmp_path / "log")
    passed, dropped = (sum(getattr(line, f"{word}_messages") for line in counted) for word in ("passed", "dropped"))
    assert passed == at_broker["SEND"]
    assert passed + dropped == sum(line.offered_messages for line in counted) == CLIENTS * 1000


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
            assert "PRODUCER_SUCCESS" not in map(name_of, answers)
        await one.until("/metrics", 'sluice_blocked_total{kind="topic"} 6.0')
        for _ in range(3):
            await one.get("/sluice/streams")  # asks each worker to tell all
        assert [shown["hits"] for shown in (await one.get("/sluice/blocks"))["blocks"]] == [6], "each is told once"


async def test_consumers_are_let_in_and_get_what_comes_for_them() -> None:
    async with apart({"topics": {TOPIC: {"dispatch": {"messages": 1000}}}}) as one:
        client = await one.client()
        client.send(connect(), subscribe())
        assert [name_of(await client.hear() or b"") for _ in range(2)] == ["CONNECTED", "SUCCESS"]
        client.send(flow(10))
        assert name_of(await client.hear() or b"") == "FLOW"
        client.send(*messages(3))
        got = ""
        while got.count("MESSAGE") < 3:  # as the broker of this test sends everything back
            got += name_of(await client.hear() or b"")


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
        proxy = Proxy(ConfigSource(None, lambda: config))
        with pytest.raises(StartError, match="listen"):
            await proxy.start()
        await proxy.stop()


async def no_room(*_command: object, **_options: object) -> None:
    raise OSError(24, "Too many open files")


async def test_a_worker_that_cannot_be_had_at_the_start_is_told_with_the_reason(monkeypatch) -> None:
    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_room)
    await refused_with("worker 0 does not come up: no process can be had for it: .*Too many open files")


async def test_a_worker_that_ends_at_the_start_is_told_with_its_code(monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    await refused_with("worker 0 does not come up: it ended with code 1; the lines before this one say why")


async def refused_with(reason: str) -> None:
    config = Config.model_validate({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "workers": 2})
    proxy = Proxy(ConfigSource(None, lambda: config))
    with pytest.raises(StartError, match=reason):
        await proxy.start()
    await proxy.stop()
