"""`python -m bench`, and what it leaves to each benchmark."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from bench import __main__ as bench

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", bench.BENCHMARKS)
def test_each_benchmark_lists_its_options(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        import_module(bench.BENCHMARKS[name][0]).main(["--help"])
    assert f"usage: python -m bench {name} " in capsys.readouterr().out


def test_words_after_the_name_are_those_of_the_benchmark():
    command = [sys.executable, "-m", "bench", "compliance", "--rounds", "x"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "python -m bench compliance: error: argument --rounds" in done.stderr
