"""The claims of an example, judged by counts and bounds. No I/O and no clock."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from demo.verdict import Check
from loadgen.load.results import RateLine, max_excess

SLACK_S = 0.05
"""Seconds that any machine may add between two arrivals; its standstills come on top."""
MOST_STANDSTILL_S = 1.0
"""A machine that stood still for longer shows nothing."""
LEAST_SHARE = 0.95
"""Of a rate that was wanted all the time."""


def never_above(subject: str, times: Sequence[float], line: RateLine, standstill_s: float) -> Check:
    """No interval of arrivals holds more than burst + rate * time + one message.

    Args:
        subject: The messages' name in the verdict.
        times: When, seconds, ascending.
        line: The limit.
        standstill_s: The longest delay by the machine itself, which brings an arrival nearer to the next.
    """
    slack = line.rate * (SLACK_S + standstill_s)
    excess = max_excess(times, line)
    name = f"{subject} never above {line.burst:g} + {line.rate:g}/s in any interval"
    if standstill_s > MOST_STANDSTILL_S:
        return Check(name, holds=False, detail=f"the machine stood still for {standstill_s:.1f} s: too long to tell")
    detail = f"worst interval {excess:+.1f} messages from that line, {slack:.0f} are allowed for the machine"
    return Check(name, bool(times) and excess <= slack, detail)


@dataclass(frozen=True, slots=True)
class Span:
    """From one instant to another, seconds."""

    begin: float
    end: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Self:
        """From the first time to the last; an empty span without any."""
        return cls(times[0], times[-1]) if times else cls(0, 0)


def at_least(subject: str, times: Sequence[float], span: Span, rate: float, standstill_s: float) -> Check:
    """Arrivals of a span make at least LEAST_SHARE of a rate, in the span less the machine's standstill."""
    messages = bisect_left(times, span.end) - bisect_left(times, span.begin)
    seconds = span.end - span.begin
    enough = LEAST_SHARE * rate * (seconds - SLACK_S - standstill_s)
    detail = f"{messages} of {rate * seconds:.0f} messages in {seconds:.1f} s"
    return Check(f"{subject} at {rate:g}/s", messages >= enough > 0, detail)


def none_after(subject: str, times: Sequence[float], at: float, standstill_s: float) -> Check:
    """Check that messages arrived before an instant, and none after it."""
    late = len(times) - bisect_left(times, at + SLACK_S + standstill_s)
    return Check(
        f"{subject}: nothing more arrives", len(times) > late == 0, f"{len(times)} messages before, {late} after"
    )


def nothing_lost(subject: str, sent: int, receipts: int, arrived: Sequence[int]) -> Check:
    """Check that each message of a producer has its receipt and arrived once, in order.

    Args:
        subject: The producer.
        sent: The number of messages, numbered from 0.
        receipts: The number of receipts.
        arrived: Their numbers, in the order in which they arrived.
    """
    is_whole = list(arrived) == list(range(sent)) and receipts == sent > 0
    detail = f"{sent} sent, {receipts} receipts, {len(arrived)} arrived"
    return Check(f"{subject}: each message arrived once, in order", is_whole, detail)


def soon(subject: str, latencies: Sequence[float], most_s: float) -> Check:
    """Half of the receipts came within `most_s` seconds."""
    middle = median(latencies) if latencies else float("inf")
    name = f"{subject}: half of the receipts within {most_s * 1000:.0f} ms"
    return Check(name, middle <= most_s, f"the median is {middle * 1000:.1f} ms")


def even(subject: str, counts: Sequence[int]) -> Check:
    """Counts are within 5 % of their mean."""
    mean = sum(counts) / len(counts)
    is_even = all(abs(count - mean) <= 0.05 * mean for count in counts) and mean > 0
    return Check(f"{subject}: equal shares", is_even, " + ".join(str(count) for count in counts))
