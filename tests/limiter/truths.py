"""What must be true of a scheduler after every step, whatever happened to it before."""

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

from hypothesis.stateful import invariant

from limiter.limiter import Entry, Limiter, Stream
from limiter.scheduler import LEAST_SLEEP_NS
from tests.limiter.ledger import Ledger
from tests.limiter.long_run import Counted
from tests.limiter.shadows import played_by
from tests.limiter.standing import row_of
from tests.limiter.world import World

MOST_ROOM = 30
MOST_PLAYED = 300_000
FATES = ("passed", "dropped", "rejected", "held")


class Truths(Counted):
    """A world, books kept beside it, and the invariants that hold the two together.

    Proves: each offered message is passed, held, dropped or rejected, once; who holds waits in exactly one queue, in
    its place; whoever is waited on will be woken neither early nor late; the stopwatches are right; and all of it also
    for what limits that are only observed *would* hold, within the room that there is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World(MOST_PLAYED, MOST_ROOM)
        self.ledger = Ledger()
        self.streams: list[Stream] = []
        self.expected: dict[Stream, deque[int]] = defaultdict(deque)
        self.counts: dict[Stream, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        self.waited: dict[Any, int] = defaultdict(int)

    @property
    def now(self) -> int:
        return self.world.clock.now

    def count(self, stream: Stream, fate: str, messages: int, size: int) -> None:
        so_far = self.counts[stream][fate]
        so_far[0] += messages
        so_far[1] += size

    def everyone(self) -> Iterator[Stream]:
        """Every stream, and its shadow."""
        for stream in self.streams:
            yield stream
            if stream.observed is not None:
                yield played_by(stream)

    def limiters(self) -> set[Limiter]:
        return set(chain.from_iterable(stream.chain for stream in self.everyone()))

    def rows(self) -> dict[Limiter, set[Stream]]:
        """The streams that wait on each limiter, by the streams' own attributes."""
        waiting: dict[Limiter, set[Stream]] = defaultdict(set)
        for stream in self.everyone():
            if stream.waits_on is not None:
                waiting[stream.waits_on].add(stream)
        return waiting

    @invariant()
    def every_message_is_somewhere(self) -> None:
        for stream in self.streams:
            self.is_all_there(stream)
            assert [stream.usage.dropped_messages, stream.usage.dropped_size] == self.counts[stream]["dropped"]
            assert [int(entry.frame) for entry in stream.held] == list(self.expected[stream])
            if stream.observed is not None:
                usage = stream.observed.usage  # what there was no room for is dropped there
                self.counts[played_by(stream)]["dropped"] = [usage.dropped_messages, usage.dropped_size]
                self.is_all_there(played_by(stream))

    def is_all_there(self, stream: Stream) -> None:
        usage, counts = stream.usage, self.counts[stream]
        counts["held"] = sizes_of(stream.held)
        assert [usage.offered_messages, usage.offered_size] == counts["offered"]
        assert [usage.passed_messages, usage.passed_size] == counts["passed"]
        assert [usage.rejected_messages, usage.rejected_size] == counts["rejected"]
        assert [usage.held_messages, usage.held_size] == counts["held"]
        ends = [counts[fate] for fate in FATES]
        assert counts["offered"] == [sum(kind) for kind in zip(*ends, strict=True)]

    @invariant()
    def what_is_played_at_has_room(self) -> None:
        played = [played_by(stream) for stream in self.streams if stream.observed is not None]
        assert self.world.observer.room == MOST_ROOM - sum(len(shadow.held) for shadow in played) >= 0
        for shadow in filter(lambda shadow: shadow.held, played):
            assert shadow.usage.held_size - shadow.held[-1].size < MOST_PLAYED, "full, reading would have stopped"

    @invariant()
    def who_holds_waits_in_one_queue_and_others_in_none(self) -> None:
        for stream in self.everyone():
            assert (stream.waits_on is not None) == bool(stream.held)
            assert [tag.limiter for tag in stream.tags] == (list(stream.chain) if stream.held else [])
            assert stream.waits_on is None or stream.waits_on in stream.chain
        waiting = self.rows()
        for limiter in self.limiters():
            row = row_of(limiter)
            assert {place.stream for place in row} == waiting.get(limiter, set())
            assert row == sorted(row, key=lambda place: (place.time, place.number))
            assert all(place is place.stream.tag_at(limiter) for place in row)
            assert limiter.claimant is None or limiter.claimant.waits_on not in (None, limiter)

    @invariant()
    def who_is_waited_on_will_be_woken_in_time(self) -> None:
        for limiter in self.rows():
            alarms = self.world.rehearsals if limiter.is_observed else self.world.alarms
            due = alarms.due[limiter]
            assert due == limiter.wakes_at
            claim = limiter.claimant.waits_on if limiter.claimant else None
            longest = max(limiter.wait_ns(self.now), claim.wait_ns(self.now) if claim else 0)
            gathering = limiter._gathers_ns if alarms.waited[limiter] > 1 else 0
            assert self.now <= due <= self.now + max(longest + gathering, LEAST_SLEEP_NS)

    @invariant()
    def stopwatches_tell_how_long_was_waited(self) -> None:
        watched: list[Stream | Limiter] = [*self.everyone(), *self.limiters()]
        for subject in watched:
            assert subject.usage.throttled.read(self.now) == self.waited[subject]


def sizes_of(entries: deque[Entry]) -> list[int]:
    """Messages and bytes of them."""
    return [sum(entry.messages for entry in entries), sum(entry.size for entry in entries)]
