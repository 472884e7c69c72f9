import sys

import pytest

from loadgen.bench import proc
from loadgen.bench.errors import BenchError
from loadgen.bench.peers import sluice
from loadgen.bench.rows import workers


@pytest.mark.skipif(sys.platform != "linux", reason="processes are counted by /proc")
@pytest.mark.parametrize("kind", [0, 1], ids=["messages", "sends"])
def test_workers_are_measured_beside_one_process_with_the_cpu_of_all_their_processes(stage, kind):
    row = workers.rows(100, 4)[kind]
    found = row.measure(stage, sluice.NAME)
    assert set(found) == {figure.key for figure in row.figures}
    assert min(found.values()) > 0
    assert 50 <= found["busiest"] <= 100
    assert found["cores"] == pytest.approx(workers.WORKERS * found["cpu_one"] / found["cpu"])


def test_cpu_of_workers_that_nobody_tells_of_is_not_left_out(stage, monkeypatch):
    monkeypatch.setattr(proc, "children", lambda pid: [])
    with pytest.raises(BenchError, match="children"):
        workers.rows(100, 4)[0].measure(stage, sluice.NAME)
