"""A process that ends, or is killed, and the one after it pass no more than one process that never ended."""

from fractions import Fraction

from hypothesis import example, given, settings
from hypothesis import strategies as st

from limiter.levels import Setting
from limiter.limiter import LeftBalances, Scope, Stream
from limiter.policies import Policies, Value
from limiter.registry import Registry
from limiter.restart import FirstBalances, at
from limiter.sharing import SharedLimits
from limiter.token_bucket import Lease, Limit, Rate, TokenBucket, rate
from protocol.topic_name import parse_topic
from tests.examples import examples
from tests.limiter.ledger import capacity
from tests.limiter.test_token_bucket import AMOUNTS, RATES, SPANS
from tests.limiter.world import World

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
TOPICS = ("x", "y")
LIMITS = st.builds(
    Limit,
    st.sampled_from([rate(100), rate(7, burst=30), rate(1000, 60 * SECOND), rate(1, burst=1)]),
    st.sampled_from([None, rate(10_000), rate(500, burst=4000)]),
    st.sampled_from([None, rate(200, burst=3)]),
)
CALM = st.builds(
    Limit,
    st.sampled_from([rate(100), rate(7, burst=30), rate(1000, 60 * SECOND)]),
    st.sampled_from([None, rate(10_000), rate(500, burst=4000)]),
)
"""Limits whose bursts have room for a late timer, so that their buckets keep nothing beyond the burst."""
RESTARTS = st.tuples(st.sampled_from(["end", "kill"]), st.sampled_from([0, 1, 300, 5000]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.sampled_from(TOPICS), st.integers(1, 40)),
        st.tuples(st.just("offer"), st.sampled_from(TOPICS), st.sampled_from([1, 2, 500])),
        st.tuples(st.just("wait"), st.integers(0, 3000)),
        RESTARTS,
    ),
    min_size=5,
    max_size=60,
)


class Run(World):
    """One process: the streams open when they first offer something, as a client's do."""

    def __init__(self, limits: dict[str, Limit], now: int, first: FirstBalances, shared: SharedLimits | None = None):
        super().__init__()
        self.clock.now = now
        self.first = first
        self.streams: dict[str, Stream] = {}
        self.names: dict[Stream, str] = {}
        policies = Policies()
        for topic in TOPICS:
            policies.put("publish", Setting.TOPIC, f"persistent://t/n/{topic}", Value(limits[topic], "file"))
        policies.put("publish", Setting.NAMESPACE, "t/n", Value(limits["total"], "file"))
        self.registry = Registry(policies, self.scheduler, self.observer, first=first, shared=shared)

    def offer_to(self, topic: str, messages: int) -> None:
        if topic not in self.streams:
            self.open(topic)
        self.offer(self.streams[topic], messages, 100 * messages)

    def open(self, topic: str) -> None:
        stream = self.streams[topic] = self.stream()
        self.names[stream] = topic
        self.registry.open(stream, parse_topic(f"persistent://t/n/{topic}"), self.clock.now)

    def left(self) -> dict[Scope, LeftBalances]:
        return dict(self.first.left(self.registry.limiters.values(), self.clock.now))

    def close_all(self) -> None:
        while self.streams:
            self.registry.close(self.streams.popitem()[1], self.clock.now)

    def passed(self) -> list[tuple[int, str, int, int]]:
        return [(passed.at, self.names[passed.stream], passed.messages, passed.size) for passed in self.log]


def successor(run: Run, limits: dict[str, Limit], how: str, pause_ms: int) -> Run:
    """The process after one that has ended in order or was killed, `pause_ms` later."""
    ended, now = run.clock.now, run.clock.now + pause_ms * MILLISECOND
    if how == "kill":
        return Run(limits, now, FirstBalances(empty_since=now))
    return Run(limits, now, FirstBalances(run.left(), ended, run.first.empty_since))


Event = tuple[int, int | None]
"""A moment, and the tokens taken then; None for a kill."""


def in_order(taken: list[tuple[int, int]], kills: list[int]) -> list[Event]:
    events: list[Event] = [*taken, *((at, None) for at in kills)]
    return sorted(events, key=lambda event: (event[0], event[1] is None))


def never_above(value: Rate, events: list[Event]) -> None:
    """Replay one bucket that no restart empties or fills: each entry finds a token.

    A kill forgives the debt: that is the one entry for each restart.
    """
    most, balance, since = capacity(value), capacity(value), events[0][0] if events else 0
    for when, tokens in events:
        balance = min(most, balance + Fraction((when - since) * value.tokens, value.period_ns))
        since = when
        if tokens is None:
            balance = max(balance, Fraction(0))
        elif tokens:
            assert balance >= 1, f"{value} at {when}"
            balance -= tokens


@settings(max_examples=examples(60))
@given(x=LIMITS, y=LIMITS, total=LIMITS, steps=STEPS)
@example(  # killed, ended before any limiter was made, and begun again
    x=Limit(rate(100)),
    y=Limit(rate(100)),
    total=Limit(rate(100)),
    steps=[("offer", "x", 10), ("kill", 0), ("end", 0), ("offer", "x", 10), ("offer", "x", 10)],
)
@example(  # the balance of an earlier process is not left a second time
    x=Limit(rate(7, burst=30)),
    y=Limit(rate(100)),
    total=Limit(rate(1000)),
    steps=[("offer", "x", 10), ("end", 0), ("offer", "x", 20), ("end", 0), ("offer", "x", 20)],
)
@example(  # a debt that no process has opened a stream for in between
    x=Limit(rate(1, burst=1)),
    y=Limit(rate(100)),
    total=Limit(rate(1000)),
    steps=[("offer", "x", 500), ("end", 0), ("end", 300), ("end", 0), ("wait", 1000), ("offer", "x", 1)],
)
def test_restarts_pass_no_more_than_burst_rate_and_an_entry(x, y, total, steps) -> None:
    limits = {"x": x, "y": y, "total": total}
    run = Run(limits, 0, FirstBalances())
    log: list[tuple[int, str, int, int]] = []
    kills: list[int] = []
    for step in (*steps, ("end", 0)):
        if step[0] == "offer":
            run.offer_to(step[1], step[2])
        elif step[0] == "wait":
            run.run(step[1] / 1000)
        else:
            log += run.passed()
            if step[0] == "kill":
                kills.append(run.clock.now)
            run = successor(run, limits, *step)
    for name, limit in limits.items():
        of = [passed for passed in log if name in {"total", passed[1]}]
        messages = in_order([(passed[0], passed[2]) for passed in of], kills)
        size = in_order([(passed[0], passed[3]) for passed in of], kills)
        for value, events in ((limit.messages, messages), (limit.peak_messages, messages), (limit.size, size)):
            if value is not None:
                never_above(value, events)


@given(x=CALM, total=CALM, steps=STEPS.map(lambda steps: [step for step in steps if step[0] != "kill"]))
def test_orderly_restarts_change_no_balance(x, total, steps) -> None:
    """One of two processes never ends; its clients leave when the other one ends, and come back after that."""
    limits = {"x": x, "y": Limit(rate(100)), "total": total}
    run, whole, passed = Run(limits, 0, FirstBalances()), Run(limits, 0, FirstBalances()), []
    for step in (*steps, ("end", 0)):
        if step[0] == "offer":
            run.offer_to(step[1], step[2])
            whole.offer_to(step[1], step[2])
        elif step[0] == "wait":
            run.run(step[1] / 1000)
            whole.run(step[1] / 1000)
        else:
            passed += run.passed()
            assert passed == whole.passed()
            whole.close_all()
            run = successor(run, limits, *step)
            whole.run_until(run.clock.now)


@given(old=RATES, new=RATES, taken=AMOUNTS, before=SPANS, pause=SPANS)
def test_bucket_begins_as_one_that_went_on(old: Rate, new: Rate, taken: int, before: int, pause: int) -> None:
    bucket = TokenBucket(old, 0)
    bucket.take(taken, 0)
    left, next_one = bucket.left(before), TokenBucket(new, before + pause)
    if left is not None:
        next_one.begin(left, before, before + pause)
    bucket.change(new, before)
    went_on = bucket.tokens(before + pause)
    if left is None and new != old:  # a limiter that was full is made full, whatever its new burst is
        went_on = new.burst
    assert next_one.tokens(before + pause) == went_on
    assert next_one.report(before + pause)[1] == 0


@given(first=RATES, lower=RATES, taken=AMOUNTS, span=SPANS)
def test_restart_between_two_changes_forgives_nothing(first: Rate, lower: Rate, taken: int, span: int) -> None:
    """A debt keeps the rate that it was made at: lowered, restarted and raised again, it is the same."""
    went_on, other = TokenBucket(first, 0), TokenBucket(first, 0)
    for bucket in (went_on, other):
        bucket.take(taken, 0)
        bucket.change(lower, 0)
    left, restarted = other.left(span), TokenBucket(lower, span)
    if left is not None:
        restarted.begin(left, span, span)
        went_on.change(first, span)
        restarted.change(first, span)
        assert restarted.tokens(span) == went_on.tokens(span)


def test_limiter_made_minutes_after_a_kill_has_filled_since() -> None:
    limits = {"x": Limit(rate(2, burst=100)), "y": Limit(rate(2, burst=10)), "total": Limit(rate(1000))}
    run = Run(limits, 7 * SECOND, FirstBalances(empty_since=7 * SECOND))
    run.run(20)
    run.offer_to("x", 1)
    run.offer_to("y", 1)
    (x, y) = (run.registry.limiters[stream.chain[-1].scope] for stream in run.streams.values())
    assert [x.balances(run.clock.now)[0], y.balances(run.clock.now)[0]] == [(39, 0), (9, 0)]
    assert (x.began, y.began) == ((40, None, None, None), None)


def test_balances_of_unmade_limiters_are_left_until_full() -> None:
    limits = {"x": Limit(rate(1, burst=1)), "y": Limit(rate(1)), "total": Limit(rate(1000))}
    run = Run(limits, 0, FirstBalances())
    run.offer_to("x", 11)
    run = successor(successor(run, limits, "end", 0), limits, "end", 5000)
    assert [scope.name for scope in run.left()] == ["persistent://t/n/x"]
    run.run(20)
    assert run.left() == {}


def test_shared_limiter_begins_with_a_token_or_its_debt() -> None:
    """It never begins with more than the token of a newcomer, and asks for a share to pay its debt."""
    limits = {"x": Limit(rate(10)), "y": Limit(rate(10)), "total": Limit(rate(1000))}
    now = 9 * SECOND
    before, after = (SharedLimits(Lease(), frozenset({"topic"}), clock=lambda: now) for _ in range(2))
    run = Run(limits, 0, FirstBalances(), before)
    run.offer_to("x", 5)
    assert [passed.messages for passed in run.log] == [5]
    run = Run(limits, now, FirstBalances(run.left(), 0, empty_since=0), after)
    for topic in TOPICS:
        run.open(topic)
    assert {key[1][-1]: demand.wanted for key, demand in after.demands(now + SECOND)[0].items()} == {"x": 1}
    for topic in TOPICS:
        run.offer_to(topic, 1)
    assert [passed.stream for passed in run.log] == [run.streams["y"]]
    assert run.streams["x"].chain[-1].began == (-4, None, None, None)


def test_balances_of_full_buckets_are_none() -> None:
    bucket = TokenBucket(Rate(1, SECOND, 5), 0)
    bucket.take(2, 0)
    left = bucket.left(0)
    assert at((left, None), 0, SECOND) is not None
    assert at((left, None), 0, 2 * SECOND) is None
