"""What is written into the access log, and in which order: every line of a process has its number."""

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from accesslog.record import ConnectionLine, HeartbeatLine, IntervalLine, LimitLine, Line, ThrottleLine
from limiter.limiter import Limiter
from limiter.rates import Rate
from limiter.stream import Stream
from proxy.observe.connection import Connection
from proxy.observe.log_files import LogFiles


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when: wall clock for people, monotonic for rates; nanoseconds."""

    start_wall: int
    end_wall: int
    duration: int

    def fields(self) -> dict[str, Any]:
        """As the lines have it."""
        return {"start": _utc(self.start_wall), "end": _utc(self.end_wall), "duration_ms": self.duration / 1e6}


def _utc(wall_ns: int) -> datetime:
    return datetime.fromtimestamp(wall_ns // 1000 / 1e6, UTC)


class AccessLog:
    """Numbers and encodes lines.

    Args:
        proxy_id: Which proxy this is.
        files: Where they go; None to write none.
    """

    def __init__(self, proxy_id: str, boot_id: str, files: LogFiles | None) -> None:
        self.boot_id = boot_id
        self._proxy_id = proxy_id
        self._files = files
        self._seq = 0
        self._pending = bytearray()
        self._pending_lines = 0
        self._encoder = msgspec.json.Encoder()

    @property
    def dropped_lines(self) -> int:
        """Lines that could not be written."""
        return self._files.dropped if self._files else 0

    @property
    def lines(self) -> int:
        """Lines so far, the dropped ones included."""
        return self._seq

    def interval(self, span: Span, stream: Stream, changes: dict[str, Any]) -> None:
        """What a stream did in `span`; `changes` are the counts of that span."""
        name, connection = stream.name, stream.connection
        assert isinstance(connection, Connection), "streams of the proxy belong to its connections"
        narrowest = stream.chain[-1] if stream.chain else None
        self._add(
            IntervalLine,
            span,
            direction=name.direction,
            tenant=name.tenant,
            namespace=name.namespace,
            topic=name.topic,
            connection_id=connection.connection_id,
            client_address=connection.client_address,
            client_version=connection.client_version,
            stream_id=name.stream_id,
            producer_name=name.producer_name,
            subscription=name.subscription,
            held_messages=stream.usage.held_messages,
            held_bytes=stream.usage.held_size,
            limit_level=narrowest.scope.level if narrowest else "",
            limit_messages=_per_second(narrowest.limit.messages) if narrowest else None,
            limit_bytes=_per_second(narrowest.limit.size) if narrowest else None,
            **changes,
        )

    def limit(self, span: Span, limiter: Limiter, changes: dict[str, Any]) -> None:
        """What a limiter passed in `span`."""
        scope, limit = limiter.scope, limiter.limit
        self._add(
            LimitLine,
            span,
            direction=scope.direction,
            level=scope.level,
            name=scope.name,
            tenant=scope.tenant,
            namespace=scope.namespace,
            source=limiter.source,
            mode="enforce",
            limit_messages=_per_second(limit.messages),
            limit_bytes=_per_second(limit.size),
            burst_messages=float(limit.messages.burst) if limit.messages else None,
            burst_bytes=float(limit.size.burst) if limit.size else None,
            **changes,
        )

    def connection(self, span: Span, connection: Connection, **end: Any) -> None:
        """A connection ended."""
        self._add(
            ConnectionLine,
            span,
            connection_id=connection.connection_id,
            client_address=connection.client_address,
            client_version=connection.client_version,
            role=connection.role,
            broker=connection.broker,
            **end,
        )
        self.flush()

    def throttle(self, span: Span, connection: Connection, side: str, cause: str) -> None:
        """A reason not to read ended."""
        self._add(
            ThrottleLine,
            span,
            connection_id=connection.connection_id,
            client_address=connection.client_address,
            side=side,
            cause=cause,
        )
        self.flush()

    def heartbeat(self, span: Span, *, last: bool) -> None:
        """The process lived through `span`."""
        self._add(HeartbeatLine, span, dropped_lines=self.dropped_lines, last=last)
        self.flush()

    def flush(self) -> None:
        """Hand what was added to the files."""
        if self._files is not None and self._pending:
            self._files.write(bytes(self._pending), self._pending_lines)
        self._pending.clear()
        self._pending_lines = 0

    def close(self, patience_s: float = 5.0) -> bool:
        """Write everything and close. False if the disk did not take it in time."""
        self.flush()
        return self._files is None or self._files.close(patience_s)

    def _add(self, kind: type[Line], span: Span, **fields: Any) -> None:
        line = kind(proxy_id=self._proxy_id, boot_id=self.boot_id, seq=self._seq, **span.fields(), **fields)
        self._seq += 1
        if self._files is not None:
            self._pending += self._encoder.encode(line)
            self._pending += b"\n"
            self._pending_lines += 1


def new_boot_id() -> str:
    """A name for this run: sorts by time, and no two are the same."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def _per_second(rate: Rate | None) -> float | None:
    return None if rate is None else rate.per_second
