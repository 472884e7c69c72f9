"""Counters of a worker, told as what they have grown by; those of the supervisor are the sums."""

from collections import Counter
from dataclasses import fields

from proxy.observe.counters import Counters
from proxy.workers.channel import Counted

GAUGES = ("connections_open", "throttled")
"""What ends with the worker."""
HIGHEST = "loop_lag_max_ns"
_LISTS = "timers_by_lateness"


class Growth:
    """What is to be told of a worker's counters.

    Args:
        counters: These.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._told = Counters()

    def take(self, others: dict[str, int]) -> Counted | None:
        """What they have grown by since the last time, and `others`, which have already; None if nothing has."""
        numbers, by_word = ({name: value for name, value in others.items() if value}, dict[str, dict[str, int]]())
        lateness: list[int] = []
        for field in fields(Counters):
            now, before = (getattr(self._counters, field.name), getattr(self._told, field.name))
            if now == before:
                continue
            if field.name == HIGHEST:
                numbers[HIGHEST] = now
                self._counters.loop_lag_max_ns = 0
            elif isinstance(now, int):
                numbers[field.name] = now - before
                setattr(self._told, field.name, now)
            elif isinstance(now, Counter):
                by_word[field.name] = {word: now[word] - before[word] for word in now if now[word] != before[word]}
                setattr(self._told, field.name, now.copy())
            else:
                lateness = [one - other for one, other in zip(now, before, strict=True)]
                setattr(self._told, field.name, list(now))
        return Counted(numbers, by_word, lateness) if numbers or by_word or lateness else None


class Sums:
    """Adds what one worker counted to what all have.

    Args:
        counters: Of all.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._standing = {name: Counter[str]() for name in GAUGES}

    def add(self, counted: Counted) -> None:
        """It counted so much more."""
        known = self._counters
        for name, more in counted.numbers.items():
            if name == HIGHEST:
                known.loop_lag_max_ns = max(known.loop_lag_max_ns, more)
            elif hasattr(known, name):
                setattr(known, name, getattr(known, name) + more)
        for name, words in counted.by_word.items():
            getattr(known, name).update(words)
            if name in self._standing:
                self._standing[name].update(words)
        for place, more in enumerate(counted.lateness):
            known.timers_by_lateness[place] += more

    @property
    def connections(self) -> int:
        """How many the worker has, as far as it has told."""
        return sum(self._standing["connections_open"].values())

    def lose(self) -> None:
        """The worker is no more, nor what stood there."""
        for name, standing in self._standing.items():
            getattr(self._counters, name).subtract(standing)
            standing.clear()
