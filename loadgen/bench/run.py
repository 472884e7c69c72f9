"""Runs the rows: peer by peer, round by round."""

from collections.abc import Callable, Sequence

from loadgen.bench.errors import BenchError
from loadgen.bench.figures import Sample
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import Stage, settle

Progress = Callable[[str], None]
Measured = dict[str, list[Sample | None]]


def measure(rows: Sequence[Row], stage: Stage, rounds: int, progress: Progress) -> dict[str, Measured]:
    """What each row gave, by its name; what failed is told, and is None."""
    return {row.name: _measure_row(row, stage, rounds, progress) for row in rows}


def _measure_row(row: Row, stage: Stage, rounds: int, progress: Progress) -> Measured:
    names = [name for name in row.peers if name in stage.plans]
    found: Measured = {name: [] for name in names}
    # the first round is for the peers to become warm in
    for number in range(1 if row.is_once else 0, 2 if row.is_once else rounds + 1):
        # by turns, so that what the machine does beside this reaches all
        samples = {name: _one(row, stage, name, progress) for name in _rotated(names, number)}
        for name in names if number > 0 else []:
            found[name].append(samples[name])
            progress(f"{row.name}, {number}: {name}: {_told(row, samples[name])}")
    return found


def _rotated(names: Sequence[str], by: int) -> list[str]:
    """Who begins is another one in each round: whoever comes last finds the machine as the others leave it."""
    turn = by % len(names)
    return [*names[turn:], *names[:turn]]


def _one(row: Row, stage: Stage, name: str, progress: Progress) -> Sample | None:
    try:
        return row.measure(stage, name)
    except (BenchError, OSError, ZeroDivisionError) as error:
        progress(f"{row.name}: {name} failed: {error or type(error).__name__}")
        return None
    finally:
        if name in stage.peers:
            settle(stage.peers[name].pid)


def _told(row: Row, sample: Sample | None) -> str:
    return ", ".join(f"{figure.shown([sample])} {figure.text}" for figure in row.figures)
