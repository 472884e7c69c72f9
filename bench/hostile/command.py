"""`python -m bench hostile [--seconds 60] [--processes 2] [--only WORD]`: every kind after the other, as a table."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.hostile.kinds import KINDS, MB
from bench.hostile.trial import METRICS, KindRow, running

HEAD = (
    "| number | kind | before, most, later | cost | bound | budget | CPU | publish | lookup | connect | failed |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n"
)


def line(row: KindRow) -> str:
    """A row of the table: MiB, a share of a core, and milliseconds (p99) without and beside the attack."""
    kind = row.kind
    sizes = ", ".join(f"{size / MB:.0f}" for size in (row.before, row.peak, row.after))
    budget = f"{row.most.get(METRICS[0], 0.0) / MB:.0f} + {row.most.get(METRICS[1], 0.0) / MB:.0f}"
    times = " | ".join(f"{row.quiet[what] * 1e3:.1f} → {row.beside[what] * 1e3:.1f}" for what in row.quiet)
    failed = ", ".join(f"{number} {what}" for what, number in row.failed.items() if number)
    bound = f"{kind.bound}{'' if row.holds else ' **over**'}"
    parts = (kind.connections, kind.name, sizes, f"{row.cost / MB:.0f}", bound, budget, f"{row.cpu:.2f}", times, failed)
    return f"| {' | '.join(map(str, parts))} |\n"


def main(words: Sequence[str]) -> int:
    """Measure, and print each row as it comes; exit code 1 if some kind cost more than its bound."""
    parser = argparse.ArgumentParser(prog="python -m bench hostile")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each kind attacks")
    parser.add_argument("--rest", type=float, default=12.0, help="seconds after which memory is looked at again")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", action="append", help="kinds whose names have this in them")
    chosen = parser.parse_args(words)
    kinds = [kind for kind in KINDS if not chosen.only or any(word in kind.name for word in chosen.only)]
    sys.stdout.write(HEAD)
    all_hold = True
    for kind in kinds:
        with (
            tempfile.TemporaryDirectory(prefix="sluice-hostile-") as folder,
            running(Path(folder), chosen.processes) as stage,
        ):
            row = stage.attack(kind, chosen.seconds, chosen.rest)
        all_hold = all_hold and row.holds
        sys.stdout.write(line(row))
        sys.stdout.flush()
    return 0 if all_hold else 1
