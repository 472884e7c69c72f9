from loadgen.bench_limits.rows.beside import NOTICED, RATE, Times, noticed


def test_latencies_beside_are_told_by_those_alone() -> None:
    times = Times(alone=1, held=2, beside=3, end=5)

    found = noticed(times, [4.0] * 10, [6.0] * 9 + [60.0], in_time=RATE)

    assert set(found) == {figure.key for figure in NOTICED}
    assert (found["ratio"], found["p50_beside"], found["p99_beside"], found["rate"]) == ([1.5], [6], [60], [50])
