import sys

import pytest

from loadgen.bench import proc
from loadgen.bench.errors import BenchError
from loadgen.bench.peers import sluice
from loadgen.bench.rows import workers


@pytest.mark.skipif(sys.platform != "linux", reason="processes are counted by /proc")
def test_workers_are_measured_beside_one_process_with_the_cpu_of_all_their_processes(stage):
    row = workers.row(100, 4)
    found = row.measure(stage, sluice.NAME)
    assert set(found) == {figure.key for figure in row.figures}
    assert min(found.values()) > 0
    assert found["cores"] == pytest.approx(workers.WORKERS * found["cpu_one"] / found["cpu"])


def test_cpu_of_workers_that_nobody_tells_of_is_not_left_out(stage, monkeypatch):
    monkeypatch.setattr(proc, "children", lambda pid: [])
    with pytest.raises(BenchError, match="children"):
        workers.row(100, 4).measure(stage, sluice.NAME)
