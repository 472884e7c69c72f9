"""What a stream looks like in `GET /sluice/streams`."""

from typing import TypedDict

from limiter.rates import Direction, Mode


class Totals(TypedDict):
    """Sums over streams."""

    streams: int
    held_streams: int
    held_messages: int
    held_bytes: int


class Obstacle(TypedDict):
    """The limit that something waits for, and for how long already."""

    level: str
    name: str
    source: str
    messages_per_s: float | None
    bytes_per_s: float | None
    published_messages_per_s: float | None
    published_bytes_per_s: float | None
    for_ms: float


class ShownStreamLimit(TypedDict):
    """A limit in force; what it does not limit is null."""

    level: str
    name: str
    source: str
    mode: Mode
    messages_per_s: float | None
    bytes_per_s: float | None
    burst_messages: int | None
    burst_bytes: int | None
    peak_messages_per_s: float | None
    peak_bytes_per_s: float | None
    relative_to_publish_rate: bool
    published_messages_per_s: float | None
    published_bytes_per_s: float | None


class ShownObserved(TypedDict):
    """What limits that only observe would do."""

    held_messages: int
    held_bytes: int
    held_for_ms: float | None
    throttled_ms: float
    exceeded_messages: int


class ShownStream(TypedDict):
    """One producer or consumer; counts are since it was opened."""

    direction: Direction
    topic: str
    connection_id: int
    client_address: str
    client_role: str
    stream_id: int
    producer_name: str
    subscription: str
    consumer_name: str
    offered_messages: int
    offered_bytes: int
    passed_messages: int
    passed_bytes: int
    rejected_messages: int
    rejected_bytes: int
    dropped_messages: int
    throttled_ms: float
    held_messages: int
    held_bytes: int
    held_for_ms: float | None
    oldest_held_ms: float | None
    permits_asked: int
    permits_granted: int
    permits_withheld: int
    permits_at_broker: int
    permits_wait_on: Obstacle | None
    waits_on: Obstacle | None
    limits: list[ShownStreamLimit]
    observed: ShownObserved | None
