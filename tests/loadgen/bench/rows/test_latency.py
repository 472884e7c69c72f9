from loadgen.bench.rows import latency


def test_answers_are_timed(stage, name):
    row = latency.row(1000)
    found = row.measure(stage, name)
    assert found["p99"] > 0
    assert {figure.key for figure in row.figures} == set(found)
