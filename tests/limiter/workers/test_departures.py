from limiter.workers.messages import Batch
from limiter.workers.quota_server import Departures
from tests.limiter.world import limiter


def test_what_is_released_is_lent_until_its_batch_is_confirmed() -> None:
    one, departures = limiter(10), Departures()
    departures.add([one], 1, 100)
    assert departures.batch() == Batch(1)
    assert departures.batch() is None
    departures.add([one], 2, 100)
    assert departures.batch() == Batch(2)
    assert one._buckets[0] is not None
    assert one._buckets[0].lent == 3
    departures.confirmed(1, 0)
    assert (one._buckets[0].lent, departures.is_any) == (2, True)
    departures.confirmed(2, 0)
    departures.confirmed(7, 0)
    assert (one._buckets[0].lent, departures.is_any) == (0, False)


def test_of_a_worker_that_is_lost_nothing_is_lent_any_more() -> None:
    one, departures = limiter(10), Departures()
    departures.add([one], 1, 100)
    departures.batch()
    departures.add([one], 1, 100)
    departures.lose(0)
    assert one._buckets[0] is not None
    assert (one._buckets[0].lent, departures.is_any) == (0, False)
