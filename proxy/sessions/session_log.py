"""What a session tells the world: counters, access log, and the operator's log."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import structlog
from mypy_extensions import mypyc_attr

from proxy.observe.connection import Connection
from proxy.observe.counters import Counters
from proxy.observe.log_lines import Span
from proxy.observe.operator_log import ThrottledLog
from proxy.sessions.ends import End
from proxy.sessions.throttle import Cause

SHORTEST_LINE_NS = 50_000_000
"""Shorter pauses are counted only: a thousand a second are ordinary where each entry or receipt may make one, and
their lines would crowd out those of the streams."""


class Spans(Protocol):
    """Who knows the time: `observe.intervals.Intervals`."""

    def span_since(self, started_at: int) -> Span:
        """From a monotonic moment until now."""


class Lines(Protocol):
    """Who writes lines: `observe.access_log.AccessLog`."""

    def connection(self, span: Span, connection: Connection, *, detail: str, **end: Any) -> None:
        """A connection ended."""

    def throttle(self, span: Span, connection: Connection, side: str, cause: str) -> None:
        """A reason not to read ended."""


@mypyc_attr(allow_interpreted_subclasses=True)  # a worker's tells its supervisor
class SessionLog:
    """Shared by all sessions.

    Args:
        counters: Read by the metrics.
        intervals: Knows the time.
        access: Gets a line for each connection and each pause.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, counters: Counters, intervals: Spans, access: Lines, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._counters = counters
        self._intervals = intervals
        self._access = access
        self._operator = structlog.get_logger()
        self._troubles = ThrottledLog(clock)
        self._pauses: dict[tuple[int, str, Cause], int] = {}

    def opened(self, connection: Connection) -> None:
        """A client connected."""
        self._counters.connections_accepted += 1
        self._counters.connections_open[connection.role] += 1

    def role_found(self, connection: Connection, role: str) -> None:
        """Its CONNECT said what it is for."""
        self._counters.connections_open[connection.role] -= 1
        connection.role = role
        self._counters.connections_open[role] += 1

    def throttle_changed(self, connection: Connection, side: str, cause: Cause, *, is_raised: bool, now: int) -> None:
        """Reading got a reason to stop, or lost it."""
        key, label = (connection.connection_id, side, cause), f"{side} {cause}"
        if is_raised:
            self._counters.pauses[label] += 1
            self._counters.throttled[label] += 1
            self._pauses[key] = now
            return
        self._counters.resumes[label] += 1
        self._counters.throttled[label] -= 1
        started_at = self._pauses.pop(key)
        if now - started_at >= SHORTEST_LINE_NS:
            self._access.throttle(self._intervals.span_since(started_at), connection, side, str(cause))

    def ended(self, connection: Connection, end: End, bytes_read: tuple[int, int], started_at: int) -> None:
        """A connection is over."""
        self._counters.connections_open[connection.role] -= 1
        self._counters.connections_ended[str(end.cause)] += 1
        from_client, from_broker = bytes_read
        self._access.connection(
            self._intervals.span_since(started_at),
            connection,
            end_cause=str(end.cause),
            detail=end.detail,
            bytes_from_client=from_client,
            bytes_from_broker=from_broker,
        )
        if end.cause.is_trouble:
            self._tell_operator(connection, end)

    def _tell_operator(self, connection: Connection, end: End) -> None:
        """The first of an address in a while, and how many it had since; the access log has all of them."""
        connections = self._troubles.due(str(end.cause), connection.client_network)
        if connections:
            self._operator.warning(
                "connection closed",
                cause=str(end.cause),
                detail=end.detail,
                client=connection.client_address,
                connection=connection.connection_id,
                connections=connections,
            )
