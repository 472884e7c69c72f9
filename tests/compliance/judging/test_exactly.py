"""The judging against an independent model, against the product's own scheduler, and against faults in that one."""

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accesslog.record import LimitLine
from compliance.judging.changes import Changed
from compliance.judging.facts import Judged
from compliance.judging.lines import UNSEEN_S, RunNotes, excess_tolerance
from limiter.limiter import Entry, Limiter, Stream
from limiter.scheduler import Scheduler
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from tests.compliance.judging import exact_model
from tests.compliance.judging.exact_model import Second
from tests.compliance.judging.governed_log import GovernedLog, RestartedLog, play_governed
from tests.compliance.judging.pure import deficit_s, doubts, excess, judged_of, verdicts
from tests.compliance.judging.scheduler_log import SchedulerLog, play
from tests.compliance.planted import BEGIN, PlantedLog

LOGS, BATCH = 10_000, 500
SEEDS = st.integers(0, 2**32)


# ---- beside an independent model


def random_log(chance: Random, *, changes: bool) -> list[Second]:
    """Seconds near the edge of what a limit allows and owes, and beyond."""
    value = chance.choice([(1, 1), (7, 3), (100, 10), (100, 400), (1000, 100)])
    other = chance.choice([(value[0] + 1, value[1]), (10 * value[0], value[1]), (max(1, value[0] // 10), 1)])
    largest = chance.choice([1, 1, 5, 3 * value[0]])
    seconds = []
    for _ in range(chance.randrange(2, 16)):
        if changes and chance.random() < 0.2:
            value, other = other, value
        ms = chance.choice((1000, 1000, 370))
        near = value[0] * ms // 1000 + chance.choice((0, 0, -1, 1, value[1], -value[0] // 20, chance.randrange(-9, 9)))
        passed = max(0, near) if chance.random() < 0.8 else 0
        waited = chance.choice((0, ms, ms, ms * 9 // 10, 10))
        seconds.append(Second(ms, *value, passed, min(largest, passed), waited))
    return seconds


def judged_logs(*, changes: bool, **more: float) -> Iterator[tuple[int, list[Second], Judged]]:
    """Each seed, what its log says, and what is found. Many limits are read at once: most of the cost is by table."""
    for begin in range(0, LOGS // 2, BATCH):
        logs = {seed: random_log(Random(seed), changes=changes) for seed in range(begin, begin + BATCH)}
        lines = (line for seed, seconds in logs.items() for line in as_lines(str(seed), seconds, **more))
        results = verdicts(lines)
        for seed, seconds in logs.items():
            yield seed, seconds, results["publish", "topic", str(seed)]


def as_lines(name: str, seconds: list[Second], **more: float) -> list[LimitLine]:
    log = PlantedLog(topic=name)
    clock = BEGIN
    for second in seconds:
        end = clock + (log._head["end"] - log._head["start"]) * second.ms / 1000
        log.limit(
            second.passed,
            rate=float(second.rate),
            burst_messages=float(second.burst),
            largest_entry_messages=second.largest,
            throttled_ms=float(second.waited_ms),
            start=clock,
            end=end,
            duration_ms=float(second.ms),
            **more,
        )
        clock = end
    return log.lines


def test_excess_is_that_of_an_exact_model_in_10_000_logs() -> None:
    outcomes = set()
    for seed, seconds, judged in judged_logs(changes=True, idle_ms=0.0):
        worst = max((window.excess for window in judged.windows), default=-1.0)
        theirs = exact_model.excess(seconds)
        assert worst == pytest.approx(float(theirs), abs=1e-6, rel=1e-9), seed
        outcomes.add(theirs > 0.5)
    assert outcomes == {True, False}


def test_deficit_is_that_of_an_exact_model_in_10_000_logs() -> None:
    outcomes = set()
    for seed, seconds, judged in judged_logs(changes=False):
        owed = judged.entitlement
        if owed is None:
            continue
        recent, whole = exact_model.shortfall_s(seconds)
        assert owed.deficit_s == pytest.approx(float(recent) - 0.005, abs=1e-6), seed
        assert owed.whole_deficit_s == pytest.approx(float(whole) - 0.005, abs=1e-6), seed
        outcomes.add(recent > 0.005)
    assert outcomes == {True, False}


# ---- the product's own scheduler


def found_of(log: SchedulerLog) -> dict[tuple[str, str], Judged]:
    notes = RunNotes(changed=list(map(Changed, log.changes, log.changed_us)))
    return {key: judged_of(key, notes, items) for key, items in log.items.items()}


def troubles(result: Judged) -> list[object]:
    over = [window for window in result.windows if window.excess > excess_tolerance(window.limit)]
    return [*over, *result.doubts, *([result.entitlement] if deficit_s(result) > 0 else [])]


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS, late_ms=st.sampled_from([0, 0, 5, 14]), nested=st.booleans())
@example(seed=9898, late_ms=0, nested=True).via("an alarm that was set for those who had left came a minute too late")
def test_an_exact_limiter_is_never_accused_whatever_happens_to_it(
    seed: int,
    late_ms: int,
    nested: bool,  # noqa: FBT001 - hypothesis names it
) -> None:
    """Any limits, batches, peaks, totals, changes; streams that join, wait, leave and die; timers late by up to 14 ms.

    What the lines do not tell does not matter: with their balances, all that is owed is seen.
    """
    log = SchedulerLog(Random(seed), late_ms)
    play(log, 25, nested=nested)
    for key, result in found_of(log).items():
        assert troubles(result) == [], key
        assert result.entitlement is None or result.entitlement.unseen_s < UNSEEN_S


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_an_exact_limiter_whose_limits_come_go_observe_and_refuse_is_never_accused(seed: int) -> None:
    """Streams leave a limit and come under it again, or close and open anew."""
    log = GovernedLog(Random(seed))
    play_governed(log, 25)
    for key, result in found_of(log).items():
        assert troubles(result) == [], key
        assert result.entitlement is None or result.entitlement.unseen_s < UNSEEN_S


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
@example(seed=1316997).via("a debt of a run before grew with its limit, which was raised before the first line")
def test_limiter_that_goes_on_after_a_restart_is_not_accused(seed: int) -> None:
    log = RestartedLog(Random(seed))
    play_governed(log, 15)
    for key, result in found_of(log).items():
        assert troubles(result) == [], key
        assert result.entitlement is None or result.entitlement.unseen_s < UNSEEN_S


# ---- a scheduler with a fault


class Faulty(Scheduler):
    """Does something wrong with the tokens of each hundredth message."""

    spoil: Callable[[Limiter, int], None]
    passed = 0

    def _pass(self, stream: Stream, messages: int, size: int, now: int) -> None:
        super()._pass(stream, messages, size, now)
        self.passed += messages
        while self.passed >= 100:
            self.passed -= 100
            for limiter in stream.chain:
                self.spoil(limiter, now)


class Losing(Faulty):
    """A token in a hundred is lost."""

    def spoil(self, limiter: Limiter, now: int) -> None:
        limiter.charge(1, 0, now)


class Granting(Faulty):
    """A token in a hundred is granted twice."""

    def spoil(self, limiter: Limiter, _now: int) -> None:
        limiter.refund(1, 0)


class Skipping(Scheduler):
    """One entry in a hundred passes the outermost limiter by."""

    passed = 0

    def _pass(self, stream: Stream, messages: int, size: int, now: int) -> None:
        self.passed += 1
        chain = stream.chain
        if self.passed % 100 == 0:
            stream.chain = chain[1:]
        super()._pass(stream, messages, size, now)
        stream.chain = chain


class Dozing(Scheduler):
    """Serves nobody for the last fifth of each second: twice as long as it takes to fill a bucket."""

    def serve(self, limiter: Limiter, now: int) -> int:
        if now % NANOS_PER_SECOND >= 0.8 * NANOS_PER_SECOND:
            limiter.wakes_at = None
            self._lines.wake(limiter, (now // NANOS_PER_SECOND + 1) * NANOS_PER_SECOND)
            return 0
        return super().serve(limiter, now)


class Starving(Scheduler):
    """Passes over the first of its streams, whoever else waits."""

    def serve(self, limiter: Limiter, now: int) -> int:
        victim = min(limiter.streams, key=lambda stream: stream.name.stream_id)
        is_waiting = victim.waits_on is limiter
        if is_waiting and len(limiter.waiters) > 1:
            limiter.waiters.remove(victim.tag_at(limiter))
        turns = super().serve(limiter, now)
        if is_waiting and victim.waits_on is limiter and len(limiter.waiters):
            limiter.waiters.add(victim.tag_at(limiter))
        return turns


def greedy(make: Callable[..., Scheduler], *, seconds: int = 30) -> SchedulerLog:
    """Two streams under a topic's limit and a total, always with something to send."""
    log = SchedulerLog(Random(0), make=make)
    topic = log.limiter("topic", "a", Limit(rate(200, burst=20)))
    total = log.limiter("tenant", "t", Limit(rate(100, burst=10)))
    streams = [log.open(total, topic), log.open(total, topic)]
    for stream in streams if make is not Starving else reversed(streams):
        for _ in range(70 * seconds if stream is streams[-1] or make is not Starving else 20):
            log.scheduler.count_offered(stream, 1, 1, 100)
            log.scheduler.hold(stream, Entry(b"", 1, 100, 100, log.now), log.now)
    log.advance(seconds * NANOS_PER_SECOND)
    log.write()
    return log


def test_the_scheduler_without_a_fault_has_none() -> None:
    assert [troubles(result) for result in found_of(greedy(Scheduler)).values()] == [[], []]


@pytest.mark.parametrize("make", [Losing, Granting, Skipping, Dozing, Starving])
def test_each_fault_of_a_scheduler_is_found(make: Callable[..., Scheduler]) -> None:
    assert troubles(found_of(greedy(make))["tenant", "t"])


def test_a_lost_token_is_a_broken_promise_and_not_only_a_riddle() -> None:
    result = found_of(greedy(Losing))["tenant", "t"]
    assert (deficit_s(result) > 0, doubts(result)) == (True, {"books"})


def test_a_granted_token_and_a_skipped_level_are_seen_as_such() -> None:
    assert "books" in doubts(found_of(greedy(Granting))["tenant", "t"])
    assert doubts(found_of(greedy(Skipping))["tenant", "t"]) == {"streams"}
    assert excess(found_of(greedy(Granting, seconds=90))["tenant", "t"]) > 0
