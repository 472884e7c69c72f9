from proxy.observe.counters import Counters
from proxy.workers.channel import Growth, Sums


def test_what_workers_counted_adds_up() -> None:
    all_together, workers = Counters(), [Counters(), Counters()]
    growths, sums = [Growth(one) for one in workers], [Sums(all_together), Sums(all_together)]
    for worker, growth, total in zip(workers, growths, sums, strict=True):
        for _ in range(2):
            worker.connections_accepted += 1
            worker.connections_open["data"] += 1
            worker.pauses["client turn"] += 3
            worker.timer_fired(150_000)
            counted = growth.take({"held_used": 0})
            assert counted is not None
            total.add(counted)
    assert all_together.connections_accepted == 4
    assert all_together.connections_open == {"data": 4}
    assert all_together.pauses == {"client turn": 12}
    assert all_together.timers_fired == sum(all_together.timers_by_lateness) == 4
    assert all_together.loop_lag_max_ns == 150_000


def test_without_news_nothing_is_told() -> None:
    worker = Counters()
    growth = Growth(worker)
    assert growth.take({"held_used": 0}) is None
    worker.keep_alives += 1
    assert growth.take({}) is not None
    assert growth.take({}) is None
    told = growth.take({"held_used": -5})
    assert told is not None
    assert told.numbers == {"held_used": -5}


def test_with_a_worker_goes_what_stood_there_and_what_happened_stays() -> None:
    total, worker = Counters(), Counters()
    sums = Sums(total)
    worker.connections_accepted += 3
    worker.connections_open["data"] += 3
    worker.throttled["client turn"] += 1
    counted = Growth(worker).take({})
    assert counted is not None
    sums.add(counted)
    sums.lose()
    assert total.connections_accepted == 3
    assert sum(total.connections_open.values()) == sum(total.throttled.values()) == 0
