"""Subscriptions without a backlog are not limited, those with one are: concluded from permits."""

from itertools import repeat
from operator import sub

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limiter.backlogs import CALM_NS, RECEIVER_QUEUE
from limiter.levels import Setting
from limiter.permits import DispatchRules
from limiter.policies import Policies
from limiter.registry import Registry
from limiter.token_bucket import Limit, rate
from limiter.usage import Passed
from tests.examples import examples
from tests.limiter.subscriptions import Consumer, Dispatching
from tests.limiter.world import World

SPARING = DispatchRules(spares_caught_up=True)
TEN = Limit(rate(10))
CALM_S = CALM_NS / 1e9


@pytest.fixture
def world() -> Dispatching:
    return Dispatching(SPARING).limit_topics(TEN)


def calm(world: Dispatching, *consumers: Consumer) -> None:
    """They have received one message each, and nothing more for a while."""
    for consumer in consumers:
        consumer.sent([(1, 100)])
    world.run(CALM_S + 1)


def passed_and_spared(consumer: Consumer) -> tuple[Passed, Passed]:
    usage = consumer.stream.usage
    return usage.passed, usage.spared.take(usage.passed) if usage.spared else (0, 0, 0)


def test_a_new_consumer_is_limited_from_the_first_message_on(world: Dispatching) -> None:
    consumer = world.consumer().ask(1000)
    for _ in range(50):
        consumer.sent(repeat((1, 100), 1000))
        world.run(0.1)
    assert 50 <= consumer.passed <= 51


def test_who_had_unused_permits_for_a_while_is_limited_no_longer(world: Dispatching) -> None:
    consumer = world.consumer().ask(1000)
    calm(world, consumer)
    assert consumer.limiters
    consumer.sent(repeat((1, 100), 500))
    assert (consumer.passed, consumer.limiters) == (501, ())
    assert consumer.granted == 1000, "and nothing of its permits is kept back"


def test_no_limit_of_any_unit_or_level_holds_without_a_backlog() -> None:
    """Pulsar's page: throttling is off even if dispatchThrottlingRateInMsg and InByte are configured; then on again."""
    world = Dispatching(SPARING).limit_topics(Limit(rate(10), rate(1000)))
    world.put(Setting.PROXY, "", Limit(rate(20), rate(2000)))
    world.put(Setting.SUBSCRIPTION_OF_BROKER, "", Limit(rate(5), rate(500)))
    consumers = [world.consumer().ask(1000) for _ in range(2)]
    calm(world, *consumers)
    for consumer in consumers:
        assert len(consumer.sent(repeat((1, 1000), 300))) == 300
        assert consumer.held == 0
    consumers[0].sent(repeat((1, 1000), 1000))
    assert all(len(consumer.limiters) == 3 for consumer in consumers)


def test_who_uses_up_its_permits_has_a_backlog_and_is_limited(world: Dispatching) -> None:
    consumer = world.consumer().ask(1000)
    calm(world, consumer)
    consumer.sent(repeat((1, 100), 5000))
    assert consumer.counter == 0
    assert [limiter.scope.level for limiter in consumer.limiters] == ["topic"]
    passed = consumer.passed
    consumer.ask(1000)
    for _ in range(50):
        consumer.sent(repeat((1, 100), 5000))
        world.run(0.1)
    assert 50 <= consumer.passed - passed <= 52


def test_permits_that_were_only_just_granted_are_no_sign_of_anything(world: Dispatching) -> None:
    """A limited consumer of a backlog gets its permits in small portions and always has some for a moment."""
    consumer = world.consumer().ask(1000)
    for _ in range(500):
        world.run(0.02)
        consumer.sent(repeat((1, 100), 1000))
    assert consumer.limiters
    assert consumer.passed <= 102


MANY = 2**30


def spared(world: Dispatching, permits: int) -> Consumer:
    """A consumer at the end of its topic that had asked for so many messages."""
    consumer = world.consumer().ask(permits)
    calm(world, consumer)
    consumer.sent([(1, 100)])
    assert not consumer.limiters
    return consumer


def test_redelivered_messages_are_limited_from_the_first_on(world: Dispatching) -> None:
    consumer = spared(world, MANY)
    passed, begin = consumer.passed, world.clock.now
    for _ in range(30):
        consumer.permits.rewound()
        consumer.sent(repeat((1, 100), 5000))
        world.run(0.5)
    assert 150 <= consumer.passed - passed <= 10 * (world.clock.now - begin) / 1e9 + 1


@pytest.mark.parametrize("step", [1, 7, 200])
def test_permits_beyond_a_receiver_queue_are_no_sign_for_more_messages_than_one(world: Dispatching, step: int) -> None:
    """Somebody who had stopped reading, say, gets a backlog with permits that no broker uses up."""
    consumer = spared(world, MANY)
    passed, begin = consumer.passed, world.clock.now
    for _ in range(100_000 // step // 10):
        consumer.sent(repeat((1, 100), step))
        world.run(0.01)
    seconds = (world.clock.now - begin) / 1e9
    assert RECEIVER_QUEUE - 1 <= consumer.passed - passed <= RECEIVER_QUEUE + 10 * seconds + 1
    assert consumer.limiters


def test_a_second_without_delivery_is_a_sign_despite_permits(world: Dispatching) -> None:
    consumer = spared(world, MANY)
    for _ in range(10):
        world.run(CALM_S)
        consumer.sent(repeat((1, 100), RECEIVER_QUEUE))
        assert not consumer.limiters
    consumer.sent([(1, 100)])
    assert consumer.limiters


@pytest.mark.parametrize("queue", [6, 10, 1000, 2000])
@pytest.mark.parametrize("burst", [1, 100])
def test_a_consumer_at_the_end_of_its_topic_stays_spared(world: Dispatching, queue: int, burst: int) -> None:
    """It asks for half of its queue again whenever that has come."""
    consumer, received, burst = spared(world, queue), 2, min(burst, queue // 2)
    for _ in range(10_000 // burst):
        received += len(consumer.sent(repeat((1, 100), burst)))
        if received >= queue // 2:
            consumer.ask(received)
            received = 0
        assert not consumer.limiters
        world.run(0.001)


def test_a_subscription_with_redeliveries_is_spared_after_calm(world: Dispatching) -> None:
    consumer = spared(world, 1000)
    consumer.permits.rewound()
    assert consumer.limiters
    for _ in range(9):
        consumer.sent(repeat((1, 100), 10))
        world.run(CALM_S / 10)
    assert consumer.held > 0
    world.run(CALM_S / 10)
    consumer.sent([(1, 100)])
    assert (consumer.limiters, consumer.held) == ((), 0)


def test_while_more_than_a_receiver_queue_is_held_nobody_is_spared(world: Dispatching) -> None:
    consumer = spared(world, MANY)
    consumer.permits.rewound()
    consumer.sent(repeat((1, 100), 3000))
    passed = consumer.passed
    for _ in range(10):
        world.run(CALM_S + 0.5)
        consumer.sent([(1, 100)])
    assert consumer.passed - passed <= 10 * 10 * (CALM_S + 0.5) + 1


def test_a_redelivery_limits_its_own_subscription_alone(
    world: Dispatching,
) -> None:
    first, second, other = world.consumer().ask(100), world.consumer().ask(100), world.consumer("y").ask(100)
    calm(world, first, second, other)
    first.sent([(1, 100)])
    other.sent([(1, 100)])
    assert (first.limiters, second.limiters, other.limiters) == ((), (), ())
    second.permits.rewound()
    assert first.limiters == second.limiters != ()
    assert other.limiters == ()


def test_where_nobody_is_spared_a_redelivery_changes_nothing() -> None:
    consumer = Dispatching().limit_topics(TEN).consumer().ask(10)
    consumer.permits.rewound()
    assert consumer.limiters


def test_one_consumer_without_permits_limits_the_whole_subscription(world: Dispatching) -> None:
    busy, idle = world.consumer().ask(1000), world.consumer().ask(1000)
    calm(world, busy, idle)
    busy.sent([(1, 100)])
    assert (busy.limiters, idle.limiters) == ((), ())
    idle.sent(repeat((1, 100), 1000))
    assert busy.limiters == idle.limiters != ()


def test_a_new_consumer_limits_its_subscription_until_it_is_calm(world: Dispatching) -> None:
    first = world.consumer().ask(1000)
    calm(world, first)
    first.sent([(1, 100)])
    assert not first.limiters
    second = world.consumer().ask(1000)
    assert first.limiters == second.limiters != ()
    world.run(CALM_S)
    second.sent([(1, 100)])
    assert (first.limiters, second.limiters) == ((), ())


def test_the_consumer_with_a_backlog_ends_and_the_others_are_spared_after_a_while(world: Dispatching) -> None:
    ends, stays = world.consumer(), world.consumer().ask(1000)
    calm(world, stays)
    stays.sent([(1, 100)])
    assert stays.limiters
    ends.close()
    world.run(CALM_S)
    stays.sent([(1, 100)])
    assert not stays.limiters


def test_other_subscriptions_have_nothing_to_do_with_it(world: Dispatching) -> None:
    calmed, other, elsewhere = (
        world.consumer(topic, name).ask(1000) for topic, name in (("x", "s"), ("x", "t"), ("y", "s"))
    )
    calm(world, calmed)
    calmed.sent([(1, 100)])
    assert not calmed.limiters
    assert other.limiters
    assert elsewhere.limiters


def test_a_changed_limit_does_not_hold_for_who_is_spared(world: Dispatching) -> None:
    consumer = world.consumer().ask(1000)
    calm(world, consumer)
    consumer.sent([(1, 100)])
    world.limit_topics(Limit(rate(5))).change()
    assert not consumer.limiters


def test_limits_that_are_only_observed_would_not_hold_either(world: Dispatching) -> None:
    world.put(Setting.PROXY, "", Limit(rate(5), mode="observe"))
    consumer = world.consumer().ask(1000)
    assert consumer.stream.observed is not None
    calm(world, consumer)
    consumer.sent([(1, 100)])
    assert consumer.stream.observed.chain == ()


def test_a_subscription_without_consumers_is_forgotten(world: Dispatching) -> None:
    first, second = world.consumer().ask(1000), world.consumer().ask(1000)
    first.close()
    assert world.registry._backlogs is not None
    assert len(world.registry._backlogs._backlogs) == 1
    second.close()
    assert world.registry._backlogs._backlogs == {}


def test_without_the_rule_nobody_is_spared() -> None:
    world = Dispatching().limit_topics(TEN)
    consumer = world.consumer().ask(1000)
    calm(world, consumer)
    consumer.sent([(1, 100)])
    assert consumer.limiters


@settings(max_examples=examples(100), deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9), st.sampled_from([0, 0.01, 0.3, 1.2])),
        max_size=60,
    )
)
@example(steps=[(0, 0, 1, 1.2), (1, 5, 8, 0), (0, 2, 5, 1.2), (0, 1, 1, 0)])  # what is held passes as it is spared
def test_from_the_moment_on_at_which_it_is_limited_each_limit_holds(steps: list[tuple[int, int, int, float]]) -> None:
    """Messages that pass while a subscription is spared are charged to no limit, earn no tokens, and are counted."""
    world = Dispatching(SPARING).limit_topics(TEN)
    consumers = [world.consumer().ask(40) for _ in range(3)]
    for index, entries, messages, seconds in steps:
        consumer = consumers[index]
        consumer.sent(repeat((messages, 100), entries))
        if entries:
            consumer.ask(entries)
        world.run(seconds)
        assert all(member.limiters == consumer.limiters for member in consumers), "all of a subscription, or none"
        assert all(member.counter == member.permits.at_broker for member in consumers)
    world.ledger.check()
    (limiter,) = world.registry.limiters.values()
    passed, spared = (
        map(sum, zip(*counts, strict=True)) for counts in zip(*map(passed_and_spared, consumers), strict=True)
    )
    charged = limiter.usage.entries, limiter.usage.messages, limiter.usage.size
    assert charged == tuple(map(sub, passed, spared))


def test_who_has_no_backlog_is_not_known_without_a_clock() -> None:
    world = World()
    with pytest.raises(ValueError, match="only with a clock"):
        Registry(Policies(), world.scheduler, world.observer, SPARING)
