"""Drains a process: its clients go on elsewhere, some at a time, before it ends.

    SERVING ─begin─▶ DELAYING ─delay─▶ MOVING ─ all have left, or timeout ─▶ DRAINED

While it is DELAYING, `/readyz` is 503 and clients are let in and served as before, also where there is none yet, until
balancers have noticed. While it is MOVING, the connections with streams leave first (`proxy/session/leaving.py`),
spread over a period, and those for lookups last: a client that has left one looks its topics up by the other.

Clients take the addresses of their service URL in turn, so some come back. These are served, and leave again a moment
later: one that was closed would wait, twice as long each time, before it tried another address. However many come, the
others leave in their time, as any stranger can connect. Where nearly all come back there is no other address: they stay
until the others have left once, and leave with the process. Shortly before its end a client that comes is closed when
it has greeted: a refused connection some clients log as an error. Where the service manager keeps the socket, it waits
in the queue for the next process instead.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Final, Generic, TypeVar

import structlog

from limiter.token_bucket import NANOS_PER_SECOND
from proxy.config.sections import Drain
from proxy.counters import Words
from proxy.policies.keys import ActionKind, Principal
from proxy.policies.store import Action
from proxy.runtime import Tasks
from proxy.server import Server
from proxy.session.engine import Engine
from proxy.session.session import Session
from proxy.slices import Work

T = TypeVar("T")

LEAST_RATE: Final = 50
"""Streams that are moved each second at least: brokers and other proxies open these in a few milliseconds."""
QUIET_NS: Final = NANOS_PER_SECOND
"""Time without a client, after which a process that all have left is drained; as long are connections for lookups kept
that clients with streams may still need."""
AGAIN_NS: Final = NANOS_PER_SECOND
"""Time for which a client that comes is served at least, in which it opens its producers and consumers."""
APART, APART_NS = 7, NANOS_PER_SECOND // 11
"""Connections that have come together leave at so many times, this far apart: a client whose connections all leave at
one moment opens its streams on another one that is about to leave."""
LEAST_BACK: Final = 12
MOST_BACK: Final = 9
"""Streams that have come back, and tenths of those that have left, from which on clients have no other address. Of two
addresses each stream takes one by chance, and each connection has some that come back."""
CLOSING_NS: Final = 2 * NANOS_PER_SECOND
"""Time before the timeout at which held entries are awaited no more, so that brokers can send their last receipts."""
PLANNED: Final = 50
"""Connections whose leaving is planned in one step."""
LOOK_S: Final = 0.02
"""Seconds between two looks at the clients that leave."""


class Phase(StrEnum):
    """The phase of a drain."""

    SERVING = "serving"
    DELAYING = "delaying"
    MOVING = "moving"
    DRAINED = "drained"


class DrainCause(StrEnum):
    """The cause of a drain."""

    SIGTERM = "SIGTERM"
    REST = "rest"
    TAKEOVER = "takeover"
    """Another process listens already: no balancer has to notice, so the first client leaves at once."""
    REPLACED = "replaced"
    """The same, by further processes with sockets of their own (`processes`); this one listens no more, so that clients
    that leave reach these alone."""


class DrainOutcome(StrEnum):
    """How a drain ended."""

    MOVED = "moved"
    """All clients have left."""
    TIME_OVER = "time_over"
    """Some clients were left at the end of `drain.timeout`."""
    ENDED = "ended"
    """A second signal ended it."""


@dataclass(frozen=True, slots=True)
class DrainTimes:
    """The times of a drain, in nanoseconds from its begin.

    Args:
        delay: Time before the first connection leaves.
        period: Time over which connections leave; fewer streams than `LEAST_RATE` a second take less.
        timeout: Time at which all is over.
    """

    delay: int
    period: int
    timeout: int

    @staticmethod
    def of(section: Drain) -> "DrainTimes":
        """Return the times that are configured."""
        return DrainTimes(
            *(round(each * NANOS_PER_SECOND) for each in (section.delay, section.period, section.timeout))
        )


class DrainPlan(Generic[T]):
    """The course of one drain: which connection leaves when, and when the drain is over. All times are nanoseconds.

    Args:
        times: The times that are configured.
        begun: The time of the begin.
        streams: Returns the number of streams of a connection.
        greets: Returns whether a connection is there, and its client has not been let in yet.

    Attributes:
        phase: The present phase.
        outcome: How the drain ended; None before.
    """

    def __init__(self, times: DrainTimes, begun: int, streams: Callable[[T], int], greets: Callable[[T], bool]) -> None:
        self.phase = Phase.DELAYING
        self.outcome: DrainOutcome | None = None
        self._times = times
        self._begun = begun
        self._streams, self._greets = streams, greets
        self._is_filled = False
        self._busy: deque[tuple[int, T]] = deque()
        """The connections with streams that have not begun to leave, each with its time, in their order."""
        self._came: deque[tuple[int, T]] = deque()
        """The connections that have come while others leave, each with the time at which it may leave."""
        self._comers = 0
        """The number of connections that have come."""
        self._staying: list[T] = []
        """Connections that have come back, as their clients have no other address."""
        self._idle: deque[T] = deque()
        """The connections without streams that have not begun to leave."""
        self._greeting: list[T] = []
        """Connections of clients that had not been let in when the leaving of all was planned."""
        self._under_way: dict[T, int] = {}
        """The connections with streams that have begun to leave, and have not ended, with the number of the streams."""
        self._gone: deque[tuple[int, int]] = deque()
        """The times at which connections have ended whose clients may come back yet, with the number of the streams."""
        self._left = self._back = 0
        """The numbers of streams that have left and had time to come back, and of those that have come."""
        self._is_hurried = False
        self._idle_at = begun
        """The time from which on those without streams may leave."""
        self._quiet_since = begun

    def look(self, now: int, connections: int, moved: int) -> None:
        """Note the time, and the state of the process.

        Args:
            now: The time.
            connections: The number of connections that are open; while others leave, of those that have greeted.
            moved: The number of connections that have left since the begin.
        """
        if self.phase is Phase.DRAINED:
            return
        if connections:
            self._quiet_since = now
        is_quiet = not connections and (not moved or now >= self._quiet_since + QUIET_NS)
        if is_quiet and now >= self._begun + self._times.delay and not self._may_be_greeted:
            self.end(DrainOutcome.MOVED)
        elif now >= self._begun + self._times.timeout:
            self.end(DrainOutcome.TIME_OVER if connections else DrainOutcome.MOVED)
        elif self.phase is Phase.DELAYING and now >= self._begun + self._times.delay:
            self.phase = Phase.MOVING

    def filling(self, connections: Iterable[T], now: int) -> Iterator[None]:
        """Plan the leaving of all connections, `PLANNED` in each step."""
        busy: list[tuple[T, int]] = []
        for number, connection in enumerate(connections, 1):
            streams = self._streams(connection)
            if streams:
                busy.append((connection, streams))
            else:
                self._idle.append(connection)
                if self._greets(connection):
                    self._greeting.append(connection)
            if number % PLANNED == 0:
                yield
        total = sum(streams for _, streams in busy)
        apart = min(NANOS_PER_SECOND // LEAST_RATE, self._times.period // max(1, total))
        before = 0
        for number, (connection, streams) in enumerate(busy, 1):
            self._busy.append((now + apart * before, connection))
            before += streams
            if number % PLANNED == 0:
                yield
        self._is_filled = True

    def came(self, connections: Iterable[T], now: int) -> None:
        """Plan the leaving of clients that have come; those that are gone, as a balancer's checks, are no matter."""
        for connection in connections:
            due = now + AGAIN_NS + self._comers % APART * APART_NS
            self._comers += 1
            self._came.append((max(due, self._came[-1][0]) if self._came else due, connection))

    def due(self, now: int) -> Iterator[T]:
        """Yield the connections whose time has come, each once.

        Those without streams come when all others have been gone for a while: clients that have left use them to look
        their topics up.
        """
        if self.phase is not Phase.MOVING:
            return
        is_late = self.is_late(now)
        while self._busy and self._busy[0][0] <= now:
            _, connection = self._busy.popleft()
            self._under_way[connection] = self._streams(connection)
            yield connection
        yield from self._due_again(now, is_late=is_late)
        if (now >= self._idle_at and not self._busy and not self._under_way) or is_late:
            while self._idle:
                yield self._idle.popleft()

    def _due_again(self, now: int, *, is_late: bool) -> Iterator[T]:
        """Yield the connections that have come back and leave again."""
        while self._gone and self._gone[0][0] <= now - AGAIN_NS - (APART - 1) * APART_NS:
            self._left += self._gone.popleft()[1]
        while self._came and (is_late or self._came[0][0] <= now):
            _, connection = self._came.popleft()
            streams = self._streams(connection)
            if streams:
                self._back += streams
                self._staying.append(connection)
            else:
                self._idle.append(connection)
        if is_late or not self._is_alone:
            staying, self._staying = self._staying, []
            self._under_way |= {connection: self._streams(connection) for connection in staying}
            yield from staying
        elif self._staying and self._is_filled and not (self._busy or self._under_way or self._came or self._gone):
            self._is_hurried = True

    @property
    def _may_be_greeted(self) -> bool:
        """Whether a client that has just come may greet yet."""
        if self.phase is Phase.MOVING and not self._is_filled:
            return True
        came = (connection for _, connection in self._came)
        return any(map(self._greets, chain(self._greeting, came)))

    @property
    def _is_alone(self) -> bool:
        """Whether clients that leave come back all the same: they have no other address."""
        return self._back >= LEAST_BACK and self._back * 10 >= self._left * MOST_BACK

    def gone(self, connection: T, now: int) -> None:
        """Note that a connection has ended that was due."""
        if connection in self._under_way:
            self._gone.append((now, self._under_way.pop(connection)))
            self._idle_at = now + QUIET_NS

    def is_late(self, now: int) -> bool:
        """Return whether held entries fit no time any more, nor clients that come."""
        closing = min(CLOSING_NS, (self._times.timeout - self._times.delay) // 4)
        return self._is_hurried or now >= self._begun + self._times.timeout - closing

    def end(self, outcome: DrainOutcome) -> None:
        """End the drain; only the first call counts."""
        if self.phase is not Phase.DRAINED:
            self.phase, self.outcome = Phase.DRAINED, outcome
            for each in (self._busy, self._came, self._staying, self._idle, self._greeting):
                each.clear()


class DrainService:
    """Drains this process, when it is asked to.

    Args:
        section: The configuration.
        engine: Closes clients that come, and counts.
        server: Has the sessions.
        note: Writes a begin and an early end into the audit log, with their author.

    Attributes:
        cause: The cause of the drain; None before.
        begun_at_ns: The time of the begin, nanoseconds since 1970.
    """

    def __init__(
        self,
        section: Drain,
        engine: Engine,
        server: Server,
        note: Callable[[Action, Principal], object] = lambda _action, _author: None,
    ) -> None:
        self._note = note
        self.cause: DrainCause | None = None
        self.begun_at_ns = 0
        self._times = DrainTimes.of(section)
        self._engine = engine
        self._server = server
        self._counters = engine.counters
        self._plan: DrainPlan[Session] | None = None
        self._leaving: dict[Session, None] = {}
        self._accepted = 0
        """The sessions that are planned, or have left."""
        self._is_looking = self._is_last = False
        """Whether the plan is looked at; whether this process ends after the drain, by a signal."""
        self._over = asyncio.Event()
        self._tasks = Tasks()

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return Phase.SERVING if self._plan is None else self._plan.phase

    @property
    def outcome(self) -> DrainOutcome | None:
        """How the drain ended; None before."""
        return None if self._plan is None else self._plan.outcome

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return sum(self._counters.connections_open.values())

    @property
    def moved(self) -> Words:
        """The numbers of `connections` and `streams` that have left."""
        return self._counters.drain_moved

    @property
    def streams(self) -> int:
        """The number of open producers and consumers."""
        return len(self._engine.registry.live())

    def summary(self) -> str | None:
        """Return the state of the drain in words; None before one."""
        if self._plan is None:
            return None
        moved, left = self.moved, f"{self.connections} connections with {self.streams} streams left"
        return f"draining ({self.cause}), {self.phase}: {moved['connections']} connections moved, {left}"

    def begin(self, cause: DrainCause, author: Principal | None = None, *, has_served: bool = True) -> None:
        """Begin to drain; only the first call counts.

        Args:
            cause: The cause.
            has_served: Whether clients were let in, so that balancers have to notice.
            author: The author of the request; None: the cause is.
        """
        self._is_last = self._is_last or cause is DrainCause.SIGTERM
        if self._plan is not None:
            structlog.get_logger().info("a drain is under way already", cause=self.cause, asked_by=cause)
            return
        self.cause, self.begun_at_ns = cause, time.time_ns()
        is_at_once = cause in {DrainCause.TAKEOVER, DrainCause.REPLACED} or not has_served
        times = replace(self._times, delay=0) if is_at_once else self._times
        self._plan = DrainPlan(times, self._engine.clock(), Session.stream_count, Session.greets)
        self._over.clear()
        self._counters.draining = 1
        seconds = {name: getattr(times, name) / NANOS_PER_SECOND for name in ("delay", "period", "timeout")}
        if self.connections:
            structlog.get_logger().info("draining", cause=cause, connections=self.connections, **seconds)
        if cause is not DrainCause.TAKEOVER:  # the next process has the audit log then, and notes it
            effect = f"began to drain: {self.connections} connections, {self.streams} producers and consumers"
            self._note(Action(ActionKind.DRAIN, "", effect), author or Principal(cause, ""))
        self._tasks.start(self._run(self._plan), "drain")

    async def over(self) -> None:
        """Return when a drain is over."""
        await self._over.wait()

    def end(self, signal: str = "SIGTERM") -> None:
        """End the drain now; before one, only note that the process ends without.

        Args:
            signal: The name of the signal that ends it.
        """
        if self.phase is not Phase.DRAINED:
            effect = f"ended at once, with {self.connections} connections that had not gone on elsewhere"
            self._note(Action(ActionKind.DRAIN, "", effect), Principal(signal, ""))
        if self._plan is not None:
            self._plan.end(DrainOutcome.ENDED)
            self._over.set()

    def cancel(self) -> None:
        """Let clients in again, as no other process serves them; those that have begun to leave come back."""
        if self._plan is not None:
            self._plan.end(DrainOutcome.ENDED)  # steps of it may be under way in slices
            self._plan, self.cause, self.begun_at_ns = None, None, 0
            self._counters.draining = 0
            self._engine.admission.open()
            leaving, self._leaving = self._leaving, {}
            for session in leaving:
                session.shut_down()

    def stop(self) -> None:
        """Do no more: the process ends."""
        self._tasks.cancel()

    async def _run(self, plan: DrainPlan[Session]) -> None:
        try:
            if self.cause is DrainCause.REPLACED:  # clients in its queues, which no other process gets, are let in
                self._accepted = self._server.accepted
                await self._server.leave_port()
            while self._plan is plan and self._look(plan):  # noqa: ASYNC110 - times, and clients, are looked at
                await asyncio.sleep(LOOK_S)
        except Exception:  # noqa: BLE001 - whatever is wrong, the process must be able to end
            structlog.get_logger().exception("drain failed")
            plan.end(DrainOutcome.ENDED)
        finally:
            if self._plan is plan:
                self._let_in_no_more()
                self._server.end_sessions()
                if self.moved or plan.outcome is not DrainOutcome.MOVED:
                    self._log_outcome(plan)
                self._over.set()

    def _look(self, plan: DrainPlan[Session]) -> bool:
        """Look at the plan, and at the clients that leave; return whether the drain goes on."""
        now, was_moving = self._engine.clock(), plan.phase is Phase.MOVING
        if was_moving and self._server.accepted > self._accepted:
            plan.came(self._server.accepted_after(self._accepted), now)
            self._accepted = self._server.accepted
        greeted = self.connections - self._counters.connections_open["handshake"]
        plan.look(now, greeted if was_moving else self._clients(), self.moved["connections"])
        if plan.phase is Phase.MOVING and not was_moving:
            if self.cause is not DrainCause.REPLACED:
                self._accepted = self._server.accepted
            first = [each for each in self._server.sessions if each.connection.connection_id <= self._accepted]
            self._is_looking = True
            self._engine.slices.run(Work.ENDINGS, plan.filling(first, now), self._looked)
        if plan.phase is Phase.MOVING and plan.is_late(now):
            self._let_in_no_more()
        if plan.phase is Phase.MOVING and not self._is_looking:
            self._is_looking = True
            self._engine.slices.run(Work.ENDINGS, self._move(plan, now), self._looked)
        return plan.phase is not Phase.DRAINED

    def _let_in_no_more(self) -> None:
        if self._is_last:  # after other drains this process goes on, or has left its queues
            self._server.leave_queues()
        self._engine.admission.close()

    def _clients(self) -> int:
        """Return the number of open connections, and of those that are accepted in this turn of the loop if it is 0."""
        return self.connections or sum(not session.has_ended for session in self._server.sessions)

    def _move(self, plan: DrainPlan[Session], now: int) -> Iterator[None]:
        """Have the clients leave whose time has come, and look at those that leave, one in each step."""
        self._leaving |= dict.fromkeys(plan.due(now))
        is_late = plan.is_late(now)
        for session in list(self._leaving):
            session.leave(is_late=is_late)
            if session.has_ended:
                self._leaving.pop(session, None)
                plan.gone(session, now)
            yield

    def _looked(self) -> None:
        self._is_looking = False

    def _log_outcome(self, plan: DrainPlan[Session]) -> None:
        moved = self.moved
        structlog.get_logger().info(
            "drained",
            outcome=plan.outcome,
            seconds=round((time.time_ns() - self.begun_at_ns) / NANOS_PER_SECOND, 1),
            connections=moved["connections"],
            streams=moved["streams"],
            refused=sum(self._counters.drain_refused.values()),
        )
