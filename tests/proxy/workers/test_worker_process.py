"""Workers that end, hang or cannot be had; real processes."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.workers import connection as liveness
from proxy.workers import supervisor as supervisors
from proxy.workers.connection import WorkerConnection
from tests.proxy.wire import TOPIC, sends
from tests.proxy.workers.apart import Apart, apart, heard

LIMITS = {"topics": {TOPIC: {"publish": {"messages": 1000}}}}
stopped: list[int] = []


@pytest.fixture(autouse=True)
def _nobody_stays_stopped() -> Iterator[None]:
    yield
    for process in stopped:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    stopped.clear()


async def busy(one: Apart) -> tuple[int, WorkerConnection]:
    """A worker that has been lent something, and hangs; its process and its connection."""
    for client in await one.producers(6):
        client.send(*sends(2))
        assert await heard(client, 2) == 2
    worker = next(
        worker
        for worker in one.supervisor._workers
        if worker.connection is not None and worker.connection.quota_server.lending.loans
    )
    assert worker._process is not None
    assert worker.connection is not None
    os.kill(worker._process.pid, signal.SIGSTOP)
    stopped.append(worker._process.pid)
    return worker._process.pid, worker.connection


async def test_a_worker_that_hangs_is_ended_and_replaced(monkeypatch) -> None:
    monkeypatch.setattr(liveness, "CALM_S", 0.2)
    monkeypatch.setattr(liveness, "PATIENCE_S", 5)  # to come up takes longer than to answer
    async with apart(LIMITS) as one:
        process, connection = await busy(one)
        monkeypatch.setattr(liveness, "PATIENCE_S", 0.2)
        await one.until("/metrics", "sluice_workers_lost_total 1.0")
        monkeypatch.setattr(liveness, "PATIENCE_S", 5)
        await one.until("/metrics", "sluice_workers 2.0")
        assert process not in one.processes()
        assert connection.quota_server.is_at_rest
        (again,) = await one.producers(1)
        again.send(*sends(2))
        assert await heard(again, 2) == 2


async def test_workers_at_rest_are_not_asked(monkeypatch) -> None:
    monkeypatch.setattr(liveness, "CALM_S", 0.1)
    async with apart({}) as one:
        connections = [worker.connection for worker in one.supervisor._workers]
        async with asyncio.timeout(20):
            while not all(connection is not None and connection._liveness.is_at_rest for connection in connections):  # noqa: ASYNC110 - see busy
                await asyncio.sleep(0.02)
        client = await one.client()
        async with asyncio.timeout(20):
            while all(connection is not None and connection._liveness.is_at_rest for connection in connections):  # noqa: ASYNC110 - see busy
                await asyncio.sleep(0.02)
        client.writer.close()


async def test_what_a_worker_was_lent_is_written_off_only_when_it_has_ended(monkeypatch) -> None:
    """Until then it may still pass that, though nothing is heard of it: it must not be lent to others."""
    monkeypatch.setattr(supervisors, "_GRACE_S", 0.5)
    async with apart(LIMITS) as one:
        process, connection = await busy(one)
        written_off = asyncio.Event()

        def write_off() -> None:
            WorkerConnection.write_off(connection)
            written_off.set()

        monkeypatch.setattr(connection, "write_off", write_off)
        connection.channel.abort()
        async with asyncio.timeout(20):
            await one.until("/metrics", "sluice_workers 1.0")
            assert not written_off.is_set()
            assert connection.quota_server.lending.loans
            await written_off.wait()
        assert connection.quota_server.is_at_rest
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        await one.until("/metrics", "sluice_workers 2.0")


async def test_a_worker_that_sends_what_are_no_messages_is_replaced() -> None:
    async with apart({}) as one:
        connection = one.supervisor._workers[0].connection
        assert connection is not None
        connection.channel.data_received(b"\0\0\0\1\xc1")
        await one.until("/metrics", "sluice_workers_lost_total 1.0")
        await one.until("/metrics", "sluice_workers 2.0")


async def test_as_long_as_the_system_has_no_room_for_a_process_it_is_tried_again(monkeypatch) -> None:
    failures = 0
    async with apart({}) as one:
        start: Any = asyncio.create_subprocess_exec

        async def fails_twice(*command: Any, **options: Any) -> Process:
            nonlocal failures
            if failures < 2:
                failures += 1
                raise BlockingIOError(11, "Resource temporarily unavailable")
            process: Process = await start(*command, **options)
            return process

        monkeypatch.setattr(asyncio, "create_subprocess_exec", fails_twice)
        os.kill(one.processes()[0], signal.SIGKILL)
        await one.until("/metrics", "sluice_workers_lost_total 3.0")
        await one.until("/metrics", "sluice_workers 2.0")
