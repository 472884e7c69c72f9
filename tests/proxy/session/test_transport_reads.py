"""How much is read of a peer at a time."""

import pytest

from proxy.session.transport import FULL_READS, LEAST_READ, MOST_READ, STEPS, PauseReason
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
