"""What is written into the access log, and in which order: every line of a process has its number."""

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from accesslog.record import ChangeLine, ConnectionLine, HeartbeatLine, IntervalLine, LimitLine, Line, ThrottleLine
from limiter.limiter import Limiter
from limiter.stream import Stream
from proxy.observe.connection import Connection
from proxy.observe.log_files import LogFiles
from proxy.observe.reasons import narrowest, per_second, published_per_second, reason

MOST_CHANGE_TEXT = 1000
"""Characters of each text of a change line."""


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when: wall clock for people, monotonic for rates; nanoseconds."""

    start_wall: int
    end_wall: int
    duration: int

    def fields(self) -> dict[str, Any]:
        """As the lines have it."""
        return {"start": _utc(self.start_wall), "end": _utc(self.end_wall), "duration_ms": self.duration / 1e6}

    def before_end(self, elapsed: int) -> datetime:
        """The wall clock's time so many nanoseconds before the end."""
        return _utc(self.end_wall - elapsed)


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
        self._span: Span | None = None
        self._span_fields: dict[str, Any] = {}

    @property
    def dropped_lines(self) -> int:
        """Lines that could not be written."""
        return self._files.dropped if self._files else 0

    @property
    def lines(self) -> int:
        """Lines so far, the dropped ones included."""
        return self._seq

    def interval(self, span: Span, stream: Stream, fields: dict[str, Any]) -> None:
        """What a stream did in `span`; `fields` are what was counted in it."""
        name, connection = stream.name, stream.connection
        assert isinstance(connection, Connection), "streams of the proxy belong to its connections"
        level, messages, size = narrowest(stream.chain)
        has_reason = stream.held or fields["throttled_ms"] or fields["rejected_messages"]
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
            client_role=connection.client_role,
            stream_id=name.stream_id,
            producer_name=name.producer_name,
            subscription=name.subscription,
            held_messages=stream.usage.held_messages,
            held_bytes=stream.usage.held_size,
            permits_withheld=stream.permits.asked if stream.permits else 0,
            limit_level=level,
            limit_messages=messages,
            limit_bytes=size,
            **(_why(stream) if has_reason else _NO_REASON),
            **fields,
        )

    def limit(self, span: Span, limiter: Limiter, changes: dict[str, Any]) -> None:
        """What a limiter passed in `span`."""
        scope, limit = limiter.scope, limiter.limit
        published_messages, published_bytes = published_per_second(limit)
        self._add(
            LimitLine,
            span,
            direction=scope.direction,
            level=scope.level,
            name=scope.name,
            tenant=scope.tenant,
            namespace=scope.namespace,
            source=limiter.source,
            mode=limit.mode,
            limit_messages=per_second(limit.messages),
            limit_bytes=per_second(limit.size),
            burst_messages=float(limit.messages.burst) if limit.messages else None,
            burst_bytes=float(limit.size.burst) if limit.size else None,
            peak_messages=per_second(limit.peak_messages),
            peak_bytes=per_second(limit.peak_size),
            published_messages=published_messages,
            published_bytes=published_bytes,
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
            client_role=connection.client_role,
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

    def change(self, moment: Span, **said: str | None) -> None:
        """Somebody changed something; `said` are the line's fields, each cut where it is long."""
        self._add(ChangeLine, moment, **{name: _cut(text) for name, text in said.items()})
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
        if span is not self._span:  # thousands of lines of one interval have the same
            self._span, self._span_fields = span, span.fields()
        line = kind(proxy_id=self._proxy_id, boot_id=self.boot_id, seq=self._seq, **self._span_fields, **fields)
        self._seq += 1
        if self._files is not None:
            self._pending += self._encoder.encode(line)
            self._pending += b"\n"
            self._pending_lines += 1


def new_boot_id() -> str:
    """A name for this run: sorts by time, and no two are the same."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MOST_CHANGE_TEXT else text[: MOST_CHANGE_TEXT - 1] + "…"


_NO_REASON: dict[str, Any] = {"reason": ""}


def _why(stream: Stream) -> dict[str, Any]:
    """The limit that held or rejected something of a stream."""
    limiter = reason(stream)
    if limiter is None:
        return {"reason": stream.last_reason}
    return {
        "reason": limiter.scope.level,
        "reason_name": limiter.scope.name,
        "reason_messages": per_second(limiter.limit.messages),
        "reason_bytes": per_second(limiter.limit.size),
    }
