"""One TCP connection of a session."""

from collections.abc import Iterator

import pytest

from limiter.testing import ManualClock
from protocol.errors import ProtocolError
from proxy.sessions.leg import GATHER_MOST, WRITE_BUFFER_HIGH, WRITE_BUFFER_LOW, Leg, address_of
from proxy.sessions.outlet import Bytes
from proxy.sessions.reading_line import ReadingLine
from proxy.sessions.throttle import Cause
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.manual_loop import ManualLoop
from tests.proxy.relay_rig import MAX_FRAME, RelayRig
from tests.proxy.wire import send


class Owner:
    """Notes what a leg tells."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def arrived(self, _leg: Leg, chunk: bytes) -> None:
        self.told.append(("arrived", chunk))

    def broke_protocol(self, _leg: Leg, error: ProtocolError) -> None:
        self.told.append(("broke protocol", error.cause))

    def writable(self, _leg: Leg, is_writable: bool) -> None:  # noqa: FBT001 - as LegOwner has it
        self.told.append(("writable", is_writable))

    def opened(self, _leg: Leg) -> None:
        self.told.append(("opened",))

    def half_closed(self, _leg: Leg) -> None:
        self.told.append(("half closed",))

    def lost(self, _leg: Leg, error: Exception | None) -> None:
        self.told.append(("lost", error))

    def throttle_changed(self, _leg: Leg, cause: Cause, is_raised: bool) -> None:  # noqa: FBT001 - as LegOwner has it
        self.told.append((cause, is_raised))

    def read_on(self, leg: Leg) -> None:
        self.told.append(("read on",))
        leg.resume_reading()


class Wired:
    """A leg on a transport that is not there."""

    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock())
        self.owner = Owner()
        self.leg = Leg("client", self.owner, ReadingLine())
        self.transport = FakeTransport(self.loop, ("192.0.2.1", 1234))
        self.loop.run(self.transport.connect, self.leg)


@pytest.fixture
def wired() -> Iterator[Wired]:
    wired = Wired()
    yield wired
    assert not wired.loop.trouble
    wired.loop.close()


def test_it_tells_what_happens_and_counts_what_it_reads(wired: Wired) -> None:
    wired.loop.run(wired.transport.receive, b"abc")
    wired.loop.run(wired.transport.receive_eof)
    wired.loop.run(wired.transport.break_off, None)
    assert wired.owner.told == [("opened",), ("arrived", b"abc"), ("half closed",), ("lost", None)]
    assert wired.leg.bytes_read == 3


def test_while_there_is_a_relay_that_takes_what_is_read_and_the_owner_hears_of_what_it_cannot_take(
    wired: Wired,
) -> None:
    rig = RelayRig([1000])
    wired.leg.relay = rig.relay
    wired.loop.run(wired.transport.receive, send(0))
    assert rig.frames() == [send(0)]
    wired.loop.run(wired.transport.receive, send(1, size=MAX_FRAME))
    assert wired.owner.told == [("opened",), ("broke protocol", "too_large")]
    wired.loop.run(wired.leg.close, 1)
    assert wired.leg.relay is None


def test_it_knows_its_peers_address_while_it_is_connected(wired: Wired) -> None:
    assert wired.leg.address == "192.0.2.1:1234"
    wired.loop.run(wired.transport.break_off, None)
    assert wired.leg.address == ""


def test_the_end_of_one_direction_leaves_the_other_open(wired: Wired) -> None:
    wired.loop.run(wired.transport.receive_eof)
    wired.leg.write(b"still")
    assert wired.transport.written == b"still"
    assert not wired.transport.is_closing()


def test_a_full_write_buffer_is_told_and_so_is_its_end(wired: Wired) -> None:
    wired.transport.peer_reads = False
    wired.leg.write(bytes(WRITE_BUFFER_HIGH))
    assert wired.owner.told == [("opened",)]
    wired.leg.write(b"x")
    assert wired.owner.told[-1] == ("writable", False)
    wired.loop.run(wired.transport.take_all)
    assert wired.owner.told[-1] == ("writable", True)
    assert WRITE_BUFFER_LOW < WRITE_BUFFER_HIGH


def test_reasons_pause_the_transport_and_their_end_resumes_it(wired: Wired) -> None:
    hold_turned = wired.leg.throttled_for(Cause.HOLD_CONNECTION)
    wired.leg.set_throttle(Cause.WRITE_BUFFER, on=True)
    hold_turned(True)
    assert wired.leg.is_throttled()
    assert not wired.transport.is_reading()
    wired.leg.set_throttle(Cause.WRITE_BUFFER, on=False)
    assert not wired.transport.is_reading()
    wired.loop.run(hold_turned, False)
    assert wired.transport.is_reading()
    assert wired.owner.told[-1] == ("read on",)


def test_closing_sends_what_is_written_first(wired: Wired) -> None:
    wired.transport.peer_reads = False
    wired.leg.write(b"last words")
    wired.loop.run(wired.leg.close, 5)
    assert wired.leg.is_connected
    wired.loop.run(wired.transport.take_all)
    assert wired.transport.written == b"last words"
    assert not wired.leg.is_connected
    wired.loop.advance(10)
    assert not wired.transport.was_aborted
    assert wired.loop.timers == []


def test_closing_gives_up_on_a_peer_that_takes_nothing(wired: Wired) -> None:
    wired.transport.peer_reads = False
    wired.leg.write(b"last words")
    wired.loop.run(wired.leg.close, 5)
    wired.loop.run(wired.leg.close, 500)
    wired.loop.advance(5)
    assert wired.transport.was_aborted
    assert wired.owner.told[-1] == ("lost", None)


def test_behind_the_end_nothing_is_written_and_nothing_throttled(wired: Wired) -> None:
    wired.leg.write_eof()
    wired.leg.write(b"too late")
    wired.loop.run(wired.leg.close, 1)
    for act in (wired.leg.write_eof, wired.leg.resume_reading):
        wired.loop.run(act)
    wired.leg.write(b"much too late")
    wired.leg.throttle(Cause.WRITE_BUFFER)
    assert wired.transport.written == b""
    assert not wired.leg.is_throttled()


@pytest.mark.parametrize(
    ("peername", "address"),
    [
        (("192.0.2.1", 1), "192.0.2.1:1"),
        (("2001:db8::1", 1, 0, 0), "[2001:db8::1]:1"),
        (None, ""),
        ("/run/socket", ""),
    ],
)
def test_addresses_are_written_as_people_write_them(peername: object, address: str) -> None:
    assert address_of(peername) == address


@pytest.fixture
def calls(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The transport's writes, each a call of the system."""
    made: list[bytes] = []
    write = wired.transport.write

    def noted(part: Bytes) -> None:
        made.append(bytes(part))
        write(part)

    monkeypatch.setattr(wired.transport, "write", noted)
    return made


def test_what_is_written_soon_goes_in_one_call_in_order_when_the_turn_ends(wired: Wired, calls: list[bytes]) -> None:
    def turn() -> None:
        for part in (b"a", memoryview(b"b"), b"c"):
            wired.leg.write_soon(part)
        assert calls == []

    wired.loop.run(turn)
    assert calls == [b"abc"]
    wired.loop.run(wired.leg.write_soon, b"d")
    assert calls == [b"abc", b"d"]


def test_what_is_written_at_once_takes_with_it_what_was_to_go_soon(wired: Wired, calls: list[bytes]) -> None:
    def turn() -> None:
        wired.leg.write_soon(b"a")
        wired.leg.write(b"b")
        assert calls == [b"ab"]
        wired.leg.write(b"c")

    wired.loop.run(turn)
    assert calls == [b"ab", b"c"]


def test_much_does_not_wait_so_the_peer_that_does_not_take_it_is_known_within_the_turn(
    wired: Wired, calls: list[bytes]
) -> None:
    def turn() -> None:
        wired.leg.write_soon(bytes(GATHER_MOST - 1))
        assert not calls
        wired.leg.write_soon(b"x")
        assert len(calls[0]) == GATHER_MOST
        wired.leg.write_soon(b"y")

    wired.loop.run(turn)
    assert calls[1:] == [b"y"]


@pytest.mark.parametrize("end", ["write_eof", "close"])
def test_what_was_to_go_soon_goes_before_the_end(wired: Wired, end: str) -> None:
    def turn() -> None:
        wired.leg.write_soon(b"last")
        wired.leg.write_eof() if end == "write_eof" else wired.leg.close(1)
        assert wired.transport.written == b"last"

    wired.loop.run(turn)


def test_a_leg_that_is_gone_swallows_what_was_to_go_soon(wired: Wired) -> None:
    def turn() -> None:
        wired.leg.write_soon(b"late")
        wired.transport.break_off(None)

    wired.loop.run(turn)
    assert wired.transport.written == b""
