"""The scheduler of both directions: passes entries that fit the limits, holds the others and serves them in fair order.

    offered ──fits, no stream waits──▶ passed                           (`admit`: a chunk's tallies, all or nothing)
       └─────else, entry by entry──▶ every limiter open? ──▶ passed     (`pass_entry`)
                                          └──no──▶ held, waits on the limiter that refused it   (`hold`)
                                                        └──tokens come──▶ passed                (`serve`)

Waiting entries are never overtaken: newcomers queue after a waiting stream. Streams that wait on one limiter share its
time equally, whatever the size of their entries (`FairQueue`). The scheduler has no timer: it asks to be woken.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from limiter.activity import ActivityNotes
from limiter.limiter import Entry, Limiter, Stream


def obstacle_of(stream: Stream, now: int) -> Limiter | None:
    """Return the first limiter of the chain that does not let a newcomer pass, or None."""
    for limiter in stream.chain:
        if limiter.waiters or not limiter.is_open(now):
            return limiter
    return None


def refusing(stream: Stream, now: int) -> Limiter | None:
    """Return the limiter that a stream with tags must wait on, or None if its first entry may pass.

    That is the first limiter where other streams go before it, else the limiter whose tokens come last.
    """
    all_open = True
    for tag in stream.tags:
        if not tag.limiter.waiters.is_before_all(tag):
            return tag.limiter
        all_open = all_open and tag.limiter.is_open(now)
    return None if all_open else _last_to_open(stream, now)


def _last_to_open(stream: Stream, now: int) -> Limiter:
    """Return the limiter whose tokens come last; in `refusing`, compiled, the key would cost every call a closure."""
    return max(stream.chain, key=lambda limiter: limiter.wait_ns(now))


def _others_waited_on(stream: Stream, excluded: Limiter) -> list[Limiter]:
    return [limiter for limiter in stream.chain if limiter is not excluded and limiter.waiters]


LEAST_SLEEP_NS: Final = 1_000_000
"""Shortest time between wake-ups of one limiter: at high rates entries go in groups."""


class WaitLists:
    """The wait lists of all limiters: the limiter that each stream waits on, and the wake-up time of each limiter.

        in no list ──join──▶ in one list, a tag at every limiter ──leave──▶ in no list
                                 └─ go ─▶ in another list
                                 └─ follow ─▶ in the same list, with the next entry

    As long as a stream waits on a limiter, a timer is set for it. This class neither passes nor drops entries.

    A stream within several limiters waits in one queue at a time. From the moment that its next entry is in line, it
    has a tag at every limiter of its chain. So waiting on one limiter does not cost it its turn at another. As soon as
    only one limiter's tokens keep it from passing, it has a *reservation* (`claimant`) at the others. There, other
    streams pass only if they leave room for it. Without reservations two busy limiters would never be open at the same
    moment, and a stream within both would wait for ever; the same idea lets wide jobs run on busy clusters.

    Source: EASY backfilling, D. Lifka, The ANL/IBM SP scheduling system, 1995

    Args:
        wake_at: Called with a limiter and the monotonic time at which to serve it; each call replaces the previous one
            for the same limiter.
        journal: Notes each stream that begins to wait.
    """

    def __init__(self, wake_at: Callable[[Limiter, int], None], journal: ActivityNotes) -> None:
        self._wake_at = wake_at
        self._journal = journal
        self._number = 0

    def join(self, stream: Stream, obstacle: Limiter, now: int) -> None:
        """Let a stream that `obstacle` refuses wait with its first entry, on the limiter that refuses that entry."""
        self._line_up(stream)
        self._wait_on(stream, refusing(stream, now) or obstacle, now)

    def go(self, stream: Stream, elsewhere: Limiter, now: int) -> None:
        """Move the stream that has the turn to another limiter of its chain; it keeps its tags."""
        self._step_out(stream, now)
        self._wait_on(stream, elsewhere, now)

    def went(self, stream: Stream) -> None:
        """Record that the first entry of a waiting stream is about to pass."""
        for tag in stream.tags:
            tag.limiter.waiters.went(tag)

    def follow(self, stream: Stream, limiter: Limiter) -> None:
        """Let a stream's next entry wait where the previous one did; at its turn it may have to move on."""
        tag = stream.tag_at(limiter)
        limiter.waiters.remove(tag)
        self._line_up(stream)
        limiter.waiters.add(tag)

    def leave(self, stream: Stream, now: int) -> None:
        """End a stream's wait, if it waits."""
        self._step_out(stream, now)
        stream.give_up_tags()

    def rest(self, limiter: Limiter, now: int, *, is_due: bool, is_reserved: bool = False) -> None:
        """Finish serving a limiter: if streams still wait, wake it at once if more are due, else when it opens."""
        limiter.wakes_at = None
        if not limiter.waiters:
            return
        limiter.is_waited_on(now, is_due=is_due, is_reserved=is_reserved)
        if is_due:
            self.wake(limiter, now)
        else:
            self._ask_for_wake_up(limiter, now)

    def next_turn(self, limiter: Limiter, now: int) -> Stream | None:
        """Return the head of a queue, or None if serving it would delay the stream that holds a reservation.

        A head that must wait elsewhere anyway delays no stream: it takes its turn by going there.
        """
        first, claimant = limiter.waiters.first(), limiter.claimant
        if claimant is None or claimant.waits_on is None:
            return first
        if first.tag_at(limiter).precedes(claimant.tag_at(limiter)):
            return first
        limiter.cross(claimant.waits_on, now)
        if claimant.waits_on.waiters.first() is not claimant:
            return first
        wait = claimant.waits_on.wait_ns(now)
        if wait == 0:
            return first if refusing(claimant, now) else claimant
        leaves_room = limiter.wait_after_ns(first.held[0], now) <= wait
        return first if leaves_room or refusing(first, now) else None

    def claim(self, stream: Stream, waits_on: Limiter) -> None:
        """Reserve room at the other limiters of a stream that waits for nothing but the tokens of `waits_on`.

        A limiter keeps one reservation, the earliest: when that stream has gone, the next stream's turn comes.
        """
        for limiter in _others_waited_on(stream, waits_on):
            claimant = limiter.claimant
            if claimant is None or stream.tag_at(limiter).precedes(claimant.tag_at(limiter)):
                limiter.claimant = stream

    def _line_up(self, stream: Stream) -> None:
        self._number += 1
        stream.line_up(self._number)

    def _wait_on(self, stream: Stream, limiter: Limiter, now: int) -> None:
        if not stream.noted_in.is_open:
            self._journal.note(stream)
        crossed = _others_waited_on(stream, limiter)
        for other in crossed:  # streams also wait there: this stream's turn depends on both limiters
            limiter.cross(other, now)
        if crossed and limiter.waiters.is_before_all(stream.tag_at(limiter)) and not limiter.is_open(now):
            self.claim(stream, limiter)
        stream.wait_on(limiter, now)
        if not limiter.waiters:
            limiter.usage.throttled.start(now)
            limiter.is_waited_on(now)
            if limiter.wakes_at is not None and limiter.wakes_at > now:
                limiter.wakes_at = None  # set for streams that have left; after a reservation it may be far too late
        limiter.waiters.add(stream.tag_at(limiter))
        self._ask_for_wake_up(limiter, now)

    def _step_out(self, stream: Stream, now: int) -> None:
        limiter = stream.waits_on
        if limiter is None:
            return
        stream.stop_waiting()
        limiter.waiters.remove(stream.tag_at(limiter))
        if not limiter.waiters:
            self._journal.touched(limiter)
            limiter.usage.throttled.stop(now)
            limiter.is_attended(now)
        self._give_up_claims(stream, now)

    def _give_up_claims(self, stream: Stream, now: int) -> None:
        """Drop a stream's reservations. A limiter that is due or being served needs no new alarm.

        The alarm of another may have been set for the end of the reservation. That is too late, even if the limiter is
        not open yet.
        """
        for limiter in stream.chain:
            if limiter.claimant is not stream:
                continue
            limiter.claimant = None
            if limiter.waiters and limiter.wakes_at is not None and limiter.wakes_at > now:
                limiter.wakes_at = None
                self._ask_for_wake_up(limiter, now)

    def _ask_for_wake_up(self, limiter: Limiter, now: int) -> None:
        """Set an alarm, if none is set, for the time at which its token comes, or the reservation ends."""
        if limiter.wakes_at is not None:
            return
        wait = limiter.wait_ns(now) + limiter.gathering_ns(now)
        if wait == 0 and limiter.claimant is not None and limiter.claimant.waits_on is not None:
            wait = limiter.claimant.waits_on.wait_ns(now)
        self.wake(limiter, now + max(wait, LEAST_SLEEP_NS))

    def wake(self, limiter: Limiter, at_ns: int) -> None:
        """Set the alarm of a limiter."""
        limiter.wakes_at = at_ns
        self._wake_at(limiter, at_ns)


MOST_TURNS: Final = 1000
"""Most turns in one call of `serve`: a millisecond's work; a burst's worth can be ten times more."""
TURN_SIZE: Final = 2048
"""Bytes of an entry that count as one more turn."""
FIRST_TURNS: Final = 20
"""More turns for the first entry of a stream in an interval: counts of the last one may still have to be taken."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """Passes or holds entries, exactly within all limits of their streams.

    Args:
        wake_at: Called with a limiter and the monotonic time at which to call `serve` for it; each call replaces the
            previous one for the same limiter.
        journal: Notes every stream whose counts change.
    """

    def __init__(self, wake_at: Callable[[Limiter, int], None], journal: ActivityNotes) -> None:
        self.journal = journal
        self._lines = WaitLists(wake_at, journal)

    # ---- streams

    def join(self, stream: Stream) -> None:
        """Add a stream to the limiters of its chain: it opens."""
        for limiter in stream.chain:
            limiter.streams.add(stream)

    def rewire(self, stream: Stream, chain: tuple[Limiter, ...], now: int) -> None:
        """Put a live stream within other limiters, which decide on its held entries."""
        for limiter in stream.chain:
            limiter.streams.discard(stream)
        self._lines.leave(stream, now)
        stream.come_within(chain)
        self.join(stream)
        self._settle(stream, now)

    def leave(self, stream: Stream, now: int) -> list[Entry]:
        """Remove a stream that ends, and return its dropped entries; its turn and room are free for others at once."""
        dropped = self.drop_held(stream, now)
        for limiter in stream.chain:
            limiter.streams.discard(stream)
        return dropped

    # ---- entries that fit pass at once

    def admit(self, stream: Stream, messages: int, size: int, now: int) -> bool:
        """Charge a chunk's worth of a stream if it fits whole and no stream waits, else nothing; return which.

        Where a limit rejects, nothing is admitted: entries are judged one by one, as the client must learn which were
        refused.
        """
        if stream.held:
            return False
        if not stream.noted_in.is_open:
            self.journal.note(stream)
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
        """Charge and count one entry if every limiter is open and no stream waits; return whether it may pass."""
        if stream.held or obstacle_of(stream, now) is not None:
            return False
        self._pass(stream, messages, size, now)
        return True

    # ---- the rest is held

    def hold(self, stream: Stream, entry: Entry, now: int) -> None:
        """Hold `entry` until its stream's turn comes; it passes at once if the limits have room by now."""
        self.note(stream)
        usage = stream.usage
        usage.add_held(entry.messages, entry.size)
        stream.held.append(entry)
        if len(stream.held) == 1 and not stream.is_passing:
            usage.throttled.start(now)
            self._settle(stream, now)

    def serve(self, limiter: Limiter, now: int) -> int:
        """Pass waiting entries while the limiter is open, and ask to be woken for the rest; return the turns taken."""
        turns = 0
        is_reserved = False
        self.journal.touched(limiter)
        limiter.wakes_at = now
        limiter.is_attended(now)
        try:
            while turns < MOST_TURNS and limiter.waiters and limiter.is_open(now):
                stream = self._lines.next_turn(limiter, now)
                if stream is None:
                    is_reserved = True
                    break
                turns += 1 + stream.held[0].size // TURN_SIZE
                if not stream.noted_in.is_open:
                    turns += FIRST_TURNS
                self._take_turn(stream, now)
        finally:  # an error of one stream's `release` does not stop the others
            self._lines.rest(limiter, now, is_due=turns >= MOST_TURNS, is_reserved=is_reserved)
        return turns

    def wake(self, limiter: Limiter, now: int) -> None:
        """Ask to be woken for a limiter now: it may let waiting entries pass."""
        self._lines.wake(limiter, now)

    def drop_held(self, stream: Stream, now: int) -> list[Entry]:
        """Drop and return the held entries of a stream."""
        if stream.held:
            self.note(stream)
        dropped = list(stream.held)
        stream.held.clear()
        self._lines.leave(stream, now)
        usage = stream.usage
        usage.throttled.stop(now)
        if dropped:
            messages, size = sum([entry.messages for entry in dropped]), sum([entry.size for entry in dropped])
            usage.add_held(-messages, -size)
            self.count_dropped(stream, messages, size)
        return dropped

    # ---- counting

    def count_offered(self, stream: Stream, entries: int, messages: int, size: int) -> None:
        """Record entries that arrived."""
        self._count_offered(stream, entries, messages, size)
        if stream.permits is not None:
            stream.permits.arrived(entries, messages, size)

    def count_admitted(
        self, stream: Stream, entries: int, messages: int, size: int, largest_messages: int, largest_size: int
    ) -> None:
        """Record an admitted chunk: its entries, messages and bytes, and the largest entry's messages and bytes."""
        self._count_offered(stream, entries, messages, size)
        stream.usage.add_passed(entries, messages, size)
        charged = stream.charged(entries, messages)
        most = stream.charged(1, largest_messages)
        for limiter in stream.chain:
            limiter.usage.add_passed(entries, charged, size)
            limiter.usage.met(most, largest_size)
        if stream.observed is not None:
            stream.observed.count_admitted(entries, messages, size, largest_messages, largest_size)

    def count_rejected(self, stream: Stream, limiter: Limiter, messages: int, size: int) -> None:
        """Record an entry that was refused because of `limiter`."""
        self.note(stream)
        stream.usage.add_rejected(messages, size)
        stream.last_reason = stream.last_rejecting = limiter.scope.level
        limiter.usage.add_rejected(messages, size)
        if limiter.is_quiet:
            limiter.on_activity(limiter)

    def count_dropped(self, stream: Stream, messages: int, size: int) -> None:
        """Record messages and bytes that arrived and were dropped, as their stream ended before they could be held."""
        self.note(stream)
        stream.usage.add_dropped(messages, size)

    def _settle(self, stream: Stream, now: int) -> None:
        """Pass the entries that may pass of a stream that waits on no limiter, then let it wait where it is refused."""
        while stream.held and stream.waits_on is None:
            obstacle = obstacle_of(stream, now)
            if obstacle is None:
                self._release(stream, now)
            else:
                self._lines.join(stream, obstacle, now)

    def _take_turn(self, stream: Stream, now: int) -> None:
        """Pass the first entry of a waiting stream, or move the stream to another limiter where it must wait."""
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
        """Put a stream's next entry in line after the one that has just passed, unless `release` ended its wait."""
        if stream.waits_on is None:
            self._settle(stream, now)
        elif stream.held:
            self._lines.follow(stream, stream.waits_on)
        else:
            self._lines.leave(stream, now)

    def _release(self, stream: Stream, now: int) -> None:
        """Pass the first held entry, which every limiter lets pass, and the commands that wait after it."""
        self.note(stream)
        entry = stream.held.popleft()
        usage = stream.usage
        usage.add_released(entry.messages, entry.size, now - entry.since)
        self._pass(stream, entry.messages, entry.size, now)
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
        """Charge and count one entry that passes."""
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
        self.note(stream)
        stream.usage.add_offered(entries, messages, size)

    def note(self, stream: Stream) -> None:
        """Note in the journal that counts of a stream, and of its limiters, are about to change."""
        if not stream.noted_in.is_open:
            self.journal.note(stream)
