"""One client connection and its one broker connection, from the first byte to the last.

    GREETING ──CONNECT read──▶ DIALLING ──broker there──▶ RELAYING ──one side ends──▶ ENDING ──both gone──▶ (over)
        ├──────────┴─ broken protocol, refused target, time over ─▶ ENDING
        └─ blocked ─▶ TURNED_AWAY ─ unblocked, time over ─▶ ENDING

A connection on which nothing is said but CONNECT, CONNECTED, PING and PONG is nothing more: what it takes to meter and
to follow commands (`traffic.py`) is made for the first byte that is something else. So thousands that come at once, as
when a broker comes back, are let in sooner, and those that only exist stay small.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from protocol.commands import encode
from protocol.errors import ProtocolError
from protocol.limits import DEFAULT_MAX_MESSAGE_SIZE, max_frame_size
from protocol.pulsar_pb2 import CommandPing, CommandPong
from proxy.blocking.blocklist import Ended
from proxy.blocking.rules import Rule
from proxy.budgets import Claim
from proxy.observe.connection import Connection
from proxy.refusals import NO_REQUEST, request_refused
from proxy.sessions import client_blocks
from proxy.sessions.ends import End, EndCause, end_by_peer
from proxy.sessions.engine import Engine
from proxy.sessions.handshake import GREETINGS, WELCOMES, read_greeting
from proxy.sessions.known import LONGEST_KNOWN
from proxy.sessions.leg import Leg
from proxy.sessions.session_log import SessionLog
from proxy.sessions.state import State
from proxy.sessions.throttle import Cause
from proxy.sessions.traffic import Traffic
from proxy.sessions.turned_away import TurnedAway

_SIGNS_OF_LIFE = frozenset({encode(CommandPing()), encode(CommandPong())})
"""Clients and brokers of idle connections ask for them in turns, each 30 to 60 s."""
_MAX_FRAME = max_frame_size(DEFAULT_MAX_MESSAGE_SIZE)
"""Until the broker says what it takes."""
_GREETING: Final = State.GREETING  # compiled, to look one up in its class costs as much as ten comparisons
_DIALLING: Final = State.DIALLING
_RELAYING: Final = State.RELAYING
_ENDING: Final = State.ENDING


class Session:
    """Serves one client. The loop calls it through its legs.

    Args:
        engine: What it shares with others.
        connection_id: Its number.
        log: Where its end and its pauses are written.
        finished: Called when both of its connections are gone.

    Attributes:
        max_frame: Bytes of the longest frame that either side may send.
        traffic: What goes between client and broker; None as long as that is their greetings only.
    """

    def __init__(
        self, engine: Engine, connection_id: int, log: SessionLog, finished: Callable[["Session"], None]
    ) -> None:
        self.state = _GREETING
        self.connection = Connection(connection_id)
        self.client = Leg("client", self, engine.shared)
        self.broker = Leg("broker", self, engine.shared)
        self.traffic: Traffic | None = None
        self._engine = engine
        self._log = log
        self._finished = finished
        self._greeting = bytearray()
        self._connect = b""
        """What the client greeted with, as it goes to the broker."""
        self.max_frame = _MAX_FRAME
        self._is_over = False
        self._last_word: End | None = None
        """Why it ends, whichever connection goes first."""
        self._started_at = engine.clock()
        self._turned_away: TurnedAway | None = None
        self._admittance = engine.admittance(self.connection, self.client)
        self._memory: Claim | None = None
        """What is kept for the client; there is one once that is more than of all others."""
        self._greeting_kept = 0
        self._unsent_kept = 0

    # ---- what the legs say

    def opened(self, leg: Leg) -> None:
        """A leg is connected."""
        if leg is self.broker:
            leg.join(self.client.group)
            group = self.client.group
            if group is not None and group.is_in_turns and self.state is _DIALLING:
                group.go_on_later(self._turn_came)
            else:
                self._start_relaying()
        elif self.state is _ENDING:
            leg.close(0)
        else:
            self.connection.client_address = leg.address
            leg.join(self._engine.shared.reads.group(self.connection.client_network))
            self._engine.sessions.add(self)
            self._log.opened(self.connection)
            self._engine.dialler.begin(self)
            self._admittance.connect(self.not_connected)

    def arrived(self, leg: Leg, chunk: bytes) -> None:
        """Bytes were read, and the leg has no relay: none yet, or none any more."""
        try:
            if leg is self.broker:
                self._turn_came()
            if self.state is _RELAYING:
                self._hear_first(leg, chunk)
            elif self._turned_away is not None:
                self._refuse(chunk)
            elif self.state is not _ENDING:
                self._greet(chunk)
        except ProtocolError as error:
            self.broke_protocol(leg, error)

    def broke_protocol(self, leg: Leg, error: ProtocolError) -> None:
        """One side sent what nobody can take."""
        self._engine.counters.frame_errors[f"{leg.side} {error.cause}"] += 1
        self.finish(End(EndCause.FRAME_ERROR, f"{leg.side} {leg.address}: {error.cause}: {error}"))

    def half_closed(self, leg: Leg) -> None:
        """One side will send no more: what passed goes on, what is held is dropped, then the other side is told.

        Without traffic there is nothing that anybody could wait for.
        """
        if leg is self.broker:
            self.finish(End(EndCause.BROKER_CLOSED))
        elif self.state is _RELAYING and self.traffic is not None:
            self.traffic.departing.half_closed()
        else:
            self.finish(End(EndCause.CLIENT_CLOSED))

    def not_taken(self, leg: Leg, unsent: int, seconds: float) -> None:
        """For so long the client has taken nothing of so many bytes; of none, if it took something."""
        if seconds >= self._engine.config.write_timeout:
            self.finish(
                End(EndCause.WRITE_TIMEOUT, f"{leg.address} took nothing of {unsent} bytes for {seconds:.0f} s")
            )
        elif not self._keep(unsent - self._unsent_kept):
            self.finish(End(EndCause.OVER_BUDGET, f"{leg.address} takes nothing of {unsent} bytes"))
        else:
            self._unsent_kept = unsent

    def lost(self, leg: Leg, error: Exception | None) -> None:
        """A leg is gone."""
        end = end_by_peer(leg.side, error)
        if leg is self.client and self.state is _RELAYING and self.traffic is not None:
            self.traffic.departing.lost(end)
        else:
            self.finish(end)
        self._look_whether_it_is_over()

    def writable(self, leg: Leg, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """Back pressure: who does not take bytes stops the other side's reading."""
        if self.traffic is not None:
            self.traffic.writable(is_writable, to_client=leg is self.client)
        (self.broker if leg is self.client else self.client).set_throttle(Cause.WRITE_BUFFER, on=not is_writable)

    def throttle_changed(self, leg: Leg, cause: Cause, is_raised: bool) -> None:  # noqa: FBT001 - the new state
        """A reason not to read came or went."""
        if cause is not Cause.CONNECTING:
            self._log.throttle_changed(self.connection, leg.side, cause, is_raised=is_raised, now=self._engine.clock())
        if self.state is _RELAYING and cause is not Cause.TURN:
            if self.client.is_stopped() or self.broker.is_stopped():
                self._traffic().keep_alive.start()
            elif self.traffic is not None:
                self.traffic.keep_alive.stop()

    def read_on(self, leg: Leg) -> None:
        """The throttle count is 0: first what was left over from before the pause, then the socket."""
        try:
            if self.state is _RELAYING and self.traffic is not None:
                (self.traffic.to_broker if leg is self.client else self.traffic.to_client).resume()
            elif self.state is _GREETING:
                self._greet(b"")
            elif self._turned_away is not None:
                self._refuse(b"")
        except ProtocolError as error:
            self.broke_protocol(leg, error)
        leg.resume_reading()

    def rule_added(self, rule: Rule) -> Ended:
        """Something is blocked from now on; a client that has not said yet who it is, is judged when it does."""
        if not rule.key.kind.is_of_connections:
            return Ended(0, 0 if self.traffic is None else self.traffic.blocks.end_streams(rule))
        if self.state not in {_DIALLING, _RELAYING}:
            return Ended(0, 0)
        if client_blocks.ends(self._engine.blocklist, self.connection) is None:
            return Ended(0, 0)
        self.not_connected(End(EndCause.BLOCKED, str(rule)))
        return Ended(1, 0)

    # ---- handshake

    def greeted(self, max_frame: int) -> None:
        """The broker accepted the client; its frame size, if it says one (else 0), holds on both legs."""
        self._engine.dialler.finish(self)
        if max_frame > 0:
            self.max_frame = max_frame
            if self.traffic is not None:
                self.traffic.limit_frames(self.max_frame)

    def _keep(self, more: int) -> bool:
        """So much more (less: negative) is kept for the client. Whether it may be."""
        if more > 0:
            return self._kept().take(more)
        if more < 0:
            self._kept().add(more)
        return True

    def _kept(self) -> Claim:
        if self._memory is None:
            self._memory = self._engine.memory_of(self.connection)
        return self._memory

    def _keep_greeting(self) -> bool:
        """What of it is kept is counted, where it is longer than others'. Whether it may be kept."""
        kept = len(self._greeting) + len(self._connect)
        if kept <= LONGEST_KNOWN and not self._greeting_kept:
            return True
        more, self._greeting_kept = kept - self._greeting_kept, kept
        return self._keep(more)

    def _greet(self, chunk: bytes) -> None:
        self._greeting += chunk
        if not self._keep_greeting():
            self.finish(End(EndCause.OVER_BUDGET, f"a CONNECT of {len(self._greeting)} bytes and more"))
            return
        if self.state is _DIALLING:
            self._wait_for_broker()
            return
        if self._admittance.waits():
            return
        greeting = GREETINGS.find(self._greeting) or read_greeting(self._greeting)
        if greeting is None:
            return
        self._connect, self._greeting = greeting.frame, self._greeting[greeting.size :]
        self.connection.client_version = greeting.client_version
        self.connection.client_role = greeting.client_role
        rule = client_blocks.refuses(self._engine.blocklist, self.connection)
        if rule is not None:
            self._turn_away(End(EndCause.BLOCKED, str(rule)))
            return
        self.state = _DIALLING
        self._log.role_found(self.connection, "data" if greeting.target else "lookup")
        wanted = self._engine.dialler.wanted(greeting.target)
        self.connection.broker = wanted.removeprefix("pulsar://")
        self._engine.dialler.dial(self, wanted, self.broker.protocol)
        self._wait_for_broker()

    def _wait_for_broker(self) -> None:
        """Who says more before it has an answer is not read until there is somebody to say it to."""
        if self._greeting:
            self.client.throttle(Cause.CONNECTING)

    def _turn_away(self, end: End) -> None:
        """The client may stay for as long as a handshake may take."""
        self.state, self._last_word = State.TURNED_AWAY, end
        rule = partial(client_blocks.of, self._engine.blocklist, self.connection)
        self._turned_away = TurnedAway(self._connect, rule, self._traffic().replies.send, partial(self.finish, end))
        self._refuse(self._take_rest())

    def _refuse(self, chunk: bytes) -> None:
        """What a blocked client asks; of one that asks much, some in each turn of the loop."""
        if self._turned_away is not None and self._turned_away.feed(chunk):
            self.client.yield_turn()

    def _take_rest(self) -> bytes:
        """What the client said behind its greeting; nobody keeps it any longer, as that may be a whole read."""
        rest, self._greeting = bytes(self._greeting), bytearray()
        self._keep_greeting()
        return rest

    def _turn_came(self) -> None:
        """The session goes on, unless it has ended, or a broker that spoke first has made it go on."""
        if self.state is _DIALLING:
            self._start_relaying()

    def _start_relaying(self) -> None:
        if self.state is not _DIALLING:
            self.broker.disown()
            self._look_whether_it_is_over()
            return
        self._engine.dialler.connected(self)
        self.state = _RELAYING
        self.broker.sender.write_little(self._connect)
        if self._greeting:
            self._hear_first(self.client, self._take_rest())
        self.client.unthrottle(Cause.CONNECTING)

    def _hear_first(self, leg: Leg, chunk: bytes) -> None:
        """Both are there, and there is no traffic yet; nor for the broker's greeting, or for signs of life."""
        max_frame = WELCOMES.read(chunk) if leg is self.broker else None
        if max_frame is not None:
            self.greeted(max_frame)
            self.client.sender.write_little(chunk)
        elif chunk in _SIGNS_OF_LIFE:
            (self.client if leg is self.broker else self.broker).sender.write_little(chunk)
        else:
            self._traffic()
            leg.take(chunk, len(chunk))

    def _traffic(self) -> Traffic:
        """From now on there is some; it goes by the relays if the broker is there."""
        if self.traffic is None:
            legs = self.client, self.broker
            self.traffic = Traffic(self, self._engine, legs, self._admittance, self._kept(), self._connect)
        if self.state is _RELAYING:
            self.client.relay, self.broker.relay = self.traffic.to_broker, self.traffic.to_client
        return self.traffic

    # ---- the end

    def shut_down(self) -> None:
        """The process ends."""
        if self.state is _GREETING and not self.client.is_connected:
            self.state = _ENDING  # the loop has accepted the client and says so next: it is closed then
            return
        self.finish(End(EndCause.SHUTDOWN))

    def not_connected(self, end: End) -> None:
        """It may not stay, or there is no broker for it: end, and tell the client why."""
        refusal = request_refused(NO_REQUEST, end.cause.error, f"{end.cause}: {end.detail}")
        if self.traffic is None:
            self.client.sender.write_soon(refusal)
        else:
            self.traffic.to_client.outlet.insert(refusal)
        self.finish(end)

    def _look_whether_it_is_over(self) -> None:
        if not self._is_over and not self.client.is_connected and not self.broker.is_connected:
            self._is_over = True
            if self.traffic is not None:
                self.traffic.let_go()
                self.traffic = None
            self.client.let_go_of_owner()
            self.broker.let_go_of_owner()
            self._finished(self)

    def finish(self, end: End) -> None:
        """Close both connections, after what is written; the first reason counts."""
        if self.state is _ENDING:
            return
        self.state, self._turned_away = _ENDING, None
        last_word = self._last_word if self.traffic is None else self._last_word or self.traffic.departing.end
        if last_word is not None and (end.cause.is_of_peer or end.cause is EndCause.HANDSHAKE_TIMEOUT):
            end = last_word
        self._engine.dialler.give_up(self)
        self._greeting = bytearray()
        if self.traffic is not None:
            self.traffic.stop()
        if self._memory is not None:
            self._memory.end()
        self._admittance.disconnect()
        self._engine.sessions.discard(self)
        for leg in (self.client, self.broker):
            leg.end_all_causes()
            leg.close(0 if end.cause.is_at_once else self._engine.config.linger)
        self._log.ended(self.connection, end, (self.client.bytes_read, self.broker.bytes_read), self._started_at)
