"""Pulsar's page on message dispatch throttling, "Limitations": its cases of over-delivery, by the page's numbers.

Its reasons: the broker decides how much to read before it knows what the entries hold (a: in bytes, b: in messages),
and two processes see the same quota before either has reduced it. Here an entry is charged when it is to pass, by what
it holds, and a charge and the look before it are one step; so no interval sees more than the burst, what the rate gives
and one entry, which is indivisible. That one is paid for by the next periods, as on the page.
"""

from itertools import chain, cycle, permutations, repeat

import pytest

from limiter.permits import RULES, CreditWindow, DispatchRules
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from tests.limiter.asking import Asking
from tests.limiter.subscriptions import Dispatching

SECOND = NANOS_PER_SECOND
TEN = Limit(rate(10))
PULSARS = Limit(rate(10, burst=10))
"""With Pulsar's bucket, which holds a whole period's worth."""
ALL_RULES = [RULES, DispatchRules(is_precise=False)]


# ---- 1. a broker may read more than the limit


@pytest.mark.parametrize("rules", ALL_RULES, ids=["precise", "plain"])
def test_bytes_do_not_exceed_the_limit_whatever_size_the_next_entry_is_of(rules: DispatchRules) -> None:
    """The mean of what came says 100 bytes an entry, and then each holds 2,000: one of them at most is over it."""
    world = Dispatching(rules).limit_topics(Limit(None, rate(10_000)))
    consumer = world.consumer().ask(1000)
    world.drain([consumer], repeat((1, 100)), 5)
    start, before = world.clock.now, consumer.stream.usage.passed_size
    for _ in range(50):
        world.drain([consumer], repeat((1, 2000)), 0.1)
        lasted = world.clock.now - start
        passed = consumer.stream.usage.passed_size - before
        assert passed <= 1000 + 10_000 * lasted // SECOND + 2000
    assert passed >= 0.95 * 50_000
    world.ledger.check()


def test_entries_of_any_sizes_are_charged_by_what_they_hold() -> None:
    world = Dispatching().limit_topics(Limit(None, rate(10_000)))
    consumer = world.consumer().ask(1000)
    world.drain([consumer], cycle([(1, 10), (1, 5000), (3, 300), (1, 1), (7, 2500)]), 20)
    assert 0.99 * 200_000 - 5000 <= consumer.stream.usage.passed_size <= 1000 + 200_000 + 5000
    world.ledger.check()


def test_as_many_entries_are_asked_for_as_bytes_to_read_hold_of_their_mean_size() -> None:
    consumer = Asking(CreditWindow(10_000, "bytes"), rules=RULES)
    consumer.ask(1000)
    consumer.receive(1, 500)
    consumer.receive_all()
    assert consumer.permits.at_broker >= 10_000 // 500


def test_one_entry_is_asked_for_while_the_mean_size_is_unknown() -> None:
    consumer = Asking(CreditWindow(10_000, "bytes"), rules=RULES)
    consumer.ask(1000)
    assert consumer.granted == 1


@pytest.mark.parametrize("rules", ALL_RULES, ids=["precise", "plain"])
@pytest.mark.parametrize("batch", [6, 50])
def test_batches_do_not_exceed_the_limit_from_the_first_message_on(rules: DispatchRules, batch: int) -> None:
    """Pulsar's broker counts an entry as one message when it reads: tenfold in the first second with batches of 50."""
    world = Dispatching(rules).limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    for tenth in range(1, 201):
        world.drain([consumer], repeat((batch, 100)), 0.1)
        assert consumer.passed <= 1 + tenth + batch
    assert consumer.passed >= 200 - batch
    world.ledger.check()


# ---- 2. concurrent processes may not reduce the quota in time


@pytest.mark.parametrize("order", list(permutations("RN")))
@pytest.mark.parametrize("in_chunks", [True, False])
def test_replayed_and_other_messages_read_at_once_do_not_exceed_the_quota(order: str, *, in_chunks: bool) -> None:
    """process-R and process-N each saw a quota of 10, and read as many."""
    world = Dispatching().limit_topics(PULSARS)
    consumers = {process: world.consumer().ask(1000) for process in "RN"}
    for process in order:
        consumer = consumers[process]
        if not (in_chunks and world.scheduler.admit(consumer.stream, 10, 1000, world.clock.now)):
            for _ in range(10):
                world.offer(consumer.stream, 1, 100)
            continue
        world.scheduler.count_admitted(consumer.stream, 10, 10, 1000, 1, 100)
    assert [consumers[process].passed for process in order] == [10, 0]
    world.run_until(SECOND)
    assert sum(consumer.passed for consumer in consumers.values()) == 20
    world.ledger.check()


def test_replayed_and_other_messages_in_turns_do_not_exceed_the_quota() -> None:
    """Entry by entry, as two dispatchers would interleave."""
    world = Dispatching().limit_topics(PULSARS)
    replay, other = (world.consumer().ask(1000) for _ in "RN")
    for consumer in chain.from_iterable(repeat((replay, other), 10)):
        world.offer(consumer.stream, 1, 100)
    assert (replay.passed, other.passed) == (5, 5)
    world.run_until(SECOND)
    assert (replay.passed, other.passed) == (10, 10)


# ---- what was over the quota is paid for


def test_11_delivered_in_a_period_leave_9_for_the_next() -> None:
    world = Dispatching().limit_topics(PULSARS)
    consumer = world.consumer().ask(1000)
    assert world.offer(consumer.stream, 11, 100)
    world.run(1)
    assert [world.offer(consumer.stream, 1, 100) for _ in range(10)] == [True] * 9 + [False]


def test_batch_of_30_uses_up_the_next_two_periods() -> None:
    world = Dispatching().limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    assert world.offer(consumer.stream, 30, 100)
    assert not world.offer(consumer.stream, 1, 100)
    world.run_until(3 * SECOND - 1)
    assert consumer.passed == 30
    world.run_until(3 * SECOND)
    assert consumer.passed == 31


def test_what_was_over_the_quota_in_bytes_is_paid_for_too() -> None:
    world = Dispatching().limit_topics(Limit(None, rate(1000)))
    consumer = world.consumer().ask(1000)
    assert world.offer(consumer.stream, 1, 3000)
    assert not world.offer(consumer.stream, 1, 100)
    world.run_until(3 * SECOND - 100_000_000)
    assert consumer.passed == 1
    world.run_until(3 * SECOND)
    assert consumer.passed == 2
