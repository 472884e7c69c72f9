"""However much peers send at once, a turn of the loop looks at few reads, and each peer has turns."""

import itertools
from collections.abc import Callable

import pytest

from protocol.commands import SIZES, encode, encode_with_payload
from protocol.pulsar_pb2 import BaseCommand, CommandAck, CommandMessage, MessageIdData
from proxy.session.transport import LEAST_READ
from proxy.timers import TURN_NS
from tests.proxy.conversation import Peer, World, consumer, publisher
from tests.proxy.wire import flow, message, receipt, send, sends, varint

Make = Callable[..., World]
PEERS = 12
"""Connections of one address that is not crowded."""
READS = 3
"""Full reads that each of them sends at once."""
READ_NS = 500_000
"""What each read takes."""
MOST = TURN_NS // READ_NS + 2
"""Full reads that one turn may look at: the last one, and that of the connection whose turn has come, are beyond."""
SMALL_FIELDS = (varint(90 << 3) + b"\0") * 20_000


def ack() -> bytes:
    return encode(CommandAck(consumer_id=7, ack_type=CommandAck.Individual))


def long_ack() -> bytes:
    """Return an acknowledgement of 60 KB of unknown fields."""
    body = CommandAck(consumer_id=7, ack_type=CommandAck.Individual).SerializeToString() + SMALL_FIELDS
    command = BaseCommand(type="ACK").SerializeToString() + varint(10 << 3 | 2) + varint(len(body)) + body
    return SIZES.pack(len(command) + 4, len(command)) + command


def long_metadata() -> bytes:
    """Return a MESSAGE with 60 KB of unknown fields in its metadata, as its publisher wrote it."""
    command = CommandMessage(consumer_id=7, message_id=MessageIdData(ledger_id=1, entry_id=1))
    return encode_with_payload(command, len(SMALL_FIELDS).to_bytes(4, "big") + SMALL_FIELDS)


def two_layouts() -> bytes:
    """Return two SENDs that no layout fits both of, so that each is looked at."""
    return send(1, size=0) + send(300, size=0, highest_sequence_id=300)


FRAMES: dict[str, tuple[str, bytes]] = {
    "acknowledgements": ("client", ack()),
    "long acknowledgements": ("client", long_ack()),
    "permits": ("client", flow(1)),
    "entries": ("client", two_layouts()),
    "large entries": ("client", send(1, size=60_000)),
    "receipts": ("broker", receipt(0)),
    "deliveries": ("broker", message(0, size=0)),
    "long metadata": ("broker", long_metadata()),
}
"""Who sends, and what: all of it passes as it comes."""


def passed_to(peer: Peer) -> int:
    """Return the bytes that were written to a peer, be they on their way."""
    return len(peer.transport.written) + len(peer.transport.on_its_way)


def tick(world: World) -> None:
    """Let each large read take READ_NS."""
    ticks = itertools.count(0, READ_NS)
    world.engine.slices.reads._clock = lambda: next(ticks)


class Crowd:
    """Connections of one address that send the same at once, and what of it each turn looked at.

    Args:
        world: The process.
        side: Who sends.
        frame: What each sends, again and again.

    Attributes:
        sent: The bytes that each sends.
        turns: Of each turn, the bytes of each connection that were passed on.
    """

    def __init__(self, world: World, side: str, frame: bytes) -> None:
        pairs = [
            (consumer if side == "broker" or frame[9] in {BaseCommand.ACK, BaseCommand.FLOW} else publisher)(world)
            for _ in range(PEERS)
        ]
        ends = [(client, broker) if side == "client" else (broker, client) for client, broker in pairs]
        self.sent = frame * (READS * LEAST_READ // len(frame) + 1)
        self.turns: list[list[int]] = []
        tick(world)
        self._world = world
        self._from = [sender for sender, _ in ends]
        self._to = [taker for _, taker in ends]
        self._passed = [passed_to(taker) for taker in self._to]
        self.begun = list(self._passed)

    def send(self, *also: Callable[[], None]) -> None:
        """Each sends all at once, and others do what they do behind them, in the same turn.

        The loop reads each connection that may be read once in a turn.
        """
        left = [self.sent for _ in self._from]

        def read() -> None:
            for number, sender in enumerate(self._from):
                transport = sender.transport
                if transport.is_reading() and not transport.unread:
                    transport.receive(left[number][:LEAST_READ])
                    left[number] = left[number][LEAST_READ:]
            if any(left):
                self._world.loop.call_soon(read)

        def come() -> None:
            read()
            for act in also:
                act()

        self._world.loop.turned = self._turned
        self._world.loop.run(come)

    def arrived(self) -> list[bytes]:
        """Return what came through from each."""
        return [bytes(taker.transport.written[begun:]) for taker, begun in zip(self._to, self.begun, strict=True)]

    def _turned(self) -> None:
        passed = [passed_to(taker) for taker in self._to]
        self.turns.append([now - before for now, before in zip(passed, self._passed, strict=True)])
        self._passed = passed


@pytest.mark.parametrize("name", FRAMES)
def test_a_turn_looks_at_few_reads_of_small_frames(make_world: Make, name: str) -> None:
    crowd = Crowd(make_world(), *FRAMES[name])
    crowd.send()
    assert max(sum(turn) for turn in crowd.turns) <= MOST * LEAST_READ
    assert all(data == crowd.sent for data in crowd.arrived()), "what waits comes through as it was sent"
    begins = max(next(number for number, turn in enumerate(crowd.turns) if turn[peer]) for peer in range(PEERS))
    done = [sum(turn[peer] for turn in crowd.turns[:begins]) for peer in range(PEERS)]
    assert max(done) < len(crowd.sent), "nobody is done before the last one has begun"


def test_a_neighbour_s_large_read_goes_before_most_of_a_crowd_s(make_world: Make) -> None:
    world = make_world()
    crowd = Crowd(world, *FRAMES["acknowledgements"])
    neighbour, broker = publisher(world, address="198.51.100.9")
    entries = b"".join(sends(20, size=3000))
    before = passed_to(broker)
    came: list[int] = []
    turned = crowd._turned

    def note() -> None:
        turned()
        came.append(passed_to(broker) - before)

    crowd._turned = note  # type: ignore[method-assign]
    crowd.send(lambda: neighbour.transport.receive(entries))
    assert came[3] == len(entries), "it waits for a turn or two, as that of the first is used up"


def test_entries_that_are_cut_are_few_in_a_turn(make_world: Make) -> None:
    """All producers are at their limit: each entry is held by itself."""
    world = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": 1}}}})
    pairs = [publisher(world) for _ in range(PEERS)]
    tick(world)
    offered = [0]

    def turned() -> None:
        offered.append(sum(stream.usage.offered_entries for stream in world.engine.registry.live()))

    def come() -> None:
        for client, _ in pairs:
            client.transport.receive(b"".join(sends(1000)))

    world.loop.turned = turned
    world.loop.run(come)
    assert offered[-1] == 1000 * PEERS
    assert max(now - before for before, now in itertools.pairwise(offered)) <= 2000
