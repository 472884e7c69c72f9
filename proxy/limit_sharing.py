"""The limits that two processes share while one takes over from the other, seen from either.

Both have the same policies: the one that has taken over has the store, and tells the other of each change.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import structlog

from limiter.handing import LOOK_S, HandedLimits, HandedShare
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
