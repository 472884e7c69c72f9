"""So many connections, each with so much time; in a loop whose time is moved by hand."""

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.admin.listener import LONGEST_READ, AdminConnection, Connections
from proxy.admin.refusals import RefusalLog
from proxy.counters import Counters
from proxy.slices import AT_ONCE, Slices, Work
from tests.manual_clock import ManualClock
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.manual_loop import ManualLoop

PATIENCE_S = 30.0
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


class Inner(asyncio.Protocol):
    """In aiohttp's place."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.said.append("made")

    def data_received(self, data: bytes) -> None:
        self.said.append(data)

    def eof_received(self) -> None:
        self.said.append("end")

    def connection_lost(self, exc: Exception | None) -> None:
        self.said.append("lost")


class Socket:
    """Just accepted."""

    was_shut_down = False

    def shutdown(self, _how: int) -> None:
        self.was_shut_down = True


class Client:
    """One that has been accepted; `outcome` of the handshake stands open if there is TLS."""

    def __init__(self, room: "Room", context: ssl.SSLContext | None = None, address: str = "192.0.2.7") -> None:
        self.inner, self.socket = Inner(), Socket()
        self.connection = AdminConnection(self.inner, room.all, self.socket, address)  # type: ignore[arg-type]
        self.transport = FakeTransport(room.loop, (address, 1))
        self.room = room
        self.outcome: asyncio.Future[None] | None = None
        self.is_admitted = room.loop.run(room.all.admit, self.connection)
        if self.is_admitted:
            room.accepted = self
            self.task = room.loop.run(room.loop.create_task, self.connection.serve(context))

    def speaks(self, data: bytes = b"GET") -> None:
        self.room.loop.run(self.transport.receive, data)

    def is_worked_for(self) -> None:
        self.room.loop.run(self.connection.request_is_there)

    def is_answered(self) -> None:
        self.room.loop.run(self.connection.request_is_answered)

    def leaves(self) -> None:
        self.room.loop.run(self.transport.break_off, None)

    @property
    def is_gone(self) -> bool:
        return self.transport.was_aborted or self.socket.was_shut_down


class Room:
    """Connections, and a loop that gives each socket its transport."""

    accepted: Client

    def __init__(self, most: int) -> None:
        self.loop = ManualLoop(ManualClock())
        self.counts: Counter[str] = Counter()
        self.all = Connections(
            most, PATIENCE_S, RefusalLog(self.counts, self.loop.clock), Slices(Counters(), self.loop.clock)
        )
        self.loop.connect_accepted_socket = self._connect  # type: ignore[assignment]

    async def _connect(self, factory: Any, sock: Any) -> None:
        assert self.accepted.socket is sock
        self.accepted.transport.connect(factory())

    async def secure(self, protocol: Any, sock: Any, _context: Any) -> None:
        client = self.accepted
        assert client.socket == sock
        client.outcome = self.loop.create_future()
        await client.outcome
        client.transport.connect(protocol)

    def handshake(self, client: Client, error: Exception | None = None) -> None:
        assert client.outcome is not None
        self.loop.run(*((client.outcome.set_exception, error) if error else (client.outcome.set_result, None)))


@pytest.fixture
def make_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    rooms: list[Room] = []

    def make(most: int = 3) -> Room:
        rooms.append(Room(most))
        monkeypatch.setattr(rooms[-1].all.handshakes, "secure", rooms[-1].secure)
        return rooms[-1]

    yield make
    for room in rooms:
        assert room.loop.trouble == []
        room.loop.close()


def test_what_a_client_says_reaches_aiohttp(make_room) -> None:
    client = Client(make_room())
    client.speaks(b"GET")
    client.speaks(b" /")
    client.leaves()
    assert client.inner.said == ["made", b"GET", b" /", "lost"]


def test_who_says_nothing_or_too_slowly_is_ended(make_room) -> None:
    room: Room = make_room()
    silent, slow = Client(room), Client(room)
    for _ in range(31):
        assert [client.is_gone for client in (silent, slow)] == [False, False]
        slow.speaks(b"x")
        room.loop.advance(1)
    assert silent.is_gone
    assert slow.is_gone
    assert (len(room.all), room.counts, room.loop.timers) == (0, {"time": 2}, [])


def test_the_time_of_a_request_ends_when_it_is_there(make_room) -> None:
    room: Room = make_room()
    client = Client(room)
    client.speaks()
    client.is_worked_for()
    room.loop.advance(3600)
    assert not client.is_gone
    client.speaks(b"the next request, already")
    room.loop.advance(3600)
    assert not client.is_gone


def test_a_request_that_came_with_the_one_before_is_worked_for_as_long_as_it_takes(make_room) -> None:
    room: Room = make_room()
    client = Client(room)
    client.speaks(b"two requests")
    for turn in (client.is_worked_for, client.is_answered, client.is_worked_for):
        turn()
    client.speaks(b"a third")
    room.loop.advance(3600)
    assert not client.is_gone


def test_untaken_answer_and_idle_connection_are_no_refusals(make_room) -> None:
    room: Room = make_room()
    client = Client(room)
    client.speaks()
    client.is_worked_for()
    client.is_answered()
    room.loop.advance(PATIENCE_S)
    assert not client.is_gone
    room.loop.advance(2)
    assert client.is_gone
    assert (len(room.all), room.counts) == (0, {})


def test_the_next_request_has_all_the_time_from_its_first_byte(make_room) -> None:
    room: Room = make_room()
    client = Client(room)
    client.speaks()
    client.is_worked_for()
    client.is_answered()
    room.loop.advance(PATIENCE_S - 1)
    client.speaks()
    assert client.connection.due == room.loop.time() + PATIENCE_S
    room.loop.advance(PATIENCE_S - 1)
    client.speaks()
    assert not client.is_gone
    room.loop.advance(3)
    assert client.is_gone
    assert room.counts == {"time": 1}


def test_a_new_one_takes_the_place_of_who_has_kept_us_waiting_longest(make_room) -> None:
    room: Room = make_room()
    clients = [Client(room) for _ in range(3)]
    clients[0].is_worked_for()
    clients[0].is_answered()
    newcomer = Client(room)
    assert [client.is_gone for client in (*clients, newcomer)] == [False, True, False, False]
    assert (len(room.all), room.counts) == (3, {"connections": 1})


def test_a_thousand_that_say_nothing_keep_nobody_out(make_room) -> None:
    room: Room = make_room(10)
    for _ in range(100):
        for _ in range(9):
            Client(room)
        honest = Client(room)
        honest.speaks()
        honest.is_worked_for()
        assert not honest.is_gone
        honest.is_answered()
        assert len(room.all) == 10


def test_when_all_are_worked_for_a_new_one_is_refused(make_room) -> None:
    room: Room = make_room()
    clients = [Client(room) for _ in range(3)]
    for client in clients:
        client.is_worked_for()
    newcomer = Client(room)
    assert not newcomer.is_admitted
    assert not any(client.is_gone for client in clients)
    assert (len(room.all), room.counts) == (3, {"connections": 1})


def test_who_leaves_frees_a_place_at_any_time(make_room) -> None:
    room: Room = make_room()
    for turn in range(9):
        client = Client(room)
        if turn % 3:
            client.is_worked_for()
        if turn % 3 == 2:
            client.is_answered()
        client.leaves()
        client.is_worked_for()
        client.is_answered()
    assert (len(room.all), room.counts, room.loop.timers) == (0, {}, [])


def test_work_for_nobody_but_the_client_ends_with_its_connection(make_room) -> None:
    room: Room = make_room()
    ends, goes_on = (room.loop.run(room.loop.create_task, asyncio.Event().wait()) for _ in range(2))
    clients = Client(room), Client(room)
    with clients[0].connection.taking_along(ends):
        clients[0].leaves()
    with clients[1].connection.taking_along(goes_on):
        pass
    clients[1].leaves()
    assert (ends.cancelled(), goes_on.done()) == (True, False)
    room.loop.run(goes_on.cancel)


def test_a_handshake_takes_a_place_and_time(make_room) -> None:
    room: Room = make_room()
    clients = [Client(room, CONTEXT) for _ in range(3)]
    assert len(room.all) == 3
    newcomer = Client(room, CONTEXT)
    assert [client.is_gone for client in clients] == [True, False, False]
    room.handshake(clients[0], OSError("closed"))
    room.handshake(clients[1], ConnectionAbortedError("too long"))
    room.handshake(clients[2], ConnectionResetError("left"))
    room.handshake(newcomer)
    newcomer.speaks()
    assert newcomer.inner.said == ["made", b"GET"]
    assert [client.inner.said for client in clients] == [[]] * 3
    assert (len(room.all), room.counts) == (1, {"connections": 1, "time": 1})


def test_a_handshake_that_fails_is_counted(make_room) -> None:
    room: Room = make_room()
    client = Client(room, CONTEXT)
    room.handshake(client, ssl.SSLError("certificate verify failed"))
    assert (len(room.all), room.counts, room.loop.timers) == (0, {"tls": 1}, [])


def test_who_was_ended_while_he_shook_hands_stays_ended(make_room) -> None:
    room: Room = make_room()
    client = Client(room, CONTEXT)
    room.loop.run(client.connection.abort)
    room.handshake(client)
    assert client.transport.was_aborted
    assert (len(room.all), room.loop.timers) == (0, [])


def test_address_with_most_connections_makes_room_for_a_new_one(make_room) -> None:
    room = make_room(5)
    operator = Client(room, address="198.51.100.1")
    flood = [Client(room) for _ in range(50)]
    assert not operator.is_gone
    assert [each.is_gone for each in flood] == [True] * 46 + [False] * 4
    assert Client(room, address="198.51.100.1").is_admitted
    assert not operator.is_gone


def test_large_read_reaches_aiohttp_in_pieces_and_in_order(make_room) -> None:
    room = make_room()
    client, turns, sent = Client(room), list[int](), bytes(range(256)) * 1024
    inner = client.inner

    def look() -> None:
        turns.append(sum(len(piece) for piece in inner.said if isinstance(piece, bytes)))
        if turns[-1] < len(sent):
            room.loop.call_soon(look)

    room.loop.call_soon(look)
    client.speaks(sent)
    assert b"".join(piece for piece in inner.said if isinstance(piece, bytes)) == sent
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 2 * AT_ONCE[Work.REQUESTS] * 512
    assert client.transport.is_reading()


def test_end_that_comes_with_much_follows_it(make_room) -> None:
    room = make_room()
    client = Client(room)

    def speak_and_end() -> None:
        client.connection.get_buffer(-1)[:] = bytes(LONGEST_READ)
        client.connection.buffer_updated(LONGEST_READ)
        assert client.connection.eof_received()

    room.loop.run(speak_and_end)
    assert client.inner.said[-2:] == ["end", "lost"]
    assert sum(len(piece) for piece in client.inner.said if isinstance(piece, bytes)) == LONGEST_READ


def test_aiohttp_that_pauses_is_read_on_when_it_wants(make_room) -> None:
    room = make_room()
    client = Client(room)
    transport = client.inner.transport
    room.loop.run(transport.pause_reading)
    client.speaks(b"x")
    assert not client.transport.is_reading()
    room.loop.run(transport.resume_reading)
    assert client.transport.is_reading()
