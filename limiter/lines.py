"""The lines in which streams wait, and when each limiter is to be woken.

    in no line ──join──▶ in one line, a place at every limiter ──leave──▶ in no line
                              └─ go ─▶ in another line
                              └─ follow ─▶ in the same line, with the next entry

Who stands where is `wait_queue.py`'s and whose turn it is `turns.py`'s to say; that it comes at all is seen to here: as
long as somebody waits on a limiter, an alarm is set for it. What becomes of an entry, this part does not know.
"""

from collections.abc import Callable
from typing import Final

from limiter.journal import Notes
from limiter.limiter import Limiter
from limiter.stream import Stream
from limiter.turns import meet, refusing
from limiter.wait_queue import Place

LEAST_SLEEP_NS: Final = 1_000_000
"""Wake-ups of one limiter are at least this far apart: at high rates entries go in groups."""


class Lines:
    """Those of all limiters that one gate knows.

    Args:
        wake_at: Called with a limiter and the monotonic time at which it is to be served; each call replaces the one
            before for the same limiter.
        journal: Told of who begins to wait where nobody did.

    Attributes:
        recall: Called with a limiter of which workers have been lent something, when somebody begins to wait there.
    """

    def __init__(self, wake_at: Callable[[Limiter, int], None], journal: Notes) -> None:
        self.recall: Callable[[Limiter], None] = lambda _limiter: None
        self._wake_at = wake_at
        self._journal = journal
        self._number = 0

    def join(self, stream: Stream, obstacle: Limiter, now: int) -> None:
        """A stream that `obstacle` does not let pass waits with its first entry, where that entry is refused."""
        self._take_places(stream)
        self._wait_on(stream, refusing(stream, now) or obstacle, now)

    def go(self, stream: Stream, elsewhere: Limiter, now: int) -> None:
        """A stream whose turn it is must wait on another limiter of its chain; it keeps its places."""
        self._step_out(stream, now)
        self._wait_on(stream, elsewhere, now)

    def went(self, stream: Stream) -> None:
        """The first entry of a stream that waits is about to pass."""
        for place in stream.places:
            place.limiter.waiters.went(place)

    def follow(self, stream: Stream, limiter: Limiter) -> None:
        """The entry behind the one that went waits where that did: its turn there shows where else it must wait."""
        place = stream.place_at(limiter)
        limiter.waiters.remove(place)
        self._take_places(stream)
        limiter.waiters.add(place)

    def leave(self, stream: Stream, now: int) -> None:
        """A stream waits no longer, if it did."""
        self._step_out(stream, now)
        stream.places = ()

    def rest(self, limiter: Limiter, now: int, *, is_due: bool, is_reserved: bool = False) -> None:
        """A limiter has been served: who still waits there has a turn at once if more are due, else when it opens."""
        limiter.wakes_at = None
        if not limiter.waiters:
            return
        limiter.is_waited_on(now, is_due=is_due, is_reserved=is_reserved)
        if is_due:
            self._wake(limiter, now)
        else:
            self._ask_for_wake_up(limiter, now)

    def _take_places(self, stream: Stream) -> None:
        """The stream's next entry is in line from now on, at every limiter."""
        entry = stream.held[0]
        self._number += 1
        if not stream.places:
            stream.places = tuple([Place(stream, limiter) for limiter in stream.chain])
        for place in stream.places:
            place.limiter.line_up(place, entry, self._number)

    def _wait_on(self, stream: Stream, limiter: Limiter, now: int) -> None:
        meet(stream, limiter, now)
        stream.waits_on = limiter
        stream.waits_since = now
        stream.last_reason = limiter.scope.level
        if not limiter.waiters:
            limiter.usage.throttled.start(now)
            limiter.is_waited_on(now)
            if limiter.wakes_at is not None and limiter.wakes_at > now:
                limiter.wakes_at = None  # set for those who have left; where there was a claim it may be far too late
            if not stream.is_noted:
                self._journal.note(stream)
            if limiter.borrowers:
                self.recall(limiter)
        limiter.waiters.add(stream.place_at(limiter))
        self._ask_for_wake_up(limiter, now)

    def _step_out(self, stream: Stream, now: int) -> None:
        limiter = stream.waits_on
        if limiter is None:
            return
        stream.waits_on = None
        limiter.waiters.remove(stream.place_at(limiter))
        if not limiter.waiters:
            limiter.usage.throttled.stop(now)
            limiter.is_attended(now)
        self._give_up_claims(stream, now)

    def _give_up_claims(self, stream: Stream, now: int) -> None:
        """Others need not leave room any more; a limiter that is due or being served finds out by itself.

        Its alarm may have been set for when the claim was to end: that is too late, also where it is not open yet.
        """
        for limiter in stream.chain:
            if limiter.claimant is not stream:
                continue
            limiter.claimant = None
            if limiter.waiters and limiter.wakes_at is not None and limiter.wakes_at > now:
                limiter.wakes_at = None
                self._ask_for_wake_up(limiter, now)

    def _ask_for_wake_up(self, limiter: Limiter, now: int) -> None:
        """Where none is set, set an alarm for when the first may go: the token that it waits for, or its claim's."""
        if limiter.wakes_at is not None:
            return
        wait = limiter.wait_ns(now) + limiter.gathering_ns(now)
        if wait == 0 and limiter.claimant is not None and limiter.claimant.waits_on is not None:
            wait = limiter.claimant.waits_on.wait_ns(now)
        self._wake(limiter, now + max(wait, LEAST_SLEEP_NS))

    def _wake(self, limiter: Limiter, at_ns: int) -> None:
        limiter.wakes_at = at_ns
        self._wake_at(limiter, at_ns)
