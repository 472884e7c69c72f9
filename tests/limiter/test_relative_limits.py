"""Limits of deliveries that follow their topic's publish rate, second by second."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from limiter.policies import Client, Policies, Setting, Value
from limiter.rates import NANOS_PER_SECOND, NOTHING_PUBLISHED, PUBLISH_WINDOW_NS, Limit, rate
from limiter.registry import Registry
from limiter.relative_limits import RelativeLimits
from limiter.stream import Stream, StreamName
from limiter.under_way import DispatchRules
from protocol.topic_name import parse_topic
from tests.limiter.world import World

SECOND = NANOS_PER_SECOND
TEN_MORE = Limit(rate(10), published=NOTHING_PUBLISHED)


class Place(World):
    """Producers and consumers of the topics of t/n, and a second hand that measures."""

    def __init__(self, limit: Limit = TEN_MORE, setting: Setting = Setting.TOPIC_OF_NAMESPACE, **rules: bool) -> None:
        super().__init__()
        self.policies = Policies()
        self.put(limit, setting)
        self.registry = Registry(self.policies, self.gate, self.observer, DispatchRules(**rules))

    def put(self, limit: Limit | None, setting: Setting = Setting.TOPIC_OF_NAMESPACE) -> None:
        value = None if limit is None else Value(limit, "file")
        self.policies.put("dispatch", setting, "t/n", value)

    def apply(self) -> None:
        self.registry.apply(self.clock.now)

    def producer(self, topic: str = "x") -> Stream:
        return self._open("publish", topic)

    def consumer(self, topic: str = "x", subscription: str = "s") -> Stream:
        return self._open("dispatch", topic, subscription)

    def close(self, stream: Stream) -> None:
        self.registry.close(stream, self.clock.now)

    def second(self) -> int:
        """A second passes. Returns how many limits changed."""
        self.run(1)
        limits = self.registry.measure(self.journal.streams, self.clock.now)
        self.journal.empty()
        self.registry.retune(limits, self.clock.now)
        return len(limits)

    def seconds(self, number: int, producer: Stream, messages: int = 100, size: int = 200) -> list[int]:
        """So many, with so much published at the begin of each."""
        changes = []
        for _ in range(number):
            for _ in range(messages):
                self.offer(producer, 1, size)
            changes.append(self.second())
        return changes

    def _open(self, direction: str, topic: str, subscription: str = "") -> Stream:
        name = parse_topic(f"t/n/{topic}")
        stream = self.stream()
        stream.name = StreamName(direction, "t", "n", name.full, 1, subscription=subscription)
        self.registry.open(stream, name, self.clock.now, Client(subscription=subscription))
        if direction == "dispatch":
            self.registry.meter(stream, lambda _permits: None)
        return stream


def in_force(consumer: Stream) -> tuple[float | None, float | None]:
    """Messages and bytes per second."""
    (limiter,) = consumer.chain
    messages, size = limiter.limit.messages, limiter.limit.size
    return messages.per_second if messages else None, size.per_second if size else None


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
    found = []
    for _ in range(10):
        place.second()
        found.append(in_force(consumer)[0])
    assert found == [100, 90, 80, 70, 60, 50, 40, 30, 20, 10]
    assert not place.registry.relative.is_moving


def test_bytes_are_relative_as_messages_are() -> None:
    place = Place(Limit(rate(10), rate(1000), published=NOTHING_PUBLISHED))
    producer, consumer = place.producer(), place.consumer()
    place.seconds(5, producer, messages=20, size=300)
    assert in_force(consumer) == (30, 7000)


def test_each_subscription_has_the_topics_rate_on_top() -> None:
    place = Place(setting=Setting.SUBSCRIPTION_OF_NAMESPACE)
    producer, one, other = place.producer(), place.consumer(subscription="a"), place.consumer(subscription="b")
    place.seconds(3, producer)
    assert one.chain != other.chain
    assert (in_force(one), in_force(other)) == ((110, None), (110, None))


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


def test_permits_follow() -> None:
    place = Place()
    producer, consumer = place.producer(), place.consumer()
    place.seconds(3, producer)
    (limiter,) = consumer.chain
    assert [meter.horizon for meter in limiter.meters] == [22]


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


def test_limiters_that_are_forgotten_are_not_measured_any_more() -> None:
    place = Place()
    place.close(place.consumer())
    place.registry._sweep_at = 1
    place.consumer("y")
    assert [scope.name for scope in place.registry.relative.scopes] == [parse_topic("t/n/y").full]


def test_the_first_one_is_told() -> None:
    limits, told = RelativeLimits(), list[int]()
    limits.on_first = lambda: told.append(1)
    scope = Place().consumer().chain[0].scope
    limits.in_force(scope, Limit(rate(10)), "x", 0)
    assert told == []
    limits.in_force(scope, TEN_MORE, "x", 0)
    limits.in_force(scope, TEN_MORE, "x", 0)
    assert told == [1]


class Following(RuleBasedStateMachine):
    """Producers of one topic come, publish, pause and go; a model knows what passed in which second."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Place()
        self.consumer = self.place.consumer()
        self.producers: list[Stream] = []
        self.by_second = [0]

    @rule()
    def come(self) -> None:
        self.producers.append(self.place.producer())

    @precondition(lambda self: self.producers)
    @rule(messages=st.integers(1, 300), number=st.integers(0, 9))
    def publish(self, messages: int, number: int) -> None:
        self.place.offer(self.producers[number % len(self.producers)], messages, 1)
        self.by_second[-1] += messages

    @precondition(lambda self: self.producers)
    @rule(number=st.integers(0, 9))
    def go(self, number: int) -> None:
        self.place.close(self.producers.pop(number % len(self.producers)))

    @rule(seconds=st.integers(1, 25))
    def pass_time(self, seconds: int) -> None:
        """At rest nobody measures, as in the product."""
        relative, journal = self.place.registry.relative, self.place.journal
        for _ in range(seconds):
            if relative.is_moving or journal.streams:
                self.place.second()
            else:
                self.place.run(1)
            self.by_second.append(0)
        self._judge()

    def _judge(self) -> None:
        last = self.by_second[:-1][-10:]
        due = -(-sum(last) * 10 // len(last))
        published = self.consumer.chain[0].limit.published
        assert published is not None
        assert due <= published.messages <= due * 1.01
        assert in_force(self.consumer)[0] == 10 + published.messages * SECOND / PUBLISH_WINDOW_NS

    @invariant()
    def what_is_at_rest_has_published_nothing_lately(self) -> None:
        if not self.place.registry.relative.is_moving:
            assert self.consumer.chain[0].limit.published == NOTHING_PUBLISHED


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=60, stateful_step_count=30)
