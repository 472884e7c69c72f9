"""How a leg's bytes come and go: read in place, and taken by the kernel at once where it has room."""

import os
from collections.abc import Iterator

import pytest

from proxy.sessions.leg import FULL_READS
from proxy.sessions.read_buffer import LEAST_READ, MOST_READ, STEPS
from proxy.sessions.throttle import Cause
from tests.proxy.relay_rig import RelayRig
from tests.proxy.wire import send
from tests.proxy.wired_leg import Wired


class Offers:
    """Feeds a leg as uvloop does, with as much of a stream of SENDs as it offers room for."""

    def __init__(self, wired: Wired, rig: RelayRig) -> None:
        wired.leg.relay = rig.relay
        self._wired = wired
        self._frame = send(0, size=1000)
        self._waits = b""

    def read(self, most: int = MOST_READ) -> int:
        """One read, of at most so many bytes; how many it was."""
        buffer = self._wired.leg.get_buffer(-1)
        size = min(most, len(buffer))
        while len(self._waits) < size:
            self._waits += self._frame * 100
        buffer[:size], self._waits = self._waits[:size], self._waits[size:]
        self._wired.loop.run(self._wired.leg.buffer_updated, size)
        return size


def test_reads_grow_while_there_is_more_and_all_of_it_passes(wired: Wired) -> None:
    offers = Offers(wired, RelayRig([1_000_000]))
    assert [offers.read() for _ in range(STEPS + 2)] == [LEAST_READ << min(step, STEPS) for step in range(STEPS + 2)]
    assert offers.read(100) == 100
    assert offers.read() == MOST_READ, "few bytes are no reason to read less"


def test_reads_are_small_again_where_something_is_held_or_there_is_no_relay(wired: Wired) -> None:
    offers = Offers(wired, RelayRig([20_000]))  # a burst of 2,000, in frames of a thousand bytes
    assert [offers.read() // LEAST_READ for _ in range(5)] == [1, 2, 4, 4, 1]
    wired.leg.relay = None
    assert [offers.read() for _ in range(2)] == [LEAST_READ, LEAST_READ]


def test_one_that_sends_faster_than_all_is_not_read_alone(wired: Wired) -> None:
    offers = Offers(wired, RelayRig([10_000_000]))
    for _ in range(STEPS + FULL_READS - 1):
        offers.read()
    assert (Cause.TURN, True) not in wired.owner.told
    offers.read()
    assert wired.owner.told[-3:] == [(Cause.TURN, True), (Cause.TURN, False), ("read on",)]
    assert wired.transport.is_reading()


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
    wired.leg.write(memoryview(b"abc"))
    assert os.read(kernel, 10) == b"abc"
    assert calls == []


def test_what_the_kernel_does_not_take_goes_through_the_transport_and_so_does_all_behind_it(
    wired: Wired, kernel: int
) -> None:
    wired.transport.peer_reads = False
    data = bytearray(range(256)) * 400
    wired.leg.write(memoryview(data))
    data[:] = bytes(len(data))
    wired.leg.write(memoryview(b"behind"))
    at_once = os.read(kernel, len(data))
    assert 0 < len(at_once) < len(data)
    wired.leg.write(b"far behind, though there is room now")
    wired.loop.run(wired.transport.take_all)
    sent = at_once + wired.transport.written
    assert sent == bytes(range(256)) * 400 + b"behind" + b"far behind, though there is room now"


def test_what_was_gathered_goes_in_one_call_too_and_the_rest_of_it_behind(wired: Wired, kernel: int) -> None:
    parts = [bytes([number]) * 30_000 for number in range(4)]

    def turn() -> None:
        for part in parts:
            wired.leg.write_soon(part)

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
        wired.leg.write(b"too late")

    wired.loop.run(ending)
    with pytest.raises(BlockingIOError):
        os.read(kernel, 10)


def test_a_broken_connection_is_the_transports_to_find(wired: Wired, calls: list[bytes]) -> None:
    out, into = os.pipe()
    wired.transport.descriptor = into
    wired.loop.run(wired.transport.connect, wired.leg)
    os.close(out)
    wired.leg.write(b"lost")
    os.close(into)
    assert calls == [b"lost"]
