"""However fast both peers read, and whatever is cut, held and put between: all that either sent arrives, in order."""

import itertools
from collections.abc import Callable

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from proxy.timers import TURN_NS
from tests.examples import examples
from tests.proxy.conversation import Peer, World, consumer
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.kernel_transport import KernelTransport
from tests.proxy.wire import (
    PING,
    PONG,
    TOPIC,
    UNLIMITED_TOPIC,
    body,
    flow,
    message,
    name_of,
    producer,
    receipt,
    send,
)

LIMITED, UNLIMITED = 1, 2
Turn = tuple[int, list[int], float, int]

SIZES = st.one_of(st.integers(0, 50), st.sampled_from([50, 2000, 4000, 60_000]))
TURNS = st.lists(
    st.tuples(
        st.sampled_from([LIMITED, UNLIMITED, UNLIMITED]),
        st.lists(SIZES, max_size=12),
        st.floats(0, 1),
        st.sampled_from([0, 1, 3000, 10_000, 10**5]),
    ),
    min_size=6,
    max_size=25,
)
"""Whose frames are sent, of which sizes, how much of what waits to be sent is, and how much the other peer reads."""


class Way:
    """One direction: what one peer has to send, and what the other has got."""

    def __init__(self, sender: Peer, receiver: Peer) -> None:
        self.sender = sender
        self.receiver = receiver
        self.sent: list[bytes] = []
        self.came: list[bytes] = []
        self._waits = b""

    def turn(self, frames: list[bytes], share: float, most: int) -> Callable[[], None]:
        """Return what happens: the receiver takes so many bytes, and before the proxy hears of it, more come for it."""
        self.sent += [frame for frame in frames if frame != PING]
        self._waits += b"".join(frames)
        amount = round(len(self._waits) * share)
        chunk, self._waits = self._waits[:amount], self._waits[amount:]

        def act() -> None:
            self.receiver.transport.take(most)
            self.sender.transport.receive(chunk)

        return act

    def hear(self) -> None:
        """Signs of life come and go as they like."""
        self.came += [frame for frame in self.receiver.heard() if frame not in (PING, PONG)]


class Both:
    """A client that publishes and consumes, and its broker.

    Args:
        transports: Theirs.
        read_ns: What each large read takes: much is a turn of the loop, and the next one waits.
    """

    def __init__(self, transports: type[FakeTransport], read_ns: int) -> None:
        self.world = World(transports=transports, limits={"topics": {TOPIC: {"publish": {"messages": 5}}}})
        client, broker = consumer(self.world, producer(LIMITED), producer(UNLIMITED, UNLIMITED_TOPIC), flow(1000))
        times = itertools.count(0, read_ns)
        self.world.engine.slices.slow_reads._clock = lambda: next(times)
        self.there, self.back = Way(client, broker), Way(broker, client)
        for peer in (client, broker):
            peer.stop_reading()

    def turn(self, number: int, turn: Turn) -> None:
        producer_id, sizes, share, most = turn
        numbers = range(100 * number, 100 * number + len(sizes))
        sends = [send(each, producer_id, size=size) for each, size in zip(numbers, sizes, strict=True)]
        messages = [message(each, 7, size=size) for each, size in zip(numbers, sizes, strict=True)]
        self._run(
            self.there.turn(sends, share, most),
            self.back.turn([*messages, receipt(number, producer_id), PING], share, most),
        )
        self.world.advance(0.3)
        for way in (self.there, self.back):
            way.hear()

    def rest(self) -> None:
        self._run(*(way.turn([], 1, 0) for way in (self.there, self.back)))
        for way in (self.there, self.back):
            way.receiver.read_on()
        self.world.advance(1000)
        for way in (self.there, self.back):
            way.hear()

    def _run(self, *acts: Callable[[], None]) -> None:
        def run_all() -> None:
            for act in acts:
                act()

        self.world.loop.run(run_all)


# Without shrinking: of so many bytes it takes minutes.
@settings(deadline=None, max_examples=examples(20), phases=[Phase.generate])
@given(turns=TURNS, transports=st.sampled_from([KernelTransport, FakeTransport]), read_ns=st.sampled_from([0, TURN_NS]))
def test_all_arrives_once_and_in_order(turns: list[Turn], transports: type[FakeTransport], read_ns: int) -> None:
    both = Both(transports, read_ns)
    try:
        for number, turn in enumerate(turns):
            both.turn(number, turn)
        both.rest()
        for producer_id in (LIMITED, UNLIMITED):
            assert of(producer_id, both.there.came) == of(producer_id, both.there.sent)
        assert both.back.came == both.back.sent
        assert both.world.engine.slices.slow_reads.kept == 0
    finally:
        both.world.close()


def of(producer_id: int, frames: list[bytes]) -> list[bytes]:
    """The publishes of one producer."""
    return [frame for frame in frames if name_of(frame) == "SEND" and body(frame).producer_id == producer_id]
