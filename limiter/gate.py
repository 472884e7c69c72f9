"""The one gate of both directions: what fits the limits passes at once, the rest waits its turn.

    offered ──fits, nobody waits──▶ passed                              (`admit`: a chunk's tallies, all or nothing)
       └─────else, entry by entry──▶ every limiter open? ──▶ passed     (`pass_entry`)
                                          └──no──▶ held, waits on the limiter that refused it   (`hold`)
                                                        └──tokens come──▶ passed                (`serve`)

Nobody overtakes: where somebody waits, newcomers queue behind. Those who wait on one limiter share its time equally,
whatever the size of their entries (`wait_queue.py`). Whose turn it is where limits overlap, says `turns.py`; where each
waits, and when it is to be woken, `lines.py`. The gate has no timer: it says when it wants to be woken.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from limiter.journal import Notes
from limiter.limiter import Limiter
from limiter.lines import Lines
from limiter.passage import Passage
from limiter.stream import Entry, Stream
from limiter.turns import next_turn, obstacle_of, refusing
from limiter.usage import Passed

MOST_TURNS: Final = 1000
"""Turns in one go: a millisecond's work; a burst's worth can be ten times more."""
TURN_SIZE: Final = 2048
"""Bytes that take as long as one turn."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Gate(Passage):
    """Lets entries pass or wait, exactly within all limits of their streams.

    Args:
        wake_at: Called with a limiter and the monotonic time at which `serve` is to be called for it; each call
            replaces the one before for the same limiter.
        journal: Told of every stream that does something.
    """

    def __init__(self, wake_at: Callable[[Limiter, int], None], journal: Notes) -> None:
        self.journal = journal
        self._lines = Lines(wake_at, journal)

    def recall_by(self, recall: Callable[[Limiter], None]) -> None:
        """Call this with a limiter of which workers have been lent something, when somebody begins to wait there."""
        self._lines.recall = recall

    # ---- streams

    def join(self, stream: Stream) -> None:
        """A stream opens."""
        for limiter in stream.chain:
            limiter.streams.add(stream)

    def rewire(self, stream: Stream, chain: tuple[Limiter, ...], now: int) -> None:
        """Other limits apply to a live stream from now on; what it holds is judged anew."""
        for limiter in stream.chain:
            limiter.streams.discard(stream)
        self._lines.leave(stream, now)
        stream.chain = chain
        stream.is_noted = False
        self.join(stream)
        self._settle(stream, now)

    def leave(self, stream: Stream, now: int) -> list[Entry]:
        """A stream ends: its turn, and what it held, are free for others at once. Gives back what was held."""
        dropped = self.drop_held(stream, now)
        for limiter in stream.chain:
            limiter.streams.discard(stream)
        return dropped

    # ---- what fits passes at once

    def admit(self, stream: Stream, messages: int, size: int, now: int) -> bool:
        """Charge a chunk's worth of one stream, if all of it fits and nobody waits; else charge nothing.

        Where a limit rejects, each entry is judged alone: somebody must know which ones were refused.
        """
        if stream.held:
            return False
        for position, limiter in enumerate(stream.chain):
            if limiter.waiters or limiter.is_rejecting or not limiter.pay(messages, size, now):
                for charged in stream.chain[:position]:
                    charged.refund(messages, size)
                return False
        if stream.observed is not None and not stream.observed.admit(messages, size, now):
            for charged in stream.chain:
                charged.refund(messages, size)
            return False
        return True

    def withdraw(self, stream: Stream, messages: int, size: int) -> None:
        """Undo an `admit` of the same instant."""
        for limiter in stream.chain:
            limiter.refund(messages, size)
        if stream.observed is not None:
            stream.observed.withdraw(messages, size)

    def pass_entry(self, stream: Stream, messages: int, size: int, now: int) -> bool:
        """Charge and count one entry, if every limiter is open and nobody waits; else do nothing."""
        if stream.held or obstacle_of(stream, now) is not None:
            return False
        self._pass(stream, messages, size, now)
        return True

    # ---- the rest is held

    def hold(self, stream: Stream, entry: Entry, now: int) -> None:
        """Keep `entry` until its stream's turn comes; it may pass at once if nothing stands in its way any more."""
        usage = stream.usage
        usage.held_messages += entry.messages
        usage.held_size += entry.size
        stream.held.append(entry)
        self.note(stream)
        if len(stream.held) == 1 and not stream.is_passing:
            usage.throttled.start(now)
            self._settle(stream, now)

    def serve(self, limiter: Limiter, now: int) -> None:
        """Let waiting entries pass while the limiter is open, and ask to be woken for the rest."""
        turns = 0
        is_reserved = False
        limiter.wakes_at = now
        limiter.is_attended(now)
        try:
            while turns < MOST_TURNS and limiter.waiters and limiter.is_open(now):
                stream = next_turn(limiter, now)
                if stream is None:
                    is_reserved = True
                    break
                turns += 1 + stream.held[0].size // TURN_SIZE
                self._take_turn(stream, now)
        finally:  # whatever one stream's `release` raises, the others go on
            self._lines.rest(limiter, now, is_due=turns >= MOST_TURNS, is_reserved=is_reserved)

    def take_back(self, stream: Stream, now: int) -> list[Entry]:
        """What is held of a stream waits no longer, and the caller does something else with it."""
        taken = list(stream.held)
        stream.held.clear()
        self._lines.leave(stream, now)
        usage = stream.usage
        usage.throttled.stop(now)
        usage.held_messages -= sum([entry.messages for entry in taken])
        usage.held_size -= sum([entry.size for entry in taken])
        return taken

    def drop_held(self, stream: Stream, now: int) -> list[Entry]:
        """Forget what is held of a stream, and give it back."""
        dropped = self.take_back(stream, now)
        if dropped:
            sizes = sum([entry.messages for entry in dropped]), sum([entry.size for entry in dropped])
            self.count_dropped(stream, *sizes)
        return dropped

    # ---- counting

    def count_offered(self, stream: Stream, entries: int, messages: int, size: int) -> None:
        """Note what arrived."""
        self._count_offered(stream, entries, messages, size)
        if stream.permits is not None:
            stream.permits.arrived(entries, messages, size)

    def count_admitted(self, stream: Stream, counts: tuple[int, int, int], largest: tuple[int, int]) -> None:
        """Note what was admitted: (entries, messages, bytes), and the largest entry's (messages, bytes)."""
        entries, messages, size = counts
        self._count_offered(stream, entries, messages, size)
        stream.usage.add_passed(entries, messages, size)
        charged = stream.charged(entries, messages)
        most = stream.charged(1, largest[0])
        for limiter in stream.chain:
            limiter.usage.add_passed(entries, charged, size)
            limiter.usage.met(most, largest[1])
        if stream.observed is not None:
            stream.observed.count_admitted(counts, largest)

    def count_charged(
        self, stream: Stream, limiters: tuple[Limiter, ...], counts: Passed, largest: tuple[int, int]
    ) -> None:
        """Note the same of a stream whose limits were others when it was admitted: those that charged it.

        What is nobody's limit any more counts nothing; nor does one that a stream is within only now.
        """
        entries, messages, size = counts
        self._count_offered(stream, entries, messages, size)
        stream.usage.add_passed(entries, messages, size)
        charged = stream.charged(entries, messages)
        for limiter in limiters:
            if limiter.streams:
                limiter.usage.add_passed(entries, charged, size)
                limiter.usage.met(stream.charged(1, largest[0]), largest[1])
                if limiter not in stream.chain:
                    limiter.usage.add_left(charged, size)
        if any(limiter not in limiters for limiter in stream.chain):
            stream.usage.add_spared(counts)

    def count_rejected(self, stream: Stream, limiter: Limiter, messages: int, size: int) -> None:
        """Note an entry that was refused because of `limiter`."""
        stream.usage.add_rejected(messages, size)
        stream.last_reason = limiter.scope.level
        limiter.usage.add_rejected(messages, size)
        self.note(stream)

    def count_dropped(self, stream: Stream, messages: int, size: int) -> None:
        """Note what arrived of a stream that ended before it could be held."""
        stream.usage.dropped_messages += messages
        stream.usage.dropped_size += size
        self.note(stream)

    def _settle(self, stream: Stream, now: int) -> None:
        """Pass what may pass of a stream that waits nowhere, then let it wait where it is refused."""
        while stream.held and stream.waits_on is None:
            obstacle = obstacle_of(stream, now)
            if obstacle is None:
                self._release(stream, now)
            else:
                self._lines.join(stream, obstacle, now)

    def _take_turn(self, stream: Stream, now: int) -> None:
        """Pass the first entry of a stream that waits, or find out where else it must wait."""
        elsewhere = refusing(stream, now)
        if elsewhere is not None:
            self._lines.go(stream, elsewhere, now)
            return
        self._lines.went(stream)
        try:
            self._release(stream, now)
        finally:
            self._line_up(stream, now)

    def _line_up(self, stream: Stream, now: int) -> None:
        """Behind the entry that has just passed; meanwhile the stream may have been taken out of its line."""
        if stream.waits_on is None:
            self._settle(stream, now)
        elif stream.held:
            self._lines.follow(stream, stream.waits_on)
        else:
            self._lines.leave(stream, now)

    def _release(self, stream: Stream, now: int) -> None:
        """Pass the first held entry, which every limiter lets pass, and the commands that wait behind it."""
        entry = stream.held.popleft()
        usage = stream.usage
        usage.held_messages -= entry.messages
        usage.held_size -= entry.size
        usage.delay_max_ns = max(usage.delay_max_ns, now - entry.since)
        usage.delays.add(now - entry.since, entry.messages)
        self._pass(stream, entry.messages, entry.size, now)
        self.note(stream)
        stream.is_passing = True
        try:
            stream.release(stream, entry)
            while stream.held and stream.held[0].is_free:
                stream.release(stream, stream.held.popleft())
        finally:
            stream.is_passing = False
        if not stream.held:
            usage.throttled.stop(now)

    def _pass(self, stream: Stream, messages: int, size: int, now: int) -> None:
        """One entry goes on."""
        charged = stream.charged(1, messages)
        stream.usage.add_passed(1, messages, size)
        for limiter in stream.chain:
            limiter.charge(charged, size, now)
            limiter.usage.add_passed(1, charged, size)
            limiter.usage.met(charged, size)
        if stream.observed is not None:
            stream.observed.offer(messages, size, now)
        if stream.permits is not None:
            stream.permits.passed(messages, size)

    def _count_offered(self, stream: Stream, entries: int, messages: int, size: int) -> None:
        stream.usage.add_offered(entries, messages, size)
        self.note(stream)

    def note(self, stream: Stream) -> None:
        """It did something, and so did its limiters."""
        if not stream.is_noted:
            self.journal.note(stream)
