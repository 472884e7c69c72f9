"""What a worker's sessions would write into the access log: its supervisor writes it."""

import time
from collections.abc import Callable
from typing import Any

from limiter.workers.letters import Letter
from proxy.observe.connection import Connection
from proxy.observe.counters import Counters
from proxy.observe.log_lines import LineSpan
from proxy.session.events import SessionEnd, SessionLog
from proxy.session.transport import Cause
from proxy.workers.letters import Ended, Resumed, Stretch, Whose


class FarLog:
    """Lines as letters; stands in the place of the access log, and of what knows the time.

    Args:
        tell: Takes each letter.
    """

    def __init__(self, tell: Callable[[Letter], None]) -> None:
        self._tell = tell

    def span_since(self, started_at: int) -> LineSpan:
        """From a monotonic moment until now."""
        wall, now = time.time_ns(), time.monotonic_ns()
        return LineSpan(wall - (now - started_at), wall, now - started_at)

    def connection(self, span: LineSpan, connection: Connection, *, detail: str, **end: Any) -> None:
        """A connection ended."""
        self._tell(Ended(whose_of(connection), _stretch(span), detail=detail, **end))

    def throttle(self, span: LineSpan, connection: Connection, side: str, cause: str) -> None:
        """A reason not to read ended."""
        self._tell(Resumed(whose_of(connection), _stretch(span), side, cause))


class WorkerLog(SessionLog):
    """What sessions tell; and that there is something to count.

    Args:
        counters: The worker's.
        log: Gets the lines.
        counted: Called when something was counted.
    """

    def __init__(self, counters: Counters, log: FarLog, counted: Callable[[], None]) -> None:
        super().__init__(counters, log, log)
        self._counted = counted

    def opened(self, connection: Connection) -> None:
        """A client connected."""
        super().opened(connection)
        self._counted()

    def role_found(self, connection: Connection, role: str) -> None:
        """Its CONNECT said what it is for."""
        super().role_found(connection, role)
        self._counted()

    def throttle_changed(self, connection: Connection, side: str, cause: Cause, *, is_raised: bool, now: int) -> None:
        """Reading got a reason to stop, or lost it."""
        super().throttle_changed(connection, side, cause, is_raised=is_raised, now=now)
        self._counted()

    def ended(self, connection: Connection, end: SessionEnd, bytes_read: tuple[int, int], started_at: int) -> None:
        """A connection is over."""
        super().ended(connection, end, bytes_read, started_at)
        self._counted()


def whose_of(connection: Connection) -> Whose:
    """A connection, as letters name it."""
    return (
        connection.connection_id,
        connection.client_address,
        connection.client_version,
        connection.client_role,
        connection.role,
        connection.broker,
        connection.is_tls,
        connection.role_is_proved,
    )


def _stretch(span: LineSpan) -> Stretch:
    return span.start_wall, span.end_wall, span.duration
