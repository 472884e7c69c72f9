"""Each hole that is put back is found by the machine: else its silence about the product would say nothing."""

import subprocess
import sys

import pytest

from tests.proxy.identity import compiled_holes
from tests.proxy.identity.driver import run, steps_of
from tests.proxy.identity.holes import HOLES, Hole

MOST_SEEDS = 500
"""Half of those that the product itself has to pass."""


@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.__name__)
def test_it_is_found(hole: Hole, monkeypatch: pytest.MonkeyPatch) -> None:
    hole(monkeypatch)
    for seed in range(MOST_SEEDS):
        broken = run(steps_of(seed))
        if broken is not None and broken.rule in HOLES[hole]:
            return
    pytest.fail(f"nothing found in {MOST_SEEDS} duels")


@pytest.mark.parametrize("hole", compiled_holes.HOLES)
def test_it_is_found_where_the_product_is_compiled(hole: str) -> None:
    """Another process interprets what is compiled here."""
    command = [sys.executable, "-m", "tests.interpreted", compiled_holes.__name__, hole]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
