"""A machine that calls a scheduler in any order, and checks the passed entries by a ledger of its own."""

from collections.abc import Iterable
from itertools import count, product
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from limiter.activity import ActivityReader
from limiter.limiter import Entry, Limiter, Scope, Stream, StreamName, rejecting
from limiter.scheduler import Scheduler
from limiter.token_bucket import NANOS_PER_SECOND, Limit
from tests.limiter.emptied import emptied
from tests.limiter.ledger import Charge, named
from tests.limiter.shadows import played_by
from tests.limiter.truths import MOST_ROOM, Truths
from tests.limiter.world import Telling

MOST_STREAMS = 8
WHOSE = st.integers(0, MOST_STREAMS - 1)
# Tables: hypothesis draws from one several times faster than from strategies within strategies.
SIZES = st.sampled_from(list(product((1, 2, 3, 7, 40, 101, 1000), (1, 10, 99, 1003, 29_999, 100_000))))
SPANS = st.integers(0, 5_000_000) | st.integers(0, 3 * NANOS_PER_SECOND)


Tokens = dict[tuple[Scope, int], int]


class Clockwork(Truths):
    """The rules that need no knowledge of where limiters come from: entries and chunks are offered, time passes.

    Proves beyond `Truths`: nobody overtakes and nobody waits for nothing; per stream, all comes out in order, nothing
    twice; a chunk is charged whole or not at all; who is over a rejecting limit is refused, and only then; P2 for each
    limit over every interval (`ledger.py`); in the end all that is held passes, all room is given back, and nobody
    asks to be woken any more.
    """

    def __init__(self) -> None:
        super().__init__()
        observer = self.world.observer
        observer.scheduler = Telling(self.played, self.world.rehearsals.wake_at, observer.scheduler.journal)
        self.numbers = count()
        self.active: set[Stream | Limiter] = set()
        self.told_early: list[Stream | Limiter] = []
        self.world.journal.read_by(ActivityReader(on_early=self.told_early.append, on_cut=self.cut))

    def limits_of(self, stream: Stream) -> Iterable[tuple[Any, Limit]]:
        """Which limits what passes counts for; machines that know better than the scheduler say it themselves."""
        return named(stream.chain)

    def is_waited_on(self, limiter: Limiter) -> bool:
        return any(stream.waits_on is limiter for stream in self.everyone())

    def blocking(self, stream: Stream) -> list[Limiter]:
        """The limits that a newcomer of this stream may not pass now, by the books kept here."""
        waited_on = self.rows()
        return [limiter for limiter in stream.chain if limiter in waited_on or not limiter.is_open(self.now)]

    def new_stream(self) -> Stream:
        stream = Stream(StreamName("publish", "t", "n", "x", next(self.numbers)), (), lambda _stream, _entry: None)
        stream.release = self.came_out
        self.streams.append(stream)
        return stream

    def one(self, index: int) -> Stream:
        return self.streams[index % len(self.streams)]

    def came_out(self, stream: Stream, entry: Entry) -> None:
        assert self.expected[stream].popleft() == int(entry.frame), "in order, nothing twice, nothing lost"
        if not entry.is_free:
            self.went_on(stream, entry.messages, entry.size)

    def went_on(self, stream: Stream, messages: int, size: int) -> None:
        self.count(stream, "passed", messages, size)
        self.ledger.passed(self.limits_of(stream), Charge(self.now, messages, size))
        self.active |= {stream, *stream.chain}
        if stream.observed is not None:
            self.watched(stream, messages, size)

    def watched(self, stream: Stream, messages: int, size: int) -> None:
        """What passed is offered to the limits that are only observed."""
        assert stream.observed is not None
        self.count(played_by(stream), "offered", messages, size)
        self.active |= set(stream.observed.chain)

    def played(self, beside: Stream, messages: int, size: int) -> None:
        """The limits that are only observed would let this pass."""
        self.count(beside, "passed", messages, size)
        self.ledger.passed(self.limits_of(beside), Charge(self.now, messages, size))
        assert isinstance(beside.connection, Stream)
        self.active |= {beside.connection, *beside.chain}

    def holds(self, stream: Stream, messages: int, size: int) -> None:
        number = next(self.numbers)
        self.expected[stream].append(number)
        self.world.scheduler.hold(stream, Entry(str(number).encode(), messages, size, size, self.now), self.now)

    @precondition(lambda self: self.streams)
    @rule(index=WHOSE, entries=st.lists(SIZES, min_size=1, max_size=4))
    def offer(self, index: int, entries: list[tuple[int, int]]) -> None:
        stream, scheduler = self.one(index), self.world.scheduler
        for messages, size in entries:
            obstacles = self.blocking(stream)
            self.offered(stream, messages, size)
            if scheduler.pass_entry(stream, messages, size, self.now):
                assert not stream.held, "nobody overtakes those of its own stream"
                assert not obstacles, "nor others, and limits that are closed stop it"
                self.went_on(stream, messages, size)
                continue
            assert stream.held or obstacles, "nobody waits for nothing"
            refuses = rejecting(stream, self.now)
            closed = (obstacle for obstacle in obstacles if obstacle.limit.mode == "reject")
            assert refuses is (None if stream.held else next(closed, None)), "what comes after held entries is held"
            if refuses is None:
                self.holds(stream, messages, size)
            else:
                scheduler.count_rejected(stream, refuses, messages, size)
                self.count(stream, "rejected", messages, size)

    def offered(self, stream: Stream, messages: int, size: int) -> None:
        self.count(stream, "offered", messages, size)
        self.world.scheduler.count_offered(stream, 1, messages, size)
        self.active |= {stream, *stream.chain}

    @precondition(lambda self: self.streams)
    @rule(tallies=st.lists(st.tuples(WHOSE, SIZES), min_size=1, max_size=3, unique_by=lambda tally: tally[0]))
    def chunk(self, tallies: list[tuple[int, tuple[int, int]]]) -> None:
        """One read with entries of several streams: all of them pass, or none is charged."""
        scheduler = self.world.scheduler
        admitted: list[tuple[Stream, int, int]] = []
        before = self.tokens()
        for index, (messages, size) in tallies:
            stream = self.one(index)
            in_the_way = bool(stream.held) or any(map(self.is_waited_on, stream.chain))
            if not scheduler.admit(stream, messages, size, self.now):
                for passed, *counts in admitted:
                    scheduler.withdraw(passed, *counts)
                assert before == self.tokens()
                return
            assert not in_the_way
            admitted.append((stream, messages, size))
        for stream, messages, size in admitted:
            self.count(stream, "offered", messages, size)
            scheduler.count_admitted(stream, 1, messages, size, messages, size)
            self.went_on(stream, messages, size)

    def tokens(self) -> Tokens:
        """What every bucket holds, by limit and kind."""
        return {
            (limiter.scope, kind): bucket.tokens(self.now)
            for limiter in self.limiters()
            for kind, bucket in enumerate(limiter._buckets)
            if bucket is not None
        }

    def gave_nothing(self, before: Tokens) -> None:
        """Whatever changed, no bucket holds more than before, and a debt became no credit."""
        for bucket, tokens in self.tokens().items():
            assert tokens <= max(before.get(bucket, tokens), 0)

    @precondition(lambda self: any(stream.held for stream in self.streams))
    @rule(index=WHOSE)
    def command_behind(self, index: int) -> None:
        waiting = [stream for stream in self.streams if stream.held]
        self.holds(waiting[index % len(waiting)], 0, 0)

    @precondition(lambda self: self.streams)
    @rule(index=WHOSE)
    def drop(self, index: int) -> None:
        self.dropped(self.one(index), self.world.scheduler.drop_held(self.one(index), self.now))

    def dropped(self, stream: Stream, entries: list[Entry]) -> None:
        assert [int(entry.frame) for entry in entries] == list(self.expected[stream])
        self.expected[stream].clear()
        for entry in entries:
            self.count(stream, "dropped", entry.messages, entry.size)
            self.active |= {stream, *stream.chain}

    def forget(self, stream: Stream) -> None:
        """The stream is closed."""
        self.streams.remove(stream)
        self.active.discard(stream)

    @rule(span=SPANS)
    def pass_time(self, span: int) -> None:
        end = self.now + span
        while (alarm := self.world.next_before(end)) is not None:
            self.ring(*alarm)
        self.move_to(end)

    @rule(span=st.integers(0, 200_000_000))
    def be_late(self, span: int) -> None:
        """The loop was busy: all alarms of that time ring at its end."""
        self.move_to(self.now + span)
        while (alarm := self.world.next_before(self.now)) is not None:
            self.ring(*alarm)

    def ring(self, at: int, limiter: Limiter, scheduler: Scheduler) -> None:
        self.move_to(max(at, self.now))
        assert limiter.is_observed == (scheduler is self.world.observer.scheduler) or not limiter.waiters
        scheduler.serve(limiter, self.now)

    def move_to(self, at: int) -> None:
        for subject in [*(stream for stream in self.everyone() if stream.held), *self.rows()]:
            self.waited[subject] += at - self.now
        self.world.clock.now = at

    def cut(self, subject: Stream | Limiter, _now: int) -> None:
        """A limiter that its last stream has left reports no more; others do."""
        if isinstance(subject, Limiter) and not subject.streams:
            self.told_early.append(subject)

    @rule()
    def read_journal(self) -> None:
        streams, limiters = emptied(self.world.journal)
        assert self.active <= {*streams, *limiters, *self.told_early}, "who did something is in the journal, or was"
        self.told_early.clear()
        self.active = {stream for stream in self.streams if stream.holds} | set(self.rows())

    def teardown(self) -> None:
        """When no more entries come, all held ones pass, and then no limiter asks to be woken."""
        rings = 0
        while (alarm := self.world.next_before(1 << 80)) is not None:
            self.ring(*alarm)
            rings += 1
            assert rings < 100_000
        assert not any(stream.holds for stream in self.streams)
        self.every_message_is_somewhere()
        self.who_holds_waits_in_one_queue_and_others_in_none()
        self.stopwatches_tell_how_long_was_waited()
        assert self.world.observer.room == MOST_ROOM
        self.ledger.check()
