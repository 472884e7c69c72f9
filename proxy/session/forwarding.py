"""Forwarding between a client and its broker after their greetings: what one connection needs to meter entries.

            ┌─ ClientCommands ─▶ Streams, SessionLookups, SessionBlocks ◀─ BrokerCommands ─┐
            │ commands                                                            commands │
 client ══▶ to_broker (DataPath) ══▶ broker                  client ◀══ to_client (DataPath) ◀══ broker

The session (`proxy/session/session.py`) has the states of the connection, and makes a `Forwarding` for the first byte
that is more than a greeting or a sign of life.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from protocol.commands import PING, PONG
from protocol.flow import FLOW
from protocol.frames import MESSAGE, SEND
from protocol.pulsar_pb2 import BaseCommand
from proxy.budgets import Budget, Claim, Share
from proxy.observe.connection import Connection
from proxy.runtime import Tasks
from proxy.session.blocking import SessionBlocks
from proxy.session.commands import TRANSACTION_ANSWERS, TRANSACTION_REQUESTS, BrokerCommands, ClientCommands
from proxy.session.data_path import CommandHandler, DataPath, FrameWriter, HeldMemory, PendingPublishes
from proxy.session.engine import Engine
from proxy.session.identity import SessionIdentity
from proxy.session.keep_alive import KeepAlive, PeerProbe
from proxy.session.leaving import Leaving
from proxy.session.lookups import SessionLookups
from proxy.session.responses import Rejections, Requests, error_for
from proxy.session.session_admission import SessionAdmission
from proxy.session.streams import Streams
from proxy.session.transport import PauseReason, PeerTransport
from proxy.slices import Work

SIGNS_OF_LIFE = frozenset({PING, PONG})
_ENDINGS: Final = Work.ENDINGS
_ABOUT_CONSUMERS = frozenset(
    {BaseCommand.CONSUMER_STATS, BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.SEEK, BaseCommand.UNSUBSCRIBE}
)
"""Questions and requests about a consumer, which a broker that has closed it answers with an error."""


class Forwarding:
    """Forwards between a client and its broker after their greetings: two data paths, and the handling of commands.

    Args:
        engine: The objects that all sessions share.
        connection: The client's connection, for logs and limits.
        client, broker: The transports.
        admission: The session's admission of lookups and streams.
        memory: Counts the memory kept for the client.
        max_frame: Most bytes of a frame, as far as the broker has said.
        greeting: Returns the CONNECT for a broker to which a redirect leads.
        header: The PROXY protocol header for such a broker; empty for none.
        identity: The client's identity; None where brokers verify it.
        on_greeted: Called with the most bytes of a frame that the broker's CONNECTED allows.
        on_lost: Called with a peer that is gone without an end, and the trouble.

    Attributes:
        to_broker, to_client: The data paths.
        blocks: Applies rules to the session's streams.
        keep_alive: Switched on while one of the two peers is not read.
    """

    __slots__ = (
        "_broker",
        "_client",
        "_clock",
        "_config",
        "_counters",
        "_from_broker",
        "_from_client",
        "_heap",
        "_is_half_closed",
        "_is_to_look",
        "_leaving",
        "_lost",
        "_probes",
        "_publishes",
        "_requests",
        "_slices",
        "_slots",
        "_streams",
        "_tasks",
        "blocks",
        "keep_alive",
        "to_broker",
        "to_client",
    )

    def __init__(  # noqa: PLR0913 - what its Args say
        self,
        *,
        engine: Engine,
        connection: Connection,
        client: PeerTransport,
        broker: PeerTransport,
        admission: SessionAdmission,
        memory: Claim,
        max_frame: int,
        greeting: Callable[[], bytes],
        header: bytes,
        identity: SessionIdentity | None,
        on_greeted: Callable[[int], None],
        on_lost: Callable[[PeerTransport, str], None],
    ) -> None:
        counters = engine.counters
        self._client, self._broker = client, broker
        self._counters, self._config = counters, engine.config
        self._heap = engine.shared.heap
        self._tasks = Tasks()
        self._is_half_closed = False
        self._leaving: Leaving | None = None
        self._is_to_look = False
        self._slices, self._clock = engine.slices, engine.clock
        self._slots = engine.lookup_slots_of(connection)
        self._requests = Requests(memory, counters)
        self._publishes = publishes = _pending_publishes(engine, client)
        self.keep_alive = KeepAlive(
            engine.config.keep_alive, self._send_pongs, self._look_for_client, self._holds_any, self._look_for_peers
        )
        self._lost = on_lost

        def oversized(messages: int) -> None:
            engine.oversized_batches.met(messages, connection.client_address)

        to_broker, to_client = FrameWriter(broker.writer), FrameWriter(client.writer, client)
        reply = to_client.reply
        held = _held_memory(engine, broker, memory)
        self.to_client = _data_path(
            engine, broker, to_client, held, max_frame, publishes, self._on_broker_command, oversized=oversized
        )
        held = _held_memory(engine, client, memory)
        rejections = Rejections(
            reply,
            self.to_client.scanner.hear_receipts,
            error_for(connection.client_version),
            client.throttled_for(PauseReason.REFUSALS),
            held.keep_answers,
            partial(engine.slices.run, Work.RELEASES),
        )
        self.to_broker = _data_path(
            engine, client, to_broker, held, max_frame, publishes, self._on_client_command, rejections=rejections
        )
        self._probes: tuple[tuple[PeerTransport, PeerProbe], ...] = ()
        """Made when a pause lasts: most sessions have none."""
        self._streams = streams = Streams(
            engine, connection, admission, self.to_broker, self.to_client, self._requests, memory, reply
        )
        self.blocks = SessionBlocks(engine.blocklist, streams, reply)
        lookups = SessionLookups(
            engine,
            slots=self._slots,
            memory=memory,
            requests=self._requests,
            tasks=self._tasks,
            reply=reply,
            admission=admission,
            greeting=greeting,
            is_tls=connection.is_tls,
            header=header,
        )
        self._from_client = ClientCommands(streams, self._requests, self.blocks, lookups, reply, counters, identity)
        self._from_broker = BrokerCommands(streams, self._requests, client, to_broker, on_greeted, counters, identity)

    def stop(self) -> Iterator[None]:
        """End all tasks, and handle no more: the session ends. Each step of the returned iterator ends some streams."""
        self.keep_alive.stop()
        self._tasks.cancel()
        self._slots.end()
        self._leaving = None
        if self.to_broker.rejections is not None:
            self.to_broker.rejections.stop()
        self.to_broker.stop()
        self.to_client.stop()
        return self._streams.ending()

    def stream_count(self) -> int:
        """Return the number of producers and consumers."""
        return self._streams.count()

    def leave(self, go: Callable[[], None], *, is_late: bool) -> None:
        """Begin or continue to take the client out of a process that drains; `go` ends its connection."""
        if self._leaving is None:

            def dismiss(closes: bytes) -> None:
                if closes:
                    self.to_client.writer.insert(closes)
                go()

            self._leaving = Leaving(self._streams, partial(self._slices.run, _ENDINGS), self._clock, dismiss)
        self._leaving.look(is_late=is_late)

    def half_close(self, finish: Callable[[], None]) -> None:
        """Drop held entries and half-close the broker's connection: the client sends no more, but may still read.

        The broker may answer for `linger` seconds; then `finish` is called.
        """
        if not self._is_half_closed:
            self._is_half_closed = True
            self._tasks.start(self._linger(finish), "linger")
        self._streams.close_all(self._broker.write_eof)

    async def _linger(self, finish: Callable[[], None]) -> None:
        await asyncio.sleep(self._config.linger)
        finish()

    def let_go(self) -> None:
        """Drop the references between the parts, so that no reference cycle remains: both connections are gone."""
        self.keep_alive.let_go()
        self._lost, self._probes, self._leaving = _not_lost, (), None
        self._requests.let_go()
        self.to_broker.let_go()
        self.to_client.let_go()

    def writable(self, is_writable: bool, *, to_client: bool) -> None:  # noqa: FBT001 - the new state
        """Record that a peer's write buffer is full, or has room again."""
        if is_writable:
            self._heap.freed()
        (self.to_client if to_client else self.to_broker).writable(is_writable)

    # ---- commands

    def _on_client_command(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """Handle a client's command; a FLOW goes to the data path of messages, as it comes as often as they do."""
        if kind == FLOW:
            return self.to_client.ask(command, frame)
        if self._leaving is not None and self._is_too_late(kind, self._leaving):
            return None
        return self._from_client.handle(kind, command, frame)

    def _is_too_late(self, kind: int, leaving: Leaving) -> bool:
        if kind in TRANSACTION_REQUESTS:
            return not leaving.asks_coordinator()
        return kind in _ABOUT_CONSUMERS and leaving.has_no_consumers

    def _on_broker_command(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        if self._publishes is not None:
            self._publishes.hear(kind, command)
        if self._leaving is not None and self._leaving.has_no_consumers:  # the answer goes to the client first
            if kind in TRANSACTION_ANSWERS:
                self._leaving.answered()
            if not self._is_to_look:
                self._is_to_look = True
                asyncio.get_running_loop().call_soon(self._look_on)
        return self._from_broker.handle(kind, command, frame)

    def _look_on(self) -> None:
        self._is_to_look = False
        if self._leaving is not None:
            self._leaving.look_on()

    # ---- signs of life

    def _send_pongs(self) -> None:
        self._counters.keep_alives += 1
        for path in (self.to_client, self.to_broker):
            if not path.writer.waiting:
                path.writer.insert(PONG)

    def _look_for_client(self) -> None:
        """Close the streams of a client that has left and is not read: its held entries are not awaited.

        The end of a client that is read is read, after all else.
        """
        if self._client.is_stopped() and self._client.has_left():
            self._streams.close_all()

    def _look_for_peers(self) -> None:
        """End the session if a peer is gone: the other peer cannot find out, as it gets PONGs from here."""
        if not self._probes:
            self._probes = (
                (self._client, self._probe(self._client, self.to_client.writer, may_not_read=True)),
                (self._broker, self._probe(self._broker, self.to_broker.writer, may_not_read=False)),
            )
        now = asyncio.get_running_loop().time()
        for peer, probe in self._probes:
            problem = probe.look(now)
            if problem:
                self._lost(peer, problem)
                return

    def _probe(self, peer: PeerTransport, writer: FrameWriter, *, may_not_read: bool) -> PeerProbe:
        return PeerProbe(self._config.keep_alive, peer.vitals, partial(_ping, writer), may_not_read=may_not_read)

    def _holds_any(self) -> bool:
        return self.to_broker.holds_any() or self.to_client.holds_any()


def _ping(writer: FrameWriter) -> bool:
    """Send a PING, unless frames wait for the end of another one; return whether it was sent."""
    if writer.mid_frame:
        return False
    writer.insert(PING)
    return True


def _not_lost(_peer: PeerTransport, _problem: str) -> None:
    pass


def _pending_publishes(engine: Engine, client: PeerTransport) -> PendingPublishes | None:
    most = engine.config.publish.max_pending
    return PendingPublishes(most, client.throttled_for(PauseReason.PENDING_PUBLISHES)) if most > 0 else None


def _data_path(  # noqa: PLR0913 - what differs between the two paths
    engine: Engine,
    source: PeerTransport,
    writer: FrameWriter,
    held: HeldMemory,
    max_frame: int,
    publishes: PendingPublishes | None,
    handle: CommandHandler,
    *,
    rejections: Rejections | None = None,
    oversized: Callable[[int], None] | None = None,
) -> DataPath:
    """Return the data path of the frames that are read from `source`; its Args are those of `DataPath`."""
    return DataPath(
        SEND if source.side == "client" else MESSAGE,
        max_frame,
        source,
        writer,
        held,
        engine.scheduler,
        handle,
        engine.counters,
        engine.clock,
        rejections=rejections,
        publishes=publishes,
        most_messages=engine.config.publish.max_batch_messages,
        oversized=oversized,
        slices=engine.slices,
    )


def _held_memory(engine: Engine, source: PeerTransport, memory: Claim) -> HeldMemory:
    """Return the budgets for entries that are read from `source` and held.

    For producers, in mode `pause`, one entry fills the connection's budget: PIP-322's way.
    """
    publish = engine.config.publish
    if source.side == "client" and publish.mode == "pause":
        own = Budget(1, source.throttled_for(PauseReason.PUBLISH_RATE))
    else:
        own = Budget(publish.hold_connection, source.throttled_for(PauseReason.HOLD_CONNECTION))
    return HeldMemory(own, Share(engine.held, source.throttled_for(PauseReason.HOLD_PROCESS)), memory)
