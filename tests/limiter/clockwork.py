"""A machine that does anything to a gate, in any order, and judges what passes by a ledger of its own."""

from collections import defaultdict, deque
from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from limiter.gate import LEAST_SLEEP_NS
from limiter.limiter import Limiter
from limiter.rates import NANOS_PER_SECOND
from limiter.stream import Entry, Stream, StreamName
from tests.limiter.ledger import Charge, Ledger
from tests.limiter.world import World

MOST_STREAMS = 8
WHOSE = st.integers(0, MOST_STREAMS - 1)
SIZES = st.tuples(st.integers(1, 3) | st.integers(1, 1000), st.integers(1, 100) | st.integers(1, 100_000))
SPANS = st.integers(0, 5_000_000) | st.integers(0, 3 * NANOS_PER_SECOND)


class Clockwork(RuleBasedStateMachine):
    """The rules that need no knowledge of where limiters come from."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.ledger = Ledger()
        self.streams: list[Stream] = []
        self.numbers = count()
        self.expected: dict[Stream, deque[int]] = defaultdict(deque)
        self.counts: dict[Stream, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.waited: dict[Any, int] = defaultdict(int)
        self.active: set[Stream | Limiter] = set()

    @property
    def now(self) -> int:
        return self.world.clock.now

    def limiters(self) -> set[Limiter]:
        return {limiter for stream in self.streams for limiter in stream.chain}

    def new_stream(self) -> Stream:
        stream = Stream(StreamName("publish", "t", "n", "x", next(self.numbers)), (), lambda entry: None)
        stream.release = lambda entry: self.came_out(stream, entry)
        self.streams.append(stream)
        return stream

    def one(self, whose: int) -> Stream:
        return self.streams[whose % len(self.streams)]

    def came_out(self, stream: Stream, entry: Entry) -> None:
        assert self.expected[stream].popleft() == int(entry.parts[0]), "in order, nothing twice, nothing lost"
        if not entry.is_free:
            self.went_on(stream, entry.messages, entry.size)

    def went_on(self, stream: Stream, messages: int, size: int) -> None:
        self.counts[stream]["passed"] += messages
        self.counts[stream]["passed bytes"] += size
        self.ledger.passed(stream, Charge(self.now, messages, size))
        self.active |= {stream, *stream.chain}

    def holds(self, stream: Stream, messages: int, size: int) -> None:
        number = next(self.numbers)
        self.expected[stream].append(number)
        self.world.gate.hold(stream, Entry([str(number).encode()], messages, size, size, self.now), self.now)

    def is_waited_on(self, limiter: Limiter) -> bool:
        return any(stream.waits_on is limiter for stream in self.streams)

    @precondition(lambda self: self.streams)
    @rule(whose=WHOSE, entries=st.lists(SIZES, min_size=1, max_size=6))
    def offer(self, whose: int, entries: list[tuple[int, int]]) -> None:
        stream = self.one(whose)
        for messages, size in entries:
            in_the_way = bool(stream.held) or any(map(self.is_waited_on, stream.chain))
            all_open = all(limiter.is_open(self.now) for limiter in stream.chain)
            self.count(stream, "offered", messages, size)
            self.world.gate.count_offered(stream, 1, messages, size)
            if self.world.gate.pass_entry(stream, messages, size, self.now):
                assert not in_the_way, "nobody overtakes"
                assert all_open
                self.went_on(stream, messages, size)
            else:
                assert in_the_way or not all_open, "nobody waits for nothing"
                self.holds(stream, messages, size)

    @precondition(lambda self: self.streams)
    @rule(tallies=st.lists(st.tuples(WHOSE, SIZES), min_size=1, max_size=3, unique_by=lambda tally: tally[0]))
    def chunk(self, tallies: list[tuple[int, tuple[int, int]]]) -> None:
        """One read with entries of several streams: all of them pass, or none is charged."""
        gate = self.world.gate
        admitted: list[tuple[Stream, int, int]] = []
        before = {one: (one.fits(1, 1, self.now), one.wait_ns(self.now)) for one in self.limiters()}
        for whose, (messages, size) in tallies:
            stream = self.one(whose)
            in_the_way = bool(stream.held) or any(map(self.is_waited_on, stream.chain))
            if not gate.admit(stream, messages, size, self.now):
                for passed, *counts in admitted:
                    gate.withdraw(passed, *counts)
                assert before == {one: (one.fits(1, 1, self.now), one.wait_ns(self.now)) for one in self.limiters()}
                return
            assert not in_the_way
            admitted.append((stream, messages, size))
        for stream, messages, size in admitted:
            self.count(stream, "offered", messages, size)
            gate.count_admitted(stream, (1, messages, size), (messages, size))
            self.went_on(stream, messages, size)

    @precondition(lambda self: any(stream.held for stream in self.streams))
    @rule(whose=WHOSE)
    def command_behind(self, whose: int) -> None:
        waiting = [stream for stream in self.streams if stream.held]
        self.holds(waiting[whose % len(waiting)], 0, 0)

    @precondition(lambda self: self.streams)
    @rule(whose=WHOSE)
    def drop(self, whose: int) -> None:
        self.dropped(self.one(whose), self.world.gate.drop_held(self.one(whose), self.now))

    @rule(span=SPANS)
    def pass_time(self, span: int) -> None:
        end = self.now + span
        while (alarm := self.world.alarms.next_before(end)) is not None:
            self.ring(*alarm)
        self.move_to(end)

    @rule(span=st.integers(0, 200_000_000))
    def be_late(self, span: int) -> None:
        """The loop was busy: all alarms of that time ring at its end."""
        self.move_to(self.now + span)
        while (alarm := self.world.alarms.next_before(self.now)) is not None:
            self.ring(*alarm)

    def ring(self, at: int, limiter: Limiter) -> None:
        self.move_to(max(at, self.now))
        self.world.gate.serve(limiter, self.now)

    def move_to(self, at: int) -> None:
        waiting = [*(one for one in self.streams if one.held), *filter(self.is_waited_on, self.limiters())]
        for one in waiting:
            self.waited[one] += at - self.now
        self.world.clock.now = at

    @rule()
    def read_journal(self) -> None:
        streams, limiters = self.world.journal.empty()
        assert self.active <= {*streams, *limiters}, "who did something is in the journal"
        self.active = {stream for stream in self.streams if stream.held}
        self.active |= {limiter for limiter in self.limiters() if self.is_waited_on(limiter)}

    def count(self, stream: Stream, what: str, messages: int, size: int) -> None:
        self.counts[stream][what] += messages
        self.counts[stream][f"{what} bytes"] += size
        self.active |= {stream, *stream.chain}

    def dropped(self, stream: Stream, entries: list[Entry]) -> None:
        assert [int(entry.parts[0]) for entry in entries] == list(self.expected[stream])
        self.expected[stream].clear()
        for entry in entries:
            self.count(stream, "dropped", entry.messages, entry.size)

    @invariant()
    def every_message_is_somewhere(self) -> None:
        for stream in self.streams:
            usage, counts = stream.usage, self.counts[stream]
            held = sum(entry.messages for entry in stream.held)
            held_bytes = sum(entry.size for entry in stream.held)
            assert (usage.held_messages, usage.held_size) == (held, held_bytes)
            assert usage.passed_messages == counts["passed"] == counts["offered"] - held - counts["dropped"]
            assert usage.passed_size == counts["passed bytes"]
            assert usage.passed_size == counts["offered bytes"] - held_bytes - counts["dropped bytes"]
            assert [int(entry.parts[0]) for entry in stream.held] == list(self.expected[stream])

    @invariant()
    def who_holds_waits_in_one_queue_and_others_in_none(self) -> None:
        waiting: dict[Limiter, set[Stream]] = defaultdict(set)
        for stream in self.streams:
            assert (stream.waits_on is not None) == bool(stream.held)
            assert set(stream.places) == (set(stream.chain) if stream.held else set())
            if stream.waits_on is not None:
                assert stream.waits_on in stream.chain
                waiting[stream.waits_on].add(stream)
        for limiter in self.limiters():
            row = limiter.waiters._row
            assert {stream for *_, stream in row} == waiting[limiter]
            assert row == sorted(row, key=lambda one: one[:2])
            assert all((*stream.places[limiter], stream) == here for here in row for stream in here[2:])
            assert limiter.claimant is None or limiter.claimant.waits_on not in (None, limiter)

    @invariant()
    def who_is_waited_on_will_be_woken_in_time(self) -> None:
        for limiter in filter(self.is_waited_on, self.limiters()):
            due = self.world.alarms.due[limiter]
            assert due == limiter.wakes_at
            claim = limiter.claimant.waits_on if limiter.claimant else None
            longest = max(limiter.wait_ns(self.now), claim.wait_ns(self.now) if claim else 0)
            assert self.now <= due <= self.now + max(longest, LEAST_SLEEP_NS)

    @invariant()
    def stopwatches_tell_how_long_was_waited(self) -> None:
        watched: list[Stream | Limiter] = [*self.streams, *self.limiters()]
        for one in watched:
            assert one.usage.throttled.read(self.now) == self.waited[one]

    def teardown(self) -> None:
        """When nothing more comes, all that is held passes, and then nobody asks to be woken."""
        rings = 0
        while (alarm := self.world.alarms.next_before(1 << 80)) is not None:
            self.ring(*alarm)
            rings += 1
            assert rings < 100_000
        assert not any(stream.held for stream in self.streams)
        self.every_message_is_somewhere()
        self.who_holds_waits_in_one_queue_and_others_in_none()
        self.stopwatches_tell_how_long_was_waited()
        self.ledger.check()
