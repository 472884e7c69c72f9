import pytest

from loadgen.bench.rows import paced


@pytest.mark.parametrize("receipts", [True, False])
def test_what_is_written_slowly_arrives(stage, name, receipts):
    row = paced.row(2, 4000, receipts=receipts)
    found = row.measure(stage, name)
    assert found["rate"] > 0
    assert {figure.key for figure in row.figures} == set(found)
