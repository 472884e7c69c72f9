"""Consumers that ask, receive, hold, drop and go, on one or two windows."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from limiter.permits import RULES, CreditAccount, CreditWindow, DispatchRules
from tests.examples import examples
from tests.limiter.asking import PLAIN, Asking


def accounts_at(consumer: Asking, window: CreditWindow) -> list[CreditAccount]:
    """Its account there, if it is limited by it."""
    return [account for account in consumer.permits._accounts if account.window is window]


NUMBERS = st.integers(1, 5) | st.integers(1, 3000)
WHOSE = st.integers(0, 5)


class ManyConsumers(RuleBasedStateMachine):
    """Up to six consumers, precise and plain ones, on any of three windows; the broker delivers whatever it likes.

    Proves: nobody is granted more than it asked for; who asks has something under way; the windows know what that is,
    and who is idle; room does not lie idle while somebody could take it; in the end all that was asked for is granted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.windows = (CreditWindow(10), CreditWindow(200), CreditWindow(5000, "bytes"))
        self.consumers: dict[int, Asking] = {}

    def wires(self, which: int) -> tuple[CreditWindow, ...]:
        return tuple(window for bit, window in enumerate(self.windows) if which >> bit & 1)

    @rule(index=WHOSE, which=st.integers(1, 7), rules=st.sampled_from([RULES, PLAIN]))
    def open(self, index: int, which: int, rules: DispatchRules) -> None:
        self.close(index)
        self.consumers[index] = Asking(*self.wires(which), rules=rules)

    @rule(index=WHOSE)
    def close(self, index: int) -> None:
        consumer = self.consumers.pop(index, None)
        if consumer is not None:
            consumer.permits.close()

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, permits=st.integers(0, 3) | NUMBERS)
    def ask(self, index: int, permits: int) -> None:
        self.one(index).ask(permits)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, messages=NUMBERS, size=NUMBERS)
    def receive(self, index: int, messages: int, size: int) -> None:
        """A batch may overdraw the permits by far."""
        self.one(index).receive(messages, size)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, messages=NUMBERS, size=NUMBERS)
    def arrive(self, index: int, messages: int, size: int) -> None:
        self.one(index).arrive(messages, size)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE)
    def pass_one(self, index: int) -> None:
        self.one(index).pass_one()

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE)
    def receive_all(self, index: int) -> None:
        self.one(index).receive_all()

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, again=st.booleans())
    def drop(self, index: int, *, again: bool) -> None:
        self.one(index).drop(again=again)

    @precondition(lambda self: self.consumers)
    @rule(index=WHOSE, which=st.integers(0, 7))
    def rewire(self, index: int, which: int) -> None:
        self.one(index).permits.rewire(self.wires(which))

    @rule(horizons=st.tuples(st.integers(1, 50), st.integers(1, 1000), st.integers(1, 10**5)))
    def change_the_limits(self, horizons: tuple[int, int, int]) -> None:
        for window, horizon in zip(self.windows, horizons, strict=True):
            window.horizon = horizon
        for consumer in self.consumers.values():
            consumer.permits.rewire(consumer.permits.windows)

    def one(self, index: int) -> Asking:
        known = sorted(self.consumers)
        return self.consumers[known[index % len(known)]]

    @invariant()
    def nobody_gets_more_than_asked_for(self) -> None:
        for consumer in self.consumers.values():
            assert consumer.granted + consumer.permits.asked == consumer.asked + consumer.again
            assert consumer.usage.permits_granted == consumer.granted
            assert consumer.usage.permits_asked == consumer.asked

    @invariant()
    def who_asks_has_something_under_way(self) -> None:
        for consumer in self.consumers.values():
            assert consumer.permits.asked == 0 or consumer.permits.at_broker > 0 or consumer.held

    @invariant()
    def who_has_no_limit_waits_for_nothing(self) -> None:
        for consumer in self.consumers.values():
            assert consumer.permits.windows or consumer.permits.asked == 0

    @invariant()
    def meters_know_what_is_under_way_and_who_asks(self) -> None:
        for window in self.windows:
            members = [consumer for consumer in self.consumers.values() if window in consumer.permits.windows]
            amounts = [consumer.permits._under_way.amount(window.unit) for consumer in members]
            is_idle = [account.is_idle for consumer in members for account in accounts_at(consumer, window)]
            assert window.under_way == sum(amount for amount, idle in zip(amounts, is_idle, strict=True) if not idle)
            accounts = [(account, consumer) for consumer in members for account in accounts_at(consumer, window)]
            assert [account.amount for account, _ in accounts] == amounts
            assert window._beyond == sum(account.beyond for account, _ in accounts if account.is_idle)
            assert window._present == sum(account.is_present for account, _ in accounts if not account.is_idle)
            waiting = {
                at for at, consumer in accounts if consumer.permits._under_way.waits_for_broker and not at.is_idle
            }
            assert set(window._waiting) == waiting
            assert window.under_way >= sum(
                entry[window.unit == "bytes"] for consumer in members for entry in consumer.held
            ), "what is held is all there"
            assert {*window.asking, *window.unsure} <= {
                consumer.permits for consumer in members if consumer.permits.asked
            }

    @invariant()
    def who_is_idle_has_permits_at_the_broker_and_holds_nothing(self) -> None:
        for consumer in self.consumers.values():
            if any(account.is_idle for account in consumer.permits._accounts):
                assert consumer.permits.at_broker > 0
                assert not consumer.held

    @invariant()
    def room_never_lies_idle_while_somebody_could_take_it(self) -> None:
        for permits in (consumer.permits for consumer in self.consumers.values() if consumer.permits.asked):
            windows = permits.windows
            is_full = any(window.room() < max(1, window.horizon // 4) for window in windows)
            is_idle = any(account.is_idle for account in permits._accounts)
            is_asking_what_entries_hold = any(permits._under_way.permits_for(1, window.unit) == 0 for window in windows)
            assert is_full or is_idle or is_asking_what_entries_hold

    @invariant()
    def who_asks_waits_at_one_limit_that_has_no_room_for_a_portion(self) -> None:
        for permits in (consumer.permits for consumer in self.consumers.values()):
            places = [window for window in permits.windows if permits in window.asking]
            is_waiting = permits.asked > 0 and not permits._is_idle and not permits._is_unsure
            assert len(places) == is_waiting
            assert all(window.room() < max(1, window.horizon // 4) for window in places)
            assert all((permits in window.unsure) <= permits._is_unsure for window in permits.windows)

    def teardown(self) -> None:
        """Once everything is consumed as it comes, all that was asked for is granted."""
        for _ in range(200_000):
            waiting = [consumer for consumer in self.consumers.values() if consumer.permits.asked]
            if not waiting:
                return
            before = sum(consumer.granted for consumer in self.consumers.values())
            for consumer in self.consumers.values():
                consumer.receive_all()
            assert sum(consumer.granted for consumer in self.consumers.values()) > before
        raise AssertionError("permits that were asked for never came")


TestManyConsumers = ManyConsumers.TestCase
TestManyConsumers.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
