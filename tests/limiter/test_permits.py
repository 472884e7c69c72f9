"""Consumers that ask, receive, drop and go, on one or two meters."""

from itertools import product
from math import log

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from limiter.permits import PermitMeter, Permits, horizon_of
from limiter.rates import rate
from limiter.usage import StreamUsage


class Consumer:
    """The broker's view of a consumer, next to the meter's."""

    def __init__(self, *meters: PermitMeter) -> None:
        self.granted = 0
        self.asked = 0
        self.again = 0
        self.usage = StreamUsage()
        self.permits = Permits(meters, self.usage, self._grant)

    def _grant(self, permits: int) -> None:
        assert permits > 0, "a FLOW of nothing, or of less"
        self.granted += permits

    def ask(self, permits: int) -> None:
        self.asked += permits
        if self.permits.is_metered:
            self.permits.ask(permits)
        else:
            self.permits.pass_through(permits)
            self.granted += permits

    def receive(self, messages: int) -> None:
        self.permits.passed(messages)

    def receive_all(self) -> None:
        self.receive(max(0, self.permits.outstanding))


NUMBERS = st.integers(1, 5) | st.integers(1, 3000)
WHOSE = st.integers(0, 5)


class ManyConsumers(RuleBasedStateMachine):
    """Up to six consumers on any of two meters; the broker delivers whatever it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.meters = (PermitMeter(10), PermitMeter(200))
        self.consumers: dict[int, Consumer] = {}

    def wires(self, which: int) -> tuple[PermitMeter, ...]:
        return tuple(meter for bit, meter in enumerate(self.meters) if which >> bit & 1)

    @rule(whose=WHOSE, which=st.integers(1, 3))
    def open(self, whose: int, which: int) -> None:
        self.close(whose)
        self.consumers[whose] = Consumer(*self.wires(which))

    @rule(whose=WHOSE)
    def close(self, whose: int) -> None:
        consumer = self.consumers.pop(whose, None)
        if consumer is not None:
            consumer.permits.close()

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, permits=st.integers(0, 3) | NUMBERS)
    def ask(self, whose: int, permits: int) -> None:
        self.one(whose).ask(permits)

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, messages=NUMBERS)
    def receive(self, whose: int, messages: int) -> None:
        """A batch may overdraw the permits by far."""
        self.one(whose).receive(messages)

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE)
    def receive_all(self, whose: int) -> None:
        self.one(whose).receive_all()

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, messages=NUMBERS, again=st.booleans())
    def drop(self, whose: int, messages: int, *, again: bool) -> None:
        consumer = self.one(whose)
        consumer.again += messages if again else 0
        consumer.permits.dropped(messages, ask_again=again)

    @precondition(lambda self: self.consumers)
    @rule(whose=WHOSE, which=st.integers(0, 3))
    def rewire(self, whose: int, which: int) -> None:
        self.one(whose).permits.rewire(self.wires(which))

    @rule(horizons=st.tuples(st.integers(1, 50), st.integers(1, 1000)))
    def change_the_limits(self, horizons: tuple[int, int]) -> None:
        for meter, horizon in zip(self.meters, horizons, strict=True):
            meter.horizon = horizon
        for consumer in self.consumers.values():
            consumer.permits.rewire(consumer.permits._meters)

    def one(self, whose: int) -> Consumer:
        known = sorted(self.consumers)
        return self.consumers[known[whose % len(known)]]

    @invariant()
    def nobody_gets_more_than_asked_for(self) -> None:
        for consumer in self.consumers.values():
            assert consumer.granted + consumer.permits.asked == consumer.asked + consumer.again
            assert consumer.usage.permits_granted == consumer.granted
            assert consumer.usage.permits_asked == consumer.asked

    @invariant()
    def who_asks_has_something_under_way(self) -> None:
        for consumer in self.consumers.values():
            assert consumer.permits.asked == 0 or consumer.permits.outstanding > 0

    @invariant()
    def who_has_no_limit_waits_for_nothing(self) -> None:
        for consumer in self.consumers.values():
            assert consumer.permits._meters or consumer.permits.asked == 0

    @invariant()
    def meters_know_what_is_out_and_who_asks(self) -> None:
        for meter in self.meters:
            members = [one.permits for one in self.consumers.values() if meter in one.permits._meters]
            assert meter.consumers == len(members)
            assert meter.outstanding == sum(max(0, permits.outstanding) for permits in members)
            assert set(meter.asking) == {permits for permits in members if permits.asked}

    @invariant()
    def room_never_lies_idle_while_somebody_asks(self) -> None:
        for meter in self.meters:
            blocked = [p for p in meter.asking if any(m.room() < max(1, m.horizon // 4) for m in p._meters)]
            assert len(blocked) == len(meter.asking)

    def teardown(self) -> None:
        """Once everything is consumed as it comes, all that was asked for is granted."""
        for _ in range(200_000):
            waiting = [one for one in self.consumers.values() if one.permits.asked]
            if not waiting:
                return
            before = sum(one.granted for one in self.consumers.values())
            for consumer in self.consumers.values():
                consumer.receive_all()
            assert sum(one.granted for one in self.consumers.values()) > before
        raise AssertionError("permits that were asked for never came")


TestManyConsumers = ManyConsumers.TestCase
TestManyConsumers.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)


ACTS = st.lists(
    st.tuples(st.sampled_from(["open", "ask", "receive", "close"]), st.integers(0, 40), NUMBERS), max_size=120
)


@settings(max_examples=200, deadline=None)
@given(horizon=st.integers(1, 500), acts=ACTS)
def test_what_is_under_way_stays_within_its_bound(horizon: int, acts: list[tuple[str, int, int]]) -> None:
    meter = PermitMeter(horizon)
    consumers: list[Consumer] = []
    for what, whose, number in acts:
        if what == "open":
            consumers.append(Consumer(meter))
            consumers[-1].ask(number)
        elif consumers:
            chosen = consumers[whose % len(consumers)]
            if what == "ask":
                chosen.ask(number)
            elif what == "receive":
                chosen.receive(min(number, max(1, chosen.permits.outstanding)))
            else:
                consumers.remove(chosen)
                chosen.permits.close()
        n = len(consumers)
        assert meter.outstanding <= horizon * (2 + log(max(1, n))) + n


def test_a_consumer_without_limits_gets_all_it_asks_for() -> None:
    consumer = Consumer()
    consumer.ask(1000)
    assert consumer.granted == 1000
    assert not consumer.permits.is_metered


def test_a_whole_receiver_queue_comes_in_portions_as_messages_leave() -> None:
    consumer = Consumer(PermitMeter(20))
    consumer.ask(1000)
    assert consumer.granted == 20
    consumer.receive(4)
    assert consumer.granted == 20, "portions are worth a frame: a quarter of the horizon"
    consumer.receive(1)
    assert consumer.granted == 25


def test_idle_consumers_sitting_on_permits_starve_nobody() -> None:
    meter = PermitMeter(10)
    for _ in range(50):
        Consumer(meter).ask(1000)
    late = Consumer(meter)
    late.ask(5)
    assert late.granted == 1
    for _ in range(4):
        late.receive_all()
    assert late.granted == 5


def test_what_one_consumer_received_is_room_for_another_that_asks() -> None:
    """It waited for messages of its own, though it was the other who had asked for no more."""
    meter = PermitMeter(100)
    done, waiting = Consumer(meter), Consumer(meter)
    done.ask(100)
    waiting.ask(1000)
    assert waiting.granted == 50
    done.receive(100)
    assert waiting.granted == 100


def test_of_two_limits_the_one_without_room_decides() -> None:
    wide, narrow = PermitMeter(100), PermitMeter(10)
    Consumer(narrow).ask(10)
    both, other = Consumer(wide, narrow), Consumer(wide)
    both.ask(1000)
    assert (both.granted, narrow.outstanding) == (5, 15), "its share, as it had nothing under way"
    other.ask(40)
    other.receive_all()
    assert (both.granted, narrow.outstanding) == (5, 15)


def test_what_a_consumer_takes_along_to_other_limits_is_room_for_those_who_stay() -> None:
    meter, other = PermitMeter(100), PermitMeter(100)
    leaves, stays = Consumer(meter), Consumer(meter)
    leaves.ask(100)
    stays.ask(1000)
    leaves.permits.rewire((other,))
    assert (stays.granted, meter.outstanding, other.outstanding) == (100, 100, 100)


def test_an_overdrawn_consumer_is_granted_what_the_broker_counts_against_it() -> None:
    """Ten permits, a batch of thirty: the broker stands at -20 and delivers again only above 0."""
    consumer = Consumer(PermitMeter(10))
    consumer.ask(10)
    consumer.receive(30)
    consumer.ask(100)
    assert consumer.granted == 10 + 20 + 10
    assert consumer.permits.outstanding == 10


def test_dropped_deliveries_are_asked_for_again_only_if_the_client_still_counts_on_them() -> None:
    for again, expected in ((True, 30), (False, 20)):
        consumer = Consumer(PermitMeter(20))
        consumer.ask(20)
        consumer.permits.dropped(10, ask_again=again)
        assert consumer.granted == expected


def test_the_permits_of_a_consumer_that_ends_are_free_for_others() -> None:
    meter = PermitMeter(100)
    ends, stays = Consumer(meter), Consumer(meter)
    ends.ask(100)
    stays.ask(1000)
    ends.permits.close()
    assert stays.granted == 100
    assert meter.consumers == 1


def test_equal_consumers_get_equal_permits() -> None:
    meter = PermitMeter(40)
    consumers = [Consumer(meter) for _ in range(4)]
    for consumer in consumers:
        consumer.ask(1000)
    for _, consumer in product(range(50), consumers):
        consumer.receive_all()
    granted = [consumer.granted for consumer in consumers]
    assert max(granted) - min(granted) <= 40
    assert min(granted) >= 400


def test_the_horizon_is_a_fifth_of_a_second_and_at_least_one_message() -> None:
    assert horizon_of(rate(1000)) == 200
    assert horizon_of(rate(1)) == 1
    assert horizon_of(rate(60, 60 * 10**9)) == 1
    assert horizon_of(rate(1000, 10**8)) == 1000
