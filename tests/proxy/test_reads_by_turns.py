"""However much peers send at once, a turn of the loop looks at few reads, and each peer has turns."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from protocol.commands import SIZES, encode, encode_with_payload
from protocol.pulsar_pb2 import BaseCommand, CommandAck, CommandMessage, MessageIdData
from proxy.session.transport import LEAST_READ
from proxy.timers import LARGE_READ, TURN_NS, SlowReads
from tests.manual_clock import ManualClock
from tests.proxy.conversation import Peer, World, consumer, publisher
from tests.proxy.manual_loop import ManualLoop
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
    "large entries": ("client", send(1, size=60_000)),  # slow by the clock alone
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
    world.engine.slices.slow_reads._clock = lambda: next(ticks)


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
        self.senders = [sender for sender, _ in ends]
        self._to = [taker for _, taker in ends]
        self._passed = [passed_to(taker) for taker in self._to]
        self.begun = list(self._passed)

    def send(self, *also: Callable[[], None]) -> None:
        """Each sends all at once, and others do what they do behind them, in the same turn.

        The loop reads each connection that may be read once in a turn.
        """
        left = [self.sent for _ in self.senders]

        def read() -> None:
            for number, sender in enumerate(self.senders):
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


def offered_in_turns(world: World, pairs: Sequence[tuple[Peer, Peer]], sent: bytes) -> list[int]:
    """Have each client send the same in one turn; return the entries that each turn offered to limits."""
    offered = [0]
    tick(world)

    def turned() -> None:
        offered.append(sum(stream.usage.offered_entries for stream in world.engine.registry.live()))

    def come() -> None:
        for client, _ in pairs:
            client.transport.receive(sent)

    world.loop.turned = turned
    world.loop.run(come)
    return [now - before for before, now in itertools.pairwise(offered)]


def test_entries_that_are_cut_are_few_in_a_turn(make_world: Make) -> None:
    """All producers are at their limit: each entry is held by itself."""
    world = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": 1}}}})
    pairs = [publisher(world) for _ in range(PEERS)]
    turns = offered_in_turns(world, pairs, b"".join(sends(1000)))
    assert sum(turns) == 1000 * PEERS
    assert max(turns) <= 2000


@pytest.mark.parametrize("mode", ["enforce", "reject"])
def test_few_short_reads_are_cut_in_a_turn(make_world: Make, mode: str) -> None:
    """Each is too short to be kept by its transport; all producers are at a limit that holds, or refuses, the rest."""
    world = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": 1, "mode": mode}}}})
    pairs = [publisher(world) for _ in range(4 * PEERS)]
    number = (LARGE_READ - 1) // len(send(1000))
    turns = offered_in_turns(world, pairs, b"".join(sends(number)))
    assert sum(turns) == number * len(pairs), "what waits is offered in its turn"
    assert max(turns) <= MOST * number + len(pairs)


def test_what_is_kept_of_reads_is_bounded(make_world: Make) -> None:
    """Beyond the bound a read is taken at once; what connections keep that end counts no more."""
    world = make_world()
    crowd, slow_reads = Crowd(world, *FRAMES["acknowledgements"]), world.engine.slices.slow_reads
    slow_reads._most_kept = 3 * LEAST_READ
    most = [0]

    def turned() -> None:
        most.append(slow_reads.kept)

    def come() -> None:
        for sender in crowd.senders:
            sender.transport.receive(crowd.sent[:LEAST_READ])
        most.append(slow_reads.kept)
        for sender in crowd.senders[::2]:
            sender.transport.break_off(ConnectionResetError("by peer"))

    world.loop.turned = turned
    world.loop.run(come)
    assert max(most) == 3 * LEAST_READ
    assert slow_reads.kept == 0


def test_read_of_an_ending_connection_does_not_wait(make_world: Make) -> None:
    """Its reading cannot be paused, so nothing would take up again what was kept."""
    world = make_world()
    tick(world)
    client, broker = publisher(world)
    slow_reads = world.engine.slices.slow_reads
    slow_reads.is_over = True
    transport: Any = client.transport._protocol
    client.transport._is_ending = True
    world.loop.run(transport.take, b"".join(sends(100, size=100)), 100 * len(send(0, size=100)))
    client.transport._is_ending = False
    assert slow_reads.kept == 0
    assert passed_to(broker) >= 100 * len(send(0, size=100))


def test_time_of_slow_reads_is_that_of_a_turn() -> None:
    clock, loop = ManualClock(), ManualLoop(ManualClock())
    slow_reads = SlowReads(clock)

    def read(took_ns: int, size: int) -> bool:
        began = slow_reads.begin()
        clock.now += took_ns
        return slow_reads.end(began, size)

    def turn() -> list[bool]:
        flags = [
            read(99_999, 100_000),
            read(TURN_NS - 1, 4096),
            slow_reads.is_over,
            read(4096, 4096),
            slow_reads.is_over,
        ]
        loop.call_soon(lambda: flags.extend([slow_reads.is_over, slow_reads.is_tight]))
        return flags

    flags = loop.run(turn)
    assert flags == [False, True, False, True, True, False, True]
    assert slow_reads.lately() == 0
    assert not slow_reads.is_tight
    loop.close()
