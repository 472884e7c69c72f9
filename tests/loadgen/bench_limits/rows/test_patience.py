from loadgen.bench_limits.rows.patience import FIGURES, row, samples


def test_a_second_connection_means_that_the_first_was_lost():
    assert samples({"/127.0.0.1:5 10:00", "/127.0.0.1:6 10:01"}, 1) == {"lost": [1], "slipped": [1]}
    assert samples({"/127.0.0.1:5 10:00"}, 0) == {"lost": [0], "slipped": [0]}


def test_both_peers_are_watched_at_the_same_time():
    assert row(quick=False).together
    assert row(quick=False).figures is FIGURES
