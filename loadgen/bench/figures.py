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
        middle, least, most = (number(value, self.digits) for value in (statistics.median(values), *_ends(values)))
        spread = f" ({least} to {most})" if least != most else ""
        return f"{middle}{self.unit}{spread}"

    def compared(self, goal: Goal, rounds: Rounds, subject: str) -> float | None:
        """What is held against the goal's bound; None if it was not measured.

        It is the median over all rounds of the ratio within the round: both peers ran within seconds of each other, so
        what else the machine did meanwhile cancels out. Or, without a peer, the median of the figure itself.
        """
        own = rounds.get(subject, ())
        if not goal.beside:
            values = values_of(self.key, own)
        else:
            pairs = zip(own, rounds.get(goal.beside, ()), strict=False)
            both = [(values_of(self.key, [one]), values_of(self.key, [other])) for one, other in pairs]
            values = [one[0] / other[0] for one, other in both if one and other and other[0] > 0]
        return statistics.median(values) if values else None

    def verdict(self, goal: Goal, rounds: Rounds, subject: str) -> str:
        """The comparison in words, with the goal and whether it is met as printed; empty if it was not made."""
        found = self.compared(goal, rounds, subject)
        if found is None:
            return ""
        digits = 2 if goal.beside else self.digits
        ratio = f"{number(found, digits)} x {goal.beside}" if goal.beside else ""
        if goal.bound is None:
            return ratio
        bound = f"{goal.is_to_be} {number(goal.bound, digits)}{'' if goal.beside else self.unit}"
        mark = "✓" if is_met(goal, found, digits) else "**missed**"
        return f"{ratio} {mark} ({bound})".strip()


def is_met(goal: Goal, found: float, digits: int) -> bool:
    """Whether a number, rounded as it is printed, reaches the goal."""
    return goal.bound is None or bool({"≤": le, "≥": ge}[goal.is_to_be](round(found, digits), goal.bound))


def is_guarded(goal: Goal, found: float) -> bool:
    """Whether a number is within the bound of the short form, if there is one."""
    return goal.guard is None or bool({"≤": le, "≥": ge}[goal.is_to_be](found, goal.guard))


def values_of(key: str, samples: Sequence[Sample | None]) -> list[float]:
    """The values that were measured."""
    return [sample[key] for sample in samples if sample is not None and key in sample]


def number(value: float, digits: int) -> str:
    """A number for people; rounded first, so that -0.04 is 0.0 without its sign."""
    return "never" if math.isinf(value) else f"{round(value, digits) + 0.0:,.{digits}f}"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)
