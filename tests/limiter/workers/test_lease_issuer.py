"""What is lent, to whom, and what becomes of it."""

import pytest

from limiter.limiter import Limiter
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from limiter.workers.lease_issuer import LeaseIssuer
from tests.limiter.fitting import fits
from tests.limiter.world import World, limiter

SECOND = NANOS_PER_SECOND


def lent(one: Limiter) -> list[int]:
    return [bucket.lent for bucket in one._buckets if bucket is not None]


def test_at_most_half_a_burst_is_lent_to_all_and_less_to_each_next() -> None:
    one, workers = limiter(1000, burst=400), [LeaseIssuer() for _ in range(3)]
    assert [worker.lend(one, 0) for worker in workers] == [(100, None, 0), (50, None, 0), (25, None, 0)]
    for _ in range(100):
        for worker in workers:
            worker.lend(one, 0)
    assert sum(lent(one)) <= 200


def test_messages_and_bytes_are_lent_together_or_not_at_all() -> None:
    both = Limiter(limiter().scope, Limit(rate(1000, burst=400), rate(10**6, burst=400)), "test", 0)
    assert LeaseIssuer().lend(both, 0) is None
    assert lent(both) == [0, 0]


def test_nothing_is_lent_where_somebody_waits() -> None:
    world, one = World(), limiter(100, burst=40)
    world.greedy(one, entries=iter([(1, 1)] * 1000))
    assert LeaseIssuer().lend(one, world.clock.now + 100 * SECOND) is None


def test_nothing_is_lent_where_somebody_has_a_claim() -> None:
    """He waits for another limit, and this one is to leave him room."""
    world, one = World(), limiter(100, burst=40)
    one.claimant = world.stream(one)
    assert LeaseIssuer().lend(one, 0) is None


def test_what_is_lent_fills_the_bucket_until_it_comes_back() -> None:
    one, worker = limiter(100, burst=40), LeaseIssuer()
    assert worker.lend(one, 0) == (10, None, 0)
    assert one.spare(60 * SECOND) == (10, None)
    assert not fits(one, 31, 0, 60 * SECOND)
    worker.spent(one, (10, 0), (0, 0), 60 * SECOND, is_answer=False)
    assert not fits(one, 31, 0, 60 * SECOND)
    assert fits(one, 40, 0, 61 * SECOND)
    assert not worker.loans


def test_what_is_given_back_is_there_at_once() -> None:
    one, worker = limiter(100, burst=40), LeaseIssuer()
    worker.lend(one, 0)
    worker.spent(one, (3, 0), (7, 0), 0, is_answer=False)
    assert fits(one, 37, 0, 0)
    assert not fits(one, 38, 0, 0)


def test_who_is_asked_to_give_back_gets_no_more_until_he_has_answered() -> None:
    one, worker = limiter(100, burst=40), LeaseIssuer()
    worker.lend(one, 0)
    assert worker.recall(one)
    assert not worker.recall(one), "once is enough"
    worker.spent(one, (0, 0), (10, 0), 0, is_answer=False)
    assert worker.lend(one, 0) is None, "it gave back by itself, and the recall is still on its way"
    worker.spent(one, (0, 0), (0, 0), 0, is_answer=True)
    assert worker.lend(one, 0) == (10, None, 0)


def test_what_a_lost_worker_had_counts_as_used() -> None:
    one, worker = limiter(100, burst=40), LeaseIssuer()
    worker.lend(one, 0)
    assert worker.lose(0) == (10, 0)
    assert lent(one) == [0]
    assert not fits(one, 31, 0, 0)


@pytest.mark.parametrize(
    ("used", "unused"), [((50, 0), (0, 0)), ((150, 0), (0, 0)), ((0, 0), (50, 0)), ((6, 0), (150, 0))]
)
def test_nobody_gives_back_more_than_he_has(used: tuple[int, int], unused: tuple[int, int]) -> None:
    one, worker, other = limiter(1000, burst=400), LeaseIssuer(), LeaseIssuer()
    worker.lend(one, 0)
    other.lend(one, 0)
    worker.spent(one, used, unused, 0, is_answer=False)
    worker.spent(one, used, unused, 0, is_answer=False)
    assert lent(one) == [50]
    assert fits(one, 250, 0, 0)
    assert not fits(one, 351, 0, 0)


def test_a_limiter_knows_how_many_workers_have_something_of_it() -> None:
    one, (first, second) = limiter(1000, burst=400), (LeaseIssuer(), LeaseIssuer())
    for lending in (first, first, second):
        lending.lend(one, 0)
    assert one.borrowers == 2
    first.recall(one)
    first.spent(one, (0, 0), (200, 0), 0, is_answer=True)
    assert one.borrowers == 1
    second.lose(0)
    assert one.borrowers == 0
