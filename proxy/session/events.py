"""Close reasons of a session, and its reports: counters, access log, operator's log."""

import errno
import time
from collections.abc import Callable
from enum import StrEnum

import structlog
from mypy_extensions import mypyc_attr

from protocol.pulsar_pb2 import AuthenticationError, NotAllowedError, ServerError, ServiceNotReady, TooManyRequests
from proxy.counters import Counters
from proxy.observe.access_log import AccessLog
from proxy.observe.connection import Connection
from proxy.observe.intervals import Intervals
from proxy.observe.operator_log import ThrottledLog
from proxy.session.transport import PauseReason

MOST_DETAIL = 2000
"""Most characters of the sentence that says why a session ended."""


class CloseReason(StrEnum):
    """The reason why a session ended: a label of `sluice_connections_ended_total`, and a field of the access log."""

    CLIENT_CLOSED = "client_closed"
    """The client closed the connection."""
    CLIENT_RESET = "client_reset"
    """The client's connection was reset."""
    BROKER_CLOSED = "broker_closed"
    """The broker closed its connection."""
    BROKER_RESET = "broker_reset"
    """The broker's connection was reset."""
    CLIENT_GONE = "client_gone"
    """No sign of life came from the client for twice `keep_alive`: its host, or the way to it, is gone."""
    BROKER_GONE = "broker_gone"
    """No sign of life came from the broker for twice `keep_alive`."""
    SHUTDOWN = "shutdown"
    """The process ends."""
    DRAINED = "drained"
    """The process drains, so the client connects elsewhere: its streams were moved, or it was new and refused."""
    FRAME_ERROR = "frame_error"
    """One side broke the protocol."""
    PROXY_HEADER = "proxy_header"
    """The connection had no PROXY protocol header, though `proxy_protocol` asks for one, or one that Sluice refuses."""
    TLS_FAILED = "tls_failed"
    """TLS with the client failed; the detail names the failure."""
    TARGET_REFUSED = "target_refused"
    """The wanted broker is neither in `broker` or `allowed_brokers` nor named by a lookup answer."""
    BROKER_UNREACHABLE = "broker_unreachable"
    """No broker could be reached; the detail names each broker, with the reason."""
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    """The client had no connection to a broker within `handshake_timeout`."""
    TOO_MANY_CONNECTIONS = "too_many_connections"
    """Too many connections, in all or from one address."""
    CONNECTION_RATE = "connection_rate"
    """Too many new connections, in all or from one address."""
    WRITE_TIMEOUT = "write_timeout"
    """The client took none of the bytes sent to it for `write_timeout`."""
    OVER_BUDGET = "over_budget"
    """The memory kept for the client would have exceeded its bound (`client_memory`)."""
    AUTHENTICATION_FAILED = "authentication_failed"
    """The client's credentials prove no role (`authentication`)."""
    AUTHENTICATION_BUSY = "authentication_busy"
    """The client's password was not checked: too many passwords wait, or too many of its address were wrong."""
    AUTHENTICATION_EXPIRED = "authentication_expired"
    """The client's token expired while it was connected, and it showed no newer one."""
    BLOCKED = "blocked"
    """A block forbids the client (`sluice blocks`). The operator's log has it, and each connection that it ended."""
    KICKED = "kicked"
    """An operator ended the connection; the client may come again at once."""

    @property
    def is_trouble(self) -> bool:
        """True if the operator's log gets the end."""
        return self in _TROUBLE

    @property
    def error(self) -> ServerError:
        """The code of the ERROR for the client, where it gets one."""
        return _ERRORS.get(self, ServiceNotReady)

    @property
    def is_at_once(self) -> bool:
        """True if the connection closes at once, without waiting for the client to take the bytes left."""
        return self in _AT_ONCE

    @property
    def is_orderly(self) -> bool:
        """True if the client is sent an end after all bytes, and closes the connection itself."""
        return self in _ORDERLY

    @property
    def is_of_peer(self) -> bool:
        """True if a peer ended its connection itself."""
        return self in _OF_PEER


_OF_PEER = frozenset(
    {CloseReason.CLIENT_CLOSED, CloseReason.CLIENT_RESET, CloseReason.BROKER_CLOSED, CloseReason.BROKER_RESET}
)
_NOT_ADMITTED = frozenset({CloseReason.TOO_MANY_CONNECTIONS, CloseReason.CONNECTION_RATE})
_AT_ONCE = frozenset({CloseReason.WRITE_TIMEOUT, CloseReason.OVER_BUDGET})
_QUIET = frozenset({CloseReason.SHUTDOWN, CloseReason.DRAINED, CloseReason.BLOCKED, CloseReason.KICKED})
_ORDERLY = frozenset({CloseReason.DRAINED, CloseReason.KICKED})
_TROUBLE = frozenset(CloseReason) - _OF_PEER - _NOT_ADMITTED - _QUIET
_ERRORS = {
    CloseReason.BLOCKED: NotAllowedError,
    CloseReason.OVER_BUDGET: TooManyRequests,
    CloseReason.AUTHENTICATION_FAILED: AuthenticationError,
    CloseReason.AUTHENTICATION_BUSY: TooManyRequests,
    CloseReason.AUTHENTICATION_EXPIRED: AuthenticationError,
    **dict.fromkeys(_NOT_ADMITTED, TooManyRequests),
}


class SessionEnd:
    """The end of a session: its close reason for metrics, and a sentence for people.

    The sentence may quote a peer. It goes into the operator's log and the access log, so it is cut here.
    """

    __slots__ = ("close_reason", "detail")

    def __init__(self, close_reason: CloseReason, detail: str = "") -> None:
        self.close_reason = close_reason
        self.detail = detail[:MOST_DETAIL]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionEnd) and (self.close_reason, self.detail) == (other.close_reason, other.detail)

    def __hash__(self) -> int:
        return hash((self.close_reason, self.detail))

    def __repr__(self) -> str:
        return f"SessionEnd({self.close_reason!s}, {self.detail!r})"


_CLOSED = {"client": CloseReason.CLIENT_CLOSED, "broker": CloseReason.BROKER_CLOSED}
_RESET = {"client": CloseReason.CLIENT_RESET, "broker": CloseReason.BROKER_RESET}
GONE = {"client": CloseReason.CLIENT_GONE, "broker": CloseReason.BROKER_GONE}
_UNREACHABLE = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""The kernel's errors of a connection whose peer does not answer."""


def end_by_peer(side: str, error: Exception | None) -> SessionEnd:
    """Return the end for a lost connection to the `client` or the `broker`, with or without an error."""
    if error is None:
        return SessionEnd(_CLOSED[side])
    is_gone = isinstance(error, OSError) and error.errno in _UNREACHABLE
    return SessionEnd((GONE if is_gone else _RESET)[side], str(error))


SHORTEST_LINE_NS = 50_000_000
"""Pauses shorter than this are only counted: a thousand a second are ordinary where each entry or receipt may make one,
and their lines would crowd out those of the streams."""


@mypyc_attr(allow_interpreted_subclasses=True)  # by tests
class SessionLog:
    """Reports of the sessions of one process: counters, access log, and operator's log.

    Args:
        counters: The counters that the metrics read.
        intervals: Makes time spans.
        access: Gets a line for each connection and each pause.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, counters: Counters, intervals: Intervals, access: AccessLog, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._counters = counters
        self._intervals = intervals
        self._access = access
        self._operator = structlog.get_logger()
        self._troubles = ThrottledLog(clock)
        self._pauses: dict[tuple[int, str, PauseReason], int] = {}

    def opened(self, connection: Connection) -> None:
        """Count a client that connected."""
        self._counters.connections_accepted += 1
        self._counters.connections_open[connection.role] += 1

    def role_found(self, connection: Connection, role: str) -> None:
        """Count a connection under the role that its CONNECT names."""
        self._counters.connections_open[connection.role] -= 1
        connection.role = role
        self._counters.connections_open[role] += 1

    def throttle_changed(
        self, connection: Connection, side: str, reason: PauseReason, *, is_added: bool, now: int
    ) -> None:
        """Count a reason not to read that was raised or ended; write a line when a long one ends."""
        key, label = (connection.connection_id, side, reason), f"{side} {reason}"
        if is_added:
            self._counters.pauses[label] += 1
            self._counters.throttled[label] += 1
            self._pauses[key] = now
            return
        self._counters.resumes[label] += 1
        self._counters.throttled[label] -= 1
        started_at = self._pauses.pop(key)
        if now - started_at >= SHORTEST_LINE_NS:
            self._access.throttle(self._intervals.span_since(started_at), connection, side, str(reason))

    def ended(
        self,
        connection: Connection,
        end: SessionEnd,
        *,
        bytes_from_client: int,
        bytes_from_broker: int,
        started_at: int,
    ) -> None:
        """Count a connection that ended and write its line; the operator's log gets trouble."""
        self._counters.connections_open[connection.role] -= 1
        self._counters.connections_ended[str(end.close_reason)] += 1
        self._access.connection(
            self._intervals.span_since(started_at),
            connection,
            end_cause=str(end.close_reason),
            detail=end.detail,
            bytes_from_client=bytes_from_client,
            bytes_from_broker=bytes_from_broker,
        )
        if end.close_reason.is_trouble:
            self._log_trouble(connection, end)

    def _log_trouble(self, connection: Connection, end: SessionEnd) -> None:
        """Log the first end of an address in a while, with the number since; the access log has all."""
        connections = self._troubles.due(str(end.close_reason), connection.client_network)
        if connections:
            self._operator.warning(
                "connection closed",
                cause=str(end.close_reason),
                detail=end.detail,
                client=connection.client_address,
                connection=connection.connection_id,
                connections=connections,
            )
