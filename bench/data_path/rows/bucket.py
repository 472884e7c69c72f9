"""The token bucket alone, in a process of its own: the measuring process must not contain the limiter.

In CPU time: a bucket waits for nothing, and other processes on the machine do not count.
"""

import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from bench.data_path.proxies import SLUICE
from bench.data_path.stage import DataRow, Stage
from bench.harness import BenchError, Figure, Goal, Row, Sample, last_line

METHODS = ("take", "pay")
"""Take whatever there is, as for an entry that has been let through; pay if there is enough, as for a whole chunk."""
_CALLS = 2_000_000
_LOOPS = 20_000_000
_TIMEOUT_S = 180
_MADE = "from limiter.token_bucket import Rate, TokenBucket; import time\n"
_MADE += "bucket = TokenBucket(Rate(tokens=10**9, period_ns=10**9, burst=10**8), 0)\n"
_FROM_PYTHON = f"""{_MADE}
def run(METHOD):
    begun = time.process_time()
    for now in range({_CALLS}):
        METHOD(1, now)
    return {_CALLS} / (time.process_time() - begun)
print(run(bucket.METHOD))
"""
_LOOP = """
from mypy_extensions import i64
from limiter.token_bucket import TokenBucket

def run(bucket: TokenBucket, times: i64) -> None:
    now: i64 = 0
    while now < times:
        now += 1
        bucket.METHOD(1, now)
"""
_INSIDE = f"""{_MADE}
from limiter.loop import run
begun = time.process_time()
run(bucket, {_LOOPS})
print({_LOOPS} / (time.process_time() - begun))
"""


def row() -> DataRow:
    """Calls a second, from Python and from compiled code."""
    figures = [
        Figure(f"{method}_{place}", f"{method}s per CPU second, called from {caller}", " M", 1, (Goal("≥", goal),))
        for method in METHODS
        for place, caller, goal in (("python", "Python", 12.5), ("inside", "compiled code", 100))
    ]
    return Row("bucket", "the token bucket", tuple(figures), _measure, (SLUICE,))


def _measure(_stage: Stage, _name: str) -> Sample:
    sample = {}
    for method in METHODS:
        sample[f"{method}_python"] = _run(_FROM_PYTHON.replace("METHOD", method), None) / 1e6
        sample[f"{method}_inside"] = _inside(method) / 1e6
    return sample


def _inside(method: str) -> float:
    """Measure a bucket that is compiled together with a loop of calls: calls between compiled units are Python's."""
    spec = find_spec("limiter")
    if spec is None or not spec.submodule_search_locations:
        raise BenchError("the limiter is not installed")
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        folder = Path(name)
        unit = folder / "limiter"
        shutil.copytree(
            next(iter(spec.submodule_search_locations)), unit, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
        (unit / "loop.py").write_text(_LOOP.replace("METHOD", method))
        sources = [f"limiter/{module}.py" for module in ("token_bucket", "loop")]
        mypyc = [sys.executable, "-c", "from mypyc.__main__ import main; main()", *sources]
        done = subprocess.run(mypyc, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
        if done.returncode:
            raise BenchError(f"the bucket does not compile: {last_line(done.stdout + done.stderr)}")
        return _run(_INSIDE, folder)


def _run(script: str, folder: Path | None) -> float:
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise BenchError(f"the bucket cannot be timed: {last_line(done.stderr)}")
    return float(done.stdout)
