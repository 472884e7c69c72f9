from loadgen.bench.rows import deliver


def test_everything_that_was_sent_arrives(stage, name):
    row = deliver.row(1000)
    found = row.measure(stage, name)
    assert found["lost"] == 0
    assert {figure.key for figure in row.figures} == set(found)
