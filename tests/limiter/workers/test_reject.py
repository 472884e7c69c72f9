"""Limits in mode `reject` over several workers: the same is refused, and the same passes, as in one process."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.levels import Setting
from limiter.limiter import Entry, Scope, Stream, refusal_of, rejecting
from limiter.policies import Change, Value
from limiter.token_bucket import Limit, Mode, rate
from tests.limiter.workers.together import Worker, Workers
from tests.limiter.world import Governed

NAMESPACE, TOPIC = (Setting.NAMESPACE, "t/n"), (Setting.TOPIC, "persistent://t/n/x")
TOPICS = ("x", "x", "y", "y", "x")
Fate = tuple[str, int]
"""Passed or why not, and the entry's number; below 0 are those that no client would give up."""


class Alone:
    """One process: what the relay does with each entry, and what became of it."""

    def __init__(self) -> None:
        self.world = Governed()
        self.fates: list[list[Fate]] = [[] for _ in TOPICS]
        self.is_followed = [True] * len(TOPICS)
        self.streams: list[Stream] = []

    def open(self) -> None:
        for place, topic in enumerate(TOPICS):
            stream = self.world.open(topic)
            stream.release = lambda _stream, entry, place=place: self.passed(place, int(entry.frame))  # type: ignore[misc]
            self.streams.append(stream)

    def passed(self, place: int, number: int) -> None:
        self.is_followed[place] = self.streams[place].is_rejected
        self.fates[place].append(("passed", number))

    def offer(self, place: int, number: int, messages: int) -> None:
        scheduler, now, stream = self.world.scheduler, self.world.clock.now, self.streams[place]
        scheduler.count_offered(stream, 1, messages, 100)
        if scheduler.pass_entry(stream, messages, 100, now):
            self.passed(place, number)
            return
        limiter = rejecting(stream, now) if self.is_followed[place] and number >= 0 else None
        if limiter is None:
            scheduler.hold(stream, Entry(b"%d" % number, messages, 100, 100, now), now)
        else:
            scheduler.count_rejected(stream, limiter, messages, 100)
            self.fates[place].append((refusal_of(limiter), number))


class Apart:
    """The same with two workers, where all messages arrive before anything else happens."""

    def __init__(self) -> None:
        self.world = Workers(2, lambda stream, entry, reason: self.note(stream, reason, entry))
        self.fates: list[list[Fate]] = [[] for _ in TOPICS]
        self.streams: list[tuple[Worker, Stream]] = []

    def open(self) -> None:
        for place, topic in enumerate(TOPICS):
            worker = self.world.workers[place % 2]
            self.streams.append((worker, worker.open(topic, lambda stream, entry: self.note(stream, "passed", entry))))
        self.world.deliver_all()

    def note(self, stream: Stream, fate: str, entry: Entry) -> None:
        place = next(place for place, (_, one) in enumerate(self.streams) if one is stream)
        self.fates[place].append((fate, int(entry.frame)))

    def offer(self, place: int, number: int, messages: int) -> None:
        worker, stream = self.streams[place]
        if self.world.offer(worker, stream, messages, 100, b"%d" % number):
            self.fates[place].append(("passed", number))


class Both:
    """Two worlds in which the same happens."""

    def __init__(self, namespace: Limit, topic: Limit) -> None:
        self.alone, self.apart = Alone(), Apart()
        self.number = 0
        self.limits = {NAMESPACE: namespace, TOPIC: topic}
        for place, limit in self.limits.items():
            self.put(place, limit)
        for world in (self.alone.world, self.apart.world):
            world.apply()
        self.alone.open()
        self.apart.open()

    def put(self, place: tuple[Setting, str], limit: Limit) -> None:
        self.limits[place] = limit
        for world in (self.alone.world, self.apart.world):
            world.policies.put("publish", *place, Value(limit, "rest"))

    def offer(self, place: int, messages: int, times: int, *, must_wait: bool = False) -> None:
        """Several are on their way to be judged at the same time."""
        for number in range(self.number, self.number + times):
            signed = -1 - number if must_wait else number
            self.alone.offer(place, signed, messages)
            self.apart.offer(place, signed, messages)
        self.number += times
        self.apart.world.deliver_all()

    def turn(self, place: tuple[Setting, str]) -> None:
        """The limit begins to refuse, or to hold."""
        mode: Mode = "enforce" if self.limits[place].mode == "reject" else "reject"
        self.put(place, replace(self.limits[place], mode=mode))
        for world in (self.alone.world, self.apart.world):
            world.registry.change([Change("publish", *place, only_tunes=True)], world.clock.now)
        self.apart.world.deliver_all()

    def wait(self, span: int) -> None:
        """Each time an alarm rings somewhere, messages arrive. What was used of loans is told before: until it is, it
        fills its bucket, which earns nothing for it.
        """
        for worker in self.apart.world.workers:
            worker.up.extend(worker.quota_client.report())
        self.apart.world.deliver_all()
        end = self.alone.world.clock.now + span
        self.alone.world.run_until(end)
        while self.apart.world.clock.now < end:
            soonest = min(end, max(self.apart.world.alarms.soonest(), self.apart.world.clock.now + 1))
            self.apart.world.run_until(int(soonest))
            self.apart.world.deliver_all()

    def check(self) -> None:
        assert self.apart.fates == self.alone.fates
        assert self.refused(self.apart.world) == self.refused(self.alone.world)

    @staticmethod
    def refused(world: Governed) -> dict[Scope, tuple[int, int]]:
        limiters = world.registry.limiters
        return {
            scope: (one.usage.rejected_messages, one.usage.rejected_size)
            for scope, one in limiters.items()
            if one.usage.rejected_messages
        }


OFFERS = st.tuples(st.just("offer"), st.integers(0, len(TOPICS) - 1), st.integers(1, 30))
WAITS = st.tuples(st.just("wait"), st.just(0), st.sampled_from([1_000_000, 7_000_001, 50_000_000, 10**9]))
TURNS = st.tuples(st.just("turn"), st.integers(0, 1), st.just(0))
STEPS = st.lists(OFFERS | OFFERS | WAITS | TURNS, max_size=40)
MODES: st.SearchStrategy[Mode] = st.sampled_from(["enforce", "reject"])
NAMESPACES = st.builds(Limit, st.sampled_from([rate(100, burst=40), rate(1000)]), mode=MODES)
OF_TOPICS = st.builds(Limit, st.sampled_from([rate(10, burst=1), rate(100), rate(100, burst=40)]), mode=MODES)


@settings(deadline=None, max_examples=150)
@given(namespace=NAMESPACES, topic=OF_TOPICS, steps=STEPS)
def test_the_same_passes_and_the_same_is_refused_as_in_one_process(namespace, topic, steps) -> None:
    """Where others have been lent tokens and where not, whichever limits begin to refuse or to hold."""
    both = Both(namespace, topic)
    for what, place, amount in steps:
        match what:
            case "offer":
                both.offer(place, 1, amount)
            case "wait":
                both.wait(amount)
            case "turn":
                both.turn((NAMESPACE, TOPIC)[place])
        both.check()


@settings(deadline=None, max_examples=80)
@given(namespace=NAMESPACES, topic=OF_TOPICS, steps=STEPS, waiting=st.sets(st.integers(0, len(TOPICS) - 1)))
def test_what_may_not_be_refused_is_held_as_in_one_process(namespace, topic, steps, waiting) -> None:
    """Of some producers nothing may be refused, of the others all; whoever waits, the same others are refused."""
    both = Both(namespace, replace(topic, mode="reject"))
    for what, place, amount in steps:
        if what == "wait":
            both.wait(amount)
        else:
            both.offer(place, 1, amount, must_wait=place in waiting)
        both.check()
    for fates in (both.apart.fates[place] for place in waiting):
        assert all(fate == "passed" for fate, _ in fates)


def test_the_same_passes_where_one_limit_has_back_what_it_lent_and_then_another_is_in_the_way() -> None:
    """When the topic's has it, the namespace's has nothing left but what it has lent."""
    both = Both(Limit(rate(1000)), Limit(rate(100, burst=40)))
    for place, amount in ((0, 22), (3, 43), (0, 11)):
        both.offer(place, 1, amount)
        both.check()


@settings(deadline=None, max_examples=80)
@given(topic=OF_TOPICS, steps=STEPS, batch=st.sampled_from([2, 7, 100]))
def test_batches_are_refused_as_in_one_process(topic, steps, batch) -> None:
    both = Both(Limit(rate(10**6)), replace(topic, mode="reject"))
    for what, place, amount in steps:
        if what == "wait":
            both.wait(amount)
        else:
            both.offer((0, 1, 4)[place % 3], batch, amount)
        both.check()
