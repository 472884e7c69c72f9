"""What every line starts with."""

from datetime import datetime
from typing import Literal

from msgspec import Struct, field

SCHEMA_VERSION = 1

Direction = Literal["publish", "dispatch"]


class LineHead(Struct, kw_only=True, tag_field="kind", omit_defaults=True):
    """What every line starts with, behind its `kind`."""

    v: int = field(default_factory=lambda: SCHEMA_VERSION)  # unlike a default, never left out
    """Version of the schema."""
    proxy_id: str
    """Which proxy wrote the line; stable over restarts."""
    boot_id: str
    """Which run of that proxy; names of later runs sort behind those of earlier ones."""
    seq: int
    """Counts the lines of one run from 0; a gap is a lost line, a repetition a duplicate."""
    start: datetime
    """Begin of the span that the line tells of (inclusive), UTC, microseconds."""
    end: datetime
    """End of that span (exclusive), UTC, microseconds."""
    duration_ms: float
    """Length of the span, milliseconds of the monotonic clock: the basis of every rate."""
