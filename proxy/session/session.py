"""The state machine of one client connection and its broker connection, from the first byte to the last.

  [PROXY_HEADER ──its end, or there is none──▶]                     in brackets: where it is configured
    [SECURING ──TLS handshake done──▶]
    GREETING ──CONNECT read──▶ DIALLING ──broker there──▶ RELAYING ──one side ends──▶ ENDING
        ├──────────┴─ broken protocol, refused target, time over ─▶ ENDING
        ├─ blocked ─▶ TURNED_AWAY ─ unblocked, time over ─▶ ENDING
        └─ Sluice verifies clients ─▶ AUTHENTICATING ─ its role is proved ─▶ DIALLING, else ENDING

    ENDING ──its streams and all that it took are given back──▶ WOUND_UP ──both connections gone──▶ OVER

A session on which only CONNECT, CONNECTED, PING and PONG have passed stays small: the objects that meter entries and
follow commands (`Forwarding`) are made for the first byte of anything else. So thousands of connections that come at
once, as when a broker returns, are served sooner, and idle ones take little memory.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Final

from limiter.token_bucket import NANOS_PER_SECOND
from protocol.endpoint import TLS, Endpoint, host_port, socket_address
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, ProtocolError, ProxyHeaderError, max_frame_size
from protocol.proxy_protocol import write_header
from proxy.block_rules import Rule
from proxy.blocking.blocklist import LookAtSessions
from proxy.brokers.dialing import BrokerTlsError
from proxy.budgets import Claim
from proxy.kicks import KickChoice, KickEffect
from proxy.observe.connection import Connection
from proxy.refusals import NO_REQUEST, request_refused
from proxy.session.blocking import BlockedClientResponder
from proxy.session.engine import Engine
from proxy.session.events import GONE, CloseReason, SessionEnd, SessionLog, end_by_peer
from proxy.session.forwarding import SIGNS_OF_LIFE, Forwarding
from proxy.session.handshake import GREETINGS, LONGEST_KNOWN, WELCOMES, Greeting, read_greeting
from proxy.session.identity import SessionIdentity
from proxy.session.proxy_headers import ProxyHeaders
from proxy.session.transport import PauseReason, PeerTransport, TransportOwner
from proxy.slices import Work, units_of_command
from proxy.tls.transport import TlsFailure

_MAX_FRAME = max_frame_size(DEFAULT_MAX_MESSAGE_SIZE)
"""Most bytes of a frame until the broker names its largest message."""


GREETING_NS: Final = NANOS_PER_SECOND
"""Time that a client of a process that drains has for its greeting."""
ALERT_S: Final = 1.0
"""Most seconds that a client whose TLS failed has to take the alert: no admission bounds such a connection any more."""


class SessionState(Enum):
    """The state of a session."""

    PROXY_HEADER = "proxy header"
    """The client's PROXY protocol header has not come. Only with `proxy_protocol` on a session has this state."""
    SECURING = "securing"
    """The client's TLS handshake is not done. Only sessions at an address of `listen` with TLS have this state."""
    GREETING = "greeting"
    AUTHENTICATING = "authenticating"
    """The client's credentials are being verified (`authentication: {mode: terminate}`)."""
    DIALLING = "dialling"
    TURNED_AWAY = "turned away"
    RELAYING = "relaying"
    ENDING = "ending"
    """No more bytes are handled. Streams end in slices, and bytes written so far may still be sent."""
    WOUND_UP = "wound up"
    """All that the session took is given back; a connection is still to go."""
    OVER = "over"


_SECURING: Final = SessionState.SECURING  # compiled, to look one up in its class costs as much as ten comparisons
_PROXY_HEADER: Final = SessionState.PROXY_HEADER
_GREETING: Final = SessionState.GREETING
_AUTHENTICATING: Final = SessionState.AUTHENTICATING
_DIALLING: Final = SessionState.DIALLING
_RELAYING: Final = SessionState.RELAYING
_TURNED_AWAY: Final = SessionState.TURNED_AWAY
_ENDING: Final = SessionState.ENDING
_WOUND_UP: Final = SessionState.WOUND_UP
_OVER: Final = SessionState.OVER
_NOT_SERVED: Final = frozenset({_SECURING, _PROXY_HEADER, _GREETING, _AUTHENTICATING, _DIALLING})
_ENDINGS: Final = Work.ENDINGS
_COMMANDS: Final = Work.COMMANDS


_NOT_ITS_CERTIFICATE: Final = (
    "the client shows auth method 'tls', and the broker would take Sluice's certificate (broker_tls.certificate) for "
    "the client's; authentication: {mode: terminate, tls: true} verifies certificates of clients"
)


class SessionMemory:
    """The memory that is kept for one client: its greeting, bytes that it does not take, and bytes that wait.

    The claim on the client's memory is made once that is more than every session takes.

    Args:
        engine: Has the memory of all clients.
        connection: The client.
    """

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self._engine = engine
        self._connection = connection
        self._claim: Claim | None = None
        self._greeting = 0
        self._unsent = 0

    def claim(self) -> Claim:
        """Return the claim of this client, for all that its streams and requests keep."""
        if self._claim is None:
            self._claim = self._engine.memory_of(self._connection)
        return self._claim

    def keep(self, more: int) -> bool:
        """Count `more` bytes (negative: fewer); return whether they may be kept."""
        if more > 0:
            return self.claim().take(more)
        if more < 0:
            self.claim().add(more)
        return True

    def keep_greeting(self, size: int) -> bool:
        """Count a greeting of `size` bytes if it is longer than usual; return whether it may be kept."""
        if size <= LONGEST_KNOWN and not self._greeting:
            return True
        more, self._greeting = size - self._greeting, size
        return self.keep(more)

    def keep_unsent(self, size: int) -> bool:
        """Count `size` bytes that the client does not take; return whether they may be kept."""
        if not self.keep(size - self._unsent):
            return False
        self._unsent = size
        return True

    def end(self) -> None:
        """Give everything back."""
        if self._claim is not None:
            self._claim.end()


class Session(TransportOwner):
    """Serves one client. The loop calls the session through its transports.

    Args:
        engine: The objects that all sessions share.
        connection_id: The connection's number in logs.
        log: Gets the session's end and its pauses.
        finished: Called when both connections are gone.
        endpoint: Where the client came in.

    Attributes:
        max_frame: Bytes of the longest frame that either side may send.
        forwarding: The data paths and command handlers; None as long as only greetings and signs of life have passed.
    """

    def __init__(
        self,
        engine: Engine,
        connection_id: int,
        log: SessionLog,
        finished: Callable[["Session"], None],
        endpoint: Endpoint,
    ) -> None:
        self.state = _GREETING
        self.connection = Connection(connection_id)
        self.client = PeerTransport("client", self, engine.shared)
        self.broker = PeerTransport("broker", self, engine.shared)
        self.forwarding: Forwarding | None = None
        self._engine = engine
        self._log = log
        self._finished = finished
        self._endpoint = endpoint
        self._unhandled = bytearray()
        """Bytes of the client that wait: for the rest of a header or CONNECT, or for a decision or the broker."""
        self._connect = b""
        """The client's CONNECT, as it goes to the broker."""
        self.max_frame = _MAX_FRAME
        self._left_with: SessionEnd | None = None
        """The end of a client that has half-closed or is blocked: reported whichever connection closes first."""
        self._started_at = engine.clock()
        self._turned_away: BlockedClientResponder | None = None
        self._identity: SessionIdentity | None = None
        self._admission = engine.session_admission(self.connection)
        self._memory = SessionMemory(engine, self.connection)

    # ---- events of the transports

    def opened(self, transport: PeerTransport) -> None:
        """Handle a transport that is connected."""
        if transport is self.broker:
            transport.keep_alive(self._engine.config.keep_alive)
            if self._engine.sends_proxy_header:
                transport.writer.write(self.client_header())
            transport.join(self.client.group)
            group = self.client.group
            if group is not None and group.is_in_turns and self.state is _DIALLING:
                group.go_on_later(self._relay_after_dial)
            else:
                self._start_relaying()
        elif self.has_ended:
            transport.close(0)
        else:
            self.connection.client_address = transport.address
            self._engine.sessions.add(self)
            self._log.opened(self.connection)
            self._engine.connector.begin(self)
            headers = self._engine.proxy_headers
            if headers is None:
                self._admit()
                self._begin()
            else:
                self._await_header(headers)

    def _admit(self) -> None:
        """Take the places of a client whose address is known, and have it read in that address' turns."""
        self.client.join(self._engine.shared.reads.group(self.connection.client_network))
        self._admission.connect(self.refuse_client)

    def _begin(self, begun: bytes = b"") -> None:
        """Await the client's CONNECT, after TLS where it came in so; `begun` are bytes that were read before."""
        if self.has_ended:
            return
        if self._endpoint.scheme == TLS:
            self.state = _SECURING
            self.client.secure(self._engine.tls.listener(), self._engine.shared.tls_buffers(), begun)
        elif begun:
            self._read_connect(begun)

    def secured(self, transport: PeerTransport, certificate_name: str | None) -> None:
        """Handle a TLS handshake that is done: the client may greet."""
        if transport is self.client and self.state is _SECURING:
            self.connection.is_tls = True
            self.connection.certificate_name = certificate_name
            self.state = _GREETING

    def tls_failed(self, transport: PeerTransport, failure: TlsFailure, detail: str) -> None:
        """End the session: TLS with one side failed."""
        if transport is self.broker:
            self._broker_tls_failed(BrokerTlsError(failure, detail, self._engine.counters))
        else:
            self._engine.counters.tls_failures[f"{transport.side} {failure}"] += 1
            self.finish(SessionEnd(CloseReason.TLS_FAILED, f"{transport.side} {self._address(transport)} {detail}"))

    def _broker_tls_failed(self, error: BrokerTlsError) -> None:
        """Go on with another broker, or end the session as for a broker that cannot be reached.

        With TLS 1.3 a broker refuses a certificate only now. If it has got only CONNECT, and has sent nothing, another
        broker may get the CONNECT.
        """
        connector = self._engine.connector
        end = connector.refused(self, error)
        is_unused = self.state is _RELAYING and self.forwarding is None and not self.broker.bytes_read
        if is_unused and connector.has_another(self):
            self._dial_another()
        elif connector.is_under_way(self):
            self.refuse_client(end)
        else:
            self.finish(end)

    def _dial_another(self) -> None:
        refused, self.broker = self.broker, PeerTransport("broker", self, self._engine.shared)
        self.state = _DIALLING
        refused.let_go_of_owner()
        refused.close(ALERT_S)
        self._dial(None)

    def _dial(self, target: Endpoint | None) -> None:
        """Have a broker dialled; the turns of its connection are those of the client's address."""
        self.broker.share_turns(self.client)
        self._engine.connector.dial(self, target, self.broker)

    def arrived(self, transport: PeerTransport, chunk: bytes) -> None:
        """Handle bytes of a transport that has no receiver yet, or has none any more.

        Greetings of all connections share the turns of the loop with commands; a transport is not read until its turn.
        """
        engine = self._engine
        if self.has_ended:
            return
        if engine.slices.take(_COMMANDS):
            self._handle_arrived(transport, chunk)
            return
        kept = len(chunk) if len(chunk) > LONGEST_KNOWN else 0
        if self._memory.keep(kept):
            transport.throttle(PauseReason.TURN)
            engine.arrivals.add(partial(self._handle_later, transport, chunk, kept), transport.group)
        else:
            self.finish(SessionEnd(CloseReason.OVER_BUDGET, f"{kept} bytes that come before a CONNECT is answered"))

    def _handle_later(self, transport: PeerTransport, chunk: bytes, kept: int) -> None:
        if self.has_ended or transport.owner is not self:
            return
        self._memory.keep(-kept)
        self._handle_arrived(transport, chunk)
        transport.unthrottle(PauseReason.TURN)

    def _handle_arrived(self, transport: PeerTransport, chunk: bytes) -> None:
        before = self._engine.slices.begin(_COMMANDS)
        try:
            if transport is self.broker:
                self._relay_after_dial()
            if self.state is _RELAYING:
                self._relay_greeting(transport, chunk)
            elif self.state is _TURNED_AWAY:
                self._answer_blocked(chunk)
            elif self.state is _PROXY_HEADER:
                self._read_header(chunk)
            elif not self.has_ended:
                self._read_connect(chunk)
        except ProtocolError as error:
            self.broke_protocol(transport, error)
        finally:
            self._engine.slices.begin(before)

    def broke_protocol(self, transport: PeerTransport, error: ProtocolError) -> None:
        """End the session: one side broke the protocol."""
        self._engine.counters.frame_errors[f"{transport.side} {error.cause}"] += 1
        self.finish(
            SessionEnd(CloseReason.FRAME_ERROR, f"{transport.side} {self._address(transport)}: {error.cause}: {error}")
        )

    def _address(self, transport: PeerTransport) -> str:
        """Return a peer's address; the client's is its own, also where it comes through a balancer."""
        return self.connection.client_address if transport is self.client else transport.address

    def half_closed(self, transport: PeerTransport) -> None:
        """Handle the end of a peer's bytes: passed entries go on, held ones are dropped, the broker is half-closed.

        Before there is traffic, the session ends at once.
        """
        if self.has_ended:
            transport.close_ended()
        elif transport is self.broker:
            self.finish(SessionEnd(CloseReason.BROKER_CLOSED))
        elif self.state is _RELAYING and self.forwarding is not None:
            self._left_with = end = SessionEnd(CloseReason.CLIENT_CLOSED)
            self.forwarding.half_close(partial(self.finish, end))
        else:
            self.finish(SessionEnd(CloseReason.CLIENT_CLOSED))

    def not_taken(self, transport: PeerTransport, unsent: int, seconds: float) -> None:
        """Bound the bytes that the client does not take: `unsent` bytes since `seconds`; both are 0 if it took some."""
        if seconds >= self._engine.config.write_timeout:
            self.finish(
                SessionEnd(
                    CloseReason.WRITE_TIMEOUT,
                    f"{self._address(transport)} took nothing of {unsent} bytes for {seconds:.0f} s",
                )
            )
        elif not self._memory.keep_unsent(unsent):
            problem = f"{self._address(transport)} takes nothing of {unsent} bytes"
            self.finish(SessionEnd(CloseReason.OVER_BUDGET, problem))

    def lost(self, transport: PeerTransport, error: Exception | None) -> None:
        """Handle the end of a connection; where thousands end at once, in a later turn of the loop."""
        self._engine.losses.add(partial(self._lost, transport, error))

    def _lost(self, transport: PeerTransport, error: Exception | None) -> None:
        self.finish(end_by_peer(transport.side, error))
        self._end_if_disconnected()

    def lost_silently(self, transport: PeerTransport, problem: str) -> None:
        """End the session: a peer is gone without an end of its connection."""
        self.finish(SessionEnd(GONE[transport.side], f"{transport.side} {self._address(transport)}: {problem}"))

    def writable(self, transport: PeerTransport, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """Apply backpressure: while a peer takes no bytes, the other one is not read."""
        if self.forwarding is not None:
            self.forwarding.writable(is_writable, to_client=transport is self.client)
        (self.broker if transport is self.client else self.client).set_throttle(
            PauseReason.WRITE_BUFFER, on=not is_writable
        )

    def throttle_changed(self, transport: PeerTransport, reason: PauseReason, is_added: bool) -> None:  # noqa: FBT001 - the new state
        """Report a pause reason that came or went; send signs of life to both peers while one is not read."""
        if reason is not PauseReason.CONNECTING:
            self._log.throttle_changed(
                self.connection, transport.side, reason, is_added=is_added, now=self._engine.clock()
            )
        if self.state is _RELAYING and reason is not PauseReason.TURN:
            if self.client.is_stopped() or self.broker.is_stopped():
                self._make_forwarding().keep_alive.start()
            elif self.forwarding is not None:
                self.forwarding.keep_alive.stop()

    def read_on(self, transport: PeerTransport) -> None:
        """Handle the end of a pause: first the bytes set aside, then the socket."""
        try:
            if self.state is _RELAYING and self.forwarding is not None:
                (self.forwarding.to_broker if transport is self.client else self.forwarding.to_client).resume()
            elif self.state is _GREETING:
                self._read_connect(b"")
            elif self.state is _TURNED_AWAY:
                self._answer_blocked(b"")
        except ProtocolError as error:
            self.broke_protocol(transport, error)
        transport.resume_reading()

    def rules_added(self, look: LookAtSessions) -> Iterator[None]:
        """Apply new rules of the blocklist; a client that has not sent CONNECT yet is checked when it does."""
        if look.is_at_clients and self.state in {_DIALLING, _RELAYING}:
            own = self._blocked_by()
            if own is not None:
                self._engine.blocklist.ended(own, self.connection, streams=self.stream_count())
                self.refuse_client(SessionEnd(CloseReason.BLOCKED, str(own)))
                yield
                return
        if look.is_at_streams and self.forwarding is not None:
            yield from self.forwarding.blocks.end_streams(look)

    def kick(self, kick: KickChoice, effect: KickEffect) -> Iterator[None]:
        """End what an operator kicks of this session, or count what would end; see `proxy.kicks`."""
        if self.has_ended or not kick.means_client(self.connection):
            return
        if kick.spares_newcomers and self.state not in {_DIALLING, _RELAYING}:
            return
        if not kick.is_of_connections:
            if self.forwarding is not None:
                yield from self.forwarding.blocks.kick(kick, effect)
            return
        effect.connections += 1
        effect.streams += self.stream_count()
        if not kick.is_dry:
            self.finish(SessionEnd(CloseReason.KICKED, str(kick)))

    # ---- handshake

    def _await_header(self, headers: ProxyHeaders) -> None:
        """Await a PROXY protocol header. A connection from no balancer is its own client, and must not send one.

        A connection that is gone already, as of a balancer's health check, has no address, and is no trouble to log.
        """
        self.state = _PROXY_HEADER
        host = self.connection.client_host
        if not host:
            self.finish(SessionEnd(CloseReason.CLIENT_RESET, "gone before it was admitted"))
        elif headers.believes(host):
            headers.begin(self)
        elif headers.is_required:
            self._refuse_header(headers.refuse_stranger())
        else:
            self._admit()

    def _read_header(self, chunk: bytes) -> None:
        headers = self._engine.proxy_headers
        assert headers is not None
        self._unhandled += chunk
        is_awaited = headers.is_awaited(self)
        try:
            header = headers.read(self._unhandled, is_believed=is_awaited)
        except ProxyHeaderError as error:
            self._refuse_header(error)
            return
        if header is None:
            return
        rest, self._unhandled = bytes(self._unhandled[header.size :]), bytearray()
        self.state = _GREETING
        if is_awaited:
            headers.end(self)
            if header.source is not None:
                self.connection.client_address = host_port(*header.source)
            self._admit()
        self._begin(rest)

    def client_header(self) -> bytes:
        """Return the PROXY protocol header that names the client to a broker; empty where brokers want none.

        Brokers read it within TLS.

        Source: org.apache.pulsar.broker.service.PulsarChannelInitializer (OptionalProxyProtocolDecoder comes after TLS)
        """
        if not self._engine.sends_proxy_header:
            return b""
        return write_header(socket_address(self.connection.client_address), socket_address(self.client.own_address))

    def _refuse_header(self, error: ProxyHeaderError) -> None:
        self.finish(SessionEnd(CloseReason.PROXY_HEADER, f"client {self.connection.client_address}: {error}"))

    def greeted(self, max_frame: int) -> None:
        """Record that the broker accepted the client; its frame size (0: it names none) holds for both peers."""
        self._engine.connector.finish(self)
        if self._identity is not None:
            self._identity.connected()
        if max_frame > 0:
            self.max_frame = max_frame
            if self.forwarding is not None:
                self.forwarding.to_broker.limit_frames(max_frame)
                self.forwarding.to_client.limit_frames(max_frame)

    def _keep_greeting(self) -> bool:
        """Count the memory of the bytes up to CONNECT and after it; return whether it may be kept."""
        return self._memory.keep_greeting(len(self._unhandled) + len(self._connect))

    def _read_connect(self, chunk: bytes) -> None:
        self._unhandled += chunk
        if not self._keep_greeting():
            self.finish(SessionEnd(CloseReason.OVER_BUDGET, f"a CONNECT of {len(self._unhandled)} bytes and more"))
            return
        if self.state is _DIALLING or self.state is _AUTHENTICATING:
            self._pause_until_connected()
            return
        greeting = GREETINGS.find(self._unhandled) or read_greeting(self._unhandled)
        if greeting is None:
            return
        self._connect, self._unhandled = greeting.frame, self._unhandled[greeting.size :]
        self.connection.client_version = greeting.client_version
        self._engine.slices.take(_COMMANDS, units_of_command(greeting.size) - 1)  # its arrival is one
        self._identify(greeting)

    def _identify(self, greeting: Greeting) -> None:
        """Have a client prove its role where Sluice verifies clients; else its broker does."""
        verifier = self._engine.identity
        if self._engine.admission.is_draining:
            self._engine.counters.drain_refused["lookup" if greeting.target is None else "data"] += 1
            self.finish(SessionEnd(CloseReason.DRAINED, "the process drains"))
        elif verifier is None and greeting.shown.method == "tls" and self._engine.tls.shows_certificate:
            self.refuse_client(SessionEnd(CloseReason.AUTHENTICATION_FAILED, _NOT_ITS_CERTIFICATE))
        elif verifier is None:
            self.connection.client_role = greeting.client_role
            self._dial_for(greeting)
        elif not self._is_turned_away():  # by its address: its role is not known yet
            self.state = _AUTHENTICATING
            self._identity = SessionIdentity(verifier, self._engine.counters, greeting, self.connection, self)
            self._identity.prove(partial(self._proved, greeting))
            if self.state is _AUTHENTICATING:
                self._pause_until_connected()

    def _proved(self, greeting: Greeting, end: SessionEnd | None) -> None:
        """Dial for a client that has proved its role, or end the session, unless it has ended by now."""
        if self.state is not _AUTHENTICATING or self._identity is None:
            return
        if end is not None:
            self.refuse_client(end)
            return
        self._connect = self._identity.connect(self._connect)
        self.client.unthrottle(PauseReason.CONNECTING)
        try:
            if self._keep_greeting():
                self._dial_for(greeting)
            else:
                self.finish(SessionEnd(CloseReason.OVER_BUDGET, f"a CONNECT of {len(self._connect)} bytes"))
        except ProtocolError as error:
            self.broke_protocol(self.client, error)

    def _is_turned_away(self) -> bool:
        """Turn a blocked client away; return whether it is one."""
        rule = self._blocked_by()
        if rule is None:
            return False
        self._engine.blocklist.refused(rule)
        self._turn_away(SessionEnd(CloseReason.BLOCKED, str(rule)))
        return True

    def _dial_for(self, greeting: Greeting) -> None:
        """Have the broker dialled that a client names, whose role is known."""
        if self._is_turned_away():
            return
        if greeting.refusal:
            self._log.role_found(self.connection, "data")
            self.refuse_client(SessionEnd(CloseReason.TARGET_REFUSED, greeting.refusal))
            return
        self.state = _DIALLING
        self._log.role_found(self.connection, "lookup" if greeting.target is None else "data")
        self._dial(greeting.target)
        self._pause_until_connected()

    def _pause_until_connected(self) -> None:
        """Pause reading of a client that sends more before its broker is connected."""
        if self._unhandled:
            self.client.throttle(PauseReason.CONNECTING)

    def _turn_away(self, end: SessionEnd) -> None:
        """Keep a blocked client connected, and refuse its requests, for as long as a handshake may take."""
        self.state, self._left_with = _TURNED_AWAY, end
        self._turned_away = BlockedClientResponder(
            self._connect,
            self._blocked_by,
            reply=self._make_forwarding().to_client.writer.reply,
            leave=partial(self.finish, end),
            is_tls=self.connection.is_tls,
        )
        self._answer_blocked(self._take_rest())

    def _blocked_by(self) -> Rule | None:
        """Return the rule that blocks this client now, by its address or its role, or None."""
        rules = self._engine.blocklist.rules
        return rules.of_client(self.connection.client_host, self.connection.client_role) if rules else None

    def _answer_blocked(self, chunk: bytes) -> None:
        """Answer a blocked client's requests; if there are many, some in each turn of the loop."""
        if self._turned_away is not None and self._turned_away.feed(chunk):
            self.client.yield_turn()

    def _take_rest(self) -> bytes:
        """Return the bytes after the client's CONNECT, and keep them no longer: they may be a whole read."""
        rest, self._unhandled = bytes(self._unhandled), bytearray()
        self._keep_greeting()
        return rest

    def _relay_after_dial(self) -> None:
        """Begin to relay, unless the session has ended, or bytes of the broker have begun it."""
        if self.state is _DIALLING:
            self._start_relaying()

    def _start_relaying(self) -> None:
        if self.state is not _DIALLING:
            self.broker.disown()
            self._end_if_disconnected()
            return
        self._engine.connector.connected(self)
        self.state = _RELAYING
        self.broker.writer.write_little(self._connect)
        if self._unhandled:
            self._relay_greeting(self.client, self._take_rest())
        self.client.unthrottle(PauseReason.CONNECTING)

    def _relay_greeting(self, transport: PeerTransport, chunk: bytes) -> None:
        """Pass on the broker's CONNECTED and signs of life; make the forwarding for any other bytes."""
        max_frame = WELCOMES.read(chunk) if transport is self.broker else None
        if max_frame is not None:
            self.greeted(max_frame)
            self.client.writer.write_little(chunk)
        elif chunk in SIGNS_OF_LIFE:
            (self.client if transport is self.broker else self.broker).writer.write_little(chunk)
        else:
            self._make_forwarding()
            transport.take(chunk, len(chunk))

    def _make_forwarding(self) -> Forwarding:
        """Return the forwarding, made if there is none; while relaying, it receives all bytes read."""
        if self.forwarding is None:
            self.forwarding = Forwarding(
                engine=self._engine,
                connection=self.connection,
                client=self.client,
                broker=self.broker,
                admission=self._admission,
                memory=self._memory.claim(),
                max_frame=self.max_frame,
                greeting=self._connect_again,
                header=self.client_header(),
                identity=self._identity,
                on_greeted=self.greeted,
                on_lost=self.lost_silently,
            )
        if self.state is _RELAYING:
            self.client.hand_to(self.forwarding.to_broker)
            self.broker.hand_to(self.forwarding.to_client)
        return self.forwarding

    def _connect_again(self) -> bytes:
        """Return the CONNECT for one more broker: Sluice's credentials may have changed."""
        return self._connect if self._identity is None else self._identity.connect(self._connect)

    def tell_client(self, frame: bytes) -> None:
        """Send the client a frame of Sluice's own."""
        if self.state is _RELAYING:
            self._make_forwarding().to_client.writer.insert(frame)

    def tell_broker(self, frame: bytes) -> None:
        """Send the broker a frame of Sluice's own."""
        if self.state is _RELAYING:
            self._make_forwarding().to_broker.writer.insert(frame)

    # ---- the end

    @property
    def has_ended(self) -> bool:
        """True once the session ends, though bytes may still be sent."""
        return self.state is _ENDING or self.state is _WOUND_UP or self.state is _OVER

    def stream_count(self) -> int:
        """Return the number of producers and consumers."""
        return 0 if self.forwarding is None else self.forwarding.stream_count()

    def greets(self) -> bool:
        """Return whether the client is there, and its broker has not let it in yet."""
        return self.state in _NOT_SERVED or (self.state is _RELAYING and not self.broker.bytes_read)

    def leave(self, *, is_late: bool) -> None:
        """Have the client go on elsewhere, as the process drains; call it again until the session has ended.

        Args:
            is_late: Held entries and handshakes are not awaited any more.
        """
        is_greeting = self.greets()
        if self.state is _PROXY_HEADER or self.state is _SECURING or self.state is _GREETING:
            is_greeting = self._engine.clock() - self._started_at < GREETING_NS
        if self.has_ended or (is_greeting and not is_late):
            return
        if self.state is _RELAYING and self.forwarding is not None:
            self.forwarding.leave(self._left, is_late=is_late)
        else:
            self._left()

    def _left(self) -> None:
        if self.has_ended:  # otherwise, while its last steps waited for their turn
            return
        moved = self._engine.counters.drain_moved
        moved["connections"] += 1
        moved["streams"] += self.stream_count()
        if self._has_plain_end():  # at once: other sessions may end before this one has its turn
            self.client.end(self._patience(CloseReason.DRAINED))
        self.finish(SessionEnd(CloseReason.DRAINED))

    def shut_down(self) -> None:
        """End the session: the process ends."""
        if self.state is _GREETING and not self.client.is_connected:
            self.state = _WOUND_UP  # the loop has accepted the client and calls `opened` next, which closes it
            return
        self.finish(SessionEnd(CloseReason.SHUTDOWN))

    def refuse_client(self, end: SessionEnd) -> None:
        """Send the client an ERROR with the reason, and end the session.

        Before its TLS handshake is done, the client cannot get one.
        """
        if self._endpoint.scheme == TLS and not self.connection.is_tls:
            is_late = end.close_reason is CloseReason.HANDSHAKE_TIMEOUT and self.state is _SECURING
            self.finish(
                SessionEnd(end.close_reason, f"{end.detail}: its TLS handshake is not over") if is_late else end
            )
            return
        refusal = request_refused(NO_REQUEST, end.close_reason.error, f"{end.close_reason}: {end.detail}")
        if self.forwarding is None:
            self.client.writer.write_soon(refusal)
        else:
            self.forwarding.to_client.writer.insert(refusal)
        self.finish(end)

    def _end_if_disconnected(self) -> None:
        if self.state is _WOUND_UP and not self.client.is_connected and not self.broker.is_connected:
            self.state = _OVER
            self._identity = None
            if self.forwarding is not None:
                self.forwarding.let_go()
                self.forwarding = None
            self.client.let_go_of_owner()
            self.broker.let_go_of_owner()
            self._finished(self)

    def finish(self, end: SessionEnd) -> None:
        """Close both connections after the bytes written so far; only the first call counts.

        No more bytes are handled. The rest is done in slices, as a session may have thousands of streams, and thousands
        of sessions may end at once.
        """
        if self.has_ended:
            return
        if self.state is _PROXY_HEADER and self._engine.proxy_headers is not None:
            self._engine.proxy_headers.end(self)
        self.state, self._turned_away = _ENDING, None
        self.client.hand_to(None)
        self.broker.hand_to(None)
        streams = None if self.forwarding is None else self.forwarding.stop()
        self._engine.sessions.discard(self)
        self._engine.slices.run(_ENDINGS, self._wind_up(end, streams), self._wound_up)

    def _wind_up(self, end: SessionEnd, streams: Iterator[None] | None) -> Iterator[None]:
        left_with = self._left_with
        if left_with is not None and (end.close_reason.is_of_peer or end.close_reason is CloseReason.HANDSHAKE_TIMEOUT):
            end = left_with
        self._engine.connector.give_up(self)
        self._unhandled = bytearray()
        if self._identity is not None:
            self._identity.stop()
        self._admission.disconnect()
        for transport in (self.client, self.broker):
            transport.remove_all_pause_reasons()
            if transport is self.client and end.close_reason.is_orderly and self._has_plain_end():
                transport.end(self._patience(end.close_reason))
            else:
                transport.close(self._patience(end.close_reason))
        self._log.ended(
            self.connection,
            end,
            bytes_from_client=self.client.bytes_read,
            bytes_from_broker=self.broker.bytes_read,
            started_at=self._started_at,
        )
        if streams is not None:
            yield
            yield from streams

    def _wound_up(self) -> None:
        self._memory.end()
        self.state = _WOUND_UP
        self._end_if_disconnected()

    def _has_plain_end(self) -> bool:
        """Return whether the client can be sent an end: not before its TLS handshake is done."""
        return self._endpoint.scheme != TLS or self.connection.is_tls

    def _patience(self, close_reason: CloseReason) -> float:
        """Return the seconds that a peer has to take the bytes that are not sent yet."""
        if close_reason.is_at_once:
            return 0
        linger = self._engine.config.linger
        return min(linger, ALERT_S) if close_reason is CloseReason.TLS_FAILED else linger
