"""The tasks of a link end when they are cancelled, whatever the broker does meanwhile."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from protocol.endpoint import Endpoint
from protocol.pulsar_pb2 import CommandPing
from proxy.brokers.dialing import write_to
from proxy.fleet.link import LinkCounts, LinkTasks
from proxy.fleet.pulsar_connection import BrokerConnection
from tests.waiting import until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def test_a_cancelled_task_ends_though_its_cleanup_fails() -> None:
    counts = LinkCounts()
    tasks, runs = LinkTasks(counts), 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            if runs == 1:
                raise RuntimeError("the handler is closed")

    task = tasks.start(run)
    await asyncio.sleep(0)
    stopping = asyncio.get_running_loop().create_task(tasks.stop())
    await asyncio.wait([stopping], timeout=10)
    assert task.done()
    assert (runs, counts.defects) == (1, 1)


async def reset_by_broker() -> Streams:
    """A connection whose transport has seen a reset, and whose reader has not been given it yet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader, writer = await asyncio.open_connection(*server.getsockname())
        with server.accept()[0] as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await until(writer.is_closing)
    return reader, writer


async def send_in_link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    defects = list[BaseException]()
    connection = BrokerConnection(Endpoint("pulsar", "127.0.0.1", 1), reader, writer, None, defects.append)
    assert not connection.send(b"frame")
    connection.send_command(CommandPing())
    assert connection.is_lost
    await connection.ended()
    assert defects == []


async def send_in_dialer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with pytest.raises(ConnectionResetError):
        write_to(writer, b"frame")


@pytest.mark.parametrize("send", [send_in_link, send_in_dialer])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_send_after_a_reset_finds_the_connection_lost(
    send: Callable[..., Awaitable[None]], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def run() -> None:
        await send(*await reset_by_broker())

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_ends_when_the_broker_has_read_the_rest(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """It had bytes to send when it was closed, so the transport itself ended it, once they were sent."""
    defects = list[BaseException]()

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            reader, writer = await asyncio.open_connection(*server.getsockname())
            peer = server.accept()[0]
        connection = BrokerConnection(Endpoint("pulsar", "127.0.0.1", 1), reader, writer, None, defects.append)
        sent = 0
        while connection.send(bytes(65536)):
            sent += 65536
        assert writer.transport.get_write_buffer_size() > 0
        connection.close()
        with peer:
            peer.settimeout(0)
            received = 0
            while received < sent:
                await asyncio.sleep(0)
                with contextlib.suppress(BlockingIOError):
                    received += len(peer.recv(2**20))
        await connection.ended()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    assert defects == []
