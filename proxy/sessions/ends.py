"""Why sessions end."""

from enum import StrEnum
from typing import NamedTuple, Self

from protocol.pulsar_pb2 import NotAllowedError, ServerError, ServiceNotReady, TooManyRequests

MOST_DETAIL = 2000
"""Characters that are told of why a session ended."""


class EndCause(StrEnum):
    """A fixed word for each kind of end: a label of `sluice_connections_ended_total`, and a field of the access log."""

    CLIENT_CLOSED = "client_closed"
    CLIENT_RESET = "client_reset"
    BROKER_CLOSED = "broker_closed"
    BROKER_RESET = "broker_reset"
    SHUTDOWN = "shutdown"
    """The process ends."""
    FRAME_ERROR = "frame_error"
    """One side broke the protocol."""
    TARGET_REFUSED = "target_refused"
    """The wanted broker is not on the allow-list."""
    BROKER_UNREACHABLE = "broker_unreachable"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    """In all, or of one address; the operator's log has these, and the next, as a sum."""
    CONNECTION_RATE = "connection_rate"
    """Too many of them were new."""
    WRITE_TIMEOUT = "write_timeout"
    """The client took nothing of what was sent to it (`write_timeout`)."""
    OVER_BUDGET = "over_budget"
    """More would have been kept for the client than may be (`client_memory`)."""
    BLOCKED = "blocked"
    """A rule keeps the client out; the operator's log has the rule, and each live connection that it ended."""

    @property
    def is_trouble(self) -> bool:
        """Whether an operator should hear of it."""
        return self in _TROUBLE

    @property
    def error(self) -> ServerError:
        """What the client is told, if it is told."""
        return _ERRORS.get(self, ServiceNotReady)

    @property
    def is_at_once(self) -> bool:
        """Whether nobody waits for the client to take what is left."""
        return self in _AT_ONCE

    @property
    def is_of_peer(self) -> bool:
        """Whether a peer ended its connection itself."""
        return self in _OF_PEER


_OF_PEER = frozenset({EndCause.CLIENT_CLOSED, EndCause.CLIENT_RESET, EndCause.BROKER_CLOSED, EndCause.BROKER_RESET})
_NOT_ADMITTED = frozenset({EndCause.TOO_MANY_CONNECTIONS, EndCause.CONNECTION_RATE})
_AT_ONCE = frozenset({EndCause.WRITE_TIMEOUT, EndCause.OVER_BUDGET})
_TROUBLE = frozenset(EndCause) - _OF_PEER - _NOT_ADMITTED - {EndCause.SHUTDOWN, EndCause.BLOCKED}
_ERRORS = {
    EndCause.BLOCKED: NotAllowedError,
    EndCause.OVER_BUDGET: TooManyRequests,
    **dict.fromkeys(_NOT_ADMITTED, TooManyRequests),
}


class _End(NamedTuple):
    cause: EndCause
    detail: str


class End(_End):
    """Why a session ended: a fixed word for metrics, and a sentence for people.

    The sentence may quote a peer. It goes into the operator's log, the access log, and from a worker to its supervisor:
    so it is cut here, for all of them.
    """

    __slots__ = ()

    def __new__(cls, cause: EndCause, detail: str = "") -> Self:
        """An end, its sentence cut."""
        return super().__new__(cls, cause, detail[:MOST_DETAIL])


_CLOSED = {"client": EndCause.CLIENT_CLOSED, "broker": EndCause.BROKER_CLOSED}
_RESET = {"client": EndCause.CLIENT_RESET, "broker": EndCause.BROKER_RESET}


def end_by_peer(side: str, error: Exception | None) -> End:
    """The end when the connection of the `client` or the `broker` is gone, by an error or without one."""
    return End(_CLOSED[side]) if error is None else End(_RESET[side], str(error))
