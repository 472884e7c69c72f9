"""A crowd of clients with TLS is read in turns, as one without is: real sockets, a clock that only reading moves."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.read_scheduler import CALM_S, MANY
from proxy.session.transport import PeerTransport, TransportContext, TransportOwner
from proxy.slices import Slices
from tests.manual_clock import ManualClock
from tests.proxy.test_read_scheduler import COST, World, _largest_turn, _read
from tests.proxy.tls import Authorities

CROWD = "10.0.0.66"
RECORD = b"x" * 1000


class Raw(asyncio.Transport):
    """A socket, read as uvloop's own transport is: by whoever has `get_buffer`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, here: socket.socket) -> None:
        super().__init__({"socket": here, "peername": (CROWD, 40_000), "sockname": ("10.0.0.9", 6651)})
        self.here = here
        self.is_read = False
        self._loop = loop
        self._protocol: Any = None

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def resume_reading(self) -> None:
        self.is_read = True
        self._loop.add_reader(self.here, self._readable)

    def pause_reading(self) -> None:
        self.is_read = False
        self._loop.remove_reader(self.here)

    def _readable(self) -> None:
        assert self.is_read
        self._protocol.buffer_updated(self.here.recv_into(self._protocol.get_buffer(-1)))

    def write(self, data: Any) -> None:
        self.here.sendall(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.here.fileno() < 0

    def abort(self) -> None:
        self.pause_reading()
        self._protocol.connection_lost(None)
        self.here.close()


class Client(TransportOwner):
    """A client whose connection is read as a session's is; the owner of that connection, too.

    Attributes:
        heard: What has arrived of what it said.
    """

    def __init__(self, rig: "Rig", name: str) -> None:
        self.name = name
        self.heard = b""
        self._world = rig.world
        here, self._there = socket.socketpair()
        for end in (here, self._there):
            end.setblocking(False)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = rig.trusting.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.raw = Raw(rig.world.loop, here)
        self.peer = PeerTransport("client", self, rig.shared)
        self.peer.connection_made(self.raw)
        self.peer.secure(rig.listener, rig.shared.tls_buffers())
        self.raw.resume_reading()

    def opened(self, transport: PeerTransport) -> None:
        transport.join(self._world.scheduler.group(CROWD))

    def arrived(self, _transport: PeerTransport, chunk: bytes) -> None:
        self.heard += chunk
        self._world.clock.now += COST
        self._world.order.append(self.name)

    def shake_hands(self) -> bool:
        """Do a step of the handshake; return whether it is done."""
        with contextlib.suppress(BlockingIOError):
            self._incoming.write(self._there.recv(65536))
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            is_done = False
        else:
            is_done = True
        self._there.send(self._outgoing.read())
        return is_done

    def sealed(self, data: bytes) -> bytes:
        self._ssl.write(data)
        return self._outgoing.read()

    def send(self, records: bytes) -> None:
        assert self._there.send(records) == len(records)

    def close(self) -> None:
        self.raw.abort()
        self._there.close()


class Rig:
    """A world of `test_read_scheduler`, and what connections with TLS share in it."""

    def __init__(self, authorities: Authorities) -> None:
        self.world = World()
        self.shared = TransportContext(self.world.counters, Slices(self.world.counters, ManualClock()))
        files = authorities.tls()
        self.listener = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.listener.load_cert_chain(files["certificate"], files["key"])
        self.trusting = authorities.client()
        self.clients = [Client(self, f"c{number}") for number in range(3 * MANY)]
        self.neighbour = self.world.line("n", "10.0.0.1")
        left = list(self.clients)
        while left:
            left = [client for client in left if not client.shake_hands()]
            self.world.turns(50)

    def all_say(self) -> None:
        for client in self.clients:
            client.send(client.sealed(RECORD))

    def end(self) -> None:
        for client in self.clients:
            self.world.loop.call_soon(client.close)
        self.world.turns(1)
        self.world.end()


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def rig(authorities: Authorities) -> Iterator[Rig]:
    rig = Rig(authorities)
    yield rig
    rig.end()


def test_turns_keep_to_the_slice_and_no_connection_starves(rig: Rig) -> None:
    rig.all_say()
    rig.world.turns(200)
    assert rig.world.scheduler.in_turns == rig.world.counters.address_overruns == 1
    rig.all_say()
    begun = rig.world.turns(3)
    rig.neighbour.say()
    assert "n" in rig.world.turns(2)
    order = begun + rig.world.order + rig.world.turns(400)
    assert _largest_turn(order, "c") <= 10
    assert sorted(name for name in _read(order) if name != "n") == sorted(client.name for client in rig.clients)
    assert {client.heard for client in rig.clients} == {RECORD * 2}


def test_records_that_come_in_parts_arrive_whole_and_in_order(rig: Rig) -> None:
    """What OpenSSL keeps of a record that is not complete is nothing that the scheduler has to know of."""
    rig.all_say()
    rig.world.turns(200)
    ciphertexts = [client.sealed(b"first" + RECORD) + client.sealed(b"second") for client in rig.clients]
    for cut in (slice(0, 3), slice(3, 700), slice(700, 1100), slice(1100, None)):
        for client, records in zip(rig.clients, ciphertexts, strict=True):
            client.send(records[cut])
        assert _largest_turn(rig.world.turns(200), "c") <= 10
    assert {client.heard for client in rig.clients} == {RECORD + b"first" + RECORD + b"second"}
    assert rig.world.scheduler.in_turns == 1


def test_after_a_second_of_calm_the_loop_reads_all_of_them_itself_again(rig: Rig) -> None:
    rig.all_say()
    rig.world.turns(200)
    assert not all(client.raw.is_read for client in rig.clients)
    for _ in range(3):
        rig.world.clock.now += round(CALM_S * 1e9)
        rig.world.turns(2)
    assert not rig.world.scheduler.in_turns
    assert all(client.raw.is_read for client in rig.clients)
    rig.clients[0].send(rig.clients[0].sealed(b"once more"))
    assert _read(rig.world.turns(2)) == ["c0"]


def test_when_all_of_them_have_gone_nothing_is_left(rig: Rig) -> None:
    rig.all_say()
    rig.world.turns(3)
    for client in rig.clients:
        rig.world.loop.call_soon(client.close)
    rig.world.turns(1)
    rig.clients.clear()
    assert not rig.world.scheduler.in_turns
    assert not rig.world.scheduler.has_others
