"""The last hour of limits in use: what each let pass, minute by minute, for whoever looks at it afterwards.

    each minute: limiters ─▶ LimitHistory.sampling, in slices ─▶ 60 samples per limit ─▶ /sluice/limiters/history

A limit gets its ring when it is in use, and keeps it until it has passed nothing for an hour. The limiter may go with
its last stream, and come back: the ring stays. Rings are floats in an array, some 900 bytes for a limit.

Where there is no room, a limit without streams makes room, the one that is idle longest. Else a group of limits that
has fewer rings than others takes one of the group with the most. The limits of a tenant's topics are a group, those of
the tenant and its namespaces another, and those of each level that spans tenants: none can take all rings.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from limiter.activity import ActivityJournal
from limiter.levels import LEVELS
from limiter.limiter import Limiter, Scope
from proxy.observe.log_lines import in_force
from proxy.slices import Slices, Work

STEP_S: Final = 60.0
"""Seconds between samples."""
SAMPLES: Final = 60
"""Samples of a limit that are kept."""
MOST_LIMITS: Final = 2000
"""Limits with a history. Where more are in use, some have none, of each group those that have come last."""
_AT_ONCE: Final = 10
"""Limits that are looked at in one unit of work."""
_LATE_S: Final = 0.9
_VALUES: Final = 3
WIDE: Final = frozenset(level.word for level in LEVELS if level.is_wide)
"""Levels whose limits are of many topics."""
LimitName = tuple[str, str, str]
"""Direction, level and name."""
_Group = tuple[bool, str]
"""Whether the limits are of wide levels, and their tenant; of limits that span tenants their level, after a slash."""


class Sample(NamedTuple):
    """A sample has what a limit let pass in about a minute.

    Attributes:
        ago_s: Seconds since the end of that minute.
        messages_per_s: Messages.
        bytes_per_s: Metered bytes.
        use: The part of the limit in force at its end that this was, of messages or of bytes, whichever was fuller.
    """

    ago_s: float
    messages_per_s: float
    bytes_per_s: float
    use: float


class _Ring:
    """The samples of one limit: three floats each, the latest last. All rings are sampled together."""

    __slots__ = ("at", "idle", "messages", "samples", "scope", "size")

    def __init__(self, scope: Scope, at: int, messages: int = 0, size: int = 0) -> None:
        self.scope = scope
        self.at = at
        self.messages, self.size = messages, size
        self.samples = array("f")
        self.idle = 0
        """Latest samples in which nothing passed."""

    def add(self, limiter: Limiter | None, now: int) -> None:
        """Add the sample that ends now; None: the limit has no stream."""
        messages, size = (0, 0) if limiter is None else (limiter.usage.messages, limiter.usage.size)
        # A limiter that comes back counts from 0.
        is_new = limiter is None or limiter.made_at > self.at or messages < self.messages or size < self.size
        seconds = (now - self.at) / 1e9
        passed = messages if is_new else messages - self.messages
        weighed = size if is_new else size - self.size
        self.at, self.messages, self.size = now, messages, size
        if seconds > 0:
            rates = passed / seconds, weighed / seconds
            self.samples.extend((*rates, 0.0 if limiter is None else _use(limiter, *rates)))
            del self.samples[: -SAMPLES * _VALUES]
            self.idle = 0 if passed or weighed else self.idle + 1


class LimitHistory:
    """Keeps the last hour of the limits in use.

    Args:
        limiters: The limits at work, by scope.
        journal: Has the limiters that have done something within the last second or so.
        slices: Bounds the work in one turn of the loop.
        clock: Monotonic nanoseconds.
        wall: Seconds since 1970.

    Attributes:
        left_out: Limits in use that had no ring at the latest sample, as there was no room.
    """

    def __init__(
        self,
        limiters: Mapping[Scope, Limiter],
        journal: ActivityJournal,
        slices: Slices,
        clock: Callable[[], int],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._limiters = limiters
        self._journal = journal
        self._slices = slices
        self._clock, self._wall = clock, wall
        self._rings: dict[LimitName, _Ring] = {}
        self._sampled_at = clock()
        self._ends: deque[int] = deque(maxlen=SAMPLES + 1)
        """When samples were taken, or are being taken, by the clock; a ring has those of the latest ones."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_sampling = False
        self.left_out = 0

    def __len__(self) -> int:
        """The number of limits with a history."""
        return len(self._rings)

    def start(self) -> None:
        """Sample from now on, in each minute of the wall clock late in a second: then the journal has the most."""
        seconds = STEP_S - self._wall() % STEP_S + _LATE_S
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def stop(self) -> None:
        """Sample no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def of(self, name: LimitName) -> tuple[Scope, list[Sample]] | None:
        """Return the scope and the samples of a limit, the oldest first; None for a limit without a history."""
        ring = self._rings.get(name)
        if ring is None:
            return None
        now, count = self._clock(), len(ring.samples) // _VALUES
        ends = [end for end in self._ends if end <= ring.at][-count:] if count else []
        values = [ring.samples[at : at + _VALUES] for at in range(0, len(ring.samples), _VALUES)]
        return ring.scope, [Sample((now - end) / 1e9, *value) for end, value in zip(ends, values, strict=True)]

    def sampling(self) -> Iterator[None]:
        """Take a sample of each limit, a unit of work in each step."""
        now, gone, groups = self._clock(), list[_Ring](), _Groups()
        self._ends.append(now)
        for number, (name, ring) in enumerate(list(self._rings.items()), 1):
            limiter = self._limiters.get(ring.scope)
            ring.add(limiter, now)
            if ring.idle >= SAMPLES:
                del self._rings[name]
            else:
                groups.add(ring.scope)
                if limiter is None or not limiter.streams:
                    gone.append(ring)
            if number % _AT_ONCE == 0:
                yield
        gone.sort(key=lambda ring: ring.idle)
        left_out = 0
        for number, limiter in enumerate(list(self._limiters.values()), 1):
            if limiter.scope[:3] not in self._rings and self._is_in_use(limiter, now):
                if len(self._rings) >= MOST_LIMITS:
                    scope = gone.pop().scope if gone else groups.latest_of_most(limiter.scope)
                    yield from self._taking(scope, groups)
                if len(self._rings) < MOST_LIMITS:
                    self._rings[limiter.scope[:3]] = self._begun(limiter, now)
                    groups.add(limiter.scope)
                else:
                    left_out += 1
            if number % _AT_ONCE == 0:
                yield
        self.left_out, self._sampled_at = left_out, now

    def _taking(self, scope: Scope | None, groups: "_Groups") -> Iterator[None]:
        """Take the ring of a limit away; a unit of work, if there is one."""
        if scope is not None:
            del self._rings[scope[:3]]
            groups.remove(scope)
            yield

    def _is_in_use(self, limiter: Limiter, now: int) -> bool:
        return limiter in self._journal.limiters or len(limiter.waiters) > 0 or not limiter.is_full(now)

    def _begun(self, limiter: Limiter, now: int) -> _Ring:
        """Return the ring of a limit, with a first sample if all its counts are of this minute."""
        usage, scope = limiter.usage, limiter.scope
        if limiter.made_at < self._sampled_at:
            return _Ring(scope, now, usage.messages, usage.size)
        ring = _Ring(scope, limiter.made_at)
        ring.add(limiter, now)
        return ring

    def _due(self) -> None:
        self.start()
        if not self._is_sampling:  # else the machine is so busy that a sample is left out
            self._is_sampling = True
            self._slices.run(Work.SCRAPES, self.sampling(), self._sampled, later=True)

    def _sampled(self) -> None:
        self._is_sampling = False


class _Groups:
    """The limits with a ring, by group, each group in the order in which its limits have got theirs."""

    def __init__(self) -> None:
        self._of: dict[_Group, dict[Scope, None]] = {}
        self._most: dict[Scope, None] | None = None
        """The group with the most; None after a change."""

    def add(self, scope: Scope) -> None:
        """Add a limit."""
        self._of.setdefault(_group(scope), {})[scope] = None
        self._most = None

    def remove(self, scope: Scope) -> None:
        """Remove a limit."""
        del self._of[_group(scope)][scope]
        self._most = None

    def latest_of_most(self, scope: Scope) -> Scope | None:
        """Return the latest limit of the group with the most; None if the group of `scope` has nearly as many."""
        most = self._most = self._most or max(self._of.values(), key=len)
        return next(reversed(most)) if len(most) > len(self._of.get(_group(scope), ())) + 1 else None


def _group(scope: Scope) -> _Group:
    return scope.level in WIDE, scope.tenant or f"/{scope.level}"


def _use(limiter: Limiter, messages_per_s: float, bytes_per_s: float) -> float:
    messages, _, size, _ = in_force(limiter)
    return max(
        0.0 if messages is None else messages_per_s / messages.per_second,
        0.0 if size is None else bytes_per_s / size.per_second,
    )
