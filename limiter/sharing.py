"""The limits that a process shares with others: which share of each it has, and what it wants of each.

Each process enforces its share of a limit by itself, in leased token buckets (`TokenBucket`). Who decides on the
shares is not known here: they come in by `assign`, and what they are decided by goes out by `demands`.

    streams ─use, wait─▶ Limiter ─on_activity─▶ SharedLimits ─demands─▶ whoever decides
                            ▲────── share ──────────┘◀──────── assign, renew ───┘

A limiter costs nothing here while nobody uses it: it tells of its first use after each report (`Limiter.is_quiet`), and
is looked at in reports until one has said that it is at rest.
"""

from collections.abc import Callable
from typing import NamedTuple

from limiter.levels import SHAREABLE
from limiter.limiter import Limiter, Quota, Scope
from limiter.permits import Unit
from limiter.rates import Rate
from limiter.token_bucket import WHOLE, Lease

UNBOUNDED = -1
"""Wanted where demand cannot be measured, as it is held back all the time."""
UNITS: tuple[Unit, Unit] = ("messages", "bytes")
_MARGIN = 1.05
_ALWAYS = 0.95
"""Part of a cycle: if streams waited for longer, what they could use cannot be told."""
_USED_UP = 0.8
_LEAST_SPAN_NS = 100_000_000
"""What is used and wanted is measured over so long at least, but for whoever begins: a few entries more or less would
look like another demand, and shares would never come to rest."""
_MILLI_NS = 10**12

Key = tuple[str, Unit]
"""A limiter, as `direction level name`, and a unit."""
Told = tuple[int, int, int, tuple[int, int, int] | None]
"""Tokens, nanoseconds of the period, burst, and the same three of the peak: a quota, as others are told of it."""


class Demanded(NamedTuple):
    """What one process wants of one unit of a limit.

    Attributes:
        used: What passed, thousandths of a token per second.
        wanted: What would be used if there were enough, likewise; or `UNBOUNDED`.
        streams: Streams that wait; at least 1 if any used or wants it.
        quota: The limit, as this process' own policies have it.
    """

    used: int
    wanted: int
    streams: int
    quota: Told


class _Counted:
    """What the last report said of a limiter: what it counted, and when."""

    __slots__ = ("at", "is_first", "passed", "refused", "throttled")

    def __init__(self, limiter: Limiter, now: int, *, is_first: bool = False) -> None:
        self.is_first = is_first
        usage = limiter.usage
        self.at = now
        self.passed = usage.messages, usage.size
        self.refused = usage.rejected_messages, usage.rejected_size
        self.throttled = usage.throttled.read(now)


class SharedLimits:
    """The shared limiters of one process. Given to a `Registry`, which makes the limiters of `levels` with the lease.

    Args:
        lease: While it lasts, shares earn tokens.
        levels: Levels whose limits are shared.
        clock: Monotonic nanoseconds: limiters tell of their use without the time.
        wants_now: Called when a limiter is used that was at rest, or is waited on first since the last `demands`: a
            report is worth sending at once. It may be called for each limiter, and should return quickly.

    Attributes:
        served: Called with limiters whose streams are to be served, as their share has changed or may be used again;
            set by the registry.
        changing: Called with a limiter that is about to have another share, and the time; set by the registry.
    """

    def __init__(
        self,
        lease: Lease,
        levels: frozenset[str] = frozenset(SHAREABLE),
        *,
        clock: Callable[[], int],
        wants_now: Callable[[], None] = lambda: None,
    ) -> None:
        self.lease = lease
        self.served: Callable[[list[Limiter], int], None] = lambda _limiters, _now: None
        self.changing: Callable[[Limiter, int], None] = lambda _limiter, _now: None
        self._levels = levels
        self._clock = clock
        self._wants_now = wants_now
        self._known: dict[str, Limiter] = {}
        self._active: dict[Limiter, _Counted] = {}
        self._told: dict[str, frozenset[Unit]] = {}
        """The units of each limiter that have been reported: who decides is to be told when they are gone."""
        self._gone: dict[Key, None] = {}

    # ---- called by whoever decides on shares

    def assign(self, limiter: str, unit: str, ppm: int, quota: Told | None, now: int) -> bool:
        """Put a share in force; who waits for the limiter is served.

        Args:
            limiter: `name_of` its scope.
            unit: `messages` or `bytes`.
            ppm: Parts per million, 0 to `WHOLE`.
            quota: A lower limit that holds for all; None: this process' own.
            now: Monotonic nanoseconds.

        Returns:
            Whether the limiter is known; a share of another one is void: a limiter made anew has none.

        Raises:
            ValueError: If `ppm` or `unit` is none.
        """
        if not 0 <= ppm <= WHOLE or unit not in UNITS:
            raise ValueError(f"a share is 0 to {WHOLE} of messages or bytes, not {ppm} of {unit}")
        known = self._known.get(limiter)
        if known is None:
            return False
        messages, size = known.shares
        shares = (ppm, size) if unit == "messages" else (messages, ppm)
        rates = _rates_of(quota)
        quotas: Quota = (*rates, *known.quota[2:]) if unit == "messages" else (*known.quota[:2], *rates)
        if shares != known.shares or quotas != known.quota:
            self.changing(known, now)
            known.share(shares, quotas, now)
            self.served([known], now)
        return True

    def renew(self, until: int, now: int) -> None:
        """Let shares earn until `until`. If they earned nothing of late, who waits is served: alarms are far away."""
        if self.lease.renew(until, now):
            waiting = [limiter for limiter in self._active if limiter.waiters]
            for limiter in waiting:
                limiter.share(limiter.shares, limiter.quota, now)
            self.served(waiting, now)

    def demands(self, now: int) -> tuple[dict[Key, Demanded], list[Key]]:
        """Return what is wanted of the limiters that were used or waited on since the last call, and those forgotten.

        A limiter that comes to rest is told of once more, with nothing used. It wants nothing then, or, where it is in
        debt or not full, next to nothing: without any share it could never be forgotten.
        """
        demanded = dict[Key, Demanded]()
        for limiter, before in list(self._active.items()):
            after = _Counted(limiter, now)
            if after.at - before.at < (1 if before.is_first else _LEAST_SPAN_NS):
                continue
            waited = (after.throttled - before.throttled) / (after.at - before.at)
            self._demand_of(limiter, before, after, waited, demanded)
            limiter.is_quiet = limiter.is_calm = waited == 0
            if waited == 0 and after.passed == before.passed and after.refused == before.refused:
                if not limiter.is_full(now):
                    _want_a_little(limiter, demanded)
                del self._active[limiter]
            else:
                limiter.is_quiet = False
                self._active[limiter] = after
        gone, self._gone = [key for key in self._gone if key not in demanded], {}
        return demanded, gone

    def share_of(self, limiter: Limiter) -> tuple[int, int]:
        """Return this process' parts per million of a limiter's messages and bytes; all of one that is not shared."""
        return limiter.shares

    # ---- called by the registry

    def is_shared(self, scope: Scope) -> bool:
        """Return whether limits of this scope are shared."""
        return scope.level in self._levels

    def made(self, limiter: Limiter, now: int) -> None:
        """Know a limiter that was made with the lease; it is the one of that name from now on."""
        name = name_of(limiter.scope)
        replaced = self._known.get(name)
        if replaced is not None:
            self._forget(replaced)
        self._known[name] = limiter
        limiter.on_activity = self._used
        limiter.is_quiet = limiter.is_calm = True
        if replaced is not None:
            self._look_at(limiter, now)

    def retuned(self, limiter: Limiter) -> None:
        """Report a limiter that has another value."""
        self._look_at(limiter, self._clock())
        self._wants_now()

    def forgotten(self, limiter: Limiter) -> None:
        """A limiter is not at work any more: who decides may give its share to others."""
        name = name_of(limiter.scope)
        if self._known.get(name) is limiter:
            del self._known[name]
            self._forget(limiter)
            self._gone.update(dict.fromkeys([(name, unit) for unit in sorted(self._told.pop(name, ()))]))

    def _forget(self, limiter: Limiter) -> None:
        limiter.is_quiet = limiter.is_calm = False
        self._active.pop(limiter, None)

    def _used(self, limiter: Limiter) -> None:
        if not limiter.is_quiet:  # it is in use already, and waited on only now
            limiter.is_calm = False
        self._look_at(limiter, self._clock())
        self._wants_now()

    def _look_at(self, limiter: Limiter, now: int) -> None:
        limiter.is_quiet = False
        if limiter not in self._active:
            self._active[limiter] = _Counted(limiter, now, is_first=True)

    def _demand_of(
        self, limiter: Limiter, before: _Counted, after: _Counted, waited: float, demanded: dict[Key, Demanded]
    ) -> None:
        name, limit = name_of(limiter.scope), limiter.limit
        span = after.at - before.at
        own = (limit.messages, limit.peak_messages), (limit.size, limit.peak_size)
        used = [_per_second(after.passed[of] - before.passed[of], span) for of in range(2)]
        refused = [_per_second(after.refused[of] - before.refused[of], span) for of in range(2)]
        held = limiter.waiters.held() if limiter.waiters else (0, 0)
        waits_for = self._waits_for(limiter, used, after.at) if waited > 0 else (False, False)
        asked = {meter.unit for meter in limiter.meters if meter.asking}
        units = set[Unit]()
        for of, unit in enumerate(UNITS):
            rate, peak = own[of]
            if rate is None:
                continue
            units.add(unit)
            part = waited if waits_for[of] else 0.0
            is_used_up = used[of] >= _USED_UP * rate.per_second * 1000 * limiter.shares[of] / WHOLE
            if part >= _ALWAYS or (unit in asked and is_used_up):
                wanted = UNBOUNDED
            else:
                backlog = _per_second(held[of], span) if waits_for[of] else 0
                wanted = int(max(used[of] / (1 - part), used[of] + refused[of] + backlog) * _MARGIN)
            streams = len(limiter.waiters) if waits_for[of] else 0
            demanded[name, unit] = Demanded(used[of], wanted, max(streams, int(wanted != 0)), _told(rate, peak))
        gone = self._told.get(name, frozenset()) - units
        self._gone.update(dict.fromkeys([(name, unit) for unit in sorted(gone)]))
        self._told[name] = frozenset(units)

    def _waits_for(self, limiter: Limiter, used: list[int], now: int) -> tuple[bool, bool]:
        """Tell which unit makes streams wait: the one without a token, else the one that is used the most of."""
        lacks = limiter.lacks(now)
        if lacks[0] or lacks[1]:
            return lacks
        messages, _, size, _ = limiter.rates()
        if messages is None or size is None:
            return messages is not None, size is not None
        by_count = used[0] / messages.per_second / max(1, limiter.shares[0])
        by_size = used[1] / size.per_second / max(1, limiter.shares[1])
        return by_count >= by_size, by_size >= by_count


def name_of(scope: Scope) -> str:
    """Return what a limiter is called among processes."""
    return f"{scope.direction} {scope.level} {scope.name}"


def _want_a_little(limiter: Limiter, demanded: dict[Key, Demanded]) -> None:
    name = name_of(limiter.scope)
    for unit in UNITS:
        one = demanded.get((name, unit))
        if one is not None and one.wanted == 0:
            demanded[name, unit] = one._replace(wanted=1, streams=1)


def _per_second(tokens: int, span_ns: int) -> int:
    """Return thousandths of a token per second, rounded up: what is used is never told as nothing."""
    return -(-tokens * _MILLI_NS // span_ns)


def _told(rate: Rate, peak: Rate | None) -> Told:
    above = None if peak is None else (peak.tokens, peak.period_ns, peak.burst)
    return rate.tokens, rate.period_ns, rate.burst, above


def _rates_of(quota: Told | None) -> tuple[Rate | None, Rate | None]:
    if quota is None:
        return None, None
    tokens, period_ns, burst, peak = quota
    return Rate(tokens, period_ns, burst), None if peak is None else Rate(*peak)
