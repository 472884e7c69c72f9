"""`python -m loadgen.hostile [--seconds 60] [--workers 2] [--only WORD]`: every kind after the other, as a table."""

import argparse
import sys
import tempfile
from pathlib import Path

from loadgen.hostile.kinds import KINDS, MB
from loadgen.hostile.trial import Row, running

HEAD = (
    "| connections | kind | before | peak | after | cost | bound | publish p99 | lookup p99 | connect p99 | failed |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n"
)


def line(row: Row) -> str:
    """A row of the table: MiB, and milliseconds without and with the attack."""
    kind = row.kind
    sizes = " | ".join(f"{size / MB:.0f}" for size in (row.before, row.peak, row.after, row.cost))
    times = " | ".join(f"{row.quiet[what] * 1e3:.1f} → {row.beside[what] * 1e3:.1f}" for what in row.quiet)
    failed = " ".join(f"{number} {what}" for what, number in row.failed.items() if number)
    bound = f"{kind.bound}{'' if row.holds else ' **over**'}"
    return f"| {kind.connections} | {kind.name} | {sizes} | {bound} | {times} | {failed} |\n"


def main() -> None:
    """Measure, and print each row as it comes; exit code 1 if some kind cost more than its bound."""
    parser = argparse.ArgumentParser(prog="python -m loadgen.hostile")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each kind attacks")
    parser.add_argument("--rest", type=float, default=12.0, help="seconds after which memory is looked at again")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", action="append", help="kinds whose names have this in them")
    chosen = parser.parse_args()
    kinds = [kind for kind in KINDS if not chosen.only or any(word in kind.name for word in chosen.only)]
    sys.stdout.write(HEAD)
    all_hold = True
    for kind in kinds:
        with (
            tempfile.TemporaryDirectory(prefix="sluice-hostile-") as folder,
            running(Path(folder), chosen.workers) as stage,
        ):
            row = stage.attack(kind, chosen.seconds, chosen.rest)
        all_hold = all_hold and row.holds
        sys.stdout.write(line(row))
        sys.stdout.write(f"    {row.did} {row.most}\n")
        sys.stdout.flush()
    sys.exit(0 if all_hold else 1)


if __name__ == "__main__":
    main()
