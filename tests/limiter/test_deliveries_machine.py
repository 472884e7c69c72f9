"""Consumers behind limits, at a broker with a backlog of any entries, in any order of events."""

from itertools import repeat
from math import log

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from limiter.policies import Setting
from limiter.rates import NANOS_PER_SECOND, Limit, rate
from limiter.under_way import DispatchRules
from tests.limiter.long_run import Counted, long_run
from tests.limiter.subscriptions import Consumer, Dispatching, Size

MOST_CONSUMERS = 8
MOST_MESSAGES = 200
WHOSE = st.integers(0, MOST_CONSUMERS - 1)
SIZES = st.tuples(st.integers(1, 3) | st.integers(1, MOST_MESSAGES), st.integers(1, 5000))
MESSAGES = st.sampled_from([None, *(rate(tokens, burst=burst) for tokens in (5, 100, 3000) for burst in (None, 40))])
BYTES = st.sampled_from([None, None, rate(1000), rate(10**5), rate(10**5, burst=10)])
LIMITS = st.builds(Limit, MESSAGES, BYTES)
PERMITS = st.integers(1, 3) | st.integers(1, 1000)
RULES = st.sampled_from(
    [DispatchRules(), DispatchRules(is_precise=False), DispatchRules(is_precise=False, by_entry=True)]
)


class Deliveries(Counted):
    """Up to eight consumers on two topics with a limit each, within a limit of both.

    Proves: P2 for each limit over every interval (where an entry counts as one: in entries); nobody is granted more
    than it asked for, and Sluice counts permits as the broker does; who asks has something under way; of horizon h and
    n consumers at most h · (2 + ln n) + n + 1 permits are at the broker, each of which stands for one entry; and in
    the end, as the broker goes on, everybody gets all that it asked for.
    """

    @initialize(own=LIMITS, total=LIMITS, rules=RULES)
    def begin(self, own: Limit, total: Limit, rules: DispatchRules) -> None:
        self.world = Dispatching(rules).limit_topics(own)
        self.world.put(Setting.NAMESPACE, "t/n", total)
        self.consumers: list[Consumer] = []

    def one(self, whose: int) -> Consumer:
        return self.consumers[whose % len(self.consumers)]

    @precondition(lambda self: len(self.consumers) < MOST_CONSUMERS)
    @rule(topic=st.sampled_from("xy"), subscription=st.sampled_from("st"), permits=PERMITS)
    def open(self, topic: str, subscription: str, permits: int) -> None:
        self.consumers.append(self.world.consumer(topic, subscription).ask(permits))

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, permits=PERMITS)
    def ask(self, whose: int, permits: int) -> None:
        self.one(whose).ask(permits)

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, entries=st.lists(SIZES, min_size=1, max_size=8))
    def deliver(self, whose: int, entries: list[Size]) -> None:
        self.one(whose).sent(entries)

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, entry=SIZES)
    def deliver_all(self, whose: int, entry: Size) -> None:
        self.one(whose).sent(repeat(entry, 300))

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, entries=st.lists(SIZES, min_size=1, max_size=8))
    def deliver_in_one_read(self, whose: int, entries: list[Size]) -> None:
        consumer = self.one(whose)
        counter = consumer.counter
        for number, (messages, _) in enumerate(entries):
            if counter <= 0:
                del entries[number:]
                break
            counter -= messages
        if entries and not consumer.sent_in_a_chunk(entries):
            consumer.sent(entries)

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, ask_again=st.booleans())
    def drop(self, whose: int, *, ask_again: bool) -> None:
        """REDELIVER, where the client still counts on what is dropped, or SEEK."""
        self.one(whose).drop(ask_again=ask_again)

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE)
    def close(self, whose: int) -> None:
        consumer = self.one(whose)
        self.consumers.remove(consumer)
        consumer.close()

    @rule(span=st.integers(0, 5) | st.integers(0, 3 * NANOS_PER_SECOND))
    def pass_time(self, span: int) -> None:
        self.world.run_until(self.world.clock.now + span)

    @invariant()
    def nobody_gets_more_than_asked_for(self) -> None:
        for consumer in self.consumers:
            assert consumer.granted + consumer.permits.asked == consumer.asked
            assert consumer.permits.at_broker == consumer.counter

    @invariant()
    def who_asks_has_something_under_way(self) -> None:
        for consumer in self.consumers:
            assert consumer.permits.asked == 0 or consumer.counter > 0 or consumer.held

    @invariant()
    def permits_at_the_broker_are_bounded(self) -> None:
        for limiter in self.world.registry.limiters.values():
            members = [consumer for consumer in self.consumers if limiter in consumer.limiters]
            for meter in limiter.meters:
                permits = sum(max(0, one.counter) for one in members)
                bound = meter.horizon * (2 + log(MOST_CONSUMERS)) + MOST_CONSUMERS + 1
                assert permits <= bound
                if meter.unit == "messages":
                    assert permits + sum(one.held for one in members) <= bound * MOST_MESSAGES

    def teardown(self) -> None:
        """The broker's backlog does not end: all demand is met, with what the limits give, and then nothing is left."""
        if not hasattr(self, "world"):
            return
        for _ in range(20_000):
            if not any(one.counter > 0 or one.held or one.permits.asked for one in self.consumers):
                break
            for consumer in self.consumers:
                consumer.sent(repeat((3, 100), 300))
            self.world.run(20)
        else:
            raise AssertionError("somebody who asked waits for ever")
        assert all(meter.under_way == 0 for one in self.consumers for meter in one.permits._meters)
        self.world.ledger.check()


TestDeliveries = long_run(Deliveries, 30_000)
