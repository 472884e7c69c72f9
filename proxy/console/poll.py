"""One look at a proxy: what its admin address says on `/sluice/streams`."""

import http.client
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from proxy.brokers.targets import split_address

MOST_STREAMS = 10_000
"""As many as one answer can hold."""
_PATIENCE_S = 10
_MOST_BYTES = 64 * 1024 * 1024
_REMEDY = "--admin must be the admin address of a running `sluice serve`"

Count = Annotated[int, Meta(ge=0)]


class NoAnswerError(Exception):
    """The address gives no answer, or not a proxy's; the text names it and says what to do."""


class Waiting(Struct, frozen=True):
    """The limit that a stream or its permits wait on, per second; `published_…`: what of it the topic publishes."""

    level: str
    name: str
    messages_per_s: float | None
    bytes_per_s: float | None
    for_ms: float
    published_messages_per_s: float | None = None
    published_bytes_per_s: float | None = None


class WouldHold(Struct, frozen=True):
    """What limits in mode `observe` would hold."""

    held_messages: Count


class StreamState(Struct, frozen=True):
    """One producer or consumer; counts are since it was opened."""

    direction: str
    topic: str
    connection_id: int
    client_address: str
    client_role: str
    stream_id: int
    producer_name: str
    subscription: str
    offered_messages: Count
    passed_messages: Count
    rejected_messages: Count
    held_messages: Count
    held_bytes: Count
    held_for_ms: float | None
    waits_on: Waiting | None
    observed: WouldHold | None
    permits_withheld: Count = 0
    permits_at_broker: int = 0
    permits_wait_on: Waiting | None = None


class Totals(Struct, frozen=True):
    """Sums over all open streams."""

    streams: Count
    held_streams: Count
    held_messages: Count
    held_bytes: Count


class Poll(Struct, frozen=True):
    """The answer; `left_out` counts the streams that it does not hold."""

    monotonic_ms: float
    totals: Totals
    streams: list[StreamState]
    left_out: Count


def fetch(admin: str) -> Poll:
    """Ask once.

    Raises:
        NoAnswerError: If there is no answer, or another one than a proxy's.
    """
    try:
        status, body = _get(admin)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NoAnswerError(f"{admin}: no answer ({str(error) or type(error).__name__}); {_REMEDY}") from None
    if status != http.HTTPStatus.OK:
        raise NoAnswerError(f"{admin}: HTTP {status} to the question for its streams; {_REMEDY}")
    try:
        return msgspec.json.decode(body, type=Poll)
    except msgspec.DecodeError as error:
        raise NoAnswerError(f"{admin}: the answer is not that of a Sluice like this one ({error}); {_REMEDY}") from None


def _get(admin: str) -> tuple[int, bytes]:
    host, port = split_address(admin)
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", f"/sluice/streams?limit={MOST_STREAMS}")
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)
    finally:
        connection.close()
