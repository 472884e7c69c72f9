"""Accepting clients, on real sockets."""

import asyncio
import errno
import gc
import itertools
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from itertools import pairwise

import pytest
import uvloop
from structlog.testing import capture_logs

from proxy.addresses import Addresses
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.access_log import AccessLog
from proxy.observe.intervals import Intervals
from proxy.observe.log_lines import Writer
from proxy.observe.totals import NamespaceTotals
from proxy.read_scheduler import MANY, SLICE_NS
from proxy.server import ACCEPTED_AT_ONCE, LISTENERS, Server, Sockets
from proxy.session.data_path import DataPath
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from proxy.session.forwarding import Forwarding
from proxy.session.session import Session, SessionState
from proxy.session.streams import Streams
from proxy.session.transport import PeerTransport
from tests.proxy.conftest import ClosingLoop
from tests.proxy.file_limits import policies_of
from tests.proxy.tcp import TcpPeer, broker_on_loopback, connect_to
from tests.proxy.wire import (
    PING,
    connect,
    connected,
    producer,
    producer_success,
    send,
    subscribe,
    success,
    unknown_command,
)
from tests.waiting import PATIENCE_S


def make_server(broker: str, listen: str | list[str] = "127.0.0.1:0", most: int | None = None) -> Server:
    config = Config.model_validate({"listen": listen, "broker": f"pulsar://{broker}"})
    counters, access = Counters(), AccessLog(Writer("p", "boot"), None)
    engine = Engine(config, policies_of(config.limits), counters)
    intervals = Intervals(access, NamespaceTotals(), engine, interval_s=1, steady_s=0)
    return Server(engine, SessionLog(counters, intervals, access), most=most)


async def test_clients_without_descriptors_are_closed_and_counted() -> None:
    async with broker_on_loopback() as broker:
        server = make_server(broker, most=2)
        address = await server.start()
        clients = [await connect_to(address) for _ in range(2)]
        for client in clients:
            client.send(connect())
            assert await client.hear() == connected()
        with capture_logs() as lines:
            for _ in range(3):
                late = await connect_to(address)
                with suppress(ConnectionError):
                    assert await late.hear() is None
                late.writer.close()
        assert server.engine.counters.descriptors_refused == 3
        assert [(line["log_level"], line["connections"], line["refused"]) for line in lines] == [("warning", 2, 1)]
        clients[0].send(PING)
        assert await clients[0].hear() == PING
        for client in clients:
            client.writer.close()
        await server.stop(5)


async def test_clients_are_served_until_it_stops_and_get_what_is_left() -> None:
    async with broker_on_loopback() as broker:
        server = make_server(broker)
        address = await server.start()
        clients = [await connect_to(address) for _ in range(3)]
        for client in clients:
            client.send(connect(), PING, unknown_command())
        for client in clients:
            assert [await client.hear() for _ in range(3)] == [connected(), PING, unknown_command()]
        await server.stop(5)
        assert [await client.hear() for client in clients] == [None] * 3
        for client in clients:
            client.writer.close()


async def test_clients_in_the_queue_of_a_port_that_is_left_are_served() -> None:
    async with broker_on_loopback() as broker:
        server = make_server(broker)
        address = await server.start()
        server.pause_accepting()
        clients = [await connect_to(address) for _ in range(2 * ACCEPTED_AT_ONCE + 1)]
        await server.leave_port()
        for client in clients:
            client.send(connect())
        assert [await client.hear() for client in clients] == [connected()] * len(clients)
        with pytest.raises(ConnectionRefusedError):
            await connect_to(address)
        for client in clients:
            client.writer.close()
        await server.stop(5)


@pytest.mark.parametrize("is_port_left", [False, True])
async def test_clients_wait_in_queues_that_the_manager_keeps(*, is_port_left: bool) -> None:
    async with broker_on_loopback() as broker:
        with socket.create_server(("127.0.0.1", 0)) as kept:
            address = f"127.0.0.1:{kept.getsockname()[1]}"
            server = make_server(broker, [address, "127.0.0.1:0"])
            name = f"listen pulsar://{address}"
            own = (await server.bind(Sockets({name: [kept.dup()]}, {name}))).split(", ")[1]
            await server.accept()
            server.leave_queues()
            served, waiting = await connect_to(own), await connect_to(address)
            for client in (waiting, served):
                client.send(connect())
            assert await served.hear() == connected()
            if is_port_left:
                await server.leave_port()
            await server.stop(5)
            assert server.accepted == 1
            kept.accept()[0].close()
            for client in (waiting, served):
                client.writer.close()


async def test_a_neighbour_is_served_before_most_of_a_crowd_that_spoke_before_it() -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = TcpPeer(reader, writer)
        assert await peer.hear() == connect()
        peer.send(connected())
        while (frame := await peer.hear()) is not None:
            heard.put_nowait(frame)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as broker:
        server = make_server(f"127.0.0.1:{broker.sockets[0].getsockname()[1]}")
        times = itertools.count(0, SLICE_NS // 10)  # each read takes two looks at the clock: ten fill the slice
        reads = server.engine.shared.reads
        reads.clock = lambda: next(times)
        address = await server.start()
        crowd = [await connect_to(address, "127.0.0.66") for _ in range(2 * MANY + 2)]
        clients = [*crowd, await connect_to(address)]
        for client in clients:
            client.send(connect())
            assert await client.hear() == connected()
        for client in crowd:
            client.send(unknown_command())
        clients[-1].send(PING)
        order = [await asyncio.wait_for(heard.get(), PATIENCE_S) for _ in clients]
        assert order.index(PING) <= len(crowd) // 2
        assert server.engine.counters.address_overruns
        for client in clients:
            client.writer.close()
        await server.stop(5)
        assert not reads.groups


async def test_when_sessions_have_ended_memory_is_given_back_but_not_while_they_are_there() -> None:
    async with broker_on_loopback() as broker:
        server = make_server(broker)
        client = await connect_to(await server.start())
        client.send(connect(), unknown_command())
        assert [await client.hear() for _ in range(2)] == [connected(), unknown_command()]
        assert not server.engine.shared.heap._is_asked
        client.writer.close()
        await asyncio.wait_for(server._all_gone.wait(), PATIENCE_S)
        assert server.engine.shared.heap._is_asked
        await server.stop(5)


def test_several_clients_are_accepted_in_one_turn() -> None:
    async def serve() -> None:
        server = make_server("127.0.0.1:1")
        host, _, port = (await server.start()).rpartition(":")
        let_in = [0]
        with ExitStack() as clients:
            for _ in range(3 * LISTENERS):
                clients.enter_context(socket.create_connection((host, int(port))))
            async with asyncio.timeout(PATIENCE_S):
                while let_in[-1] < 3 * LISTENERS:
                    await asyncio.sleep(0)
                    let_in.append(len(server.sessions))
            await asyncio.sleep(0)
            assert len(server.sessions) == 3 * LISTENERS
            assert max(after - before for before, after in pairwise(let_in)) == LISTENERS
            await server.stop(1)

    uvloop.run(serve(), loop_factory=ClosingLoop)


async def test_one_that_cannot_have_all_its_doors_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    left, real = [0, 1], os.dup

    def dup(descriptor: int) -> int:
        if not left.pop():
            raise OSError(errno.EMFILE, "too many open files")
        return real(descriptor)

    monkeypatch.setattr("proxy.server.os.dup", dup)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    server = make_server("127.0.0.1:1", address)
    with pytest.raises(OSError, match="too many"):
        await server.start()
    await asyncio.sleep(0)
    with pytest.raises(OSError, match=r"[Cc]onnect"):
        await connect_to(address)
    monkeypatch.setattr("proxy.server.os.dup", real)
    for _ in range(2):
        assert await server.start() == address
        server.pause_accepting()
        left = [0, 1]
        monkeypatch.setattr("proxy.server.os.dup", dup)
        with pytest.raises(OSError, match="too many"):
            await Addresses(server, Sockets()).accept_again()
        assert server._accepting == {}, "they are all tried again"
        monkeypatch.setattr("proxy.server.os.dup", real)
        await Addresses(server, Sockets()).accept_again()
        assert sum(map(len, server._accepting.values())) == LISTENERS
        await server.stop(1)
        await asyncio.sleep(0)


TALK: dict[str, tuple[list[bytes], list[bytes]]] = {
    "client": ([], []),
    "talker": ([unknown_command()], [unknown_command()]),
    "producer": ([producer(), send(0)], [producer_success()]),
    "consumer": ([subscribe()], [success(307)]),
}
"""What clients say, and what they hear."""


def _there() -> int:
    return sum(
        isinstance(instance, Session | PeerTransport | Forwarding | DataPath | Streams) for instance in gc.get_objects()
    )


@pytest.mark.parametrize("kind", [*TALK, "broker", "nobody"])
def test_a_session_is_gone_when_it_is_over_without_any_search_for_it(kind: str) -> None:
    async def serve() -> int:
        async with broker_on_loopback() as broker:
            server = make_server(broker)
            address = await server.start()
            for round_ in range(3):
                await _come_and_go(server, address, kind)
                if round_ == 0:
                    await asyncio.sleep(0.01)
                    gc.collect()
                    gc.disable()
                    gc.freeze()  # other tests of this run keep a million objects: nobody looks at them any more
            await asyncio.sleep(0.01)
            left = _there()
            await server.stop(1)
            return left

    try:
        assert uvloop.run(serve(), loop_factory=ClosingLoop) == 0
    finally:
        gc.enable()


async def _come_and_go(server: Server, address: str, kind: str) -> None:
    client = await connect_to(address)
    client.send(connect() if kind != "nobody" else b"\0" * 9)
    if kind != "nobody":
        assert await client.hear() == connected()
    if kind == "broker":
        next(iter(server.sessions)).broker.close(0)
    commands, heard = TALK.get(kind, ([], []))
    client.send(*commands)
    for frame in heard:
        assert await client.hear() == frame
    client.writer.close()
    while server.sessions:  # noqa: ASYNC110 - nobody else is told
        await asyncio.sleep(0.001)


async def test_stopped_it_accepts_nobody() -> None:
    server = make_server("127.0.0.1:1")
    address = await server.start()
    await server.stop(1)
    with pytest.raises(OSError, match=r"[Cc]onnect"):
        await connect_to(address)


async def test_stopping_one_that_never_started_is_nothing() -> None:
    async with broker_on_loopback() as broker:
        server = make_server(broker)
        await server.stop(1)
        client = await connect_to(await server.start())
        client.send(connect())
        assert await client.hear() == connected()
        await server.stop(1)
        assert await client.hear() is None
        client.writer.close()


async def test_an_address_that_somebody_has_is_an_error() -> None:
    first = make_server("127.0.0.1:1")
    address = await first.start()
    with pytest.raises(OSError, match="in use"):
        await make_server("127.0.0.1:1", address).start()
    await first.stop(1)


async def test_a_broker_that_is_not_there_is_told_to_the_client() -> None:
    taken = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    taken.close()
    await taken.wait_closed()
    server = make_server(f"127.0.0.1:{port}")
    client = await connect_to(await server.start())
    client.send(connect())
    answer = await client.hear()
    assert answer is not None
    assert b"broker_unreachable" in answer
    assert await client.hear() is None
    client.writer.close()
    await server.stop(1)


async def _leave_in_the_turn_in_which_the_broker_comes(server: Server) -> None:
    client = await connect_to(await server.start())
    client.send(connect(), b"\xff" * 64)
    while await client.hear() is not None:
        pass
    client.writer.close()


async def _end_while_the_broker_is_about_to_be_there(server: Server) -> None:
    client = await connect_to(await server.start())
    client.send(connect())
    while not (sessions := server.sessions) or next(iter(sessions)).state is not SessionState.DIALLING:  # noqa: ASYNC110 - each turn
        await asyncio.sleep(0)
    for session in sessions:
        asyncio.get_running_loop().call_soon(session.shut_down)  # the loop has not told yet of what it has
    while await client.hear() is not None:
        pass
    client.writer.close()


@pytest.mark.parametrize(
    "leave", [_leave_in_the_turn_in_which_the_broker_comes, _end_while_the_broker_is_about_to_be_there]
)
def test_a_session_that_ends_when_its_broker_comes_is_gone(leave: Callable[[Server], Awaitable[None]]) -> None:
    """As uvloop has it: of a connection whose dial is cancelled when it is there, it never says that it is gone."""

    async def serve() -> None:
        async with broker_on_loopback() as broker:
            for _ in range(20):
                server = make_server(broker)
                async with asyncio.timeout(PATIENCE_S):
                    await leave(server)
                    await server.stop(60)
                assert not server.sessions

    uvloop.run(serve(), loop_factory=ClosingLoop)
