"""What one leg sends: taken by the kernel at once where it has room, and in one call where much is sent in one turn."""

import os
from collections.abc import Iterator

import pytest

from proxy.sessions.sender import GATHER_MOST
from tests.proxy.wired_leg import Wired


@pytest.fixture
def kernel(wired: Wired) -> Iterator[int]:
    """What the leg sends at once can be read here; there is room for 64 KiB."""
    out, into = os.pipe2(os.O_NONBLOCK)
    wired.transport.descriptor = into
    wired.loop.run(wired.transport.connect, wired.leg)
    yield out
    os.close(out)
    os.close(into)


def test_what_the_kernel_takes_at_once_does_not_wait_for_the_transport(
    wired: Wired, kernel: int, calls: list[bytes]
) -> None:
    wired.leg.sender.write(memoryview(b"abc"))
    assert os.read(kernel, 10) == b"abc"
    assert calls == []


def test_what_the_kernel_does_not_take_goes_through_the_transport_and_so_does_all_behind_it(
    wired: Wired, kernel: int
) -> None:
    wired.transport.peer_reads = False
    data = bytearray(range(256)) * 400
    wired.leg.sender.write(memoryview(data))
    data[:] = bytes(len(data))
    wired.leg.sender.write(memoryview(b"behind"))
    at_once = os.read(kernel, len(data))
    assert 0 < len(at_once) < len(data)
    wired.leg.sender.write(b"far behind, though there is room now")
    wired.loop.run(wired.transport.take_all)
    sent = at_once + wired.transport.written
    assert sent == bytes(range(256)) * 400 + b"behind" + b"far behind, though there is room now"


def test_what_was_gathered_goes_in_one_call_too_and_the_rest_of_it_behind(wired: Wired, kernel: int) -> None:
    parts = [bytes([number]) * 30_000 for number in range(4)]

    def turn() -> None:
        for part in parts:
            wired.leg.sender.write_soon(part)

    wired.loop.run(turn)
    at_once = os.read(kernel, 120_000)
    assert 30_000 < len(at_once) < 120_000
    assert at_once + wired.transport.written == b"".join(parts)


@pytest.mark.parametrize("end", ["write_eof", "close", "break"])
def test_nothing_goes_to_a_descriptor_that_may_be_somebody_elses_by_now(wired: Wired, kernel: int, end: str) -> None:
    def ending() -> None:
        if end == "write_eof":
            wired.leg.write_eof()
        elif end == "close":
            wired.leg.close(1)
        else:
            wired.transport.break_off(None)
        wired.leg.sender.write(b"too late")

    wired.loop.run(ending)
    with pytest.raises(BlockingIOError):
        os.read(kernel, 10)


def test_a_broken_connection_is_the_transports_to_find(wired: Wired, calls: list[bytes]) -> None:
    out, into = os.pipe()
    wired.transport.descriptor = into
    wired.loop.run(wired.transport.connect, wired.leg)
    os.close(out)
    wired.leg.sender.write(b"lost")
    os.close(into)
    assert calls == [b"lost"]


def test_what_is_written_soon_goes_in_one_call_in_order_when_the_turn_ends(wired: Wired, calls: list[bytes]) -> None:
    def turn() -> None:
        for part in (b"a", b"b", b"c"):
            wired.leg.sender.write_soon(part)
        assert calls == []

    wired.loop.run(turn)
    assert calls == [b"abc"]
    wired.loop.run(wired.leg.sender.write_soon, b"d")
    assert calls == [b"abc", b"d"]


def test_what_is_written_at_once_takes_with_it_what_was_to_go_soon(wired: Wired, calls: list[bytes]) -> None:
    def turn() -> None:
        wired.leg.sender.write_soon(b"a")
        wired.leg.sender.write(b"b")
        assert calls == [b"ab"]
        wired.leg.sender.write(b"c")

    wired.loop.run(turn)
    assert calls == [b"ab", b"c"]


def test_much_does_not_wait_so_the_peer_that_does_not_take_it_is_known_within_the_turn(
    wired: Wired, calls: list[bytes]
) -> None:
    def turn() -> None:
        wired.leg.sender.write_soon(bytes(GATHER_MOST - 1))
        assert not calls
        wired.leg.sender.write_soon(b"x")
        assert len(calls[0]) == GATHER_MOST
        wired.leg.sender.write_soon(b"y")

    wired.loop.run(turn)
    assert calls[1:] == [b"y"]


@pytest.mark.parametrize("end", ["write_eof", "close"])
def test_what_was_to_go_soon_goes_before_the_end(wired: Wired, end: str) -> None:
    def turn() -> None:
        wired.leg.sender.write_soon(b"last")
        wired.leg.write_eof() if end == "write_eof" else wired.leg.close(1)
        assert wired.transport.written == b"last"

    wired.loop.run(turn)


def test_a_leg_that_is_gone_swallows_what_was_to_go_soon(wired: Wired) -> None:
    def turn() -> None:
        wired.leg.sender.write_soon(b"late")
        wired.transport.break_off(None)

    wired.loop.run(turn)
    assert wired.transport.written == b""
