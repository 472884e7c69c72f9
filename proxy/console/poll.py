"""One look at a proxy: what its admin address says on `/sluice/streams`."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from proxy.admin_link import AdminLink
from proxy.admin_options import AdminLinkError

MOST_STREAMS = 10_000
"""As many as one answer can hold."""

Count = Annotated[int, Meta(ge=0)]


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


def fetch(link: AdminLink) -> Poll:
    """Ask once.

    Raises:
        AdminLinkError: If there is no answer, or another one than a proxy's.
    """
    body = link.get("/sluice/streams", {"limit": str(MOST_STREAMS)})
    try:
        return msgspec.json.decode(body, type=Poll)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AdminLinkError(f"{link.address}: the answer is not that of a Sluice like this one ({error})") from None
