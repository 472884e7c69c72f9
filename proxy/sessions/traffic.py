"""What goes between a client and its broker, behind their greetings: two relays, and all that follows their commands.

This file only connects: legs to relays, relays to outlets, commands to those who follow them, throttle counts to both.
"""

from typing import Protocol

from protocol.commands import encode
from protocol.kinds import MESSAGE, SEND
from protocol.pulsar_pb2 import CommandConnected, CommandPong
from proxy.budgets import Claim
from proxy.observe.connection import Connection
from proxy.runtime import Tasks
from proxy.sessions.admittance import Admittance
from proxy.sessions.blocks import SessionBlocks
from proxy.sessions.brakes import bound, holdings_of
from proxy.sessions.broker_commands import BrokerCommands
from proxy.sessions.client_commands import ClientCommands
from proxy.sessions.departing import Departing
from proxy.sessions.ends import End
from proxy.sessions.engine import Engine
from proxy.sessions.flows import Flows
from proxy.sessions.handshake import longest_frame
from proxy.sessions.keepalive import KeepAlive
from proxy.sessions.leg import Leg
from proxy.sessions.lookups import SessionLookups
from proxy.sessions.outlet import Outlet
from proxy.sessions.rejections import Rejections, error_for
from proxy.sessions.relay import Relay
from proxy.sessions.replies import Replies
from proxy.sessions.requests import Requests
from proxy.sessions.streams import Streams
from proxy.sessions.throttle import Cause

_PONG = encode(CommandPong())


def _nobody(_kind: int, _command: bytes, _frame: bytes) -> bytes | None:
    return None


class TrafficOwner(Protocol):
    """The session, whose traffic it is."""

    connection: Connection
    max_frame: int

    def greeted(self, max_frame: int) -> None:
        """The broker accepted the client, and takes frames of so many bytes; 0 if it does not say."""

    def finish(self, end: End) -> None:
        """The client has left, and nothing is left to be done."""


class Traffic:
    """Both directions of one session.

    Args:
        owner: The session.
        engine: What it shares with others.
        legs: The client's and the broker's.
        admittance: What the session asks whether it may.
        memory: Counts what is kept for the client.
        greeting: The client's CONNECT as it went to the broker; redirects are followed with it.

    Attributes:
        to_broker, to_client: The relays.
        replies: What the proxy itself says to the client.
        blocks: What is blocked of its streams.
        departing: Ends it in order when the client has left.
        keep_alive: On while one of the two is not read.
    """

    __slots__ = (
        "_client",
        "_counters",
        "_heap",
        "_owner",
        "_requests",
        "_slots",
        "_streams",
        "_tasks",
        "blocks",
        "departing",
        "keep_alive",
        "replies",
        "to_broker",
        "to_client",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        owner: TrafficOwner,
        engine: Engine,
        legs: tuple[Leg, Leg],
        admittance: Admittance,
        memory: Claim,
        greeting: bytes,
    ) -> None:
        self._owner = owner
        self._counters = engine.counters
        self._heap = engine.shared.heap
        self._client, broker = client, _ = legs
        self._tasks = tasks = Tasks()
        connection = owner.connection
        self.to_broker = Relay(SEND, owner.max_frame, Outlet(broker.sender), engine.gate, engine.clock)
        self.to_client = Relay(MESSAGE, owner.max_frame, Outlet(client.sender), engine.gate, engine.clock)
        relays = self.to_broker, self.to_client
        self.keep_alive = KeepAlive(self._send_pongs, self._look_for_client, self._holds_any)
        self._slots = slots = engine.lookup_slots_of(connection)
        self.replies = Replies(self.to_client.outlet, client)
        reply = self.replies.send
        self._requests = requests = Requests(memory, engine.counters)
        self._streams = Streams(engine, connection, admittance, relays, requests, memory, reply)
        self.departing = Departing(self._streams, broker, tasks, engine.config.linger, owner.finish)
        hear, error = self.to_client.scanner.hear_receipts, error_for(connection.client_version)
        turned, held = client.throttled_for(Cause.REFUSALS), [holdings_of(engine, leg, memory) for leg in legs]
        self.to_broker.exact.rejections = Rejections(reply, hear, error, turned, held[0].keep_answers)
        lookups = SessionLookups(engine, slots, memory, requests, tasks, self.replies, admittance, greeting)
        self.blocks = SessionBlocks(engine.blocklist, self._streams, reply)
        from_client = ClientCommands(self._streams, requests, self.blocks, lookups, reply, engine.counters)
        flows = Flows(self.to_client.streams, from_client.handle)
        from_broker = BrokerCommands(self._streams, requests, self, engine.counters)
        for leg, relay, handler, holdings in (
            (client, self.to_broker, flows.handle, held[0]),
            (broker, self.to_client, from_broker.handle, held[1]),
        ):
            relay.connect(handler, leg, holdings, engine.counters)
            relay.yield_turn = leg.yield_turn
        bound(engine, connection, client, relays)

    def limit_frames(self, most: int) -> None:
        """Frames of more bytes break the protocol, on both legs."""
        self.to_broker.scanner.heads.max_size = self.to_client.scanner.heads.max_size = most

    def stop(self) -> None:
        """The session ends: streams are over, and nothing more is handled."""
        self.keep_alive.stop()
        self._streams.close_all()
        self._tasks.cancel()
        self._slots.end()
        self.to_broker.stop()
        self.to_client.stop()

    def let_go(self) -> None:
        """Both connections are gone. Its parts do not know each other any more, so that no search has to find them."""
        del self.keep_alive
        self._requests.let_go()
        self.to_client.outlet.has_written = None
        for relay in (self.to_broker, self.to_client):
            relay.exact.handle = _nobody

    def writable(self, is_writable: bool, *, to_client: bool) -> None:  # noqa: FBT001 - the new state
        """One of the two takes no more of what is written, or does again."""
        if is_writable:
            self._heap.freed()
        if to_client:
            self.to_client.writable(is_writable)
            self.replies.writable(is_writable)
        else:
            self.to_broker.writable(is_writable)

    # ---- what the broker's commands ask for

    def connected(self, command: CommandConnected) -> None:
        """The handshake is over."""
        self._owner.greeted(longest_frame(command))

    def pinged(self) -> bool:
        """The broker's probe waits 5 s only: a client that is not read cannot answer it in time.

        One answer that waits behind an unfinished frame is enough, however many probes come meanwhile.
        """
        if not self._client.is_throttled():
            return False
        if not self.to_broker.outlet.waiting:
            self._counters.keep_alives += 1
            self.to_broker.outlet.insert(_PONG)
        return True

    # ---- signs of life

    def _send_pongs(self) -> None:
        self._counters.keep_alives += 1
        for relay in (self.to_client, self.to_broker):
            if not relay.outlet.waiting:
                relay.outlet.insert(_PONG)

    def _look_for_client(self) -> None:
        """Nobody waits for what is held of a client that has left. One that is read says so itself, behind all else."""
        if self._client.is_stopped() and self._client.has_left():
            self._streams.close_all()

    def _holds_any(self) -> bool:
        return self.to_broker.exact.holds_any() or self.to_client.exact.holds_any()
