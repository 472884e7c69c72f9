"""What is measured of each peer, what Sluice's is to be beside the others', and how both are printed. Pure."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ge, le
from typing import Literal

Sample = Mapping[str, float]
"""One measurement of one peer: values by the figure's key."""
Rounds = Mapping[str, Sequence[Sample | None]]
"""By peer, one for each round; None where it failed."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What Sluice's figure is to be.

    Attributes:
        is_to_be: In which direction.
        bound: Times the peer's figure; of the figure itself, if there is no peer. None: it is only compared.
        beside: The peer's name; empty: an absolute goal.
        guard: The bound below (or above) which the short form fails: wider, for a machine that is not alone.
    """

    is_to_be: Literal["≤", "≥"]
    bound: float | None
    beside: str = ""
    guard: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a load.

    Attributes:
        key: Under which measurements give it.
        text: What it is, for the table.
        unit: Stands behind the number.
        digits: Behind the point.
        goals: What Sluice's is to be.
    """

    key: str
    text: str
    unit: str = ""
    digits: int = 0
    goals: tuple[Goal, ...] = ()

    def shown(self, samples: Sequence[Sample | None]) -> str:
        """Median, and least and largest where they differ; `-` if there is nothing."""
        values = values_of(self.key, samples)
        if not values:
            return "-"
        return _with_spread(values, self.digits, self.unit)

    def compared(self, goal: Goal, rounds: Rounds, subject: str) -> float | None:
        """What is held against the goal's bound; None if it was not measured.

        It is the median over all rounds of the ratio within the round: both peers ran within seconds of each other, so
        what else the machine did meanwhile cancels out. Or, without a peer, the median of the figure itself.
        """
        values = self._held_against(goal, rounds, subject)
        return statistics.median(values) if values else None

    def verdict(self, goal: Goal, rounds: Rounds, subject: str) -> str:
        """The comparison in words, with the goal and whether it is met as printed; empty if it was not made."""
        values = self._held_against(goal, rounds, subject)
        if not values:
            return ""
        ratio = f"{_with_spread(values, 2)} x {goal.beside}" if goal.beside else ""
        if goal.bound is None:
            return ratio
        bound = f"{goal.is_to_be} {number(goal.bound, self._digits(goal))}{'' if goal.beside else self.unit}"
        mark = "✓" if self.is_met(goal, rounds, subject) else "**missed**"
        return f"{ratio} {mark} ({bound}{_failures(rounds.get(subject, ()))})".strip()

    def is_met(self, goal: Goal, rounds: Rounds, subject: str) -> bool:
        """Whether what was compared, rounded as it is printed, reaches the goal, and did not fail in any round."""
        found = self.compared(goal, rounds, subject)
        if goal.bound is None or found is None:
            return True
        reaches = {"≤": le, "≥": ge}[goal.is_to_be](round(found, self._digits(goal)), goal.bound)
        return bool(reaches) and not _failures(rounds.get(subject, ()))

    def _held_against(self, goal: Goal, rounds: Rounds, subject: str) -> list[float]:
        own = rounds.get(subject, ())
        if not goal.beside:
            return values_of(self.key, own)
        pairs = zip(own, rounds.get(goal.beside, ()), strict=False)
        both = [(values_of(self.key, [one]), values_of(self.key, [other])) for one, other in pairs]
        return [one[0] / other[0] for one, other in both if one and other and other[0] > 0]

    def _digits(self, goal: Goal) -> int:
        return 2 if goal.beside else self.digits


def is_guarded(goal: Goal, found: float) -> bool:
    """Whether a number is within the bound of the short form, if there is one."""
    return goal.guard is None or bool({"≤": le, "≥": ge}[goal.is_to_be](found, goal.guard))


def values_of(key: str, samples: Sequence[Sample | None]) -> list[float]:
    """The values that were measured."""
    return [sample[key] for sample in samples if sample is not None and key in sample]


def number(value: float, digits: int) -> str:
    """A number for people; rounded first, so that -0.04 is 0.0 without its sign."""
    return "never" if math.isinf(value) else f"{round(value, digits) + 0.0:,.{digits}f}"


def _with_spread(values: Sequence[float], digits: int, unit: str = "") -> str:
    middle, least, most = (number(value, digits) for value in (statistics.median(values), min(values), max(values)))
    return f"{middle}{unit}" + (f" ({least} to {most})" if least != most else "")


def _failures(samples: Sequence[Sample | None]) -> str:
    failed = sum(sample is None for sample in samples)
    return f"; failed in {failed} of {len(samples)} rounds" if failed else ""
