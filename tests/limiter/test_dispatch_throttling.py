"""Pulsar's page on message dispatch throttling: each of its rules and examples with numbers, with a broker's backlog.

The page's rules, in its order, and where each is shown (here unless said otherwise, `over` is test_over_delivery.py):

- 10 a second are up to 10 a second; what is over it waits: `…_10_a_second_delivers_up_to_10_…`
- a broker's reads are limited: `…_a_byte_limit_alone_keeps_the_backlog_…`, `…_stays_within_the_horizon_…`;
  one busy topic or client is no burden to others: `…_leaves_the_other_topics_alone`
- what is sought or redelivered counts as different messages: `…_redelivered_…`, `…_sought_…`
- levels: `…_all_subscriptions_of_a_broker_…`, `…_two_partitions_…`, `…_lends_nothing_…`, `…_subscriptions_of_one_…`,
  `…_leaves_its_part_…`, `…_each_subscription_has_10_…`, `…_20_in_two_partitions`; all at once: `…_several_levels_…`
- the table of approaches: tests/proxy/config/test_limits.py `…_table_of_approaches_…`, and by Pulsar's own keys
  tests/proxy/importing/test_broker_keys.py; which of them takes effect: `…_only_the_narrowest_…` and test_policies.py
- -1 is no limit, and what ratePeriodInSecond is: tests/proxy/admin/pulsar/test_rates.py; 10,000 a minute:
  `…_10_000_a_minute_…`
- preciseDispatcherFlowControl: `…_6_messages_per_entry_…`; dispatchThrottlingOnBatchMessageEnabled:
  `…_10_entries_a_second_…`; the difference between them: `…_precise_changes_what_is_asked_for_…`; that only one of them
  may be on, and the defaults: tests/proxy/config/test_dispatch.py
- dispatchThrottlingOnNonBacklogConsumerEnabled: test_backlogs.py
- messages and bytes together: `…_limits_in_messages_and_bytes_…`
- the limitations, which Sluice has not, and what over-delivery costs: `over`

With a real broker: tests/real/test_dispatch_limits.py, test_dispatch_rules.py.
"""

from itertools import cycle, repeat

import pytest

from limiter.levels import Setting
from limiter.permits import RULES, DispatchRules
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from tests.limiter.subscriptions import Dispatching

TEN = Limit(rate(10))
PLAIN = DispatchRules(is_precise=False)
BY_ENTRY = DispatchRules(is_precise=False, by_entry=True)


def test_limit_of_10_a_second_delivers_up_to_10_a_second() -> None:
    """A burst of one besides, in whichever second it falls."""
    world = Dispatching().limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    before = 0
    for _ in range(10):
        world.drain([consumer], repeat((1, 100)), 1)
        assert 10 <= consumer.passed - before <= 11
        before = consumer.passed
    assert 99 <= consumer.passed <= 101
    world.ledger.check()


def test_a_topic_with_a_huge_backlog_leaves_the_other_topics_alone() -> None:
    world = Dispatching()
    world.put(Setting.TOPIC, "persistent://t/n/busy", TEN)
    busy, other = world.consumer("busy").ask(10**6), world.consumer("other").ask(10**6)
    for _ in range(100):
        busy.sent(repeat((50, 10_000), 1000))
        assert len(other.sent(repeat((1, 100), 100))) == 100
        world.run(0.1)
    assert (other.passed, other.held) == (100 * 100, 0)
    assert busy.passed <= 101 + 50


def test_all_subscriptions_of_a_broker_share_its_quota() -> None:
    world = Dispatching()
    world.put(Setting.PROXY, "", TEN)
    places = [("x", "s"), ("x", "t"), ("y", "s"), ("z-partition-1", "s"), ("z-partition-2", "s")]
    consumers = [world.consumer(*place).ask(1000) for place in places]
    world.drain(consumers, repeat((1, 100)), 20)
    assert 199 <= sum(consumer.passed for consumer in consumers) <= 201
    assert all(39 <= consumer.passed <= 41 for consumer in consumers)


def test_two_partitions_with_10_each_are_20_together() -> None:
    world = Dispatching().limit_topics(TEN)
    consumers = [world.consumer(f"t0-partition-{number}").ask(1000) for number in (0, 1)]
    world.drain(consumers, repeat((1, 100)), 10)
    assert all(99 <= consumer.passed <= 101 for consumer in consumers)


def test_a_partition_without_messages_lends_nothing_to_the_other() -> None:
    world = Dispatching().limit_topics(TEN)
    busy, idle = (world.consumer(f"t0-partition-{number}").ask(1000) for number in (0, 1))
    world.drain([busy], repeat((1, 100)), 10)
    assert 99 <= busy.passed <= 101
    assert idle.passed == 0


def test_subscriptions_of_one_partition_share_its_quota() -> None:
    world = Dispatching().limit_topics(TEN)
    consumers = [world.consumer("t0-partition-0", name).ask(1000) for name in "ab"]
    world.drain(consumers, repeat((1, 100)), 10)
    assert 99 <= sum(consumer.passed for consumer in consumers) <= 101
    assert abs(consumers[0].passed - consumers[1].passed) <= 1


def test_an_idle_subscription_leaves_its_part_to_the_other() -> None:
    world = Dispatching().limit_topics(TEN)
    busy, idle = (world.consumer("t0-partition-0", name).ask(1000) for name in "ab")
    world.drain([busy], repeat((1, 100)), 10)
    assert 99 <= busy.passed <= 101
    assert idle.passed == 0


def test_each_subscription_has_10_of_its_own_where_the_limit_is_a_subscriptions() -> None:
    world = Dispatching()
    world.put(Setting.SUBSCRIPTION_OF_NAMESPACE, "t/n", TEN)
    consumers = [world.consumer("x", name).ask(1000) for name in ("s1", "s1", "s2")]
    for consumer in consumers:
        (limiter,) = consumer.limiters
        assert limiter.scope.level == "subscription"
    world.drain(consumers, repeat((1, 100)), 10)
    first, second, other = (consumer.passed for consumer in consumers)
    assert 99 <= first + second <= 101, "all consumers of a subscription together"
    assert 99 <= other <= 101


def test_a_subscriptions_10_are_20_in_two_partitions() -> None:
    world = Dispatching()
    world.put(Setting.SUBSCRIPTION_OF_NAMESPACE, "t/n", TEN)
    consumers = [world.consumer(f"t1-partition-{number}", "s1").ask(1000) for number in (0, 1)]
    world.drain(consumers, repeat((1, 100)), 10)
    assert all(99 <= consumer.passed <= 101 for consumer in consumers)


def test_of_limits_at_several_levels_all_hold() -> None:
    world = Dispatching().limit_topics(Limit(rate(40)))
    world.put(Setting.PROXY, "", Limit(rate(20)))
    world.put(Setting.SUBSCRIPTION_OF_BROKER, "", Limit(rate(15)))
    consumers = [world.consumer(subscription=name).ask(1000) for name in "ab"]
    world.drain(consumers, repeat((1, 100)), 10)
    assert 198 <= sum(consumer.passed for consumer in consumers) <= 203
    world.ledger.check()


@pytest.mark.parametrize(
    "settings",
    [
        [(Setting.TOPIC, "persistent://t/n/x"), (Setting.TOPIC_OF_NAMESPACE, "t/n"), (Setting.TOPIC_OF_BROKER, "")],
        [
            (Setting.SUBSCRIPTION_OF_TOPIC, "persistent://t/n/x"),
            (Setting.SUBSCRIPTION_OF_NAMESPACE, "t/n"),
            (Setting.SUBSCRIPTION_OF_BROKER, ""),
        ],
    ],
    ids=["topic", "subscription"],
)
def test_only_the_narrowest_of_topic_namespace_and_broker_holds(settings: list[tuple[Setting, str]]) -> None:
    """Topic policies, namespace policies, broker configuration; the narrowest need not be the lowest."""
    world = Dispatching()
    values = (30, 10, 20)
    for setting, value in zip(settings, values, strict=True):
        world.put(*setting, Limit(rate(value)))
    consumer = world.consumer().ask(1000)
    for setting, value in zip(settings, values, strict=True):
        before = consumer.passed
        world.drain([consumer], repeat((1, 100)), 10)
        assert 10 * value - 1 <= consumer.passed - before <= 10 * value + 3
        world.put(*setting, None)
        world.change()
    assert consumer.limiters == ()


def test_10_000_a_minute_are_a_period_of_60_seconds() -> None:
    """Pulsar's counter is reset after each period; here the minute's worth comes evenly, but for a tenth at once."""
    world = Dispatching().limit_topics(Limit(rate(10_000, 60 * NANOS_PER_SECOND)))
    consumer = world.consumer().ask(1000)
    minutes = []
    for _ in range(2):
        before = consumer.passed
        world.drain([consumer], repeat((1, 100)), 60)
        minutes.append(consumer.passed - before)
    assert 10_990 <= minutes[0] <= 11_000
    assert 9_990 <= minutes[1] <= 10_010


@pytest.mark.parametrize(("rules", "a_second"), [(RULES, 2), (BY_ENTRY, 10)])
def test_with_6_messages_per_entry_2_entries_a_second_are_asked_for_and_not_10(
    rules: DispatchRules, a_second: int
) -> None:
    """Precise: the limit is in messages. With dispatchThrottlingOnBatchMessageEnabled it is 10 entries, as it says."""
    world = Dispatching(rules).limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    world.drain([consumer], repeat((6, 100)), 2)
    for _ in range(10):
        before = consumer.stream.usage.offered_entries
        world.drain([consumer], repeat((6, 100)), 1)
        assert consumer.stream.usage.offered_entries - before <= a_second
    assert consumer.stream.usage.offered_entries >= 0.95 * (10 if rules.by_entry else 10 / 6) * 12
    assert consumer.held <= 2 * 6
    world.ledger.check()


def test_precise_changes_what_is_asked_for_and_by_entry_what_is_counted() -> None:
    """At a broker that sends an entry for each permit it is 60 messages in the first second; here 10, all the same."""
    passed, most_here = {}, {}
    for rules in (RULES, PLAIN, BY_ENTRY):
        world = Dispatching(rules).limit_topics(TEN)
        consumer = world.consumer().ask(1000)
        most_here[rules] = 0
        for _ in range(100):
            consumer.sent_as_read((6, 100))
            most_here[rules] = max(most_here[rules], consumer.held)
            world.run(0.1)
        passed[rules] = consumer.passed
        world.ledger.check()
    assert 10 * 10 - 6 <= passed[RULES] <= 10 * 10 + 6
    assert 10 * 10 - 6 <= passed[PLAIN] <= 10 * 10 + 6
    assert 10 * 10 * 6 - 6 <= passed[BY_ENTRY] <= 10 * 10 * 6 + 6
    assert (most_here[RULES], most_here[PLAIN]) == (6, 12), "in the broker, another consumer could have them"


def test_10_entries_a_second_whatever_they_hold_where_an_entry_counts_as_one() -> None:
    world = Dispatching(BY_ENTRY).limit_topics(TEN)
    consumer = world.consumer().ask(5000)
    world.drain([consumer], cycle((1 + number, 100) for number in range(50)), 10)
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


def test_limits_in_messages_and_bytes_hold_both() -> None:
    for size, passed in ((100, 100), (1000, 50)):
        world = Dispatching().limit_topics(Limit(rate(10), rate(5000)))
        consumer = world.consumer().ask(1000)
        world.drain([consumer], repeat((1, size)), 10)
        assert passed - 2 <= consumer.passed <= passed + 2
        world.ledger.check()


@pytest.mark.parametrize("ask_again", [True, False], ids=["redelivered", "sought"])
def test_redelivered_and_sought_messages_count_as_different_ones(*, ask_again: bool) -> None:
    """After a seek the client asks again by itself; before a redelivery it still counts on the missing messages."""
    world = Dispatching().limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    world.drain([consumer], repeat((1, 100)), 2)
    before = consumer.passed
    dropped = consumer.drop(ask_again=ask_again)
    if not ask_again:
        consumer.ask(dropped)
    world.drain([consumer], repeat((1, 100)), 2)
    assert 19 <= consumer.passed - before <= 21
    world.ledger.check()


def test_a_byte_limit_alone_keeps_the_backlog_in_the_broker() -> None:
    """Before anything is known one entry is asked for, then as many as fit the horizon."""
    world = Dispatching().limit_topics(Limit(None, rate(10_000)))
    consumer = world.consumer().ask(1000)
    for _ in range(100):
        world.drain([consumer], repeat((1, 500)), 0.1)
        assert consumer.stream.usage.held_size <= 2000 + 500
    assert 198 <= consumer.passed <= 203
    world.ledger.check()


@pytest.mark.parametrize("entry", [1, 6, 50])
def test_what_is_held_stays_within_the_horizon_and_an_entry_of_each_consumer(entry: int) -> None:
    world = Dispatching().limit_topics(Limit(rate(100)))
    consumers = [world.consumer().ask(1000) for _ in range(5)]
    for _ in range(100):
        world.drain(consumers, repeat((entry, 100)), 0.1)
        assert sum(consumer.held for consumer in consumers) <= 20 + 5 * entry
    assert 0.99 * 1000 - entry <= sum(consumer.passed for consumer in consumers) <= 1010 + entry
    world.ledger.check()


def test_twenty_consumers_of_one_subscription_have_equal_shares() -> None:
    world = Dispatching()
    world.put(Setting.SUBSCRIPTION_OF_BROKER, "", Limit(rate(50)))
    consumers = [world.consumer().ask(10) for _ in range(20)]
    world.drain(consumers, repeat((1, 100)), 4)
    before = [consumer.passed for consumer in consumers]
    world.drain(consumers, repeat((1, 100)), 16)
    shares = [consumer.passed - passed for consumer, passed in zip(consumers, before, strict=True)]
    assert 0.99 * 800 <= sum(shares) <= 806
    assert max(shares) - min(shares) <= 2
    world.ledger.check()
