"""What every row says of itself."""

from collections.abc import Callable
from dataclasses import dataclass

from loadgen.bench_limits.figures import Figure, Samples
from loadgen.bench_limits.trial import Stage


@dataclass(frozen=True, slots=True)
class Row:
    """One load and the figures that are read from it.

    Args:
        name: For `--only` and for progress.
        load: What is done, for the table.
        figures: What is read, in the table's order; the first is the one that progress tells.
        measure: Does it once with one peer.
        rounds: How often.
        together: Whether both peers are measured at the same time: for a load that costs nothing and takes long.
    """

    name: str
    load: str
    figures: tuple[Figure, ...]
    measure: Callable[[Stage], Samples]
    rounds: int = 3
    together: bool = False
