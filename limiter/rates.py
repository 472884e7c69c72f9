"""Values of limits: rates, bursts, modes. No behaviour."""

from dataclasses import dataclass
from typing import Literal

NANOS_PER_SECOND = 1_000_000_000
SMALLEST_BURST_NS = 20_000_000
"""How late a timer may be, on a busy machine, without costing throughput."""
PUBLISH_WINDOW_NS = 10 * NANOS_PER_SECOND
"""Time over which a topic's publish rate is averaged."""

Direction = Literal["publish", "dispatch"]
DIRECTIONS: tuple[Direction, ...] = ("publish", "dispatch")
"""All directions."""
Mode = Literal["enforce", "observe", "reject"]


@dataclass(frozen=True, slots=True)
class Rate:
    """`tokens` per period, and the capacity of the bucket: `burst` tokens.

    Raises:
        ValueError: If one of the three is not positive.
    """

    tokens: int
    period_ns: int
    burst: int

    def __post_init__(self) -> None:
        if self.tokens <= 0 or self.period_ns <= 0 or self.burst <= 0:
            raise ValueError(f"tokens, period and burst must be above 0, not {self}")

    @property
    def per_second(self) -> float:
        """The rate in tokens per second."""
        return self.tokens * NANOS_PER_SECOND / self.period_ns


def rate(tokens: int, period_ns: int = NANOS_PER_SECOND, burst: int | None = None) -> Rate:
    """Return a rate with Sluice's default burst where none is given.

    The default is a tenth of a period's worth, so that no second sees more than 1.1 times the limit (Pulsar's whole
    period lets twice the limit pass); but never under 20 ms' worth, or the event loop's own lag would cost
    throughput, and never under one token.
    """
    if burst is None:
        burst = max(tokens // 10, tokens * SMALLEST_BURST_NS // period_ns, 1)
    return Rate(tokens, period_ns, burst)


@dataclass(frozen=True, slots=True)
class Published:
    """A topic's publish rate, rounded up, per `PUBLISH_WINDOW_NS`: per second all slow rates would become 1/s."""

    messages: int = 0
    size: int = 0


NOTHING_PUBLISHED = Published()


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits on messages and bytes; None means that this one is not limited.

    Args:
        messages: The sustained rate of messages.
        size: The sustained rate of bytes.
        peak_messages: A second, higher rate that holds while the sustained one's burst is being used up.
        peak_size: The peak rate of bytes.
        mode: `enforce`: entries over the limit are held. `observe`: nothing is held, but entries that would have been
            held are counted. `reject`: entries over the limit are refused at once (publish only).
        published: The topic's publish rate that the rates here include (relativeToPublishRate); in a configured limit
            it is still zero. None: the limit is not relative.
    """

    messages: Rate | None = None
    size: Rate | None = None
    peak_messages: Rate | None = None
    peak_size: Rate | None = None
    mode: Mode = "enforce"
    published: Published | None = None

    def __bool__(self) -> bool:
        return self.messages is not None or self.size is not None
