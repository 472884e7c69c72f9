"""What streams and limiters counted since somebody last looked."""

from collections.abc import Sequence
from operator import attrgetter, sub

from limiter.usage import LimiterUsage, StreamUsage

Values = tuple[int, ...]
"""Counts at one moment, in the order of a `Counts`; an empty one stands for the beginning."""


class Counts:
    """Which counts of a usage are read, and what the access log calls them.

    Args:
        fields: The log's name and the usage's attribute of each; `throttled_ns` follows as the last.
    """

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._names = (*(name for name, _ in fields), "throttled_ns")
        self._read = attrgetter(*(attribute for _, attribute in fields))

    def read(self, usage: StreamUsage | LimiterUsage, now: int) -> Values:
        """The counts as of now."""
        return (*self._read(usage), usage.throttled.read(now))

    def changes(self, values: Values, before: Values) -> dict[str, int]:
        """What was counted between two moments, by name."""
        return dict(zip(self._names, map(sub, values, before) if before else values, strict=True))


STREAM = Counts(
    (
        ("offered_entries", "offered_entries"),
        ("offered_messages", "offered_messages"),
        ("offered_bytes", "offered_size"),
        ("passed_entries", "passed_entries"),
        ("passed_messages", "passed_messages"),
        ("passed_bytes", "passed_size"),
        ("dropped_messages", "dropped_messages"),
        ("dropped_bytes", "dropped_size"),
        ("rejected_messages", "rejected_messages"),
        ("rejected_bytes", "rejected_size"),
        ("permits_asked", "permits_asked"),
        ("permits_granted", "permits_granted"),
    )
)
OBSERVED = Counts((("held_messages", "held_messages"), ("exceeded_messages", "dropped_messages")))
LIMITER = Counts(
    (
        ("idle_ns", "idle_ns"),
        ("reserved_ns", "reserved_ns"),
        ("passed_entries", "entries"),
        ("passed_messages", "messages"),
        ("passed_bytes", "size"),
        ("rejected_messages", "rejected_messages"),
        ("rejected_bytes", "rejected_size"),
        ("left_messages", "left_messages"),
        ("left_bytes", "left_size"),
    )
)
