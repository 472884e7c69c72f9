"""How much is read of a peer at a time."""

import pytest

from proxy.read_scheduler import SHORT_READ
from proxy.session.transport import FULL_READS, LEAST_READ, MOST_READ, STEPS, PauseReason, Receiver
from tests.manual_clock import ManualClock
from tests.proxy.relay_rig import RelayRig
from tests.proxy.wire import send
from tests.proxy.wired_peer import Wired


def test_what_may_be_read_in_a_row_is_as_docs_operating_says() -> None:
    assert (FULL_READS * MOST_READ, FULL_READS * LEAST_READ) == (8 * 1024**2, 2 * 1024**2)


class Offers:
    """Feeds a transport as uvloop does, with as much of a stream of SENDs as it offers room for."""

    def __init__(self, wired: Wired, rig: RelayRig) -> None:
        wired.peer.receiver = rig.relay
        self._wired = wired
        self._frame = send(0, size=1000)
        self._waits = b""

    def read(self, most: int = MOST_READ) -> int:
        """One read, of at most so many bytes; how many it was."""
        buffer = self._wired.peer.get_buffer(-1)
        size = min(most, len(buffer))
        while len(self._waits) < size:
            self._waits += self._frame * 100
        buffer[:size], self._waits = self._waits[:size], self._waits[size:]
        self._wired.loop.run(self._wired.peer.buffer_updated, size)
        return size


def test_reads_grow_while_there_is_more_and_all_of_it_passes(wired: Wired) -> None:
    offers = Offers(wired, RelayRig([1_000_000]))
    assert [offers.read() for _ in range(STEPS + 2)] == [LEAST_READ << min(step, STEPS) for step in range(STEPS + 2)]
    assert offers.read(100) == 100
    assert offers.read() == MOST_READ, "few bytes are no reason to read less"


def test_reads_are_small_again_where_something_is_held_or_there_is_no_relay(wired: Wired) -> None:
    offers = Offers(wired, RelayRig([20_000]))  # a burst of 2,000, in frames of a thousand bytes
    assert [offers.read() // LEAST_READ for _ in range(5)] == [1, 2, 4, 4, 1]
    wired.peer.receiver = None
    assert [offers.read() for _ in range(2)] == [LEAST_READ, LEAST_READ]


def test_reads_are_small_again_where_the_end_of_what_was_there_is_held(wired: Wired) -> None:
    offers = Offers(wired, RelayRig([20_000]))
    assert [offers.read() // LEAST_READ for _ in range(3)] == [1, 2, 4]
    assert offers.read(4 * LEAST_READ - 1) == 4 * LEAST_READ - 1
    assert offers.read() == LEAST_READ


@pytest.mark.parametrize(("rate", "growing"), [(10_000_000, STEPS), (1, 0)], ids=["passes", "held"])
def test_one_that_sends_faster_than_all_is_not_read_alone(wired: Wired, rate: int, growing: int) -> None:
    offers = Offers(wired, RelayRig([rate]))
    for _ in range(growing + FULL_READS - 1):
        offers.read()
    assert (PauseReason.TURN, True) not in wired.owner.told
    offers.read()
    assert wired.owner.told[-3:] == [(PauseReason.TURN, True), (PauseReason.TURN, False), ("read on",)]
    assert wired.transport.is_reading()


class Slow(Receiver):
    """Takes 100 µs for each 8 KiB, and passes all on: frames of a few bytes each."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.passes = True
        self.sizes: list[int] = []
        self._clock = clock

    def feed(self, _data: bytes, size: int) -> None:
        self.sizes.append(size)
        self._clock.now += size // 8192 * 100_000


def read_as_uvloop(wired: Wired, size: int) -> None:
    """Read what is there, until the reading stops."""
    while size and wired.transport.is_reading():
        most = min(size, len(wired.peer.get_buffer(-1)))
        wired.peer.buffer_updated(most)
        size -= most


def test_slow_reads_of_many_connections_share_a_turn(wired: Wired) -> None:
    """Of thirty with 250 KiB each two are read; of each further one 32 KiB in this turn of the loop."""
    all_wired = [wired, *(Wired(beside=wired) for _ in range(29))]
    slow = [Slow(wired.clock) for _ in all_wired]
    for each, receiver in zip(all_wired, slow, strict=True):
        each.peer.receiver = receiver

    def turn() -> None:
        for each in all_wired:
            read_as_uvloop(each, 250 * 1024)

    wired.loop.run(turn)
    assert [receiver.sizes for receiver in slow] == [*[[250 * 1024]] * 2, *[[SHORT_READ]] * 28]
    assert all(each.transport.is_reading() for each in all_wired), "each has had its turn"
    wired.loop.run(read_as_uvloop, all_wired[-1], 250 * 1024)
    assert slow[-1].sizes[1:] == [250 * 1024], "the next turn has time of its own"
    for each in all_wired[1:]:
        wired.loop.run(each.transport.break_off, None)


def test_short_reads_fill_no_turn(wired: Wired) -> None:
    slow = wired.peer.receiver = Slow(wired.clock)

    def turn() -> None:
        for _ in range(40):
            read_as_uvloop(wired, SHORT_READ - 1)

    wired.loop.run(turn)
    assert slow.sizes == [SHORT_READ - 1] * 40
    assert (PauseReason.TURN, True) not in wired.owner.told
