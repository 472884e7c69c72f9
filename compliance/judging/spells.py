"""When a promise was broken: how often, the first time, and for the longest time."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct


class Spells(Struct, frozen=True, kw_only=True):
    """Stretches of time in which a promise was broken, one line of the log after the other."""

    times: int
    """How many there are."""
    seconds: float
    """How long they are together."""
    first: datetime
    """Begin of the first."""
    longest: datetime
    """Begin of the longest."""
    longest_s: float


@dataclass
class Spelling:
    """Finds the stretches as lines go by; times are microseconds since 1970."""

    times: int = 0
    seconds: float = 0.0
    first_us: int = 0
    longest_us: int = 0
    longest_s: float = 0.0
    _is_on: bool = False
    _begin_us: int = 0
    _lasts_s: float = 0.0

    def add(self, begin_us: int, seconds: float, *, is_broken: bool) -> None:
        """The next line.

        Args:
            begin_us: Its begin.
            seconds: So much of its time counts.
            is_broken: Whether the promise was broken in it.
        """
        if is_broken and not self._is_on:
            self._begin_us, self._lasts_s = begin_us, 0.0
            self.first_us = begin_us if not self.times else self.first_us
            self.times += 1
        self._is_on = is_broken
        if is_broken:
            self.seconds += seconds
            self._lasts_s += seconds
            if self.times == 1 or self._lasts_s > self.longest_s:
                self.longest_us, self.longest_s = self._begin_us, self._lasts_s


def together(spells: Iterable[Spells | None]) -> Spells | None:
    """Those of several runs; None without any."""
    known = [one for one in spells if one is not None]
    if not known:
        return None
    longest = max(known, key=lambda one: one.longest_s)
    return Spells(
        times=sum(one.times for one in known),
        seconds=sum(one.seconds for one in known),
        first=min(one.first for one in known),
        longest=longest.longest,
        longest_s=longest.longest_s,
    )
