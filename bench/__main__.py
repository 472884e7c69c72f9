"""`python -m bench WHAT`: run one of the benchmarks; each has options of its own, which `--help` after it lists."""

import argparse
import importlib
import sys
from collections.abc import Mapping

BENCHMARKS: Mapping[str, tuple[str, str]] = {
    "data-path": ("bench.data_path.command", "the data path beside HAProxy, the official proxy and a bare forwarder"),
    "limits": ("bench.limits.command", "a real broker's own limits beside Sluice's"),
    "fleets": ("bench.fleets", "what happens to fleets before a real cluster"),
    "processes": ("bench.processes", "what a message costs in two processes that share a limit, beside one"),
    "leaving": ("bench.leaving", "what clients notice of a restart, beside a broker's unload"),
    "compliance": ("bench.compliance_job", "the Spark job beside Spark's own reading of the same files"),
    "hostile": ("bench.hostile.command", "what each kind of hostile connection costs"),
    "neighbour": ("bench.hostile.neighbour", "the delay of one client beside a busy crowd"),
    "instructions": ("bench.data_path.instructions", "the instructions that a chunk of SENDs costs"),
}
"""The module of each benchmark, which has a `main`, and the subject of its measurement."""


def main() -> int:
    """Run the command line; returns the exit code."""
    benchmark, words = sys.argv[1:2], sys.argv[2:]
    listed = "\n".join(f"  {name:13} {measures}" for name, (_, measures) in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=listed, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=BENCHMARKS, metavar="WHAT", help="one of these; its own --help follows it")
    module, _ = BENCHMARKS[parser.parse_args(benchmark).what]
    code: int = importlib.import_module(module).main(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
