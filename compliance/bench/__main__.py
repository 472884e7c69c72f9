"""`python -m compliance.bench`: times the job and Spark's bare reading of the same logs, prints or writes the table."""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from compliance.bench.timed import LogRow, placed, section, write_log

_MILLION = 1_000_000


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m compliance.bench", description=__doc__)
    parser.add_argument("--millions", default="1,4,16", help="sizes of the logs, in millions of lines")
    parser.add_argument("--runs", type=int, default=1, help="of each; the least counts")
    parser.add_argument("--write", type=Path, help="page to put the table in")
    said = parser.parse_args()
    console = Console(stderr=True)
    sizes = [int(float(size) * _MILLION) for size in said.millions.split(",")]
    made = section([_measured(lines, said.runs, console) for lines in sizes], _machine())
    if said.write:
        said.write.write_text(placed(said.write.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(made)  # noqa: T201 - the answer


def _measured(lines: int, runs: int, console: Console) -> LogRow:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder, console.status("") as status:
        status.update(f"{lines:,} lines: writing the log")
        size = write_log(Path(folder, "log"), lines)
        least = {"bare": float("inf"), "job": float("inf")}
        for run in range(runs):
            for what, seconds in list(least.items()):
                status.update(f"{lines:,} lines: {what}, run {run + 1} of {runs}")
                least[what] = min(seconds, _timed(what, Path(folder), run))
        return LogRow(lines, size, least["bare"], least["job"])


def _timed(what: str, folder: Path, run: int) -> float:
    command = [sys.executable, "-m", "compliance.bench.timed", what, str(folder / "log"), str(folder / f"{what}-{run}")]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: S603 - our own


def _machine() -> str:
    return f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}, Spark in local mode"


if __name__ == "__main__":
    main()
