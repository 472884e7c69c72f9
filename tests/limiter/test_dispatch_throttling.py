"""Pulsar's page on message dispatch throttling: each of its examples with numbers, with a broker that has a backlog."""

from collections.abc import Iterator
from itertools import cycle, repeat

import pytest

from limiter.policies import Setting
from limiter.rates import NANOS_PER_SECOND, Limit, rate
from limiter.under_way import RULES, DispatchRules
from tests.limiter.subscriptions import Consumer, Dispatching, Size

SECOND = NANOS_PER_SECOND
TEN = Limit(rate(10))
PULSARS = Limit(rate(10, burst=10))
"""With Pulsar's bucket, which holds a whole period's worth."""
BY_ENTRY = DispatchRules(is_precise=False, by_entry=True)


def drain(world: Dispatching, consumers: list[Consumer], entries: Iterator[Size], seconds: float) -> None:
    """The broker sends whatever it has permits for; each client asks again for what it received."""
    end = world.clock.now + round(seconds * SECOND)
    while world.clock.now < end:
        for consumer in consumers:
            received = consumer.passed
            consumer.sent(entries)
            consumer.ask(consumer.passed - received)
        before = {consumer: consumer.passed for consumer in consumers}
        world.run_until(min(end, world.clock.now + 10_000_000))
        for consumer in consumers:
            consumer.ask(consumer.passed - before[consumer])


def test_limit_of_10_a_second_delivers_up_to_10_a_second() -> None:
    world = Dispatching().limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    drain(world, [consumer], repeat((1, 100)), 10)
    assert 99 <= consumer.passed <= 101
    world.ledger.check()


def test_two_partitions_with_10_each_are_20_together() -> None:
    world = Dispatching().limit_topics(TEN)
    consumers = [world.consumer(f"t0-partition-{number}").ask(1000) for number in (0, 1)]
    drain(world, consumers, repeat((1, 100)), 10)
    assert all(99 <= consumer.passed <= 101 for consumer in consumers)


def test_subscriptions_of_one_partition_share_its_quota() -> None:
    world = Dispatching().limit_topics(TEN)
    consumers = [world.consumer(subscription=name).ask(1000) for name in "ab"]
    drain(world, consumers, repeat((1, 100)), 10)
    assert 99 <= sum(consumer.passed for consumer in consumers) <= 101
    assert abs(consumers[0].passed - consumers[1].passed) <= 1


def test_each_subscription_has_10_of_its_own_where_the_limit_is_a_subscriptions() -> None:
    world = Dispatching()
    world.put(Setting.SUBSCRIPTION_OF_NAMESPACE, "t/n", TEN)
    consumers = [
        world.consumer(topic, name).ask(1000) for topic in ("t1-partition-0", "t1-partition-1") for name in ("s1", "s2")
    ]
    for consumer in consumers:
        (limiter,) = consumer.limiters
        assert limiter.scope.level == "subscription"
    drain(world, consumers, repeat((1, 100)), 5)
    assert all(49 <= consumer.passed <= 51 for consumer in consumers)


@pytest.mark.parametrize(("rules", "a_second"), [(RULES, 2), (BY_ENTRY, 10)])
def test_with_6_messages_per_entry_2_entries_a_second_are_asked_for_and_not_10(
    rules: DispatchRules, a_second: int
) -> None:
    """Precise: the limit is in messages. With dispatchThrottlingOnBatchMessageEnabled it is 10 entries, as it says."""
    world = Dispatching(rules).limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    drain(world, [consumer], repeat((6, 100)), 2)
    for _ in range(10):
        before = consumer.stream.usage.offered_entries
        drain(world, [consumer], repeat((6, 100)), 1)
        assert consumer.stream.usage.offered_entries - before <= a_second
    assert consumer.stream.usage.offered_entries >= 0.95 * (10 if rules.by_entry else 10 / 6) * 12
    assert consumer.held <= 2 * 6
    world.ledger.check()


def test_10_entries_a_second_whatever_they_hold_where_an_entry_counts_as_one() -> None:
    world = Dispatching(BY_ENTRY).limit_topics(TEN)
    consumer = world.consumer().ask(5000)
    drain(world, [consumer], cycle((1 + number, 100) for number in range(50)), 10)
    usage = consumer.stream.usage
    assert 99 <= usage.passed_entries <= 101
    assert usage.passed_messages > 2000
    (limiter,) = consumer.limiters
    assert limiter.usage.messages == limiter.usage.entries == usage.passed_entries
    assert limiter.usage.largest_messages == 1


def test_where_an_entry_counts_as_one_it_does_so_to_observed_limits_as_well() -> None:
    world = Dispatching(BY_ENTRY).limit_topics(Limit(rate(10), mode="observe"))
    consumer = world.consumer().ask(1000)
    for _ in range(10):
        world.offer(consumer.stream, 50, 100)
        world.run(0.1)
    observed = consumer.stream.observed
    assert observed is not None
    assert observed.usage.passed_entries == 10


def test_11_delivered_in_a_period_leave_9_for_the_next() -> None:
    world = Dispatching().limit_topics(PULSARS)
    consumer = world.consumer().ask(1000)
    assert world.offer(consumer.stream, 11, 100)
    world.run(1)
    assert [world.offer(consumer.stream, 1, 100) for _ in range(10)] == [True] * 9 + [False]


def test_30_delivered_at_once_leave_nothing_for_the_next_two_periods() -> None:
    world = Dispatching().limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    assert world.offer(consumer.stream, 30, 100)
    assert not world.offer(consumer.stream, 1, 100)
    world.run_until(3 * SECOND - 1)
    assert consumer.passed == 30
    world.run_until(3 * SECOND)
    assert consumer.passed == 31


def test_limits_in_messages_and_bytes_hold_both() -> None:
    for size, passed in ((100, 100), (1000, 50)):
        world = Dispatching().limit_topics(Limit(rate(10), rate(5000)))
        consumer = world.consumer().ask(1000)
        drain(world, [consumer], repeat((1, size)), 10)
        assert passed - 2 <= consumer.passed <= passed + 2
        world.ledger.check()


def test_of_limits_at_several_levels_all_hold() -> None:
    world = Dispatching().limit_topics(Limit(rate(40)))
    world.put(Setting.PROXY, "", Limit(rate(20)))
    world.put(Setting.SUBSCRIPTION_OF_BROKER, "", Limit(rate(15)))
    consumers = [world.consumer(subscription=name).ask(1000) for name in "ab"]
    drain(world, consumers, repeat((1, 100)), 10)
    assert 198 <= sum(consumer.passed for consumer in consumers) <= 203
    world.ledger.check()


def test_redelivered_messages_count_as_different_ones() -> None:
    world = Dispatching().limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    drain(world, [consumer], repeat((1, 100)), 2)
    before = consumer.passed
    consumer.drop(ask_again=True)
    drain(world, [consumer], repeat((1, 100)), 2)
    assert 19 <= consumer.passed - before <= 21


def test_a_byte_limit_alone_keeps_the_backlog_in_the_broker() -> None:
    """Before anything is known one entry is asked for, then as many as fit the horizon."""
    world = Dispatching().limit_topics(Limit(None, rate(10_000)))
    consumer = world.consumer().ask(1000)
    for _ in range(100):
        drain(world, [consumer], repeat((1, 500)), 0.1)
        assert consumer.stream.usage.held_size <= 2000 + 500
    assert 198 <= consumer.passed <= 203
    world.ledger.check()


@pytest.mark.parametrize("entry", [1, 6, 50])
def test_what_is_held_stays_within_the_horizon_and_an_entry_of_each_consumer(entry: int) -> None:
    world = Dispatching().limit_topics(Limit(rate(100)))
    consumers = [world.consumer().ask(1000) for _ in range(5)]
    for _ in range(100):
        drain(world, consumers, repeat((entry, 100)), 0.1)
        assert sum(consumer.held for consumer in consumers) <= 20 + 5 * entry
    assert 0.99 * 1000 - entry <= sum(consumer.passed for consumer in consumers) <= 1010 + entry
    world.ledger.check()


def test_twenty_consumers_of_one_subscription_have_equal_shares() -> None:
    world = Dispatching()
    world.put(Setting.SUBSCRIPTION_OF_BROKER, "", Limit(rate(50)))
    consumers = [world.consumer().ask(10) for _ in range(20)]
    drain(world, consumers, repeat((1, 100)), 4)
    before = [consumer.passed for consumer in consumers]
    drain(world, consumers, repeat((1, 100)), 16)
    shares = [consumer.passed - passed for consumer, passed in zip(consumers, before, strict=True)]
    assert 0.99 * 800 <= sum(shares) <= 806
    assert max(shares) - min(shares) <= 2
    world.ledger.check()
