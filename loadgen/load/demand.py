"""When a limit had demand, and how much of it was used then: the other half of compliance (P7).

Demand is what clients have on its way without a receipt. While it stays above a threshold, nothing but the limit can
be the reason for waiting, so the receiving end must see the limit's rate.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a limit was used while it was wanted."""

    loaded_s: float
    """How long there was demand, seconds."""
    messages: int
    """Arrivals in that time."""
    share: float | None
    """Arrivals divided by what the limit grants in that time; None if there was never demand."""


def loaded_spans(samples: Iterable[tuple[float, int]], threshold: float) -> list[Span]:
    """Spans in which every sample was at or above `threshold`.

    Args:
        samples: Time in seconds, ascending, and messages on their way then.
        threshold: Messages.
    """
    spans: list[Span] = []
    begin: float | None = None
    last = 0.0
    for at, waiting in samples:
        if waiting >= threshold:
            begin, last = (at if begin is None else begin), at
        elif begin is not None:
            spans.append((begin, last))
            begin = None
    if begin is not None:
        spans.append((begin, last))
    return spans


def use_of(rate: float, spans: Sequence[Span], times: Sequence[float]) -> Use:
    """How much of `rate` messages/s the arrivals at `times` (ascending) make in `spans`."""
    loaded_s = sum(end - begin for begin, end in spans)
    messages = sum(bisect_left(times, end) - bisect_left(times, begin) for begin, end in spans)
    return Use(loaded_s, messages, messages / (rate * loaded_s) if loaded_s > 0 else None)
