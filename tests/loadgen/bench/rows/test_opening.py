from loadgen.bench.rows import opening


def test_a_crowd_is_timed(stage, name):
    row = opening.row(20)
    found = row.measure(stage, name)
    assert found["rate"] > 0
    assert {figure.key for figure in row.figures} == set(found)
