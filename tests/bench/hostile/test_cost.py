"""What hostile connections cost a real proxy, for a moment each; `python -m bench hostile` does the same for long.

Memory is compared with that at the start of the process, so what one kind leaves behind counts for the next as well:
those that may take much come last.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.harness import MISSED
from bench.hostile import command
from bench.hostile.kinds import KINDS, MB, HostileKind
from bench.hostile.trial import HostileStage, running

SECONDS, _TRIES = 0.2, 20
_LEFT_BEHIND = 48
"""MiB of kinds before: free, but not given back to the system yet, which takes 10 s (`proxy/runtime.py`)."""
_IN_ORDER = sorted(KINDS, key=lambda kind: kind.bound)
OF_PROCESSES = [kind for kind in _IN_ORDER if kind.name in {"24 deaf readers that look up", "FLOWs"}]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileStage]:
    with running(tmp_path_factory.mktemp("hostile")) as stage:
        yield stage


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileStage]:
    with running(tmp_path_factory.mktemp("hostile"), processes=2) as stage:
        yield stage


@pytest.mark.slow
@pytest.mark.parametrize("kind", _IN_ORDER, ids=lambda kind: kind.name)
def test_no_kind_of_connection_costs_more_than_its_bound(one_process: HostileStage, kind: HostileKind) -> None:
    assert cost(one_process, kind) <= kind.bound + _LEFT_BEHIND


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_PROCESSES, ids=lambda kind: kind.name)
def test_nor_with_several_processes(two_processes: HostileStage, kind: HostileKind) -> None:
    assert cost(two_processes, kind) <= 2 * kind.bound + _LEFT_BEHIND


@pytest.mark.slow
def test_kind_over_its_bound_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "KINDS", [replace(kind, bound=-1) for kind in OF_PROCESSES])
    assert command.main(["--only", "FLOW", "--seconds", "1", "--rest", "0.1"]) == MISSED
    printed = capsys.readouterr()
    (_, _, line, *_) = printed.out.splitlines()
    assert line.startswith("| 10 x FLOWs ")
    assert line.endswith("| ≤ -1 **missed** |")
    assert "-" not in [cell.strip() for cell in line.split("|")[2:11]], "each figure has its value"
    assert "bench hostile: FLOWs: cost (MiB): " in printed.err


def cost(stage: HostileStage, kind: HostileKind) -> float:
    samples = [stage.attack(kind, SECONDS, rest=0)[1]]
    # On a busy machine so short an attack may be over before the neighbour has an answer.
    while "publish" not in samples[-1] and len(samples) < _TRIES:
        samples.append(stage.attack(kind, SECONDS, rest=0)[1])
    assert samples[-1]["opened"] > 0, "it attacked"
    assert "publish" in samples[-1], "its neighbour was served meanwhile"
    return max(sample["memory"] for sample in samples) - stage.memory_at_start / MB
