"""What is sent to one peer: taken by the kernel at once where it has room, and in one call what is sent in one turn."""

import random
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.runtime import LARGE
from proxy.session.transport import GATHER_MOST, MOST_PIECES, WRITE_BUFFER_HIGH
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.kernel_transport import KernelTransport
from tests.proxy.wired_peer import Wired


@pytest.fixture
def heard() -> Iterator[tuple[Wired, socket.socket]]:
    """A peer's transport, and where each of its calls of the system is heard by itself."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near.setblocking(False)
    far.setblocking(False)
    wired = Wired(descriptor=near.fileno())
    with near, far:
        yield wired, far
        with pytest.raises(BlockingIOError):
            far.recv(10)
    wired.close()


@pytest.fixture
def slow() -> Iterator[Wired]:
    """A transport whose peer does not read."""
    wired = Wired(KernelTransport)
    wired.transport.peer_reads = False
    yield wired
    wired.close()


def test_what_the_kernel_takes_at_once_does_not_wait_for_the_transport(heard: tuple[Wired, socket.socket]) -> None:
    wired, far = heard
    wired.peer.writer.write(memoryview(b"abc"))
    assert far.recv(10) == b"abc"
    assert wired.transport.written == b""


def test_bytes_that_the_kernel_refuses_go_through_the_transport(slow: Wired) -> None:
    def behind() -> None:
        slow.transport.take(50_000)
        slow.peer.writer.write(b"far behind, though there is room now")

    data = bytearray(range(256)) * 400
    slow.peer.writer.write(memoryview(data))
    data[:] = bytes(len(data))
    assert 0 < slow.transport.get_write_buffer_size() < len(data)
    slow.peer.writer.write(memoryview(b"behind"))
    slow.loop.run(behind)
    slow.loop.run(slow.transport.take_all)
    assert slow.transport.written == bytes(range(256)) * 400 + b"behind" + b"far behind, though there is room now"


def test_copies_of_bytes_left_are_below_the_large_memory_size(slow: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    data, given, write = bytes(range(256)) * 4000, list[bytes](), slow.transport.write

    def noted(part: bytes) -> None:
        given.append(part)
        write(part)

    monkeypatch.setattr(slow.transport, "write", noted)
    slow.peer.writer.write(memoryview(data))
    assert max(len(part) for part in given) < LARGE < sum(len(part) for part in given)
    slow.loop.run(slow.transport.take_all)
    assert slow.transport.written == data


def test_what_was_gathered_goes_in_one_call_too(heard: tuple[Wired, socket.socket]) -> None:
    wired, far = heard
    parts = [bytes([number]) * 30_000 for number in range(4)]

    def turn() -> None:
        for part in parts:
            wired.peer.writer.write_soon(part)

    wired.loop.run(turn)
    assert far.recv(200_000) == b"".join(parts)


def test_what_was_gathered_and_found_no_room_goes_behind(slow: Wired) -> None:
    parts = [bytes([number]) * 30_000 for number in range(4)]

    def turn() -> None:
        for part in parts:
            slow.peer.writer.write_soon(part)

    slow.loop.run(turn)
    assert 0 < slow.transport.get_write_buffer_size() < 120_000
    slow.loop.run(slow.transport.take_all)
    assert slow.transport.written == b"".join(parts)


@pytest.mark.parametrize("end", ["write_eof", "close", "break"])
def test_nothing_goes_to_a_descriptor_that_may_be_somebody_elses_by_now(
    heard: tuple[Wired, socket.socket], end: str
) -> None:
    wired, far = heard
    wired.peer.writer.write(memoryview(b"in time"))
    assert far.recv(10) == b"in time"

    def ending() -> None:
        if end == "write_eof":
            wired.peer.write_eof()
        elif end == "close":
            wired.peer.close(1)
        else:
            wired.transport.break_off(None)
        wired.peer.writer.write(memoryview(b"too late"))
        for part in (bytes(5000), bytes(5000)):  # long ones go in a call of their own
            wired.peer.writer.write_soon(part)

    wired.loop.run(ending)
    with pytest.raises(BlockingIOError):
        far.recv(10)


def test_a_broken_connection_is_the_transports_to_find() -> None:
    wired = Wired(KernelTransport)
    cast("KernelTransport", wired.transport).vanish()
    wired.loop.run(wired.peer.writer.write, b"lost")
    (_, (event, error)) = wired.owner.told
    assert event == "lost"
    assert isinstance(error, BrokenPipeError)
    wired.close()


def test_what_is_written_soon_goes_in_one_call_in_order_when_the_turn_ends(wired: Wired, calls: list[bytes]) -> None:
    def turn() -> None:
        for part in (b"a", b"b", b"c"):
            wired.peer.writer.write_soon(part)
        assert calls == []

    wired.loop.run(turn)
    assert calls == [b"abc"]
    wired.loop.run(wired.peer.writer.write_soon, b"d")
    assert calls == [b"abc", b"d"]


def test_what_is_written_at_once_takes_with_it_what_was_to_go_soon(wired: Wired, calls: list[bytes]) -> None:
    def turn() -> None:
        wired.peer.writer.write_soon(b"a")
        wired.peer.writer.write(b"b")
        assert calls == [b"ab"]
        wired.peer.writer.write(b"c")

    wired.loop.run(turn)
    assert calls == [b"ab", b"c"]


def test_many_bytes_are_written_within_the_turn(wired: Wired, calls: list[bytes]) -> None:
    def turn() -> None:
        wired.peer.writer.write_soon(bytes(GATHER_MOST - 1))
        assert not calls
        wired.peer.writer.write_soon(b"x")
        assert sum(len(call) for call in calls) == GATHER_MOST
        wired.peer.writer.write_soon(b"y")

    wired.loop.run(turn)
    assert calls[1:] == [b"x", b"y"]


@pytest.mark.parametrize("end", ["write_eof", "close"])
def test_what_was_to_go_soon_goes_before_the_end(wired: Wired, end: str) -> None:
    def turn() -> None:
        wired.peer.writer.write_soon(b"last")
        wired.peer.write_eof() if end == "write_eof" else wired.peer.close(1)
        assert wired.transport.written == b"last"

    wired.loop.run(turn)


def test_few_bytes_go_at_the_turns_end_and_are_not_overtaken(wired: Wired, calls: list[bytes]) -> None:
    def turn() -> None:
        wired.peer.writer.write_little(b"greeting")
        assert calls == []

    def with_more() -> None:
        turn()
        calls.clear()
        wired.peer.writer.write(b" and more")
        assert calls == [b"greeting and more"]

    wired.loop.run(turn)
    assert calls == [b"greeting"]
    calls.clear()
    wired.loop.run(with_more)


def test_a_leg_that_is_gone_swallows_what_was_to_go_soon(wired: Wired) -> None:
    def turn() -> None:
        wired.peer.writer.write_soon(b"late")
        wired.transport.break_off(None)

    wired.loop.run(turn)
    assert wired.transport.written == b""


SIZES = st.one_of(st.integers(1, 100), st.integers(1, 20_000), st.just(200_000))
WRITES = st.lists(st.tuples(st.sampled_from(["view", "bytes", "soon", "little"]), SIZES), max_size=6)
"""A view or bytes for now, or bytes for soon, be they much or little."""
TURNS = st.lists(st.tuples(st.integers(0, 10_000), WRITES), min_size=1, max_size=20)
"""In each turn of the loop the peer takes some, and then something is written to it."""
STREAM = random.Random(1).randbytes(2**20)


def written_in_turns(wired: Wired, turns: list[tuple[int, list[tuple[str, int]]]], end: Callable[[], None]) -> bytes:
    """Gives what should arrive. Views are of memory that is used again. The last turn ends the transport."""
    sent = bytearray()
    memory = bytearray(max([0, *(size for _, writes in turns for _, size in writes)]))

    def turn(taken: int, writes: list[tuple[str, int]]) -> None:
        wired.transport.take(taken)
        for kind, size in writes:
            start = len(sent) % (len(STREAM) - size)
            part = STREAM[start : start + size]
            if kind == "soon":
                wired.peer.writer.write_soon(part)
            elif kind == "little":
                wired.peer.writer.write_little(part)
            elif kind == "bytes":
                wired.peer.writer.write(part)
            else:
                memory[:size] = part
                wired.peer.writer.write(memoryview(memory)[:size])
                memory[:size] = bytes(size)
            sent.extend(part)

    def last_turn() -> None:
        turn(*turns[-1])
        end()

    for taken, writes in turns[:-1]:
        wired.loop.run(turn, taken, writes)
    wired.loop.run(last_turn)
    return bytes(sent)


@pytest.mark.parametrize("transports", [KernelTransport, FakeTransport])
@settings(deadline=None)
@given(turns=TURNS, end=st.sampled_from(["write_eof", "close"]))
def test_each_byte_arrives_once_in_order_and_before_the_end(
    transports: type[FakeTransport], turns: list[tuple[int, list[tuple[str, int]]]], end: str
) -> None:
    wired = Wired(transports)
    wired.transport.peer_reads = False
    sent = written_in_turns(wired, turns, wired.peer.write_eof if end == "write_eof" else partial(wired.peer.close, 1))
    assert wired.transport.written == sent[: len(wired.transport.written)]
    wired.loop.run(wired.transport.take_all)
    assert wired.transport.written == sent
    assert wired.transport.is_eof_sent if end == "write_eof" else wired.transport.is_lost
    events = [event for event in wired.owner.told if event[0] == "writable"]
    assert events == [("writable", False), ("writable", True)] * (len(events) // 2)
    wired.close()


def test_of_what_is_sent_byte_by_byte_and_not_taken_only_so_many_pieces_wait(slow: Wired) -> None:
    """Each takes much more of the transport's memory than the byte that is in it."""
    write = slow.peer.writer.write
    write(bytes(WRITE_BUFFER_HIGH // 2))
    slow.loop.run(slow.transport.take, WRITE_BUFFER_HIGH // 4)
    for _ in range(MOST_PIECES - 2):
        write(b"x")
    assert ("writable", False) not in slow.owner.told
    write(b"x")
    assert slow.owner.told[-1] == ("writable", False)
    waiting = slow.transport.get_write_buffer_size()
    slow.loop.run(slow.transport.take, waiting - 1)
    assert slow.owner.told[-1] == ("writable", False), "the pieces are the last to go"
    slow.loop.run(slow.transport.take_all)
    assert slow.owner.told[-1] == ("writable", True)
    write(bytes(WRITE_BUFFER_HIGH))
    assert slow.owner.told[-1] == ("writable", True), "the bound is that of bytes again"


def test_pieces_that_are_taken_stop_nobody(slow: Wired) -> None:
    slow.transport.peer_reads = True
    for _ in range(3 * MOST_PIECES):
        slow.peer.writer.write(b"x")
        slow.loop.run(slow.transport.take_all)
    slow.transport.peer_reads = False
    slow.peer.writer.write(bytes(WRITE_BUFFER_HIGH // 2))
    assert slow.owner.told == [("opened",)]
