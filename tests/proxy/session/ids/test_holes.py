"""Each hole that is put back is found by the machine: else its silence about the product would say nothing."""

import subprocess
import sys

import pytest

from tests.proxy.session.ids import compiled_holes
from tests.proxy.session.ids.driver import run, steps_of
from tests.proxy.session.ids.holes import FOUND_BY, HOLES, RARE, Hole

MOST_SEEDS = 600
"""As many as the product itself has to pass."""


@pytest.mark.parametrize("hole", [hole for hole in HOLES if hole not in RARE], ids=lambda hole: hole.__name__)
def test_it_is_found(hole: Hole, monkeypatch: pytest.MonkeyPatch) -> None:
    hole(monkeypatch)
    for seed in (FOUND_BY.get(hole, 0), *range(MOST_SEEDS)):
        broken = run(steps_of(seed))
        if broken is not None and broken.rule in HOLES[hole]:
            return
    pytest.fail(f"nothing found in {MOST_SEEDS} duels")


@pytest.mark.parametrize("hole", RARE, ids=lambda hole: hole.__name__)
def test_a_rare_one_is_found_by_its_steps(hole: Hole, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(RARE[hole]) is None
    hole(monkeypatch)
    broken = run(RARE[hole])
    assert broken is not None
    assert broken.rule in HOLES[hole]


@pytest.mark.parametrize("hole", compiled_holes.HOLES)
def test_it_is_found_where_the_product_is_compiled(hole: str) -> None:
    """Another process interprets what is compiled here."""
    command = [sys.executable, "-m", "tests.interpreted", compiled_holes.__name__, hole]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
