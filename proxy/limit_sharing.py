"""The limits that two processes share while one takes over from the other, seen from either.

Both have the same policies: the one that has taken over has the store, and tells the other of each change.

The limits, and the file of their balances, change hands between the two (`Holding`):

    this process has them ── await_word ─▶ awaited ── give_away ─▶ the next one has a part of them, or all
            ▲                                 │                                   │
            ├────────── come_back ────────────┴─────────── come_back ─────────────┤   it failed, or was killed
            └──────────────────────────────────────────── become_whole ───────────┘   it has ended in order

    leave: at the end of this process, from each of the three
    take_over: the process before has ended, and this one has them
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import structlog

from limiter.handing import LOOK_S, HandedLimits, HandedShare
from proxy.kept_state import KeptState
from proxy.policies.keys import Principal
from proxy.policies.store import StoredChange
from proxy.runtime import Tasks
from proxy.session.engine import Engine
from proxy.slices import Work
from proxy.takeover import SocketLink

ANSWER_S: Final = 5.0
"""Seconds in which the process before takes what this one leaves, or leaves all itself."""


class LimitSharing:
    """Shares all limits of this process with another one, as `limiter/handing.py` has it.

    Args:
        engine: Has the limits.
        follow: Puts a change of a policy in force that the other process has stored.

    Attributes:
        has_left: Whether this process has given the other one all that it had, as it ends.
    """

    def __init__(self, engine: Engine, follow: Callable[[StoredChange, Principal], None]) -> None:
        self._engine = engine
        self._follow = follow
        self._looks = Tasks()
        self.has_left = False
        self._shared: tuple[SocketLink, HandedLimits] | None = None
        self._before: SocketLink | None = None
        """The link to the process that this one takes over from."""

    @property
    def is_on(self) -> bool:
        """True while another process has a part of each limit."""
        return self._shared is not None

    def begin(self, link: SocketLink, *, has_all: bool) -> None:
        """Share all limits with the process at the other end of a link; `has_all`: it takes over from this one."""
        limits = self._engine.registry.hand_over(link, has_all=has_all)
        self._shared, self._before = (link, limits), None if has_all else link
        link.share(limits, self._follow)
        self._looks.start(self._look(limits, link if has_all else None), "share limits with the other process")

    def changed(self, change: StoredChange, author: Principal) -> None:
        """Tell the process before of a change of a policy that is in force here."""
        if self._before is not None and not self._before.change(change, author):
            structlog.get_logger().warning(
                "policy changed in the new process of a takeover alone", policy=change.key.shown
            )

    async def end(self) -> None:
        """Have each limit whole, as the other process has ended; nothing once this one has left it all that it had."""
        if self._shared is not None and not self.has_left:
            over, self._shared, self._before = self._shared[0].over, None, None
            self._looks.cancel()
            registry, empty_since = self._engine.registry, None if over is None else over.empty_since
            units = registry.keep_all(self._engine.clock, empty_since, is_orderly=over is not None)
            await self._engine.slices.done(Work.POLICIES, units)

    async def leave(self) -> None:
        """Give the other process what is left of each limit: this one ends. If that one has done so, all stays here.

        Where both leave at the same time, neither has seen the other's word, and all stays with the one that has taken
        over: it waits for the other one's answer, and takes back what it has given.
        """
        self._looks.cancel()
        if self._shared is None:
            return
        link, limits = self._shared
        if link.over is None:
            self.has_left = True
            given = list[HandedShare]()
            shares = limits.leave(self._engine.clock)
            empty_since = self._engine.registry.first.empty_since
            await link.leave(shares if self._before is None else _noted(shares, given), empty_since)
            if self._before is None:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(link.has_answered.wait(), ANSWER_S)
            if link.over is None:
                return
            for share in given:
                limits.left(share, self._engine.clock())
            self.has_left = False
        await self.end()

    async def _look(self, limits: HandedLimits, awaiting: SocketLink | None) -> None:
        """Look at all limits again and again, and give the process that awaits the end of this one a sign of life."""
        while True:
            if awaiting is not None:
                awaiting.beat()
            await asyncio.sleep(LOOK_S)
            await self._engine.slices.done(Work.POLICIES, limits.look())


def _noted(shares: Iterable[HandedShare], given: list[HandedShare]) -> Iterator[HandedShare]:
    for share in shares:
        given.append(share)
        yield share


class Holding:
    """The limits of a process, and the file of their balances, which change hands as another process takes over.

    Each change waits for the one that is under way.

    Args:
        engine: Has the limits.
        sharing: Shares them with the other process.
        kept: Has the file of their balances, and the policy store.
    """

    def __init__(self, engine: Engine, sharing: LimitSharing, kept: KeptState) -> None:
        self._registry = engine.registry
        self._sharing = sharing
        self._kept = kept
        self._changing = asyncio.Lock()
        self._is_awaited = False
        """The next process has begun, and serves only when it has a part of them, or has seen the end of this one."""
        self._is_given = False
        """The process that has taken over has a part of them, or all."""
        self._is_left = False
        """They are left to the next run, in the file."""

    def await_word(self) -> None:
        """Note that the next process has begun: it awaits the word that it may serve, or the end of this one."""
        self._is_awaited = True

    async def give_away(self, link: SocketLink, on_given: Callable[[], None]) -> None:
        """Share all limits with the process that takes over, and call `on_given` before.

        It does not return once they are left: this process is about to end, and the next one will see that.
        """
        async with self._changing:
            if self._is_left:
                await asyncio.Event().wait()
            self._is_awaited, self._is_given = False, True
            on_given()
            self._sharing.begin(link, has_all=True)

    async def come_back(self, *, was_given: bool) -> bool:
        """Have each limit whole, the store and the file: the process that was to take over has ended.

        Args:
            was_given: `give_away` was called for that process.

        Returns:
            Whether the store can be used.
        """
        async with self._changing:
            self._is_awaited = False
            try:
                if was_given:
                    await self._sharing.end()
                    self._is_given = self._sharing.has_left
            finally:
                is_back = await self._kept.take_back(is_as_lent=not was_given)
                if not self._is_left:
                    await self._kept.take_back_balances()
        return is_back

    async def become_whole(self) -> None:
        """Have each limit whole, and the file: the process that had taken over has ended in order."""
        async with self._changing:
            if not self._sharing.has_left:
                await self._sharing.end()
                self._is_given = False
                await self._kept.take_back_balances()

    async def take_over(self) -> None:
        """Have each limit whole: the process before has ended."""
        async with self._changing:
            await self._sharing.end()

    async def leave(self) -> bool:
        """Leave the limits to the other process if they are shared, else to the next run, in the file.

        Returns:
            Whether the next process has begun, and goes on with what is in the file.
        """
        async with self._changing:
            await self._sharing.leave()
            if self._sharing.is_on:
                return False
            if self._is_given:  # and have come back: the process that had taken over has ended first
                await self._kept.take_back_balances()
            limiters = list(self._registry.limiters.values())
            await asyncio.to_thread(self._kept.leave_balances, limiters, is_awaited=self._is_awaited)
            self._is_left = True
            return self._is_awaited
