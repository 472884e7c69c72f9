"""What rows about one connection have in common: what B, who is free, notices of A, who is held at a low limit."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.bench_limits.figures import Figure, Goal, Samples
from loadgen.bench_limits.measures import percentile

LIMIT = 10
RATE = 200
PENDING = 20_000
"""More than B ever has on its way: it offers at its pace, whatever comes back."""

NOTICED = (
    Figure("ratio", "B's p50 latency, beside ÷ alone", " x", 2, Goal("≤", 1.2)),
    Figure("p50_alone", "B's p50 alone", " ms", 2),
    Figure("p50_beside", "B's p50 beside A", " ms", 2),
    Figure("p99_alone", "B's p99 alone", " ms", 2),
    Figure("p99_beside", "B's p99 beside A", " ms", 2),
    Figure("rate", f"B's rate beside A, of {RATE}/s", " %", 1, Goal("≥", 99)),
)


@dataclass(frozen=True, slots=True)
class Times:
    """When the spans of a trial begin, seconds."""

    alone: float
    held: float
    """From here on A does all it can."""
    beside: float
    end: float


def noticed(times: Times, alone_ms: Sequence[float], beside_ms: Sequence[float], in_time: int) -> Samples:
    """These figures of one trial.

    Args:
        times: Its spans.
        alone_ms: B's latencies before A was there.
        beside_ms: Those beside A.
        in_time: B's messages that arrived beside A.
    """
    return {
        "ratio": [percentile(beside_ms, 0.5) / percentile(alone_ms, 0.5)],
        "p50_alone": [percentile(alone_ms, 0.5)],
        "p50_beside": [percentile(beside_ms, 0.5)],
        "p99_alone": [percentile(alone_ms, 0.99)],
        "p99_beside": [percentile(beside_ms, 0.99)],
        "rate": [100 * in_time / (RATE * (times.end - times.beside))],
    }
