from loadgen.bench.rows import closing


def test_nothing_is_lost_by_closing_behind_the_last_write(stage, name):
    row = closing.row(3)
    found = row.measure(stage, name)
    assert found == {"share": 0.0, "cut": 0}
    assert {figure.key for figure in row.figures} == set(found)
