"""`GET /sluice/streams`: every open stream, what it offered and passed, and why it waits."""

from typing import Any

from limiter.limiter import Limiter
from limiter.stream import Stream
from proxy.observe.connection import Connection

MOST_SHOWN = 10_000


def streams_view(streams: list[Stream], now: int) -> dict[str, Any]:
    """The answer; held streams first, cut off at MOST_SHOWN (`left_out` says how many)."""
    ordered = sorted(streams, key=lambda stream: -stream.usage.held_messages)
    shown = ordered[:MOST_SHOWN]
    return {"streams": [_stream(stream, now) for stream in shown], "left_out": len(ordered) - len(shown)}


def _stream(stream: Stream, now: int) -> dict[str, Any]:
    name, usage, connection = stream.name, stream.usage, stream.connection
    assert isinstance(connection, Connection), "streams of the proxy belong to its connections"
    return {
        "direction": name.direction,
        "topic": name.topic,
        "connection_id": connection.connection_id,
        "client_address": connection.client_address,
        "stream_id": name.stream_id,
        "producer_name": name.producer_name,
        "subscription": name.subscription,
        "offered_messages": usage.offered_messages,
        "offered_bytes": usage.offered_size,
        "passed_messages": usage.passed_messages,
        "passed_bytes": usage.passed_size,
        "held_messages": usage.held_messages,
        "held_bytes": usage.held_size,
        "permits_asked": usage.permits_asked,
        "permits_granted": usage.permits_granted,
        "waits_on": _waiting(stream, now),
        "limits": [_limit(limiter) for limiter in stream.chain],
    }


def _waiting(stream: Stream, now: int) -> dict[str, Any] | None:
    if stream.waits_on is None:
        return None
    scope = stream.waits_on.scope
    return {"level": scope.level, "name": scope.name, "for_ms": stream.usage.throttled.running_ns(now) / 1e6}


def _limit(limiter: Limiter) -> dict[str, Any]:
    limit = limiter.limit
    return {
        "level": limiter.scope.level,
        "name": limiter.scope.name,
        "source": limiter.source,
        "messages_per_s": limit.messages.per_second if limit.messages else None,
        "bytes_per_s": limit.size.per_second if limit.size else None,
    }
