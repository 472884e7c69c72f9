import pytest

from loadgen.bench.rows import send


@pytest.mark.parametrize("connections", [1, 3])
def test_everything_that_was_sent_arrives(stage, name, connections):
    row = send.row(1000, connections)
    found = row.measure(stage, name)
    assert found["lost"] == 0
    assert {figure.key for figure in row.figures} == set(found)
