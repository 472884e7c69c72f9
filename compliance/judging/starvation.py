"""A stream that waits on a limit and gets next to nothing, while others get much."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter

from compliance.judging.lines import OWED_WINDOW_S, Line, StreamsLine
from compliance.schema import OBSERVED


@dataclass
class _Starving:
    """A stream that waits and passes little, for as long as it does; in seconds, and seconds of the limit.

    Attributes:
        held_s: The largest size that its first entry may have.
        own_s: The amount that it passed.
        passed: Its messages.
        members: The most streams under the limit.
        entry_s: The largest entry of any stream.
        served_s: The amount that all passed.
        waited_s: The time that it waited.
        served: Messages by the stream that got most in a line, in the lines in which it did.
    """

    stream: str
    held_s: float = 0.0
    own_s: float = 0.0
    passed: int = 0
    members: int = 0
    entry_s: float = 0.0
    served_s: float = 0.0
    waited_s: float = 0.0
    served: dict[str, int] = field(default_factory=dict)

    def add(self, line: Line, streams: Sequence[StreamsLine], passed: tuple[int, int]) -> None:
        """Add a line in which it waited all the time, and passed so many messages and bytes."""
        self.passed += passed[0]
        self.own_s += _seconds_of(line, passed)
        self.members = max(self.members, sum(stream.members for stream in streams))
        self.entry_s = max(self.entry_s, _seconds_of(line, line.largest))
        self.served_s += _seconds_of(line, line.passed)
        self.waited_s += line.duration_s
        for stream in streams:
            if stream.most_served is not None:
                other, messages = stream.most_served
                self.served[other] = self.served.get(other, 0) + messages

    @property
    def is_starved(self) -> bool:
        """True if it waited while more than twice its part of the limit passed, at equal shares."""
        share_s = 2 * (self.members + 1) * (self.held_s + self.own_s + 2 * self.entry_s)
        return self.waited_s >= OWED_WINDOW_S and self.served_s >= share_s

    def __str__(self) -> str:
        waited = f"{self.stream} waited {self.waited_s:,.0f} s on it and passed {self.passed or 'nothing'}"
        others = f"while {self.served_s:,.0f} s' worth of it passed"
        name, messages = max(self.served.items(), key=itemgetter(1), default=("", 0))
        most_served = f", {messages:,} messages of {name}" if messages and name != self.stream else ""
        return f"{waited}, {others}{most_served}"


class StarvationWatch:
    """Looks for a starved stream as a limiter's lines go by.

    Args:
        has_begin: Whether all that came under the limiter is there.

    Attributes:
        largest_offered: The largest entry that came, in messages and in bytes; infinite if it may have come earlier.
    """

    def __init__(self, *, has_begin: bool) -> None:
        self.largest_offered: tuple[float, float] = (0, 0) if has_begin else (inf, inf)
        self._now: _Starving | None = None

    def came(self, streams: StreamsLine) -> None:
        """Note the entries that came in a span."""
        offered, largest = streams.largest_offered, self.largest_offered
        if offered[0] > largest[0] or offered[1] > largest[1]:
            self.largest_offered = max(offered[0], largest[0]), max(offered[1], largest[1])

    def look(self, line: Line, streams: Sequence[StreamsLine], before: Line | None) -> str | None:
        """Look at the next line, with the streams of its span and the line before; return the starved one, in words."""
        starving = None
        for stream in streams:
            starving = starving or stream.starving
        if starving is None or line.mode == OBSERVED or not any(line.rates[:2]):
            self._now = None
            return None
        name, held, passed, is_alone = starving
        # The largest possible first entry: all that is held; if only this limit holds it, no more than came.
        first = tuple(map(min, held, self.largest_offered)) if is_alone else held
        is_new = self._now is None or self._now.stream != name
        if self._now is None or is_new:
            self._now = _Starving(name)
        if is_new or any(passed) or (before is not None and before.rates != line.rates):
            # Its first entry has changed, or may take longer at another limit.
            self._now.held_s = max(self._now.held_s, _seconds_of(line, first))
        self._now.add(line, streams, passed)
        return str(self._now) if self._now.is_starved else None


def _seconds_of(line: Line, amount: Sequence[float]) -> float:
    """Return the seconds that a line's limit takes for an amount of messages and bytes."""
    return max((size / rate for size, rate in zip(amount, line.rates, strict=False) if rate), default=0.0)
