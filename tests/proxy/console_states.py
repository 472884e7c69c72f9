"""What a proxy might answer to `sluice top`."""

from typing import Any

from proxy.cli.top_view import Poll, StreamState, StreamTotals


def state(**more: Any) -> StreamState:
    values: dict[str, Any] = {
        "direction": "publish",
        "topic": "persistent://acme/shop/orders",
        "connection_id": 1,
        "client_address": "192.0.2.7:40001",
        "client_role": "",
        "stream_id": 1,
        "producer_name": "p",
        "subscription": "",
        "offered_messages": 0,
        "passed_messages": 0,
        "rejected_messages": 0,
        "held_messages": 0,
        "held_bytes": 0,
        "held_for_ms": None,
        "waits_on": None,
        "observed": None,
    }
    return StreamState(**{**values, **more})


def poll(at_ms: float, *streams: StreamState, left_out: int = 0) -> Poll:
    held = [stream for stream in streams if stream.held_messages]
    messages, size = sum(stream.held_messages for stream in held), sum(stream.held_bytes for stream in held)
    totals = StreamTotals(len(streams) + left_out, len(held), messages, size)
    return Poll(at_ms, totals, list(streams), left_out)
