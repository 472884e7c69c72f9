"""Limits that two processes share while the clients of one go to the other: shares move between them, with tokens.

    process with clients that leave                            process with clients that come
    has every limit whole                                      has nothing of any limit
       ◀─────────────── ask(limiter, waiting streams) ─────────── makes a limiter, or has streams that wait on it
       lowers its own share ─── hand(share, balance) ───────────▶ adds both to its own

    asked for a limiter ── without streams ──────────▶ hands all of it, its debt included
                        ── without waiting streams ──▶ hands half of its share
                        ── with waiting streams ─────▶ keeps the part of its streams among all that wait

Either process may ask the other. A share, and each token, is taken from one process before the other has it. So the
two pass together what one process would, burst + rate · time, and the last entry of each: the one more for a restart.
No lease is needed: the system reports the end of a process of the same host to the other one, which then has every
limit whole. Shares and tokens that were under way at a kill are lost.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from limiter.limiter import LeftBalances, Limiter, Scope
from limiter.restart import FirstBalances, Left
from limiter.sharing import claimed
from limiter.token_bucket import NANOS_PER_SECOND, WHOLE

LEAST_HANDED: Final = WHOLE // 50
"""The least part of a share that is worth a message, unless it is all of it."""
LOOK_S: Final = 0.25
"""Seconds between two looks at the limiters that lack a part of their limit."""
MOST_HANDED: Final = 100_000
"""Most limiters without streams that have been handed over and are known. The oldest of more is forgotten: a stream
that is opened within its limit at both processes has it twice then."""


class HandedShare(NamedTuple):
    """A share of a limit that goes to the other process.

    Args:
        scope: The limiter.
        ppm: Parts per million of messages and bytes.
        balances: The tokens that go with it, or the debts.
        is_unmade: The other process has not made the limiter: buckets without a balance are full. Else they get none.
        empty_since: Such buckets have only what the rate has given since then; None: they are full.
    """

    scope: Scope
    ppm: int
    balances: LeftBalances
    is_unmade: bool = False
    empty_since: int | None = None


class OtherProcess(Protocol):
    """The other one of the two processes. Messages arrive in order, or it has ended."""

    def ask(self, scope: Scope, waiting: int) -> None:
        """Ask for a share of a limiter, for so many waiting streams; may be left undone, as it is repeated."""

    def hand(self, handed: HandedShare) -> None:
        """Hand a share over."""


class _Looked(NamedTuple):
    """A limiter that lacks a part of its limit, as it was at a look.

    Args:
        passed: Messages that had passed, in all.
        rejected: Messages that had been rejected, in all.
        claimed: As `sharing.claimed`.
    """

    passed: int
    rejected: int
    claimed: float

    @classmethod
    def at(cls, limiter: Limiter, claimed: float = 0.0) -> "_Looked":
        return cls(limiter.usage.messages, limiter.usage.rejected_messages, claimed)


class HandedLimits:
    """The limits of one of the two processes. A `Registry` makes one, see `Registry.hand_over`.

    Args:
        limiters: The limiters of this process, by scope.
        first: The balances with which limiters begin.
        other: The other process.
        on_change: Called with each limiter whose share is about to change, and the time.
        serve: Serves the streams of limiters whose shares have changed.
        has_all: Whether this is the process with clients that leave.
    """

    def __init__(
        self,
        limiters: dict[Scope, Limiter],
        first: FirstBalances,
        other: OtherProcess,
        on_change: Callable[[Limiter, int], None],
        serve: Callable[[list[Limiter], int], None],
        *,
        has_all: bool,
    ) -> None:
        self._limiters = limiters
        self._first = first
        self._other = other
        self._on_change = on_change
        self._serve = serve
        self._has_all = has_all
        self._handed: dict[Scope, None] = {}
        """Limiters that were handed over before they were made here."""
        self._asked_for: dict[Scope, None] = {}
        """Limiters with streams that the other process has asked for: it gets all when the last stream has left."""
        self._lacking: dict[Scope, _Looked] = {}
        """Limiters with streams that have less than their limit, as they were at the last look."""
        self._left: Left = {}
        """Balances that the other process has left of limiters that were not made here."""

    # ---- called by the registry

    def made(self, limiter: Limiter, now: int) -> bool:
        """Begin with a new limiter; return whether it begins with nothing, so that it has to wait for the answer."""
        if self._has_all and limiter.scope not in self._handed:
            return False
        limiter.hand(0, now)
        self.used(limiter)
        return True

    def used(self, limiter: Limiter) -> None:
        """Note that streams begin to use a limiter: what it lacks is asked for."""
        if limiter.shares[0] < WHOLE:
            self._lacking[limiter.scope] = _Looked.at(limiter)
            self._other.ask(limiter.scope, 1)

    def rested(self, limiter: Limiter, now: int) -> None:
        """Note that the last stream has left a limiter: the other process gets all of it if it has asked."""
        self._lacking.pop(limiter.scope, None)
        if limiter.scope in self._asked_for:
            del self._asked_for[limiter.scope]
            self._hand(limiter, 0, now)

    def may_be_forgotten(self, limiter: Limiter) -> bool:
        """Return whether a limiter that is made again later will have the share that this one has."""
        return self._has_all and limiter.shares[0] == WHOLE and limiter.scope not in self._handed

    # ---- called for the other process

    def asked(self, scope: Scope, waiting: int, now: int) -> None:
        """Hand the other process the share that it needs more than this one."""
        limiter = self._limiters.get(scope)
        if limiter is None:
            if self._has_all and scope not in self._handed:
                if len(self._handed) >= MOST_HANDED:
                    del self._handed[next(iter(self._handed))]
                self._handed[scope] = None
                balances, empty_since = self._first.take(scope, now)
                self._other.hand(HandedShare(scope, WHOLE, balances, is_unmade=True, empty_since=empty_since))
        elif not limiter.streams:
            self._hand(limiter, 0, now)
        else:
            self._asked_for[scope] = None
            own, share = self._claim(limiter), limiter.shares[0]
            kept = WHOLE * own // (own + max(1, waiting)) if own else share // 2
            if share - kept >= LEAST_HANDED:
                self._hand(limiter, kept, now)

    def received(self, handed: HandedShare, now: int) -> None:
        """Add a share to that of this process. One for a limiter that is not there any more is lost."""
        limiter = self._limiters.get(handed.scope)
        if limiter is not None:
            self._on_change(limiter, now)
            share = min(WHOLE, limiter.shares[0] + handed.ppm)
            limiter.receive(share, handed.balances, now, fills=handed.is_unmade)
            if handed.empty_since is not None:
                limiter.begin_empty(handed.empty_since, now)
            self._serve([limiter], now)

    def left(self, handed: HandedShare, now: int) -> None:
        """Take a share that the other process has left at its end."""
        if handed.scope in self._limiters:
            self.received(handed, now)
        else:
            self._left[handed.scope] = handed.balances, now

    # ---- called by the process

    def look(self) -> Iterator[None]:
        """Ask again for shares of limiters that streams wait on; a limiter in each step."""
        for scope in list(self._lacking):
            limiter = self._limiters.get(scope)
            if limiter is None or not limiter.streams or limiter.shares[0] >= WHOLE:
                self._lacking.pop(scope, None)
            else:
                waiting, before = self._waiting(limiter), self._lacking[scope].claimed
                claim = claimed(waiting, before, len(limiter.streams), round(LOOK_S * NANOS_PER_SECOND))
                self._lacking[scope] = _Looked.at(limiter, claim)
                if waiting:
                    self._other.ask(scope, round(claim))
            yield

    def leave(self, clock: Callable[[], int]) -> Iterator[HandedShare]:
        """Yield all that this process leaves at its end, when nothing passes any more."""
        for limiter in list(self._limiters.values()):
            now = clock()
            # The other part lacks the tokens of a full one; a limiter that is whole and full is as good as a new one.
            if limiter.shares[0] and (limiter.shares[0] < WHOLE or not limiter.is_full(now)):
                yield HandedShare(limiter.scope, limiter.shares[0], limiter.hand(0, now))
        for scope, balances in self._first.kept(clock()):
            yield HandedShare(scope, WHOLE, balances, is_unmade=True)

    def over(self, clock: Callable[[], int], empty_since: int | None, *, is_orderly: bool) -> Iterator[None]:
        """Have every limit whole, as the other process has ended; a limiter in each step.

        Args:
            clock: Monotonic nanoseconds.
            empty_since: As the other process has left it, see `FirstBalances`.
            is_orderly: Whether it has left all that it had; else limiters that are made later begin empty as of now.
        """
        if is_orderly and self._has_all:
            self._first.add(self._left)
        elif is_orderly:
            self._first.replace(self._left, empty_since)
        elif not self._has_all or self._handed:
            self._first.empty_at(clock())
        for limiter in list(self._limiters.values()):
            now = clock()
            if self._limiters.get(limiter.scope) is limiter and limiter.shares[0] < WHOLE:
                self._on_change(limiter, now)
                limiter.share((WHOLE, WHOLE), limiter.quota, now)
                self._serve([limiter], now)
            yield

    def _hand(self, limiter: Limiter, kept: int, now: int) -> None:
        share = limiter.shares[0]
        if not self._has_all and any(limiter.lacks(now)):
            # A part keeps the debt, which must not get lost if the other process is killed.
            kept = max(kept, share // 2)
        if share > kept:
            self._on_change(limiter, now)
            balances = limiter.hand(kept, now)
            if limiter.streams:
                self._lacking[limiter.scope] = _Looked.at(limiter, self._claim(limiter))
                self._serve([limiter], now)
            self._other.hand(HandedShare(limiter.scope, share - kept, balances))

    def _waiting(self, limiter: Limiter) -> int:
        """Return the number of streams that wait for a limiter.

        Consumers that ask for more permits count only while messages pass: idle ones ask as well. Where messages were
        rejected, at least one stream waits.
        """
        now = _Looked.at(limiter)
        before = self._lacking.get(limiter.scope, now)
        asking = sum(len(window.asking) for window in limiter.windows) if now.passed > before.passed else 0
        return len(limiter.waiters) or asking or int(now.rejected > before.rejected)

    def _claim(self, limiter: Limiter) -> int:
        looked = self._lacking.get(limiter.scope)
        return max(self._waiting(limiter), round(looked.claimed) if looked else 0)
