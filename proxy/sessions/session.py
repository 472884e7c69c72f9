"""One client connection and its one broker connection, from the first byte to the last.

    GREETING ──CONNECT read──▶ DIALLING ──broker there──▶ RELAYING ──one side ends──▶ ENDING ──both gone──▶ (over)
        ├──────────┴─ broken protocol, refused target, time over ─▶ ENDING
        └─ blocked ─▶ TURNED_AWAY ─ unblocked, time over ─▶ ENDING

Reading from the client is paused while dialling; from then on both directions are relays, and this file only connects
them: legs to relays, relays to outlets, throttle counts to both.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from protocol.commands import encode
from protocol.errors import ProtocolError
from protocol.limits import DEFAULT_MAX_MESSAGE_SIZE, max_frame_size
from protocol.pulsar_pb2 import CommandConnected, CommandPong
from protocol.scanner import MESSAGE, SEND
from proxy.blocking.blocklist import Ended
from proxy.blocking.rules import Rule
from proxy.engine import Engine
from proxy.observe.connection import Connection
from proxy.refusals import NO_REQUEST, request_refused
from proxy.sessions.blocks import SessionBlocks
from proxy.sessions.brakes import bound, holdings_of
from proxy.sessions.broker_commands import BrokerCommands
from proxy.sessions.client_commands import ClientCommands
from proxy.sessions.departing import Departing
from proxy.sessions.dialling import Dialling
from proxy.sessions.ends import End, EndCause, end_by_peer
from proxy.sessions.handshake import Greeting, read_greeting
from proxy.sessions.keepalive import KeepAlive
from proxy.sessions.leg import Leg
from proxy.sessions.lookups import SessionLookups
from proxy.sessions.outlet import Outlet
from proxy.sessions.rejections import Rejections
from proxy.sessions.relay import Relay
from proxy.sessions.replies import Replies
from proxy.sessions.requests import Requests
from proxy.sessions.session_log import SessionLog
from proxy.sessions.streams import Streams
from proxy.sessions.throttle import Cause
from proxy.tasks import Tasks

_PONG = encode(CommandPong())


class State(Enum):
    """Where a session stands."""

    GREETING = "greeting"
    DIALLING = "dialling"
    TURNED_AWAY = "turned away"
    RELAYING = "relaying"
    ENDING = "ending"


class Session:
    """Serves one client. The loop calls it through its legs.

    Args:
        engine: What it shares with others.
        connection_id: Its number.
        log: Where its end and its pauses are written.
        finished: Called when both of its connections are gone.
    """

    def __init__(
        self, engine: Engine, connection_id: int, log: SessionLog, finished: Callable[["Session"], None]
    ) -> None:
        self.state = State.GREETING
        self.connection = Connection(connection_id)
        self.client = Leg("client", self, engine.reading_line, engine.read_buffer)
        self.broker = Leg("broker", self, engine.reading_line, engine.read_buffer)
        self._engine = engine
        self._log = log
        self._finished = finished
        self._tasks = Tasks()
        self._greeting = bytearray()
        self._greeted: Greeting | None = None
        self._started_at = engine.clock()
        self._take: Callable[[bytes], None] = self._greet
        self._keep_alive = KeepAlive(self._send_pongs, self._look_for_client, self._holds_any)
        self._dialling = Dialling(engine.config, engine.targets, self._refuse)
        self._requests = Requests()
        self._wire()

    def _wire(self) -> None:
        """Build both directions; no byte flows yet."""
        engine, limit = self._engine, max_frame_size(DEFAULT_MAX_MESSAGE_SIZE)
        self._to_broker = Relay(SEND, limit, Outlet(self.broker.sender), engine.gate, engine.clock)
        self._to_client = Relay(MESSAGE, limit, Outlet(self.client.sender), engine.gate, engine.clock)
        self._admittance = engine.admittance(self.connection, self.client)
        broke = partial(self.broke_protocol, self.client)
        relays = self._to_broker, self._to_client
        self._streams = Streams(engine, self.connection, self._admittance, relays, broke)
        self._departing = Departing(self._streams, self.broker, self._tasks, engine.config.linger, self._end)
        self._replies = Replies(self._to_client.outlet, self.client)
        self._to_broker.rejections = Rejections(self._replies.send, self._to_client.scanner.hear_receipts)
        self._lookups = SessionLookups(engine, self._tasks, self._replies, self._admittance)
        reply = self._replies.send
        self._blocks = SessionBlocks(engine.blocklist, self._streams, self._requests, reply, self._to_broker.outlet)
        from_client = ClientCommands(self._streams, self._requests, self._blocks, self._lookups, reply)
        from_broker = BrokerCommands(self._streams, self._requests, self._lookups.answered, self, engine.counters)
        for leg, relay, handler in (
            (self.client, self._to_broker, from_client.handle),
            (self.broker, self._to_client, from_broker.handle),
        ):
            relay.connect(handler, leg.is_throttled, holdings_of(engine, leg), engine.counters)
            relay.yield_turn = leg.yield_turn
        bound(engine, self.connection, self.client, (self._to_broker, self._to_client))

    # ---- what the legs say

    def opened(self, leg: Leg) -> None:
        """A leg is connected."""
        if leg is self.broker:
            self._start_relaying()
        else:
            self.connection.client_address = leg.address
            self._engine.sessions.add(self)
            self._log.opened(self.connection)
            self._dialling.begin()
            self._admittance.connect(self._refuse)

    def arrived(self, leg: Leg, chunk: bytes) -> None:
        """Bytes were read, and the leg has no relay: none yet, or none any more."""
        try:
            if self.state is not State.ENDING:
                self._take(chunk)
        except ProtocolError as error:
            self.broke_protocol(leg, error)

    def broke_protocol(self, leg: Leg, error: ProtocolError) -> None:
        """One side sent what nobody can take."""
        self._engine.counters.frame_errors[f"{leg.side} {error.cause}"] += 1
        self._end(End(EndCause.FRAME_ERROR, f"{leg.side} {leg.address}: {error.cause}: {error}"))

    def half_closed(self, leg: Leg) -> None:
        """One side will send no more: what passed goes on, what is held is dropped, then the other side is told."""
        if leg is self.broker:
            self._end(End(EndCause.BROKER_CLOSED))
        elif self.state is not State.RELAYING:
            self._end(End(EndCause.CLIENT_CLOSED))
        else:
            self._departing.half_closed()

    def lost(self, leg: Leg, error: Exception | None) -> None:
        """A leg is gone."""
        end = end_by_peer(leg.side, error)
        if leg is self.client and self.state is State.RELAYING:
            self._departing.lost(end)
        else:
            self._end(end)
        if not self.client.is_connected and not self.broker.is_connected:
            self._finished(self)

    def writable(self, leg: Leg, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """Back pressure: who does not take bytes stops the other side's reading."""
        other = self.broker if leg is self.client else self.client
        other.set_throttle(Cause.WRITE_BUFFER, on=not is_writable)
        if leg is self.client:
            self._replies.writable(is_writable)

    def throttle_changed(self, leg: Leg, cause: Cause, is_raised: bool) -> None:  # noqa: FBT001 - the new state
        """A reason not to read came or went."""
        if cause is not Cause.CONNECTING:
            self._log.throttle_changed(self.connection, leg.side, cause, is_raised=is_raised, now=self._engine.clock())
        if self.state is State.RELAYING and cause is not Cause.TURN:
            if self.client.is_stopped() or self.broker.is_stopped():
                self._keep_alive.start()
            else:
                self._keep_alive.stop()

    def read_on(self, leg: Leg) -> None:
        """The throttle count is 0: first what was left over from before the pause, then the socket."""
        try:
            if self.state is State.RELAYING:
                (self._to_broker if leg is self.client else self._to_client).resume()
            elif self.state is State.GREETING:
                self._greet(b"")
        except ProtocolError as error:
            self.broke_protocol(leg, error)
        leg.resume_reading()

    def rule_added(self, rule: Rule) -> Ended:
        """Something is blocked from now on; a client that has not said yet who it is, is judged when it does."""
        if not rule.key.kind.is_of_connections:
            return Ended(0, self._blocks.end_streams(rule))
        if self.state not in {State.DIALLING, State.RELAYING} or self._blocks.ends_client() is None:
            return Ended(0, 0)
        self._refuse(End(EndCause.BLOCKED, str(rule)))
        return Ended(1, 0)

    # ---- handshake

    def _greet(self, chunk: bytes) -> None:
        self._greeting += chunk
        if self.state is State.DIALLING or self._admittance.waits():
            return
        self._greeted = read_greeting(self._greeting, self._to_broker.scanner.max_size)
        if self._greeted is None:
            return
        self.connection.client_version = self._greeted.client_version
        self.connection.client_role = self._greeted.client_role
        rule = self._blocks.refuses_client()
        if rule is not None:
            self._turn_away(self._greeted, End(EndCause.BLOCKED, str(rule)))
            return
        self._greeting = bytearray(self._greeted.rest)
        self.state = State.DIALLING
        self.client.throttle(Cause.CONNECTING)
        self._log.role_found(self.connection, "data" if self._greeted.target else "lookup")
        wanted = self._dialling.wanted(self._greeted.target)
        self.connection.broker = wanted.removeprefix("pulsar://")
        dial = self._dialling.dial(wanted, self.broker.protocol)
        self._tasks.start(dial, f"dial for connection {self.connection.connection_id}")

    def _turn_away(self, greeting: Greeting, end: End) -> None:
        """The client may stay for as long as a handshake may take."""
        self.state, self._departing.end = State.TURNED_AWAY, end
        self._take = self._blocks.turn_away(greeting.frame, partial(self._end, end)).feed
        self._take(greeting.rest)

    def _start_relaying(self) -> None:
        greeting = self._greeted
        if self.state is not State.DIALLING or greeting is None:
            self.broker.close(0)
            return
        self.state = State.RELAYING
        self.client.relay, self.broker.relay = self._to_broker, self._to_client
        self._lookups.greeting = greeting.frame
        self.broker.sender.write(greeting.frame)
        early, self._greeting = bytes(self._greeting), bytearray()
        if early:
            self.client.take(early, len(early))
        self.client.unthrottle(Cause.CONNECTING)

    # ---- what the brokers' and clients' commands ask for

    def connected(self, command: CommandConnected) -> None:
        """The broker accepted the client; its frame size holds on both legs."""
        self._dialling.finish()
        if command.max_message_size > 0:
            limit = max_frame_size(command.max_message_size)
            self._to_broker.scanner.max_size = limit
            self._to_client.scanner.max_size = limit

    def pinged(self) -> bool:
        """The broker's probe waits 5 s only: a client that is not read cannot answer it in time."""
        if not self.client.is_throttled():
            return False
        self._engine.counters.keep_alives += 1
        self._to_broker.outlet.insert(_PONG)
        return True

    def _send_pongs(self) -> None:
        self._engine.counters.keep_alives += 1
        for relay in (self._to_client, self._to_broker):
            if not relay.outlet.waiting:
                relay.outlet.insert(_PONG)

    def _look_for_client(self) -> None:
        """Nobody waits for what is held of a client that has left. One that is read says so itself, behind all else."""
        if self.client.is_stopped() and self.client.has_left():
            self._streams.close_all()

    def _holds_any(self) -> bool:
        return self._to_broker.holds_any() or self._to_client.holds_any()

    # ---- the end

    def shut_down(self) -> None:
        """The process ends."""
        self._end(End(EndCause.SHUTDOWN))

    def _refuse(self, end: End) -> None:
        """End, and tell the client why."""
        self._to_client.outlet.insert(request_refused(NO_REQUEST, end.cause.error, f"{end.cause}: {end.detail}"))
        self._end(end)

    def _end(self, end: End) -> None:
        if self.state is State.ENDING:
            return
        self.state = State.ENDING
        if self._departing.end is not None and (end.cause.is_of_peer or end.cause is EndCause.HANDSHAKE_TIMEOUT):
            end = self._departing.end
        self._dialling.finish()
        self._keep_alive.stop()
        self._streams.close_all()
        self._lookups.close()
        self._admittance.disconnect()
        self._tasks.cancel()
        self._engine.sessions.discard(self)
        for leg, relay in ((self.client, self._to_broker), (self.broker, self._to_client)):
            relay.stop()
            leg.tracker.clear()
            leg.close(self._engine.config.linger)
        self._log.ended(self.connection, end, (self.client.bytes_read, self.broker.bytes_read), self._started_at)
