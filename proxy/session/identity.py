"""The identity of one session's client, where Sluice verifies it (`authentication: {mode: terminate}`).

    CONNECT ──▶ prove ──▶ proved: the broker gets Sluice's own credentials, with the role as original_principal
                  └──▶ refused: ERROR, the connection ends

A role that is proved by a token ends with the token. A minute before that, and at that moment, the client is asked for
a newer one (AUTH_CHALLENGE), if it says that it answers; brokers ask at that moment only. A client that does not answer
in time is disconnected. A broker's own AUTH_CHALLENGE is answered here. Where the broker also verifies the client's
credentials, Sluice then asks the client for newer ones.

Source: org.apache.pulsar.broker.service.ServerCnx (refreshAuthenticationCredentials, doAuthentication) and
org.apache.pulsar.proxy.server.ProxyConnection
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from protocol.commands import encode, text
from protocol.frames import ProtocolError
from protocol.pulsar_pb2 import AuthData, CommandAuthChallenge, CommandAuthResponse
from proxy.counters import Counters
from proxy.identity.evidence import Credentials, Evidence, Identity, NotProved, Verifier
from proxy.observe.connection import Connection
from proxy.session.events import CloseReason, SessionEnd
from proxy.session.handshake import Greeting, greeting_for

AHEAD_S: Final = 60.0
"""Seconds before the end of a token in which its client is asked for a newer one."""
ANSWER_S: Final = 30.0
"""Seconds after the end of a token in which a client may still answer with a newer one. Brokers give it 60 to 120."""
REFRESH: Final = b"PulsarAuthRefresh"
"""The data of a challenge: it asks a client for the credentials that it would show now.

Source: org.apache.pulsar.common.api.AuthData.REFRESH_AUTH_DATA"""
_METHODS = frozenset({"token", "basic", "tls"})
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 1.0, 24 * 3600.0
"""A client is asked no more often, however short its tokens live; and no timer is further away, as clocks are set, and
machines sleep."""


class UnaskedAuthError(ProtocolError):
    """A client sends AUTH_RESPONSE without a challenge: to verify one costs a signature."""

    cause = "unasked_auth_response"


class Peers(Protocol):
    """The session of an identity: it sends frames to its two peers, or ends."""

    def tell_client(self, frame: bytes) -> None:
        """Send a frame to the client."""

    def tell_broker(self, frame: bytes) -> None:
        """Send a frame to the broker."""

    def refuse_client(self, end: SessionEnd) -> None:
        """Tell the client why it may not stay, and end the session."""


class SessionIdentity:
    """The identity of one session's client.

    Args:
        verifier: Verifies the credentials of clients.
        counters: Count the results, by auth method.
        greeting: The client's CONNECT.
        connection: Gets the role when it is proved.
        peers: The session.
    """

    __slots__ = (
        "_can_refresh",
        "_challenge_version",
        "_connection",
        "_counters",
        "_due_at",
        "_identity",
        "_is_asked",
        "_is_connected",
        "_is_for_others",
        "_peers",
        "_shown",
        "_timer",
        "_times_asked",
        "_verifier",
        "_version",
    )

    def __init__(
        self, verifier: Verifier, counters: Counters, greeting: Greeting, connection: Connection, peers: Peers
    ) -> None:
        self._verifier = verifier
        self._counters = counters
        self._connection = connection
        self._peers = peers
        self._shown = greeting.shown
        self._is_for_others = greeting.is_for_others
        self._can_refresh = greeting.can_refresh
        self._version = greeting.protocol_version
        self._identity: Identity | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        """When the timer's next action is due, in seconds since 1970."""
        self._times_asked = 0
        """Moments at which the client was asked for another token than its present one."""
        self._is_asked = False
        """Whether the client owes an answer."""
        self._challenge_version: int | None = None
        """The protocol version of a broker's challenge that waits for the client's answer."""
        self._is_connected = False

    def prove(self, decided: Callable[[SessionEnd | None], None]) -> None:
        """Call `decided`, now or later, with the end of the session if the client proves no role, else None."""
        if self._is_for_others:
            why = "the client speaks for others (original_principal, proxy_version), as a proxy does; none is trusted"
            decided(self._refused(NotProved(why)))
            return

        def on_result(result: Identity | NotProved) -> None:
            if isinstance(result, NotProved):
                decided(self._refused(result))
                return
            self._count("accepted")
            self._identity = result
            self._connection.client_role, self._connection.role_is_proved = result.role, True
            if not self._verifier.forwards:
                self._shown = Credentials(self._shown.method, b"")
            decided(None)

        evidence = Evidence(self._shown, self._connection.certificate_name, self._connection.client_network)
        self._verifier.verify(evidence, on_result)

    def connect(self, frame: bytes) -> bytes:
        """Return the CONNECT for a broker, made of the client's or of one that was made before."""
        assert self._identity is not None, "proved"
        forwarded = self._shown if self._verifier.forwards and self._shown.data else None
        return greeting_for(frame, self._verifier.own, self._identity.role, forwarded)

    def connected(self) -> None:
        """Watch the end of the role: the broker has accepted the client."""
        if not self._is_connected:
            self._is_connected = True
            self._plan()

    def stop(self) -> None:
        """Ask for nothing more: the session ends."""
        self._is_connected = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def answered(self, command: CommandAuthResponse) -> None:
        """Take a client's answer to a challenge.

        Raises:
            UnaskedAuthError: If it was not asked.
        """
        before = self._identity
        if not self._is_asked or before is None:
            raise UnaskedAuthError("a client sent AUTH_RESPONSE without an AUTH_CHALLENGE")
        self._is_asked = False
        response = command.response
        if before.method != "token" or text(response.auth_method_name) not in {"", "token"}:
            self._end(NotProved("the client answers a challenge with another auth method"))
            return

        def decided(result: Identity | NotProved) -> None:
            if self._is_connected:
                self._answered(before, response.auth_data, result)

        self._verifier.verify_token(response.auth_data, self._connection.client_network, decided)

    def _answered(self, before: Identity, token: bytes, result: Identity | NotProved) -> None:
        if isinstance(result, NotProved) and result.is_passing:
            self._plan()  # it is asked again when its present token ends
            return
        if isinstance(result, Identity) and result.role != before.role:
            result = NotProved("the client answers a challenge with another role: a role cannot change while connected")
        if isinstance(result, NotProved):
            self._end(result)
            return
        self._count("refreshed")
        self._identity = result
        if self._verifier.forwards:
            self._shown = Credentials(before.method, token)
        if result.expires_at != before.expires_at:
            self._times_asked = 0
        if self._challenge_version is not None:
            self._tell_broker(self._shown, self._challenge_version)
            self._challenge_version = None
        self._plan()

    def challenged(self, command: CommandAuthChallenge) -> None:
        """Answer a broker that asks who is there.

        Before it has accepted the client it asks about Sluice itself; afterwards about what the client showed, where it
        has got that. It asks when that has expired by its own clock, so a client that can is asked for a newer one even
        if the present one is valid here: it may end before the broker has read it.
        """
        if not self._is_connected or not self._verifier.forwards or not self._shown.data:
            self._tell_broker(self._verifier.own, command.protocol_version)
        elif self._can_refresh and self._shown.method == "token":
            self._ask()
            self._challenge_version = command.protocol_version
        else:
            self._tell_broker(self._shown, command.protocol_version)

    def _tell_broker(self, shown: Credentials, version: int) -> None:
        response = AuthData(auth_method_name=shown.method, auth_data=shown.data)
        answer = CommandAuthResponse(client_version="Sluice", response=response, protocol_version=version)
        self._peers.tell_broker(encode(answer))

    def _plan(self) -> None:
        """Set the timer for the next step in the life of the present token."""
        expires_at = None if self._identity is None else self._identity.expires_at
        if expires_at is None or not self._is_connected:
            return
        if not self._can_refresh or self._times_asked == 1:
            self._due_at = expires_at
        elif self._times_asked == 0:
            left = max(0.0, expires_at - self._verifier.now())
            self._due_at = expires_at - min(AHEAD_S, left / 2)
        else:
            self._due_at = expires_at + ANSWER_S
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seconds = min(max(self._due_at - self._verifier.now(), _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._verifier.now() < self._due_at:
            self._arm()
        elif not self._can_refresh or self._times_asked > 1:
            self._end(NotProved("the client's token has expired, and it has shown no newer one"))
        else:
            self._times_asked += 1
            self._ask()
            self._plan()

    def _ask(self) -> None:
        if self._is_asked:
            return
        self._is_asked = True
        challenge = AuthData(auth_method_name="token", auth_data=REFRESH)
        asked = CommandAuthChallenge(server_version="Sluice", challenge=challenge, protocol_version=self._version)
        self._peers.tell_client(encode(asked))

    def _end(self, refusal: NotProved) -> None:
        """End a session that was connected, as its token has expired or a newer one proves nothing."""
        expires_at = None if self._identity is None else self._identity.expires_at
        is_over = expires_at is not None and expires_at <= self._verifier.now()
        self._count("expired" if is_over else "refused")
        close_reason = CloseReason.AUTHENTICATION_EXPIRED if is_over else CloseReason.AUTHENTICATION_FAILED
        self._peers.refuse_client(SessionEnd(close_reason, refusal.reason))

    def _refused(self, refusal: NotProved) -> SessionEnd:
        self._count("busy" if refusal.is_passing else "refused")
        close_reason = CloseReason.AUTHENTICATION_BUSY if refusal.is_passing else CloseReason.AUTHENTICATION_FAILED
        return SessionEnd(close_reason, refusal.reason)

    def _count(self, result: str) -> None:
        method = self._shown.method if self._shown.method in _METHODS else "other"
        self._counters.authentications[f"{method} {result}"] += 1
