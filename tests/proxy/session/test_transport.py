"""One TCP connection of a session."""

import socket

import pytest

from proxy.session.transport import WRITE_BUFFER_HIGH, WRITE_BUFFER_LOW, PauseReason
from tests.proxy.relay_rig import MAX_FRAME, RelayRig
from tests.proxy.wire import send
from tests.proxy.wired_peer import Wired


class Other:
    """Another one in line."""

    group = None

    def turn_came(self) -> bool:
        return True


def test_it_tells_what_happens_and_counts_what_it_reads(wired: Wired) -> None:
    wired.loop.run(wired.transport.receive, b"abc")
    wired.loop.run(wired.transport.receive_eof)
    wired.loop.run(wired.transport.break_off, None)
    assert wired.owner.told == [("opened",), ("arrived", b"abc"), ("half closed",), ("lost", None)]
    assert wired.peer.bytes_read == 3


def test_receiver_takes_bytes_and_the_owner_gets_its_errors(
    wired: Wired,
) -> None:
    rig = RelayRig([1000])
    wired.peer.receiver = rig.relay
    wired.loop.run(wired.transport.receive, send(0))
    assert rig.frames() == [send(0)]
    wired.loop.run(wired.transport.receive, send(1, size=MAX_FRAME))
    assert wired.owner.told == [("opened",), ("broke protocol", "too_large")]
    wired.loop.run(wired.peer.close, 1)
    assert wired.peer.receiver is None


def test_it_knows_its_peers_address_while_it_is_connected(wired: Wired) -> None:
    assert wired.peer.address == "192.0.2.1:1234"
    wired.loop.run(wired.transport.break_off, None)
    assert wired.peer.address == ""


def test_an_end_is_told_again_to_who_reads_on(wired: Wired) -> None:
    wired.loop.run(wired.transport.receive_eof)
    assert not wired.transport.is_reading()
    wired.loop.run(wired.peer.resume_reading)
    assert wired.owner.told == [("opened",), ("half closed",), ("half closed",)]
    assert not wired.transport.is_reading()


def test_the_end_of_one_direction_leaves_the_other_open(wired: Wired) -> None:
    wired.loop.run(wired.transport.receive_eof)
    wired.peer.writer.write(b"still")
    assert wired.transport.written == b"still"
    assert not wired.transport.is_closing()


def test_a_full_write_buffer_is_told_and_so_is_its_end(wired: Wired) -> None:
    wired.transport.peer_reads = False
    wired.peer.writer.write(bytes(WRITE_BUFFER_HIGH))
    assert wired.owner.told == [("opened",)]
    wired.peer.writer.write(b"x")
    assert wired.owner.told[-1] == ("writable", False)
    wired.loop.run(wired.transport.take, WRITE_BUFFER_HIGH - WRITE_BUFFER_LOW)
    assert wired.owner.told[-1] == ("writable", False)
    wired.loop.run(wired.transport.take, 1)
    assert wired.owner.told[-1] == ("writable", True)
    assert len(wired.transport.unsent) == WRITE_BUFFER_LOW, "the other side is read again before this one falls idle"


def test_who_reads_on_for_another_reason_than_its_turn_stands_in_line_no_more(wired: Wired) -> None:
    def stopped_in_line() -> None:
        wired.peer.yield_turn()
        wired.peer.throttle(PauseReason.WRITE_BUFFER)

    wired.loop.run(stopped_in_line)
    assert not wired.loop.run(wired.line.goes_first, Other())
    wired.loop.run(wired.peer.unthrottle, PauseReason.WRITE_BUFFER)
    wired.loop.run(lambda: None)
    assert wired.transport.is_reading()
    assert wired.loop.run(wired.line.goes_first, Other())


def test_reasons_pause_the_transport_and_their_end_resumes_it(wired: Wired) -> None:
    hold_turned = wired.peer.throttled_for(PauseReason.HOLD_CONNECTION)
    wired.peer.set_throttle(PauseReason.WRITE_BUFFER, on=True)
    hold_turned(True)
    assert wired.peer.is_throttled()
    assert not wired.transport.is_reading()
    wired.peer.set_throttle(PauseReason.WRITE_BUFFER, on=False)
    assert not wired.transport.is_reading()
    wired.loop.run(hold_turned, False)
    assert wired.transport.is_reading()
    assert wired.owner.told[-1] == ("read on",)


def test_closing_sends_what_is_written_first(wired: Wired) -> None:
    wired.transport.peer_reads = False
    wired.peer.writer.write(b"last words")
    wired.loop.run(wired.peer.close, 5)
    assert wired.peer.is_connected
    wired.loop.run(wired.transport.take_all)
    assert wired.transport.written == b"last words"
    assert not wired.peer.is_connected
    wired.loop.advance(10)
    assert not wired.transport.was_aborted
    assert wired.loop.timers == []


def test_second_end_keeps_bytes_that_a_slow_peer_has_yet_to_take(wired: Wired) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        wired.transport.peer_reads = False
        wired.peer.writer.write(b"last words")
        wired.peer.writer._descriptor = ours.fileno()
        for _ in range(2):
            wired.loop.run(wired.peer.end, 5)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
    wired.loop.run(wired.transport.take_all)
    assert wired.transport.written == b"last words"


def test_closing_gives_up_on_a_peer_that_takes_nothing(wired: Wired) -> None:
    wired.transport.peer_reads = False
    wired.peer.writer.write(b"last words")
    wired.loop.run(wired.peer.close, 5)
    wired.loop.run(wired.peer.close, 500)
    wired.loop.advance(5)
    assert wired.transport.was_aborted
    assert wired.owner.told[-1] == ("lost", None)


def test_behind_the_end_nothing_is_written_and_nothing_throttled(wired: Wired) -> None:
    wired.peer.write_eof()
    wired.peer.writer.write(b"too late")
    wired.loop.run(wired.peer.close, 1)
    for act in (wired.peer.write_eof, wired.peer.resume_reading):
        wired.loop.run(act)
    wired.peer.writer.write(b"much too late")
    wired.peer.throttle(PauseReason.WRITE_BUFFER)
    assert wired.transport.written == b""
    assert not wired.peer.is_throttled()
