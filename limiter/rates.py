"""What a limit says: values only."""

from dataclasses import dataclass
from typing import Literal

NANOS_PER_SECOND = 1_000_000_000
_SMALLEST_BURST_NS = 20_000_000

Direction = Literal["publish", "dispatch"]


@dataclass(frozen=True, slots=True)
class Rate:
    """`tokens` per period, with room for `burst` tokens.

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
        """Tokens per second."""
        return self.tokens * NANOS_PER_SECOND / self.period_ns


def rate(tokens: int, period_ns: int = NANOS_PER_SECOND, burst: int | None = None) -> Rate:
    """A rate with Sluice's default burst where none is given.

    The default is a tenth of a period's worth, so that no second sees more than 1.1 times the limit (Pulsar's whole
    period lets twice the limit pass); but never under 20 ms' worth, or the event loop's own lag would cost
    throughput, and never under one token.
    """
    if burst is None:
        burst = max(tokens // 10, tokens * _SMALLEST_BURST_NS // period_ns, 1)
    return Rate(tokens, period_ns, burst)


@dataclass(frozen=True, slots=True)
class Limit:
    """Messages and bytes that may pass; None means that this one is not limited."""

    messages: Rate | None = None
    size: Rate | None = None

    def __bool__(self) -> bool:
        return self.messages is not None or self.size is not None
