"""What a row of the table is."""

from collections.abc import Callable
from dataclasses import dataclass

from loadgen.bench.figures import Figure, Sample
from loadgen.bench.peers import bare, haproxy, official, sluice
from loadgen.bench.stage import Stage

EVERYBODY = (bare.NAME, haproxy.NAME, official.ZERO_COPY, official.PARSING, sluice.NAME)
SUBJECT = sluice.NAME


@dataclass(frozen=True, slots=True)
class Row:
    """A load.

    Attributes:
        name: For the command line.
        load: For the table.
        figures: What is measured.
        measure: One measurement of the peer with this name.
        peers: Who takes part.
        is_once: Whether one round says all, or takes too long for more.
        is_real: Whether it needs a real broker.
        needs: A figure's key and the least that says that the machine is up to the load.
    """

    name: str
    load: str
    figures: tuple[Figure, ...]
    measure: Callable[[Stage, str], Sample]
    peers: tuple[str, ...] = EVERYBODY
    is_once: bool = False
    is_real: bool = False
    needs: tuple[str, float] | None = None
