"""The limits that two processes share while one takes over from the other, seen from either."""

import asyncio

from limiter.handing import LOOK_S, HandedLimits
from proxy.runtime import Tasks
from proxy.session.engine import Engine
from proxy.slices import Work
from proxy.takeover import SocketLink


class LimitSharing:
    """Shares all limits of this process with another one, as `limiter/handing.py` has it.

    Args:
        engine: Has the limits.

    Attributes:
        has_left: Whether this process has given the other one all that it had, as it ends.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looks = Tasks()
        self.has_left = False
        self._shared: tuple[SocketLink, HandedLimits] | None = None

    @property
    def is_on(self) -> bool:
        """True while another process has a part of each limit."""
        return self._shared is not None

    def begin(self, link: SocketLink, *, has_all: bool) -> None:
        """Share all limits with the process at the other end of a link; `has_all`: it takes over from this one."""
        limits = self._engine.registry.hand_over(link, has_all=has_all)
        self._shared = link, limits
        link.share(limits)
        self._looks.start(self._look(limits, link if has_all else None), "share limits with the other process")

    async def end(self) -> None:
        """Have each limit whole: the other process has ended."""
        if self._shared is not None:
            over, self._shared = self._shared[0].over, None
            self._looks.cancel()
            registry, empty_since = self._engine.registry, None if over is None else over.empty_since
            units = registry.keep_all(self._engine.clock, empty_since, is_orderly=over is not None)
            await self._engine.slices.done(Work.POLICIES, units)

    async def leave(self) -> None:
        """Give the other process what is left of each limit: this one ends. If that one has done so, all stays here."""
        self._looks.cancel()
        if self._shared is not None and self._shared[0].over is not None:
            await self.end()
        if self._shared is not None:
            link, limits = self._shared
            self.has_left = True
            await link.leave(limits.leave(self._engine.clock), self._engine.registry.first.empty_since)

    async def _look(self, limits: HandedLimits, awaiting: SocketLink | None) -> None:
        """Look at all limits again and again, and give the process that awaits the end of this one a sign of life."""
        while True:
            if awaiting is not None:
                awaiting.beat()
            await asyncio.sleep(LOOK_S)
            await self._engine.slices.done(Work.POLICIES, limits.look())
