"""What is told to a publishing process, and what it tells at its end: JSON in files."""

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
MESSAGE_BYTES = 100
GREEDY = 20_000.0
"""Messages per second offered by a lane that wants all it can get; its pending queue is what bounds it."""


class LaneOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time in which one producer offers messages; lanes of one client and topic share the producer."""

    client: str
    """Lanes that name the same share a client, hence a connection."""
    topic: str
    index: int
    """What the lane's messages carry, so that the receiving end can tell them apart."""
    begin_s: float = 0.0
    end_s: float
    rate: float = GREEDY
    pending: int = 200
    """Messages without receipt at most."""
    most: int | None = None
    """Messages in all."""
    batch: int = 1
    """Messages in a batch; 1: no batching."""


class Order(msgspec.Struct, frozen=True):
    """One trial's load."""

    service_url: str
    run: bytes
    """What the payloads of this trial carry."""
    lanes: list[LaneOrder]
    drain_s: float
    """Longest wait for outstanding receipts at the end, seconds."""


class LaneResult(msgspec.Struct, frozen=True):
    """What became of a lane's messages at the sending end."""

    index: int
    latencies: list[float]
    """Seconds from offer to receipt, one for each receipt."""
    unsettled: int
    errors: dict[str, int]


class Result(msgspec.Struct, frozen=True):
    """What a publishing process tells at its end."""

    lanes: list[LaneResult]
    longest_pause_s: float
    """How long it stood still at most while it was to look at its lanes every 5 ms: what the machine did to it."""


def order_file(folder: Path) -> Path:
    """Where the order stands."""
    return folder / "order.json"


def began_file(folder: Path) -> Path:
    """Appears when all producers are there; holds when second 0 is (`time.monotonic`, the same in all processes)."""
    return folder / "began.json"


def result_file(folder: Path) -> Path:
    """Appears at the end."""
    return folder / "result.json"


def write(path: Path, content: object) -> None:
    """Write it so that whoever sees the file sees all of it."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(msgspec.json.encode(content))
    unfinished.replace(path)


def read(path: Path, kind: type[T]) -> T:
    """What `write` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=kind)
