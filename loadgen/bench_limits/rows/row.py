"""What every row says of itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadgen.bench_limits.figures import Figure, Samples
from loadgen.bench_limits.trial import Stage


class Measure(Protocol):
    """Does a row's load once on each stage; the samples of each, in the same order."""

    def __call__(self, stages: Sequence[Stage]) -> Sequence[Samples]: ...  # noqa: D102 - told above


@dataclass(frozen=True, slots=True)
class Row:
    """One load and the figures that are read from it.

    Args:
        name: For `--only` and for progress.
        load: What is done, for the table.
        figures: What is read, in the table's order; the first is the one that progress tells.
        measure: Does it once with each peer.
        rounds: How often.
    """

    name: str
    load: str
    figures: tuple[Figure, ...]
    measure: Measure
    rounds: int = 3


def by_turns(measure: Callable[[Stage], Samples]) -> Measure:
    """One stage after the other, so that they do not take each other's processor."""

    def measure_each(stages: Sequence[Stage]) -> Sequence[Samples]:
        return [measure(stage) for stage in stages]

    return measure_each
