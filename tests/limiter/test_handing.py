"""Two processes share each limit while clients go from one to the other, and pass no more than one would."""

from collections import deque
from fractions import Fraction
from random import Random
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limiter import handing, restart
from limiter.handing import HandedShare
from limiter.limiter import Scope
from limiter.restart import FirstBalances
from limiter.token_bucket import LeftBalance, Limit, Rate, rate
from tests.examples import examples
from tests.limiter.ledger import capacity
from tests.limiter.test_restart import LIMITS, TOPICS, Run

Side = Literal["before", "after"]
SIDES: tuple[Side, Side] = ("before", "after")


class Post:
    """Messages from one process to the other, in order, until they are delivered."""

    def __init__(self) -> None:
        self.queue = deque[tuple[Scope, int] | HandedShare]()
        self.handed = 0

    def ask(self, scope: Scope, waiting: int) -> None:
        self.queue.append((scope, waiting))

    def hand(self, handed: HandedShare) -> None:
        self.queue.append(handed)
        self.handed += 1


class Takeover:
    """Two processes; the first one has run for a while."""

    def __init__(self, limits: dict[str, Limit], before: Run) -> None:
        self.limits = limits
        self.runs = {"before": before, "after": Run(limits, before.clock.now, FirstBalances())}
        self.posts = {"before": Post(), "after": Post()}
        self.handed = {
            side: self.runs[side].registry.hand_over(self.posts[side], has_all=side == "before") for side in SIDES
        }

    @property
    def now(self) -> int:
        return self.runs["after"].clock.now

    def deliver(self, sender: Side) -> None:
        """Deliver all that one process has sent."""
        receiver = self.handed[SIDES[sender == "before"]]
        queue = self.posts[sender].queue
        while queue:
            message = queue.popleft()
            if isinstance(message, HandedShare):
                receiver.received(message, self.now)
            else:
                receiver.asked(*message, self.now)

    def deliver_all(self) -> None:
        while any(post.queue for post in self.posts.values()):
            for side in SIDES:
                self.deliver(side)

    def look(self, side: Side) -> None:
        for _ in self.handed[side].look():
            pass

    def close(self, side: Side, topic: str) -> None:
        """Close a stream; a client comes back with what was held."""
        run = self.runs[side]
        stream = run.streams.pop(topic, None)
        if stream is not None:
            run.registry.close(stream, self.now)

    def run(self, seconds: float) -> None:
        for run in self.runs.values():
            run.run(seconds)

    def end(self, gone: Side, *, is_killed: bool) -> None:
        """One process ends, or is killed: all that it has sent still arrives."""
        self.deliver(gone)
        stays: Side = SIDES[gone == "before"]
        run, handed = self.runs[gone], self.handed[stays]
        if not is_killed:
            run.close_all()
            self.deliver(gone)
            for share in self.handed[gone].leave(lambda: self.now):
                handed.left(share, self.now)
        left = self.runs[stays].registry.keep_all(lambda: self.now, run.first.empty_since, is_orderly=not is_killed)
        for _ in left:
            pass


def all_pass_within(value: Rate, taken: list[tuple[int, int]], entries: int) -> None:
    """In no interval passes more than burst, rate over time, and so many of the largest entry."""
    slack = entries * max((tokens for _, tokens in taken), default=0)
    for first, (begin, _) in enumerate(taken):
        passed = 0
        for when, tokens in taken[first:]:
            passed += tokens
            room = capacity(value) + Fraction((when - begin) * value.tokens, value.period_ns)
            assert passed <= room + slack, f"{value}: {passed} from {begin} to {when}"


def judge(limits: dict[str, Limit], runs: list[Run], entries: int) -> None:
    log = sorted(passed for run in runs for passed in run.passed())
    for name, limit in limits.items():
        of = [passed for passed in log if name in {"total", passed[1]}]
        messages, size = [(at, count) for at, _, count, _ in of], [(at, count) for at, _, _, count in of]
        for value, taken in ((limit.messages, messages), (limit.peak_messages, messages), (limit.size, size)):
            if value is not None:
                all_pass_within(value, taken, entries)


OFFERS = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(1, 40), st.integers(0, 3000)), max_size=20)
SHARED = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.sampled_from(SIDES), st.sampled_from(TOPICS), st.integers(1, 40)),
        st.tuples(st.just("close"), st.sampled_from(SIDES), st.sampled_from(TOPICS), st.just(0)),
        st.tuples(st.just("deliver"), st.sampled_from(SIDES), st.just(""), st.just(0)),
        st.tuples(st.just("look"), st.sampled_from(SIDES), st.just(""), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from(SIDES), st.just(""), st.integers(0, 800)),
    ),
    max_size=60,
)


@settings(max_examples=examples(60))
@given(
    x=LIMITS,
    total=LIMITS,
    steps=OFFERS,
    shared=SHARED,
    gone=st.sampled_from(SIDES),
    is_killed=st.booleans(),
    alone=OFFERS,
)
@example(  # a debt in each of the two, the earlier one lost
    x=Limit(rate(1, burst=1)),
    total=Limit(rate(1000)),
    steps=[("x", 40, 0)],
    shared=[
        ("offer", "after", "x", 40),
        ("deliver", "after", "", 0),
        ("deliver", "before", "", 0),
        *[("wait", "after", "", 800)] * 4,
    ],
    gone="before",
    is_killed=True,
    alone=[],
)
def test_two_processes_pass_one_entry_more(x, total, steps, shared, gone, is_killed, alone) -> None:
    """One entry is that of a single process, and one that of the takeover; a kill of the new process is a restart."""
    limits = {"x": x, "y": Limit(rate(100)), "total": total}
    before = Run(limits, 0, FirstBalances())
    for topic, messages, pause_ms in steps:
        before.offer_to(topic, messages)
        before.run(pause_ms / 1000)
    both = Takeover(limits, before)
    for step, side, topic, number in shared:
        if step == "offer":
            both.runs[side].offer_to(topic, number)
        elif step == "close":
            both.close(side, topic)
        elif step == "deliver":
            both.deliver(side)
        elif step == "look":
            both.look(side)
        else:
            both.run(number / 1000)
    both.end(gone, is_killed=is_killed)
    left = both.runs[SIDES[gone == "before"]]
    for topic, messages, pause_ms in alone:
        left.offer_to(topic, messages)
        left.run(pause_ms / 1000)
    judge(limits, list(both.runs.values()), entries=2 if gone == "before" else 3)


LIMIT = Limit(rate(100))
LIMITED = {"x": LIMIT, "y": LIMIT, "total": Limit(rate(100_000))}


def test_limit_of_one_client_moves_whole() -> None:
    """What passes is what passes one process; the client offers the same again after it has come back."""
    limits = {"x": LIMIT, "y": LIMIT, "total": Limit(rate(1000))}
    before, whole = Run(limits, 0, FirstBalances()), Run(limits, 0, FirstBalances())
    for run in (before, whole):
        for _ in range(60):
            run.offer_to("x", 1)
        run.run(0.3)
    both = Takeover(limits, before)
    held = len(before.streams["x"].held)
    both.close("before", "x")
    both.runs["after"].open("x")
    both.deliver_all()
    for _ in range(held):
        both.runs["after"].offer_to("x", 1)
    both.run(2)
    whole.run(2)
    assert before.passed() + both.runs["after"].passed() == whole.passed()


def test_limit_without_streams_is_whole_after_one_question() -> None:
    both = Takeover(
        {"x": LIMIT, "y": LIMIT, "total": LIMIT}, Run({"x": LIMIT, "y": LIMIT, "total": LIMIT}, 0, FirstBalances())
    )
    after = both.runs["after"]
    after.offer_to("x", 1)
    assert after.passed() == []
    both.deliver_all()
    assert [passed[2] for passed in after.passed()] == [1]
    assert {limiter.shares for limiter in after.registry.limiters.values()} == {(1_000_000, 1_000_000)}


def test_shares_follow_the_streams_that_wait() -> None:
    """Three of four streams wait in one process. The two together pass all that the limit allows."""
    wide = Limit(rate(100_000))
    limits = {"x": wide, "y": wide, "total": LIMIT}
    before = Run(limits, 0, FirstBalances())
    both = Takeover(limits, before)
    for side, topic in (("before", "x"), ("before", "y"), ("after", "x")):
        for _ in range(500):
            both.runs[side].offer_to(topic, 1)
    for _ in range(16):
        both.deliver_all()
        both.run(0.25)
        for side in SIDES:
            both.look(side)
    passed = {side: len(both.runs[side].passed()) for side in SIDES}
    assert sum(passed.values()) >= 0.95 * 400
    assert 1.8 <= passed["before"] / passed["after"] <= 2.2


def test_shares_rest_where_streams_of_both_reach_two_limits() -> None:
    """A stream that waits on its topic's limit does not wait on the other one, so others wait at each look."""
    limits = {"x": Limit(rate(20)), "y": Limit(rate(100_000)), "total": Limit(rate(40))}
    both = Takeover(limits, Run(limits, 0, FirstBalances()))
    offered = {"x": 15, "y": 14}
    random = Random(1)
    coming = {(side, topic): random.random() / offered[topic] for side in SIDES for topic in offered}
    begun, handed = dict[Side, int](), 0
    for hundredth in range(2000):
        if hundredth == 500:
            begun = {side: len(both.runs[side].passed()) for side in SIDES}
            handed = sum(post.handed for post in both.posts.values())
        for (side, topic), at in coming.items():
            if at <= hundredth / 100:
                both.runs[side].offer_to(topic, 1)
                coming[side, topic] += 1 / offered[topic]
        both.run(0.01)
        both.deliver_all()
        if hundredth % 25 == 24:
            for side in SIDES:
                both.look(side)
    passed = [len(both.runs[side].passed()) - begun[side] for side in SIDES]
    assert passed == pytest.approx([300, 300], abs=8)
    assert sum(post.handed for post in both.posts.values()) - handed <= 30, (
        "twice a second; each ends a line of the log"
    )


def test_idle_streams_give_way_to_those_that_wait() -> None:
    wide = Limit(rate(100_000))
    limits = {"x": wide, "y": wide, "total": LIMIT}
    before = Run(limits, 0, FirstBalances())
    before.offer_to("x", 1)
    both = Takeover(limits, before)
    for _ in range(1000):
        both.runs["after"].offer_to("y", 1)
    for _ in range(8):
        both.deliver_all()
        both.run(0.25)
        both.look("after")
    assert len(both.runs["after"].passed()) >= 0.8 * 200


def scope_of(number: int) -> Scope:
    return Scope("publish", "topic", f"persistent://t/n/{number}", "t", "t/n")


def test_limiters_that_were_handed_unmade_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest one is forgotten: it would be handed a second time."""
    monkeypatch.setattr(handing, "MOST_HANDED", 2)
    both = Takeover(LIMITED, Run(LIMITED, 0, FirstBalances()))
    for number in (1, 2, 3, 3, 2, 1):
        both.handed["before"].asked(scope_of(number), 1, 0)
    handed = [message.scope for message in both.posts["before"].queue if isinstance(message, HandedShare)]
    assert handed == [scope_of(number) for number in (1, 2, 3, 1)]


def test_balances_that_are_left_hold_for_limiters_made_later() -> None:
    before = Run(LIMITED, 0, FirstBalances())
    before.offer_to("x", 510)
    both = Takeover(LIMITED, before)
    both.end("before", is_killed=False)
    after = both.runs["after"]
    after.run(5)
    for topic in TOPICS:
        after.offer_to(topic, 1)
    assert [passed[1] for passed in after.passed()] == ["y"]


@pytest.mark.parametrize("side", SIDES)
def test_end_of_a_takeover_ages_no_balance_that_no_stream_uses(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step has one limiter whole; what was left of limiters that are not made here is aged when they are."""
    both, aged = Takeover(LIMITED, Run(LIMITED, 0, FirstBalances())), [0]
    handed, age = both.handed[side], restart._aged

    def counted(balance: LeftBalance, since: int, now: int) -> LeftBalance | None:
        aged[0] += 1
        return age(balance, since, now)

    monkeypatch.setattr(restart, "_aged", counted)
    balance = LeftBalance(rate(1), -100, rate(1))
    for number in range(1000):
        scope = Scope("publish", "topic", f"persistent://t/n/{number}", "t", "n")
        handed.left(HandedShare(scope, 10**6, (balance, None, None, None)), both.now)
    assert len(list(handed.over(lambda: both.now, None, is_orderly=True))) == len(both.runs[side].registry.limiters)
    assert aged == [0]
    assert len(both.runs[side].left()) >= 1000
