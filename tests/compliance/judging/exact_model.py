"""Another author's judge: exact fractions, every window by trial, small and slow. It shares no code with the job.

    excess       the most by which a window passed more than a full bucket, the rate over its time and one entry
    shortfall_s  the most seconds' worth of the limit that ten seconds lack, and what the whole run lacks

Lines are seconds of one limit of messages without time in between; times are milliseconds.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

LATE = Fraction(20, 1000)


@dataclass(frozen=True)
class Second:
    """What one line says."""

    ms: int
    rate: int
    burst: int
    passed: int
    largest: int
    waited_ms: int

    @property
    def earned(self) -> Fraction:
        return Fraction(self.rate * self.ms, 1000)

    @property
    def owed(self) -> Fraction:
        """While somebody waits; a burst below a late timer's worth cannot be used up in time."""
        return min(Fraction(self.rate), self.burst / LATE) * Fraction(self.waited_ms, 1000)


def excess(lines: list[Second]) -> Fraction:
    """Of all windows that end with a line in which something passed."""
    windows = [lines[begin : end + 1] for end in range(len(lines)) for begin in range(end + 1)]
    return max((_excess(window) for window in windows if window[-1].passed), default=Fraction(-1))


def _excess(window: list[Second]) -> Fraction:
    tokens, made_at, clock, paid = Fraction(window[0].burst), window[0].rate, 0, Fraction(0)
    for before, line in pairwise([window[0], *window]):
        if (before.rate, before.burst) != (line.rate, line.burst):
            made_at = before.rate if clock >= paid else made_at
            if tokens < 0:
                tokens = tokens * min(line.rate, made_at) / min(before.rate, made_at)
            paid = clock + max(Fraction(0), -tokens * 1000 / line.rate)
        tokens = min(tokens, Fraction(line.burst)) + line.earned - line.passed
        clock += line.ms
    return -tokens - window[-1].largest


def shortfall_s(lines: list[Second]) -> tuple[Fraction, Fraction]:
    """Lines of one value. Each begin of a wait is judged from every moment before at which a balance is known."""
    lacking = [_lacking(lines, place) for place in range(len(lines))]
    ends = [sum(line.ms for line in lines[: place + 1]) for place in range(len(lines))]
    recent = [
        sum((lack for lack, at in zip(lacking, ends, strict=True) if end - 10_000 < at <= end), Fraction(0))
        for end in ends
    ]
    waited = sum((Fraction(line.waited_ms, 1000) for line in lines), Fraction(0))
    return max(recent), sum(lacking, Fraction(0)) - waited / 100


def _lacking(lines: list[Second], place: int) -> Fraction:
    """What a line lacks: what its bucket held before at least, and earned while somebody waited, did not pass."""
    line = lines[place]
    if not line.waited_ms:
        return Fraction(0)
    starts = [(0, Fraction(lines[0].burst))]
    starts += [(at + 1, Fraction(1 - max(one.largest, 1))) for at, one in enumerate(lines[:place]) if one.passed]
    before = max(_least(lines[begin:place], tokens) for begin, tokens in starts)
    lacks = max(Fraction(0), (before + line.owed - line.passed - 1) / line.rate - LATE)
    return min(lacks, Fraction(line.waited_ms, 1000))


def _least(lines: list[Second], tokens: Fraction) -> Fraction:
    for line in lines:
        clipped = min(Fraction(line.burst), tokens + line.earned) - line.passed
        kept = min(tokens + line.owed - line.passed, 1 + line.rate * LATE)
        tokens = max(clipped, kept) if line.waited_ms else clipped
    return tokens
