"""What a row of the table is made of: figures, their goals, and what was measured. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from operator import ge, le
from typing import Literal

Samples = dict[str, list[float]]
"""Values of one peer by the figure's key, one for each time that it was measured."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What the median is to be, as it is printed."""

    is_to_be: Literal["≤", "≥"]
    bound: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a load.

    Args:
        key: Under which trials give its samples.
        text: What it is, for the table.
        unit: Stands behind the number: `" ms"`, `" x"`, `" %"`.
        digits: Behind the point.
        goal: None where the number is there for comparison only.
    """

    key: str
    text: str
    unit: str = ""
    digits: int = 0
    goal: Goal | None = None

    def shown(self, samples: Sequence[float]) -> str:
        """Median, and least and largest where they differ."""
        if not samples:
            return "-"
        middle, least, most = (
            self._number(value) for value in (statistics.median(samples), min(samples), max(samples))
        )
        spread = f" ({least} to {most})" if least != most else ""
        return f"{middle}{self.unit}{spread}"

    def goal_shown(self) -> str:
        """The goal in the figure's unit."""
        return "" if self.goal is None else f"{self.goal.is_to_be} {self._number(self.goal.bound)}{self.unit}"

    def is_met(self, samples: Sequence[float]) -> bool:
        """Whether the median, rounded as it is printed, reaches the goal; without a goal it always does."""
        if self.goal is None:
            return True
        reaches = {"≤": le, "≥": ge}[self.goal.is_to_be]
        return bool(samples) and bool(reaches(round(statistics.median(samples), self.digits), self.goal.bound))

    def _number(self, value: float) -> str:
        # rounded first: -0.04 is to be 0.0, without its sign
        return "never" if math.isinf(value) else f"{round(value, self.digits) + 0.0:,.{self.digits}f}"
