"""Sums of entries, messages and bytes, by topic."""

from collections import Counter

Counts = Counter[tuple[str, str]]
"""By topic and `entries`, `messages` or `bytes`."""


def count(into: Counts, topic: str, messages: int, size: int) -> None:
    """One entry of so many messages, and bytes behind its command."""
    into.update({(topic, "entries"): 1, (topic, "messages"): messages, (topic, "bytes"): size})


def by_unit(counts: Counts) -> Counter[str]:
    """Sums over all topics."""
    sums: Counter[str] = Counter()
    for (_topic, unit), number in counts.items():
        sums[unit] += number
    return +sums
