"""Shared objects of the sessions of a process that keeps the limits: the only process, or the one that has workers."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator

from limiter.activity import ActivityReader, ActivitySet
from limiter.limiter import Limiter
from limiter.policies import Change, Policies
from limiter.registry import OnKept, Registry
from limiter.scheduler import Scheduler
from limiter.shadow import ShadowLimiter
from limiter.sharing import SharedLimits
from proxy.admission_control import Admission
from proxy.brokers.targets import SiblingBrokers
from proxy.budgets import ENTRY_OVERHEAD
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.connection import Connection
from proxy.session.engine import Engine
from proxy.session.session_admission import LocalAdmission, SessionAdmission
from proxy.session.transport import PeerTransport
from proxy.slices import Slices, Work

_ENTRIES = 20
"""Entries that are released in the time of a wake-up."""
_FOLLOW = 10
"""Streams or limiters that follow a change in one unit of work."""


class LimiterTimers:
    """Timers that wake the scheduler when a limiter's tokens suffice again.

    Args:
        clock: Monotonic nanoseconds.
        counters: Count how late the timers fired.
        serve: Called with a limiter, and the time, when its timer fires; where many fire at once, in one of the next
            turns of the loop.
        slices: Bounds what is served in one turn.
    """

    def __init__(
        self, clock: Callable[[], int], counters: Counters, serve: Callable[[Limiter, int], None], slices: Slices
    ) -> None:
        self._clock = clock
        self._counters = counters
        self._slices = slices
        self._timers: dict[Limiter, asyncio.TimerHandle] = {}
        self._serve = serve

    def wake_at(self, limiter: Limiter, at_ns: int) -> None:
        """Call `serve` for `limiter` at that time; replaces the time set before."""
        known = self._timers.pop(limiter, None)
        if known is not None:
            known.cancel()
        delay = max(0, at_ns - self._clock()) / 1e9
        loop = asyncio.get_running_loop()
        self._timers[limiter] = loop.call_later(delay, self._ring, limiter, at_ns)

    def _ring(self, limiter: Limiter, at_ns: int) -> None:
        now = self._clock()
        self._timers.pop(limiter, None)
        self._counters.timer_fired(now - at_ns)
        self._slices.run(Work.RELEASES, self._serving(limiter))

    def _serving(self, limiter: Limiter) -> Iterator[None]:
        before = limiter.usage.entries
        self._serve(limiter, self._clock())
        for _ in range((limiter.usage.entries - before) // _ENTRIES):
            yield


class LimiterEngine(Engine):
    """The engine with the limits of all sessions, or of those of all workers.

    Args:
        config: The configuration.
        policies: Limits by level.
        counters: The counters of the data path.
        reader: Told when some stream has something to report to the access log.
        clock: Monotonic nanoseconds.
        shared: The limits that are shared with a fleet; None: each is this proxy's alone.
        siblings: The brokers that other members of the fleet name; None without a fleet.

    Attributes:
        kept: Called with an address and the bytes that limiters take for it; the supervisor of workers replaces it.
    """

    rate_limiter: Scheduler
    registry: Registry

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        config: Config,
        policies: Policies,
        counters: Counters,
        reader: ActivityReader,
        clock: Callable[[], int] = time.monotonic_ns,
        shared: SharedLimits | None = None,
        siblings: SiblingBrokers | None = None,
    ) -> None:
        super().__init__(config, counters, clock, siblings)
        self.journal = ActivitySet(reader.woken, reader.early, reader.cut, reader.take)
        self.rate_limiter = Scheduler(LimiterTimers(clock, counters, self._serve, self.slices).wake_at, self.journal)
        budget = config.publish.hold_connection, ENTRY_OVERHEAD
        shadow_timers = LimiterTimers(clock, counters, self._serve_shadow, self.slices)
        self._shadow = ShadowLimiter(shadow_timers.wake_at, self.journal, budget)
        self.kept: OnKept = self.memory.add
        self.registry = Registry(
            policies,
            self.rate_limiter,
            self._shadow,
            self.dispatch_rules,
            clock,
            self._kept,
            config.client_memory.total // 2,
            reader.follows,
            shared,
        )
        self.admission = Admission(config, counters, clock, policies)
        self._goes_on = False

    def session_admission(self, connection: Connection, client: PeerTransport) -> SessionAdmission:  # noqa: ARG002 - a worker's needs it
        """Return the admission of a new session: of its client, its lookups and its streams."""
        return LocalAdmission(self.admission, connection, self.refusals)

    def _serve(self, limiter: Limiter, now: int) -> None:
        self.rate_limiter.serve(limiter, now)

    def _serve_shadow(self, limiter: Limiter, now: int) -> None:
        self._shadow.scheduler.serve(limiter, now)

    def _kept(self, address: str, more: int) -> None:
        self.kept(address, more)

    def policies_changed(self, changes: Iterable[Change] | None = None, now: int | None = None) -> None:
        """Put changed policies in force on live streams, as of now; with many streams, on some of them soon after.

        Args:
            changes: The changes; None: all policies may have changed, and they are in force at once.
            now: A moment after which nothing has passed yet; None: this one.
        """
        now = self.clock() if now is None else now
        changed = None if changes is None else list(changes)
        if changed is None or any(change.about == "subscribe" for change in changed):
            self.admission.subscribe_rates_changed()
        if changed is None:
            self.registry.apply(now)
            return
        with self.slices.measure(Work.POLICIES):
            try:
                self.registry.change(changed, now)
            finally:
                self._go_on_soon()

    def _go_on_soon(self) -> None:
        """Continue with changes in slices, so that nothing waits for all streams."""
        if self.registry.is_changing and not self._goes_on:
            self._goes_on = True
            self.slices.run(Work.POLICIES, self._going_on(), later=True)

    def _going_on(self) -> Iterator[None]:
        try:
            while self.registry.is_changing:
                self.registry.go_on(self.clock(), _FOLLOW)
                yield
        except Exception:  # whatever is wrong with one stream, the others follow
            self._goes_on = False
            self._go_on_soon()
            raise
        self._goes_on = False
