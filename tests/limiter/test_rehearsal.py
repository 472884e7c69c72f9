"""The numbers of observed limits beside those of the same limits enforced, in lockstep."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from limiter.levels import Setting
from limiter.limiter import Stream
from limiter.token_bucket import Limit, Mode, rate
from limiter.usage import LimiterUsage, StreamUsage
from tests.limiter.attributes import attributes
from tests.limiter.clockwork import MOST_STREAMS, SIZES, SPANS, WHOSE
from tests.limiter.long_run import Counted, long_run
from tests.limiter.shadows import played_by
from tests.limiter.world import Governed

LEVELS = ((Setting.PROXY, ""), (Setting.NAMESPACE, "t/n"), (Setting.TOPIC_OF_NAMESPACE, "t/n"))
VALUES = st.sampled_from(
    [
        Limit(rate(tokens, burst=burst), size, peak)
        for tokens, burst in ((7, None), (100, None), (100, 300), (2000, 1))
        for size in (None, rate(1000), rate(50_000))
        for peak in (None, rate(3 * tokens, burst=2))
    ]
)
MODES: st.SearchStrategy[Mode] = st.sampled_from(["observe", "observe", "enforce"])


_STOPWATCHES = ("throttled", "withheld")


def numbers(usage: StreamUsage | LimiterUsage, now: int) -> dict[str, object]:
    """Everything that it counts."""
    counts = {name: value for name, value in attributes(usage).items() if name not in _STOPWATCHES}
    if isinstance(usage, StreamUsage):
        counts["delays"] = usage.delays.read()
    return counts | {name: getattr(usage, name).read(now) for name in _STOPWATCHES if hasattr(usage, name)}


class Rehearsal(Counted):
    """A world whose limits are enforced or observed, and beside it one where the observed ones are enforced.

    Whatever the first lets pass is offered to the second, at that moment. Proves: what the first counts as observed is
    what the second counts in truth, at every moment and to the nanosecond: offered, passed, held, dropped, throttled
    time, delay, where each stream waits and since when, the next alarms; for streams and for limits. If all limits are
    observed, that is the same arrivals through the same limits, and then everything passes at once. The second is
    always offered entry by entry, the first whole chunks, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.real, self.reference = Governed(self.went_on), Governed()
        self.modes: tuple[Mode, ...] = ()
        self.pairs: dict[Stream, Stream] = {}
        self.chunk_of: list[tuple[int, int]] = []

    @initialize(modes=st.tuples(MODES, MODES, MODES), values=st.tuples(VALUES, VALUES, VALUES))
    def begin(self, modes: tuple[Mode, ...], values: tuple[Limit, ...]) -> None:
        self.modes = modes if "observe" in modes else ("observe",) * 3
        for which, value in enumerate(values):
            self.put(which, value)

    def put(self, which: int, value: Limit) -> None:
        self.real.put(LEVELS[which], replace(value, mode=self.modes[which]))
        if self.modes[which] == "observe":
            self.reference.put(LEVELS[which], value)

    def one(self, index: int) -> Stream:
        return list(self.pairs)[index % len(self.pairs)]

    def went_on(self, stream: Stream, messages: int, size: int) -> None:
        for entry in self.chunk_of or [(messages, size)]:
            self.reference.offer(self.pairs[stream], *entry)

    @precondition(lambda self: len(self.pairs) < MOST_STREAMS)
    @rule(topic=st.sampled_from("xxy"))
    def open(self, topic: str) -> None:
        self.pairs[self.real.open(topic)] = self.reference.open(topic)

    @precondition(lambda self: self.pairs)
    @rule(index=WHOSE, entries=st.lists(SIZES, min_size=1, max_size=4))
    def offer(self, index: int, entries: list[tuple[int, int]]) -> None:
        for entry in entries:
            passed = self.real.offer(self.one(index), *entry)
            assert passed or "enforce" in self.modes, "what is only observed passes at once"

    @precondition(lambda self: self.pairs)
    @rule(index=WHOSE, entries=st.lists(SIZES, min_size=1, max_size=4))
    def chunk(self, index: int, entries: list[tuple[int, int]]) -> None:
        stream = self.one(index)
        (messages, largest_messages), (sizes, largest_size) = ((sum(k), max(k)) for k in zip(*entries, strict=True))
        if self.real.scheduler.admit(stream, messages, sizes, self.real.clock.now):
            self.chunk_of = entries
            counts, largest = (len(entries), messages, sizes), (largest_messages, largest_size)
            self.real.scheduler.count_admitted(stream, *counts, *largest)
            self.chunk_of = []
        else:
            self.offer(index, entries)

    @precondition(lambda self: self.pairs)
    @rule(index=WHOSE)
    def drop(self, index: int) -> None:
        """What is held for an enforced limit never comes to the observed ones."""
        self.real.scheduler.drop_held(self.one(index), self.real.clock.now)

    @precondition(lambda self: self.pairs)
    @rule(index=WHOSE)
    def close(self, index: int) -> None:
        stream = self.one(index)
        observed, beside = stream.observed, self.pairs[stream]
        assert observed is not None
        self.real.registry.close(stream, self.real.clock.now)
        self.reference.registry.close(beside, self.real.clock.now)
        del self.pairs[stream]
        assert numbers(observed.usage, 0) == numbers(beside.usage, 0)

    @rule(which=st.integers(0, 2), value=VALUES)
    def change(self, which: int, value: Limit) -> None:
        """First all goes that may: else what goes at the change would be offered to limits of the old value here."""
        for _ in range(2):
            self.real.apply()
            self.reference.apply()
            self.put(which, value)

    @rule(span=SPANS)
    def pass_time(self, span: int) -> None:
        self.ring_until(self.real.clock.now + span, is_late=False)

    @rule(span=st.integers(0, 200_000_000))
    def be_late(self, span: int) -> None:
        self.ring_until(self.real.clock.now + span, is_late=True)

    def ring_until(self, end: int, *, is_late: bool) -> None:
        while (alarm := self.real.next_before(end)) is not None:
            at, limiter, scheduler = alarm
            self.move_to(end if is_late else max(at, self.real.clock.now))
            if scheduler is self.real.scheduler:
                scheduler.serve(limiter, self.real.clock.now)
                continue
            same = self.reference.alarms.next_before(end)
            assert same is not None
            assert (same[0], same[1].scope) == (at, limiter.scope), "the same alarm rings beside"
            scheduler.serve(limiter, self.real.clock.now)
            self.reference.scheduler.serve(same[1], self.real.clock.now)
        self.move_to(end)

    def move_to(self, at: int) -> None:
        self.real.clock.now = self.reference.clock.now = at

    @invariant()
    def streams_would_be_held_as_they_are_beside(self) -> None:
        now = self.real.clock.now
        for stream, beside in self.pairs.items():
            assert stream.observed is not None
            played = played_by(stream)
            assert numbers(played.usage, now) == numbers(beside.usage, now)
            assert stream.observed.is_holding == bool(beside.held)
            assert (played.waits_since, played.last_reason) == (beside.waits_since, beside.last_reason)
            tags = [(tag.limiter.scope, tag.time) for tag in played.tags]
            assert tags == [(tag.limiter.scope, tag.time) for tag in beside.tags]
            assert (played.waits_on and played.waits_on.scope) == (beside.waits_on and beside.waits_on.scope)

    @invariant()
    def limits_would_be_used_as_they_are_beside(self) -> None:
        now = self.real.clock.now
        observed = {scope: limiter for scope, limiter in self.real.registry.limiters.items() if limiter.is_observed}
        beside = self.reference.registry.limiters
        assert observed.keys() == beside.keys()
        for scope, limiter in observed.items():
            assert numbers(limiter.usage, now) == numbers(beside[scope].usage, now)
            assert limiter.wait_ns(now) == beside[scope].wait_ns(now)
            assert len(limiter.waiters) == len(beside[scope].waiters)
        due = {limiter.scope: at for limiter, at in self.real.rehearsals.due.items()}
        assert due == {limiter.scope: at for limiter, at in self.reference.alarms.due.items()}


TestRehearsal = long_run(Rehearsal, at_least=2_400)
