"""`python -m bench hostile`: what each kind of hostile connection costs a Sluice of its own.

The memory is that of all of Sluice's processes. An honest neighbour of another address is measured alone first, and
then beside the attack.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import harness
from bench.harness import Figure, Found, Goal, Row, Section
from bench.hostile.kinds import KINDS, HostileKind
from bench.hostile.trial import ALONE, BESIDE, REQUESTS, running

NAME = "hostile"
_MEMORY = (Figure("memory", "memory (MiB)"), Figure("later", "later (MiB)"))
_OTHERS = (
    Figure("client", "client memory (MiB)"),
    Figure("hold", "hold budget (MiB)"),
    Figure("cpu", "CPU (cores)", digits=2),
    *(Figure(request, f"{request} p99 (ms)", digits=1) for request in REQUESTS),
    *(Figure(f"{request} failed", f"{request} failed") for request in REQUESTS),
)


def row(kind: HostileKind) -> Row[None]:
    """Return the row of a kind, whose bound is the goal of its cost."""
    cost = Figure("cost", "cost (MiB)", goals=(Goal("≤", kind.bound),))
    load = f"{kind.connections:,} x {kind.name}"
    return Row(kind.name, load, (*_MEMORY, cost, *_OTHERS), None, (ALONE, BESIDE))


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code, which says whether each kind keeps its bound."""
    parser = harness.parser(NAME, __doc__)
    parser.add_argument("--seconds", type=harness.seconds, default=60, help="how long each kind attacks (default: 60)")
    rest = "seconds after which memory is looked at again (default: 12)"
    parser.add_argument("--rest", type=harness.seconds, default=12, help=rest)
    parser.add_argument("--processes", type=harness.count, default=1, help="Sluice's processes (default: 1)")
    only = "kinds that have this in their names (may be given several times)"
    parser.add_argument("--only", action="append", metavar="WORD", help=only)
    chosen = parser.parse_args(words)
    kinds = [kind for kind in KINDS if not chosen.only or any(word in kind.name for word in chosen.only)]
    if not kinds:
        parser.error("--only: no kind has this in its name")
    if chosen.write and chosen.only:
        parser.error("--write: a page gets all kinds only: leave out --only")

    def measured() -> Found:
        measurements: dict[str, harness.Rounds] = {}
        for kind in kinds:
            with (
                tempfile.TemporaryDirectory(prefix="sluice-hostile-") as folder,
                running(Path(folder), chosen.processes) as stage,
            ):
                alone, beside = stage.attack(kind, chosen.seconds, chosen.rest)
            measurements[kind.name] = {ALONE: [alone], BESIDE: [beside]}
            print(f"{kind.name}: {row(kind).told([beside])}", file=sys.stderr, flush=True)  # noqa: T201
        return measurements

    section = Section(NAME, [row(kind) for kind in kinds], is_listed=True)
    return harness.carry_out(NAME, chosen.write, [section], measured, harness.missed)
