"""What the stand-in broker can be told."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from protocol.limits import DEFAULT_MAX_MESSAGE_SIZE
from protocol.topic_name import parse_topic

MB = 1024 * 1024
MOST_PARTITIONS = 1000


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How the broker behaves.

    `partitions` are the partitioned topics by full name. `topic_bytes` is the most that one topic keeps,
    `retention_bytes` how much of it although everybody has acknowledged it. `first_ledger` numbers the
    ledgers and the generated producer names: above those of an earlier run, or clients that outlive a
    restart would mistake new entries for old ones.
    """

    partitions: Mapping[str, int] = field(default_factory=dict)
    topic_bytes: int = 256 * MB
    retention_bytes: int = 0
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    first_ledger: int = 1


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` (`[HOST]:PORT` for IPv6) as host and port.

    Raises:
        ValueError: If it is none.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:6650 (port 0: any free one)")
    return host, int(port)


def parse_partitions(texts: Iterable[str]) -> dict[str, int]:
    """`TOPIC=PARTITIONS` pairs as partitions by the topic's full name.

    Raises:
        ValueError: If one of them is none.
    """
    partitions = {}
    for text in texts:
        topic, _, count = text.rpartition("=")
        if not topic or not (count.isascii() and count.isdigit()) or not 1 <= int(count) <= MOST_PARTITIONS:
            raise ValueError(f"{text!r} is not TOPIC=PARTITIONS with 1 to {MOST_PARTITIONS} partitions")
        partitions[parse_topic(topic).full] = int(count)
    return partitions
