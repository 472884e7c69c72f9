"""Limits of deliveries that follow their topic's publish rate, second by second."""

import pytest

from limiter import registry
from limiter.levels import Setting
from limiter.policies import Value
from limiter.relative_rates import RelativeLimits
from limiter.token_bucket import NANOS_PER_SECOND, NOTHING_PUBLISHED, Limit, rate
from protocol.topic_name import parse_topic
from tests.limiter.published import TEN_MORE, Place, in_force

SECOND = NANOS_PER_SECOND


def test_publishers_at_100_a_second_make_110_of_plus_10() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    assert in_force(consumer) == (10, None), "nothing is known yet"
    place.seconds(1, producer)
    assert in_force(consumer) == (110, None)
    assert sum(place.seconds(30, producer)) == 0, "a steady rate changes nothing"
    assert in_force(consumer) == (110, None)


def test_when_publishing_stops_it_is_back_at_10_after_the_window() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.seconds(10, producer)
    rates = []
    for _ in range(10):
        place.second()
        rates.append(in_force(consumer)[0])
    assert rates == [100, 90, 80, 70, 60, 50, 40, 30, 20, 10]
    assert not place.registry.relative.is_moving


def test_bytes_are_relative_as_messages_are() -> None:
    place = Place(Limit(rate(10), rate(1000), published=NOTHING_PUBLISHED))
    producer, consumer = place.producer(), place.consumer()
    place.seconds(5, producer, messages=20, size=300)
    assert in_force(consumer) == (30, 7000)


def test_each_subscription_has_the_topics_rate_on_top() -> None:
    place = Place(setting=Setting.SUBSCRIPTION_OF_NAMESPACE)
    producer, consumer, other = place.producer(), place.consumer(subscription="a"), place.consumer(subscription="b")
    place.seconds(3, producer)
    assert consumer.chain != other.chain
    assert (in_force(consumer), in_force(other)) == ((110, None), (110, None))


def test_topics_and_partitions_are_measured_apart() -> None:
    place = Place()
    producers = [place.producer(name) for name in ("x-partition-0", "x-partition-1")]
    consumers = [place.consumer(name) for name in ("x-partition-0", "x-partition-1", "y")]
    for producer, messages in zip(producers, (7, 3), strict=True):
        for _ in range(messages):
            place.offer(producer, 1, 1)
    place.second()
    assert [in_force(consumer)[0] for consumer in consumers] == [17, 13, 10]


def test_all_producers_of_a_topic_count_those_that_ended_too() -> None:
    place = Place()
    consumer, staying = place.consumer(), place.producer()
    for _ in range(10):
        leaving = place.producer()
        for _ in range(30):
            place.offer(leaving, 1, 1)
        place.close(leaving)
        place.close(leaving)
        place.seconds(1, staying, messages=20)
    assert in_force(consumer) == (60, None)


def test_what_is_held_counts_when_it_passes() -> None:
    place = Place()
    place.policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "t/n", Value(Limit(rate(5)), "file"))
    producer, consumer = place.producer(), place.consumer()
    for _ in range(100):
        place.offer(producer, 1, 1)
    for _ in range(12):
        place.second()
    assert in_force(consumer) == (15, None)


def test_who_subscribes_while_it_is_known_finds_it() -> None:
    place = Place()
    producer, first = place.producer(), place.consumer()
    place.seconds(10, producer)
    assert in_force(place.consumer()) == (110, None)
    place.close(first)
    assert in_force(place.consumer()) == (110, None)


def test_a_topic_without_consumers_is_not_measured() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.close(consumer)
    assert place.registry.relative.is_empty
    consumer, other = place.consumer(), place.consumer()
    place.seconds(3, producer)
    place.close(other)
    assert not place.registry.relative.is_empty
    place.close(consumer)
    assert place.seconds(2, producer) == [1, 0], "its limit is what is configured from then on"
    assert place.registry.relative.is_empty
    assert not place.registry.relative.is_moving
    assert in_force(place.consumer()) == (10, None)


def test_who_comes_back_before_it_is_measured_finds_what_it_left() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.seconds(3, producer)
    place.close(consumer)
    consumer = place.consumer()
    assert in_force(consumer) == (110, None)
    place.seconds(1, producer)
    assert in_force(consumer) == (110, None)


def test_a_debt_left_behind_is_paid_at_the_limits_rate() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.seconds(10, producer)
    place.offer(consumer, 1011, 1)
    place.close(consumer)
    for _ in range(10):
        place.second()
    (limiter,) = place.consumer().chain
    assert limiter.wait_ns(place.clock.now) > 79 * SECOND, "1,000, less 110 for a second and 10 for each of nine"


def test_batches_count_their_messages_or_as_one_as_limits_do() -> None:
    by_message, by_entry = Place(), Place(is_precise=False, by_entry=True)
    for place, due in ((by_message, 310), (by_entry, 20)):
        producer, consumer = place.producer(), place.consumer()
        for _ in range(10):
            place.offer(producer, 30, 100)
        place.second()
        assert in_force(consumer) == (due, None)


def test_who_waits_goes_when_the_limit_rises() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.offer(consumer, 100, 1)
    place.offer(consumer, 1, 1)
    place.seconds(1, producer)
    (limiter,) = consumer.chain
    assert limiter.wait_ns(place.clock.now) <= SECOND, "a debt of 99 less 10 is paid at 110/s"
    place.run(1)
    assert not consumer.held


def test_what_a_falling_limit_has_lent_is_paid_in_full() -> None:
    """P2, with the sum of what the limit gives: a debt does not fall with it."""
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.seconds(15, producer)
    for _ in range(5):
        place.offer(consumer, 1000, 1)
    given = 0.0
    for _ in range(30):
        given += in_force(consumer)[0] or 0
        place.second()
    assert given == 850
    assert consumer.usage.passed_messages == 1000, "of 11 + 850 + 1000 that may pass, another batch is more"


def test_who_configures_it_anew_makes_no_debt_longer() -> None:
    place = Place(Limit(rate(900), published=NOTHING_PUBLISHED))
    producer, consumer = place.producer(), place.consumer()
    place.seconds(10, producer)
    place.offer(consumer, 2100, 1)
    (limiter,) = consumer.chain
    assert limiter.wait_ns(place.clock.now) == 2001 * SECOND // 1000
    place.put(TEN_MORE)
    place.apply()
    assert in_force(consumer) == (110, None)
    assert limiter.wait_ns(place.clock.now) < 2.1 * SECOND


def test_permits_follow() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.seconds(3, producer)
    (limiter,) = consumer.chain
    assert [window.horizon for window in limiter.windows] == [22]


def test_a_limit_that_is_only_observed_follows_too() -> None:
    place = Place(Limit(rate(10), mode="observe", published=NOTHING_PUBLISHED))
    producer, consumer = place.producer(), place.consumer()
    place.seconds(3, producer)
    assert consumer.observed is not None
    (limiter,) = consumer.observed.chain
    assert limiter.limit.messages is not None
    assert limiter.limit.messages.per_second == 110


def test_without_relative_limits_nothing_is_measured() -> None:
    place = Place(Limit(rate(10)))
    producer, consumer = place.producer(), place.consumer()
    assert place.registry.relative.is_empty
    assert sum(place.seconds(3, producer)) == 0
    assert in_force(consumer) == (10, None)


def test_a_limit_becomes_relative_and_absolute_again() -> None:
    place = Place(Limit(rate(10)))
    producer, consumer = place.producer(), place.consumer()
    place.seconds(2, producer)
    place.put(TEN_MORE)
    place.apply()
    assert in_force(consumer) == (10, None)
    place.seconds(2, producer)
    assert in_force(consumer) == (110, None)
    place.put(Limit(rate(7)))
    place.apply()
    assert in_force(consumer) == (7, None)
    assert place.registry.relative.is_empty


def test_a_relative_limit_that_is_taken_away_is_not_measured_any_more() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.seconds(2, producer)
    place.put(None)
    place.apply()
    assert consumer.chain == ()
    assert place.registry.relative.is_empty
    assert not place.registry.relative.is_moving


def test_limiters_that_are_forgotten_are_not_measured_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    place.producer()
    gone = place.consumer()
    place.policies.put("dispatch", Setting.TOPIC_OF_NAMESPACE, "t/n", None)
    monkeypatch.setattr(registry, "KEPT", 0)
    place.registry._rewire(gone, place.clock.now)
    place.put(TEN_MORE)
    place.consumer("y")
    assert [scope.name for scope in place.registry.relative.scopes] == [parse_topic("t/n/y").full]


def test_the_first_one_is_told() -> None:
    calls = list[int]()
    limits = RelativeLimits(on_first=lambda: calls.append(1))
    scope = Place().consumer().chain[0].scope
    limits.in_force(scope, Limit(rate(10)), "x", 0)
    assert calls == []
    limits.in_force(scope, TEN_MORE, "x", 0)
    limits.in_force(scope, TEN_MORE, "x", 0)
    assert calls == [1]


def test_a_step_changes_the_limits_of_few_topics_and_scopes() -> None:
    place = Place(setting=Setting.SUBSCRIPTION_OF_NAMESPACE)
    topics = [f"t{number}" for number in range(300)]
    producers = [place.producer(topic) for topic in topics]
    for topic in topics:
        place.consumer(topic)
    for number in range(40):
        place.consumer(topics[0], f"s{number}")
    for producer in producers:
        place.offer(producer, 100, 200)
    place.run(1)
    before = {scope: place.registry.limiters[scope].limit for scope in place.registry.relative.scopes}
    changed = []
    for _ in place.registry.measuring(list(place.journal.streams), lambda: place.clock.now):
        now = {scope: place.registry.limiters[scope].limit for scope in before}
        changed.append(sum(now[scope] != before[scope] for scope in before))
        before = now
    assert sum(changed) == 340
    assert max(changed) == 10
    assert len(changed) >= 300
