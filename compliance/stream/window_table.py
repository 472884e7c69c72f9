"""The tables of event-time windows, as values: windows that can be added up.

Lengths divide each other. A line counts in the windows in which it starts.
"""

from dataclasses import dataclass

import pyarrow as pa

from compliance.schema import arrow_schema

WIDTHS_S = (1, 10, 60, 300, 3600)


@dataclass(frozen=True, slots=True)
class WindowTable:
    """One table of windows.

    Args:
        name: Of the table.
        kind: Of the lines that it is made from.
        key: What there is one row for, in each window.
        sums: Fields that are added up; absent is nothing.
        largest: Fields of which the largest is kept.
        last: Fields of which the line that ends last says the value.
        histograms: Fields that are added up place by place.
    """

    name: str
    kind: str
    key: tuple[str, ...]
    sums: tuple[str, ...]
    largest: tuple[str, ...]
    last: tuple[str, ...]
    histograms: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """What of a line is needed."""
        return ("start", "end", *self.key, *self._values)

    @property
    def schema(self) -> pa.Schema:
        """Of windows on their way; `window_s`: where they begin, seconds since 1970; `as_of`: when `last` was said."""
        own = arrow_schema()
        names = (*self.key, *self._values)
        head = {"width_s": pa.int32(), "window_s": pa.int64(), "lines": pa.int64(), "as_of": own.field("end").type}
        return pa.schema(head | {name: own.field(name).type for name in names})

    @property
    def _values(self) -> tuple[str, ...]:
        return (*self.sums, *self.largest, *self.histograms, *self.last)


TABLES = (
    WindowTable(
        name="topic_windows",
        kind="interval",
        key=("tenant", "namespace", "topic", "direction"),
        sums=(
            *("offered_messages", "offered_bytes", "passed_messages", "passed_bytes"),
            *("dropped_messages", "dropped_bytes", "rejected_messages", "rejected_bytes", "throttled_ms"),
            "delay_sum_ms",
        ),
        largest=("delay_max_ms",),
        last=("limit_level", "limit_messages", "limit_bytes"),
        histograms=("delay_hist",),
    ),
    WindowTable(
        name="limiter_windows",
        kind="limit",
        key=("proxy_id", "direction", "level", "name", "tenant", "namespace"),
        sums=("passed_messages", "passed_bytes", "rejected_messages", "rejected_bytes", "throttled_ms"),
        largest=("largest_entry_messages", "largest_entry_bytes"),
        last=("source", "mode", "limit_messages", "limit_bytes", "burst_messages", "burst_bytes"),
    ),
)
