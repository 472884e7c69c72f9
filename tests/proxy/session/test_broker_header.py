"""PROXY protocol headers in front of connections to brokers: whom they name."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from protocol.commands import encode
from protocol.frames import FrameCutter
from protocol.proxy_protocol import SocketAddress, read_header, write_header
from protocol.pulsar_pb2 import CommandLookupTopic, CommandLookupTopicResponse
from proxy.admin.readiness import BrokerHealth
from tests.proxy.conversation import Peer, World
from tests.proxy.fake_transport import OWN_ADDRESS
from tests.proxy.session.test_tls_broker import CONNECT, REDIRECT, Cluster, found, proxy_of
from tests.proxy.tcp import connect_to
from tests.proxy.wire import PING, as_frame, body, connect, connected, lookup

Make = Callable[..., World]

CLIENT = ("203.0.113.9", 56324)


@pytest.fixture
def world(make_world: Make) -> World:
    return make_world(broker_proxy_protocol=True, proxy_protocol={"mode": "optional", "from": ["10.0.0.0/8"]})


def at_broker(world: World) -> bytes:
    """What the broker that was dialled last has got."""
    return bytes(world.dials[-1].transport.written)


def greeted(world: World, address: str = "192.0.2.7", first: bytes = b"") -> Peer:
    client = world.client(address)
    client.send_bytes(first + as_frame(connect()) + as_frame(PING))
    return client


def test_a_connection_to_a_broker_begins_with_the_address_of_its_client(world: World) -> None:
    greeted(world)
    header = write_header(("192.0.2.7", 40001), OWN_ADDRESS)
    assert at_broker(world) == header + as_frame(connect()) + as_frame(PING)


def test_the_address_is_that_of_the_header_before_the_clients_own_bytes(world: World) -> None:
    greeted(world, "10.0.0.5", write_header(CLIENT))
    header = read_header(at_broker(world))
    assert header is not None
    assert header.source == CLIENT


def test_a_client_of_ipv6_is_named_in_its_family(world: World) -> None:
    greeted(world, "2001:db8::7")
    header = read_header(at_broker(world))
    assert header is not None
    assert header.source == ("2001:db8::7", 40001)


def test_nothing_is_before_the_clients_bytes_unless_it_is_asked_for(make_world: Make) -> None:
    world = make_world()
    greeted(world)
    assert at_broker(world) == as_frame(connect()) + as_frame(PING)


class AnnouncedBroker:
    """A broker on loopback that wants a header, within TLS if it speaks that, and answers lookups.

    Args:
        context: What it speaks TLS with, if it does.
        answer: To lookups.

    Attributes:
        sources: Whom the headers named, in the order of connections.
    """

    def __init__(self, context: ssl.SSLContext | None, answer: bytes) -> None:
        self.sources: list[SocketAddress | None] = []
        self._context = context
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                thread = Thread(target=self._serve, args=(self._listener.accept()[0],))
                self._threads.append(thread)
                thread.start()

    def _serve(self, raw: socket.socket) -> None:
        raw.settimeout(10)
        with raw if self._context is None else self._context.wrap_socket(raw, server_side=True) as connection:
            data = b""
            while (header := read_header(data)) is None:
                data += connection.recv(1)
            assert header.size == len(data)
            self.sources.append(header.source)
            cutter = FrameCutter(2**20)
            with suppress(OSError):
                while chunk := connection.recv(65536):
                    for frame in cutter.feed(chunk):
                        connection.sendall(self._reply(frame))

    def _reply(self, frame: bytes) -> bytes:
        command = body(frame)
        if not isinstance(command, CommandLookupTopic):
            return as_frame(connected())
        answer = CommandLookupTopicResponse.FromString(self._answer)
        answer.request_id = command.request_id
        return encode(answer)


@contextmanager
def announced(context: ssl.SSLContext | None, answer: bytes) -> Iterator[AnnouncedBroker]:
    broker = AnnouncedBroker(context, answer)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.mark.parametrize("has_tls", [False, True])
async def test_broker_connection_names_its_client_within_tls(tmp_path: Path, *, has_tls: bool) -> None:
    cluster = Cluster(tmp_path)
    context = cluster.context() if has_tls else None
    scheme = "pulsar+ssl" if has_tls else "pulsar"
    async with AsyncExitStack() as stack:
        second = stack.enter_context(announced(context, found(CONNECT, "pulsar://b:1", "pulsar+ssl://b:1")))
        redirect = found(REDIRECT, f"pulsar://{second.address}", f"pulsar+ssl://{second.address}")
        first = stack.enter_context(announced(context, redirect))
        settings = {"broker_tls": cluster.tls()} if has_tls else {}
        proxy = await stack.enter_async_context(
            proxy_of(f"{scheme}://{first.address}", broker_proxy_protocol=True, **settings)
        )
        client = await connect_to(proxy.address)
        client.send(connect(), lookup())
        assert await client.hear() == connected()
        frame = await client.hear()
        assert frame is not None
        assert body(frame).response == CONNECT
        own = client.writer.get_extra_info("sockname")
        assert (first.sources, second.sources) == ([own], [own])
        client.writer.close()
        brokers = BrokerHealth(proxy.engine)
        await brokers.fresh()
        assert brokers.problem is None
        assert first.sources == [own, None]
