"""What comes out for one limiter of one run: plain values, times in microseconds since 1970."""

from dataclasses import dataclass

from msgspec import Struct

from compliance.judging.facts import LinePlace
from compliance.judging.spells import Spelling


class Window(Struct):
    """The worst window of one bucket by one account, as `ContainmentFacts`; times are microseconds since 1970."""

    unit: str
    is_peak: bool
    basis: str
    start_us: int
    end_us: int
    passed: float
    allowed: float
    limit: float
    excess: float
    first_line: LinePlace
    last_line: LinePlace


class Owed(Struct):
    """The worst ten seconds and the whole of what was owed, as `EntitlementFacts`; times likewise."""

    start_us: int
    end_us: int
    waited_s: float
    served_s: float
    deficit_s: float
    late_s: float
    passed_messages: int
    passed_bytes: int
    owed_messages: float | None
    owed_bytes: float | None
    first_line: LinePlace
    last_line: LinePlace
    whole_waited_s: float
    whole_served_s: float
    whole_deficit_s: float
    unseen_s: float
    still_s: float = 0.0


class Doubt(Struct):
    """Two things that the log says and that cannot both be true, as `DoubtFacts`; times likewise."""

    what: str
    said: str
    start_us: int
    end_us: int
    first_line: LinePlace
    last_line: LinePlace
    times: int = 1


@dataclass
class Minute:
    """Sums over lines that end in one minute; seconds."""

    judged_s: float = 0.0
    over_s: float = 0.0
    waited_s: float = 0.0
    short_s: float = 0.0
    lines: int = 0


@dataclass
class Judged:
    """What comes out for one limiter of one run."""

    windows: list[Window]
    entitlement: Owed | None
    minutes: dict[int, Minute]
    doubts: list[Doubt]
    over: Spelling
    """When more passed than is allowed."""
    short: Spelling
    """When less passed than was owed."""
