"""Consumers after limits, at a broker with a backlog of any entries, in any order of events."""

from itertools import product, repeat
from math import log

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from limiter.levels import Setting
from limiter.permits import IDLE_HORIZONS, LEAST_PART, CreditWindow, DispatchRules
from limiter.registry import windows_of
from limiter.scheduler import LEAST_SLEEP_NS
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from tests.limiter.asking import idle_at
from tests.limiter.long_run import Counted, long_run
from tests.limiter.subscriptions import Consumer, Dispatching, Size

MOST_CONSUMERS = 8
MOST_READ = 10
WHOSE = st.integers(0, MOST_CONSUMERS - 1)
# Tables, as in `clockwork.py`: hypothesis draws from one several times faster than from strategies within strategies.
SIZES = st.sampled_from(list(product((1, 2, 3, 7, 40, 101, 200), (1, 10, 99, 1003, 5000))))
MESSAGES = [None, *(rate(tokens, burst=burst) for tokens in (5, 100, 3000) for burst in (None, 40))]
BYTES = [None, None, rate(1000), rate(10**5), rate(10**5, burst=10)]
LIMITS = st.sampled_from([Limit()] * 35 + [Limit(*both) for both in product(MESSAGES, BYTES)])
PERMITS = st.sampled_from([1, 2, 3, 7, 40, 101, 500, 1000])
PLACES = st.sampled_from([("x", "s")] * 3 + [("x", "t"), ("y", "s"), ("y", "t")])
SETTINGS = (
    (Setting.NAMESPACE, "t/n"),
    (Setting.TOPIC_OF_NAMESPACE, "t/n"),
    (Setting.SUBSCRIPTION_OF_TOPIC, "persistent://t/n/x"),
)
RULES = st.sampled_from(
    [
        DispatchRules(),
        DispatchRules(is_precise=False),
        DispatchRules(is_precise=False, by_entry=True),
        *[DispatchRules(spares_caught_up=True)] * 2,
    ]
)


class Deliveries(Counted):
    """Up to eight consumers of four subscriptions on two topics, within limits of each level that change and go.

    Proves: P2 for each limit over every interval (where an entry counts as one: in entries); each message that the
    broker sent has passed, is held or was dropped; each permit that was asked for is granted, withheld or forgone,
    and Sluice counts permits as the broker does; who asks has something under way, and more as soon as there is room;
    who holds something will be woken when there are tokens; who has a backlog is never spared; of horizon h and n
    consumers at most h · (2 + ln n) + n + 1 entries are under way, that is, held or asked for with a permit, besides
    those that were so when their limits came or changed, and those that the broker sends beyond its permits; and in
    the end, as the broker goes on, everybody gets all that it asked for.
    """

    @initialize(limits=st.tuples(*(LIMITS for _ in SETTINGS)), rules=RULES, first=st.lists(PLACES, max_size=4))
    def begin(self, limits: tuple[Limit, ...], rules: DispatchRules, first: list[tuple[str, str]]) -> None:
        self.world = Dispatching(rules)
        for setting, limit in zip(SETTINGS, limits, strict=True):
            self.world.put(*setting, limit)
        self.consumers = [self.world.consumer(*place).ask(200) for place in first]
        self.had_idle: set[CreditWindow] = set()
        self.brought_along: dict[Consumer, tuple[tuple[list[tuple[CreditWindow, int]], int], int]] = {}

    def one(self, index: int) -> Consumer:
        return self.consumers[index % len(self.consumers)]

    @precondition(lambda self: len(self.consumers) < MOST_CONSUMERS)
    @rule(place=PLACES, permits=PERMITS)
    def open(self, place: tuple[str, str], permits: int) -> None:
        self.consumers.append(self.world.consumer(*place).ask(permits))

    @precondition(lambda self: any(not consumer.is_closing for consumer in self.consumers))
    @rule(index=WHOSE, permits=PERMITS)
    def ask(self, index: int, permits: int) -> None:
        staying = [consumer for consumer in self.consumers if not consumer.is_closing]
        staying[index % len(staying)].ask(permits)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, entries=st.lists(SIZES, min_size=1, max_size=8))
    def deliver(self, index: int, entries: list[Size]) -> None:
        self.one(index).sent(entries)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, entry=SIZES)
    def deliver_all(self, index: int, entry: Size) -> None:
        self.one(index).sent(repeat(entry, 300))

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, entry=SIZES)
    def deliver_too_much(self, index: int, entry: Size) -> None:
        self.one(index).sent_as_read(entry, most=MOST_READ)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, entries=st.lists(SIZES, min_size=1, max_size=8))
    def deliver_in_one_read(self, index: int, entries: list[Size]) -> None:
        consumer = self.one(index)
        counter = consumer.counter
        for number, (messages, _) in enumerate(entries):
            if counter <= 0:
                del entries[number:]
                break
            counter -= messages
        if entries and not consumer.sent_in_a_chunk(entries):
            consumer.sent(entries)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, ask_again=st.booleans())
    def drop(self, index: int, *, ask_again: bool) -> None:
        """REDELIVER, where the client still counts on dropped entries, or SEEK."""
        consumer = self.one(index)
        consumer.drop(ask_again=ask_again and not consumer.is_closing)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE)
    def ask_to_close(self, index: int) -> None:
        """The client closes it; the broker's answer is the next `close`."""
        self.one(index).ask_to_close()

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE)
    def close(self, index: int) -> None:
        """Whoever wanted it."""
        consumer = self.one(index)
        self.consumers.remove(consumer)
        consumer.close()

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, permits=PERMITS)
    def subscribe_again(self, index: int, permits: int) -> None:
        before = self.one(index)
        self.close(index)
        self.consumers.append(self.world.consumer(*before.place).ask(permits))

    @rule(setting=st.sampled_from(SETTINGS), limit=LIMITS)
    def change(self, setting: tuple[Setting, str], limit: Limit) -> None:
        """Another limit, none any more, or one again: no bucket has more than before, and a debt is no credit."""
        before = self.world.tokens()
        self.world.put(*setting, limit)
        self.world.change()
        assert all(tokens <= max(before.get(bucket, tokens), 0) for bucket, tokens in self.world.tokens().items())

    @rule(span=st.integers(0, 5) | st.integers(0, 3 * NANOS_PER_SECOND))
    def pass_time(self, span: int) -> None:
        self.world.run_until(self.world.clock.now + span)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE)
    def be_calm(self, index: int) -> None:
        """For so long that who has permits has no backlog."""
        self.world.run(1.2)
        self.one(index).sent([(1, 100)])

    @rule(span=st.integers(0, 200_000_000))
    def be_late(self, span: int) -> None:
        """The loop was busy: all that was due comes now."""
        self.world.clock.now += span
        self.world.run_until(self.world.clock.now)

    @invariant()
    def no_permit_is_lost_and_nobody_gets_more_than_asked_for(self) -> None:
        for consumer in self.consumers:
            usage = consumer.stream.usage
            assert consumer.granted + consumer.permits.asked + consumer.forgone == consumer.asked
            assert consumer.permits.at_broker == consumer.counter == consumer.granted - consumer.delivered
            assert (usage.permits_asked, usage.permits_granted) == (consumer.asked - consumer.again, consumer.granted)

    @invariant()
    def each_message_is_somewhere(self) -> None:
        for consumer in self.consumers:
            usage = consumer.stream.usage
            assert usage.offered_messages == consumer.delivered
            assert usage.offered_messages == usage.passed_messages + usage.held_messages + usage.dropped_messages

    @invariant()
    def who_asks_has_something_under_way(self) -> None:
        for consumer in self.consumers:
            assert consumer.permits.asked == 0 or consumer.counter > 0 or consumer.held

    @invariant()
    def room_never_lies_idle_while_somebody_could_take_it(self) -> None:
        """Portions are worth a quarter of the horizon; and one entry has to show the size of entries first."""
        for permits in (
            consumer.permits for consumer in self.consumers if consumer.permits.asked and not consumer.permits._is_idle
        ):
            windows = permits.windows
            is_full = any(window.room() < max(1, window.horizon // 4) for window in windows)
            assert is_full or any(permits._under_way.permits_for(1, window.unit) == 0 for window in windows)

    @invariant()
    def who_asks_waits_at_one_limit_that_has_no_room_for_a_portion(self) -> None:
        for permits in (consumer.permits for consumer in self.consumers):
            places = [window for window in permits.windows if permits in window.asking]
            is_waiting = permits.asked > 0 and not permits._is_idle and not permits._is_unsure
            assert len(places) == is_waiting
            assert all(window.room() < max(1, window.horizon // 4) for window in places)
            assert not places or not any(permits in window.unsure for window in permits.windows)

    @invariant()
    def who_is_limited_is_metered_and_others_wait_for_nothing(self) -> None:
        for consumer in self.consumers:
            assert consumer.permits.windows == windows_of(consumer.limiters)
            assert consumer.permits.asked == 0 or consumer.permits.windows

    @invariant()
    def only_who_has_no_backlog_is_spared(self) -> None:
        """Whoever uses up its permits ends that for all of its subscription."""
        for consumer in self.consumers:
            same = [member for member in self.consumers if member.place == consumer.place]
            is_spared = not consumer.limiters and any(self.world.in_force(consumer))
            assert not is_spared or all(member.counter > 0 and not member.limiters for member in same)

    @invariant()
    def who_holds_something_will_be_woken_in_time(self) -> None:
        """Those who wait together may be gathered; who is left of them, as others ended, goes when they were to go."""
        now = self.world.clock.now
        for stream in (consumer.stream for consumer in self.consumers if consumer.stream.held):
            limiter = stream.waits_on
            assert limiter is not None
            claim = limiter.claimant.waits_on if limiter.claimant else None
            longest = max(limiter.wait_ns(now), claim.wait_ns(now) if claim else 0)
            gathering = limiter._gathers_ns if self.world.alarms.waited[limiter] > 1 else 0
            assert now <= self.world.alarms.due[limiter] <= now + max(longest + gathering, LEAST_SLEEP_NS)

    @invariant()
    def what_is_under_way_is_bounded(self) -> None:
        self.note_what_is_brought_along()
        for window in {window for consumer in self.consumers for window in consumer.permits.windows}:
            members = [consumer for consumer in self.consumers if window in consumer.permits.windows]
            brought = sum(self.brought_along[member][1] for member in members)
            if idle_at(window, (member.permits for member in members)):
                self.had_idle.add(window)
            horizons = 2 + log(MOST_CONSUMERS)
            if window in self.had_idle:
                horizons = max(horizons, 1 + IDLE_HORIZONS + MOST_CONSUMERS / LEAST_PART)
            bound = window.horizon * horizons + MOST_CONSUMERS + 1
            assert sum(map(entries_under_way, members)) <= bound + MOST_READ + brought

    def note_what_is_brought_along(self) -> None:
        """The amount under way from before a consumer got its present limits: it is used up, and never grows."""
        for consumer in self.consumers:
            limited = [(window, window.horizon) for window in consumer.permits.windows], consumer.granted_unlimited
            known, brought = self.brought_along.get(consumer, (None, 0))
            entries = entries_under_way(consumer)
            self.brought_along[consumer] = limited, min(brought, entries) if limited == known else entries

    def teardown(self) -> None:
        """The broker's backlog does not end: all demand is met, with what the limits give, and then nothing is left."""
        if not hasattr(self, "world"):
            return
        for _ in range(20_000):
            if not any(consumer.counter > 0 or consumer.held or consumer.permits.asked for consumer in self.consumers):
                break
            for consumer in self.consumers:
                consumer.sent(repeat((3, 100), 300))
            self.world.run(20)
        else:
            raise AssertionError("somebody who asked waits for ever")
        assert all(window.under_way == 0 for consumer in self.consumers for window in consumer.permits.windows)
        self.world.ledger.check()


def entries_under_way(consumer: Consumer) -> int:
    return max(0, consumer.counter) + len(consumer.stream.held)


TestDeliveries = long_run(Deliveries, 4_000)
