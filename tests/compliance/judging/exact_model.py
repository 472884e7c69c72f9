"""Another author's judge: exact, every window by trial, small and slow. It shares no code with the job.

    excess       the most by which a window passed more than a full bucket, the rate over its time and one entry
    shortfall_s  the most seconds' worth of the limit that ten seconds lack, and what the whole run lacks

Lines are seconds of one limit of messages without time in between; times are milliseconds. Tokens are thousandths of a
message: a rate in messages a second earns a whole number of them in a millisecond.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

MESSAGE = 1000
LATE_MS = 20


@dataclass(frozen=True)
class Second:
    """What one line says."""

    ms: int
    rate: int
    burst: int
    passed: int
    largest: int
    waited_ms: int

    @cached_property
    def earned(self) -> int:
        return self.rate * self.ms

    @cached_property
    def owed(self) -> int:
        """While somebody waits; a burst below a late timer's worth cannot be used up in time."""
        return min(self.rate, self.burst * 1000 // LATE_MS) * self.waited_ms


def excess(lines: list[Second]) -> Fraction:
    """Of all windows that end with a line in which something passed."""
    excesses = (window_excess for begin in range(len(lines)) for window_excess in _excesses(lines[begin:]))
    return max(excesses, default=Fraction(-MESSAGE)) / Fraction(MESSAGE)


def _excesses(lines: list[Second]) -> Iterator[Fraction | int]:
    """Of each window that begins with the first of these lines."""
    tokens: Fraction | int = lines[0].burst * MESSAGE
    paid: Fraction | int = 0
    made_at, clock = lines[0].rate, 0
    for before, line in pairwise([lines[0], *lines]):
        if (before.rate, before.burst) != (line.rate, line.burst):
            made_at = before.rate if clock >= paid else made_at
            if tokens < 0:
                tokens = tokens * Fraction(min(line.rate, made_at), min(before.rate, made_at))
            paid = clock + max(Fraction(0), -tokens * Fraction(1, line.rate))
        tokens = min(tokens, line.burst * MESSAGE) + line.earned - line.passed * MESSAGE
        clock += line.ms
        if line.passed:
            yield -tokens - line.largest * MESSAGE


def shortfall_s(lines: list[Second]) -> tuple[Fraction, Fraction]:
    """Lines of one value. Each begin of a wait is judged from every moment before at which a balance is known."""
    lacking = _lacking(lines)
    ends = [sum(line.ms for line in lines[: place + 1]) for place in range(len(lines))]
    recent = [sum(lack for lack, at in zip(lacking, ends, strict=True) if end - 10_000 < at <= end) for end in ends]
    (rate,) = {line.rate for line in lines}
    second = Fraction(rate * MESSAGE)
    return max(recent) / second, sum(lacking) / second


def _lacking(lines: list[Second]) -> list[int]:
    """What each line lacks: what its bucket held before at least, and earned while somebody waited, did not pass."""
    held = [lines[0].burst * MESSAGE]
    """By each moment before at which a balance is known: what the bucket holds now at least."""
    lacking = []
    for line in lines:
        lacks = min(max(held) + line.owed - (line.passed + 1) * MESSAGE, line.rate * line.waited_ms)
        lacking.append(max(0, lacks - line.rate * LATE_MS))
        held = [_least(line, tokens) for tokens in held]
        held += [(1 - max(line.largest, 1)) * MESSAGE] if line.passed else []
    return lacking


def _least(line: Second, tokens: int) -> int:
    clipped = min(line.burst * MESSAGE, tokens + line.earned) - line.passed * MESSAGE
    if not line.waited_ms:
        return clipped
    return max(clipped, min(tokens + line.owed - line.passed * MESSAGE, MESSAGE + line.rate * LATE_MS))
