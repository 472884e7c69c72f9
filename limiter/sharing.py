"""The limits that a process shares with others: its share of each limit, and its demand for each.

Each process enforces its share of a limit by itself, in leased token buckets (`TokenBucket`). The *decider* divides the
limits: it calls `assign` with shares, and gets demands from `demands`. In a fleet the decider is the coordinator, and
`proxy/fleet/member_limits.py` calls both.

    streams ─use, wait─▶ Limiter ─on_activity─▶ SharedLimits ─demands─▶ decider
                            ▲────── share ──────────┘◀──────── assign, renew ──┘

A limiter that no stream uses costs nothing here. Its first use after each report calls `on_activity` (`is_quiet`), and
each `demands` measures it until it has reported that the limiter is at rest:

    at rest ─first use─▶ active: measured by each `demands` ─not used, not waited on─▶ reported once more, at rest

A limiter at rest whose bucket is not full is *filling*: it is reported once again when the bucket is full.

There may be very many limiters, so each `demands` looks at a few: first at those that were at rest. A *round* of calls
measures each active limiter once.
"""

from collections.abc import Callable
from itertools import islice, takewhile
from math import exp2
from sys import intern
from typing import NamedTuple, TypeVar

from limiter.levels import SHAREABLE
from limiter.limiter import Limiter, LimitRates, Scope
from limiter.permits import Unit
from limiter.token_bucket import NANOS_PER_SECOND, WHOLE, Lease, Rate

UNBOUNDED = -1
"""The wanted rate if it cannot be measured, as streams wait nearly all the time."""
UNITS: tuple[Unit, Unit] = ("messages", "bytes")
_ALONE: dict[Unit, tuple[Unit, ...]] = {unit: (unit,) for unit in UNITS}
_MARGIN = 1.01
"""The ratio of the wanted to the used rate. While others wait, a process gets no more than it wants, and its margin is
lost to all: so it is small. It may be small, as a process that outgrows its share waits, which its next report shows.
"""
_ALWAYS = 0.95
"""Part of the span between two reports. If streams waited for longer, the rate that they want cannot be measured."""
_USED_UP = 0.8
"""Part of a share. A share that is used beyond it may hold back consumers that ask for more messages."""
_LEAST_SPAN_NS = 100_000_000
"""The shortest span over which demand is measured, except for a limiter's first report. Over shorter spans a few more
entries would look like another demand, and shares would never come to rest."""
LOOK_AGAIN_NS = 105_000_000
"""Nanoseconds after a mixed report (`SharedLimits.is_mixed`) until the next one, which is of the new state alone."""
_LEAST_FALL = 32
"""Messages that pass in a span, at least, for a fall to less than half to count: with fewer ones it may be chance."""
_LEAST_TURN = 8
"""Messages that pass or wait in a span, at least, for the begin or end of waiting to count: a few that wait for the
tokens of a small share would look like a great demand."""
_MILLI_NS = 10**12
"""Thousandths of a nanosecond in a second."""
RAISE_NS = 5_000_000_000
"""The delay of a raise that no stream waits for; a lowering before its end cancels the raise. Else shares would change
several times a second where demand goes up and down far below the limit, and each change ends lines of the log.
"""
_HALVED_NS, _MANY_HALVED_NS, _FEW = 5_000_000_000, 2_000_000_000, 4
MOST_MEASURED = 30
"""Active limiters that each `demands` measures, at most: a millisecond of work."""
_MOST_FIRST = 20
"""Of these, those that were at rest, or have lost their last stream; the others have the rest of the place."""
_MOST_OTHERS = 30
"""Raises that each `demands` puts in force, gone units that it returns, outdated limiters that it drops, at most."""
_FILLING_LOOKED_AT = 200
"""Filling limiters that each round looks at, at most."""

_Key = TypeVar("_Key")
UnitKey = tuple[str, str, Unit]
"""A unit of a limiter, the same in all processes: the limiter's direction and level, as `publish topic`, its name, and
the unit. `fleet.messages.ShareKey` has these three. They are not joined to a longer name, as there may be many."""
QuotaNumbers = tuple[int, int, int, tuple[int, int, int] | None]
"""A limit of one unit, as reports have it: tokens, nanoseconds of the period, burst; and the same three of its peak, if
it has one. `fleet.messages.Quota` has these four fields, in this order."""


class Demanded(NamedTuple):
    """The demand of one process for one unit of a limit.

    Attributes:
        used: Tokens that passed, in thousandths per second.
        wanted: Tokens that would pass if there were enough, in thousandths per second; or `UNBOUNDED`.
        streams: The number of streams that wait, or waited not long ago; at least 1 if `wanted` is not 0.
        quota: The limit, as this process' own policies have it.
    """

    used: int
    wanted: int
    streams: int
    quota: QuotaNumbers


class _Counted:
    """The counts of a limiter at a report, and its rates in the span since the previous report.

    Attributes:
        at: When the counts were read.
        claimed: As `claimed`.
        is_first: The limiter was at rest, and not reported since: the counts are those of its first use.
        passed: Messages and bytes that have passed, in all.
        refused: Messages and bytes that were refused, in all.
        throttled: Nanoseconds in which streams waited, in all.
        rate: Messages per second in the span.
        used: Messages and bytes that passed in the span, in thousandths of one per second.
        waited: The part of the span in which streams waited, 0 to 1.
    """

    __slots__ = ("at", "claimed", "is_first", "passed", "rate", "refused", "throttled", "used", "waited")

    def __init__(self, limiter: Limiter, now: int, *, is_first: bool = False) -> None:
        self.is_first = is_first
        usage = limiter.usage
        self.at = now
        self.passed = usage.messages, usage.size
        self.refused = usage.rejected_messages, usage.rejected_size
        self.throttled = usage.throttled.read(now)
        self.rate = 0
        self.used = 0, 0
        self.waited = 0.0
        self.claimed: float = 0

    def is_mixed_since(self, before: "_Counted", held: int) -> bool:
        """Set the rates of the span since `before`, and return whether the span is mixed.

        A span is mixed if use fell to less than half in it, or if waiting began or ended in it.

        Args:
            before: The counts at the previous report.
            held: Messages that streams hold now.
        """
        span = self.at - before.at
        passed = self.passed[0] - before.passed[0]
        self.rate = passed * NANOS_PER_SECOND // span
        self.waited = (self.throttled - before.throttled) / span
        fell = 2 * self.rate < before.rate and before.rate * span >= _LEAST_FALL * NANOS_PER_SECOND
        turned = 0 < self.waited < _ALWAYS and not 0 < before.waited < _ALWAYS
        return fell or (turned and passed + held >= _LEAST_TURN)


class SharedLimits:
    """The shared limiters of one process. A `Registry` makes the limiters of `levels` with the lease of this object.

    Args:
        lease: The lease of all shares: they earn tokens while it lasts.
        levels: Levels whose limits are shared.
        clock: Monotonic nanoseconds, for the activity of limiters.
        on_urgent: Called when a report is worth sending at once: a limiter is used that was at rest, or a stream waits
            on one for the first time since the last `demands`. It may be called for each limiter, and should return
            quickly.
        on_raise: Called with the key of a limiter's unit, and the previous and the present share, when a raise comes
            into force later than its `assign`.

    Attributes:
        is_mixed: The last round measured some limiter over two states: its use fell, or waiting began or ended. Shares
            are right sooner if another one begins `LOOK_AGAIN_NS` later.
    """

    def __init__(
        self,
        lease: Lease,
        levels: frozenset[str] = frozenset(SHAREABLE),
        *,
        clock: Callable[[], int],
        on_urgent: Callable[[], None] = lambda: None,
        on_raise: Callable[[UnitKey, int, int], None] = lambda _key, _before, _after: None,
    ) -> None:
        self.lease = lease
        self.is_mixed = False
        self._serve: Callable[[list[Limiter], int], None] = lambda _limiters, _now: None
        self._on_change: Callable[[Limiter, int], None] = lambda _limiter, _now: None
        self._on_raise = on_raise
        self._levels = levels
        self._clock = clock
        self._on_urgent = on_urgent
        self.on_activity = self._used  # one object for all limiters
        self._limiters: dict[str, dict[str, Limiter]] = {}
        """Limiters by direction and level, and by name."""
        self._active: dict[Limiter, _Counted] = {}
        """Those that were measured last come last."""
        self._unmeasured = 0
        """Active limiters that this round still has to measure, the first ones of `_active`."""
        self._first_used: dict[Limiter, None] = {}
        """Active limiters that were at rest and are not measured yet."""
        self._waiting_again: dict[Limiter, None] = {}
        """Active limiters whose streams are to be served, as a lease has begun again."""
        self._filling: dict[Limiter, None] = {}
        """Limiters at rest whose buckets are not full, in the order of their last check."""
        self._outdated: dict[Limiter, None] = {}
        """Limiters without streams whose values may have changed; see `outdated`."""
        self._gone: dict[UnitKey, None] = {}
        self._left: dict[Limiter, None] = {}
        """Active limiters that have lost their last stream since the last report."""
        self._raises: dict[UnitKey, tuple[int, int]] = {}
        """Delayed raises: the share, and when it comes into force; the oldest first."""
        self._waited_on: dict[Limiter, None] = {}
        """Limiters whose raises come into force at the next report, as a stream waits for them."""

    # ---- called by the decider

    def assign(self, key: UnitKey, ppm: int, quota: QuotaNumbers | None, now: int) -> bool:
        """Put a share in force, and serve the streams that wait for the limiter.

        A raise is delayed (`RAISE_NS`) while no stream waits, if it at most doubles the share and at most half of that
        is used. Until then the process passes less than it may.

        Args:
            key: The limiter and the unit.
            ppm: Parts per million, 0 to `WHOLE`.
            quota: The lower limit of another process, which holds for all; None: this process' own holds.
            now: Monotonic nanoseconds.

        Returns:
            Whether the limiter exists. Else the share is void: a limiter of this name that is made later has none.

        Raises:
            ValueError: If `ppm` is no share, or the unit no unit.
        """
        unit = key[2]
        if not 0 <= ppm <= WHOLE or unit not in UNITS:
            raise ValueError(f"a share is 0 to {WHOLE} of messages or bytes, not {ppm} of {unit}")
        limiter = self._limiter(key)
        if limiter is None:
            return False
        rates = _rates_of(quota)
        quotas: LimitRates = (*rates, *limiter.quota[2:]) if unit == "messages" else (*limiter.quota[:2], *rates)
        if quotas == limiter.quota and self._may_be_delayed(limiter, unit, ppm):
            self._raises[key] = ppm, self._raises.get(key, (0, now + RAISE_NS))[1]
            return True
        self._raises.pop(key, None)
        self._share(limiter, unit, ppm, quotas, now)
        return True

    def _share(self, limiter: Limiter, unit: Unit, ppm: int, quotas: LimitRates, now: int) -> None:
        messages, size = limiter.shares
        shares = (ppm, size) if unit == "messages" else (messages, ppm)
        if shares != limiter.shares or quotas != limiter.quota:
            self._on_change(limiter, now)
            limiter.share(shares, quotas, now)
            self._serve([limiter], now)

    def _may_be_delayed(self, limiter: Limiter, unit: Unit, ppm: int) -> bool:
        """Return whether a share is a raise that no stream needs now: half of the rate and burst in force is enough.

        A limiter that streams wait for in each span between reports needs the raise: its waits call no `on_activity`.
        """
        index = UNITS.index(unit)
        share, counted, (rate, _) = limiter.shares[index], self._active.get(limiter), _own_rates(limiter)[index]
        if not share < ppm <= 2 * share or rate is None:
            return False
        waits = limiter.waiters or not limiter.is_calm  # now, or since the previous report
        if waits or limiter.is_rejecting or any(window.asking for window in limiter.windows):
            return False
        return counted is None or 2 * counted.used[index] * WHOLE <= rate.per_second * 1000 * share

    def _raise(self, now: int) -> None:
        """Put the raises in force that are due, or that a stream waits for."""
        keys = [key_of(limiter.scope, unit) for limiter in _taken(self._waited_on, _MOST_OTHERS) for unit in UNITS]
        due = [key for key in keys if key in self._raises]
        due += takewhile(lambda key: self._raises[key][1] <= now, islice(self._raises, _MOST_OTHERS))
        for key in dict.fromkeys(due):
            ppm, _ = self._raises.pop(key)
            kind, name, unit = key
            limiter = self._limiters[kind][name]
            before = limiter.shares[UNITS.index(unit)]
            self._share(limiter, unit, ppm, limiter.quota, now)
            self._on_raise(key, before, ppm)

    def share_in_force(self, key: UnitKey) -> int | None:
        """Return the share in force, in millionths; None if there is no such limiter."""
        limiter = self._limiter(key)
        return None if limiter is None else limiter.shares[UNITS.index(key[2])]

    def find(self, direction: str, level: str, name: str) -> Limiter | None:
        """Return the shared limiter of a name; None if there is none."""
        return self._limiters.get(f"{direction} {level}", {}).get(name)

    def is_relative(self, key: UnitKey) -> bool:
        """Return whether a limit is relative to the publish rate through this process."""
        limiter = self._limiter(key)
        return limiter is not None and limiter.limit.published is not None

    def _limiter(self, key: UnitKey) -> Limiter | None:
        kind, name, _ = key
        return self._limiters.get(kind, {}).get(name)

    def renew(self, until: int, now: int) -> None:
        """Let shares earn until `until`.

        If the lease had ended, waiting streams are served, by this and by each `demands`: their timers were set for a
        time without tokens.
        """
        if self.lease.renew(until, now) and until > now:
            self._waiting_again = dict.fromkeys(self._active)
            self._serve_again(now)

    def _serve_again(self, now: int) -> None:
        waiting = [limiter for limiter in _taken(self._waiting_again, MOST_MEASURED) if limiter.waiters]
        for limiter in waiting:
            limiter.share(limiter.shares, limiter.quota, now)
        if waiting:
            self._serve(waiting, now)

    @property
    def has_more(self) -> bool:
        """Whether `demands` should be called again soon, to go on with this round.

        Limiters that are used first during a round have their own: else there would be no end while many begin.
        """
        return bool(self._unmeasured or self._left or self._gone or self._outdated or self._waiting_again)

    def demands(self, now: int) -> tuple[dict[UnitKey, Demanded], list[UnitKey]]:
        """Go on with the round of before, or begin one; return demands of some limiters, and some units that are gone.

        These are the demands for limiters that were used or waited on. While `has_more`, other calls should follow.

        The share of a unit that is gone is void: others may have it. A unit may be gone and also have a demand, if its
        limiter was forgotten and made again since. The new limiter has no share yet.

        A limiter that comes to rest is reported once more: nothing used, nothing wanted. If its bucket is not full, it
        wants next to nothing instead: without any share the bucket would never fill, and the limiter could never be
        forgotten. When the bucket is full, it is reported again, and wants nothing: else it would keep a part of the
        burst for ever, and much of the rate of a very low limit. A limiter whose last stream has left is at rest at
        once, whatever it used until then.
        """
        self._raise(now)
        self._serve_again(now)
        demanded = dict[UnitKey, Demanded]()
        self._drop_outdated()
        if not self._unmeasured:
            self._unmeasured, self.is_mixed = len(self._active), False
            self._check_filling(now, demanded)
        first = [*islice(self._left, _MOST_FIRST // 2), *_taken(self._first_used, _MOST_FIRST // 2)]
        others = list(islice(self._active, min(self._unmeasured, MOST_MEASURED - len(first))))
        self._unmeasured -= len(others)
        for limiter in dict.fromkeys([*first, *others]):
            self._measure(limiter, now, demanded)
        self._unmeasured = min(self._unmeasured, len(self._active))
        if not self._active:
            self._active = {}  # an emptied dict keeps its memory
        gone = [*[key for key in demanded if self._gone.pop(key, self) is None], *_taken(self._gone, _MOST_OTHERS)]
        for key in gone:
            self.assign(key, 0, None, now)
        return demanded, gone

    def _measure(self, limiter: Limiter, now: int, demanded: dict[UnitKey, Demanded]) -> None:
        """Put the demand of a limiter into `demanded`. It becomes the last of the active ones, or is at rest."""
        self._first_used.pop(limiter, None)
        has_left = self._left.pop(limiter, self) is None
        before = self._active.pop(limiter, None)
        if before is None:
            return
        if has_left and not limiter.streams:
            self._rest_of(limiter, now, demanded)
            return
        if now - before.at < (1 if before.is_first else _LEAST_SPAN_NS):
            self._active[limiter] = before
            return
        after = _Counted(limiter, now)
        held = limiter.waiters.held() if limiter.waiters else (0, 0)
        is_mixed = after.is_mixed_since(before, held[0])
        waited = after.waited
        self._demand_of(limiter, before, after, held, demanded)
        if waited == 0:
            limiter.expect_use()
        else:
            limiter.waited()
        if waited == 0 and after.passed == before.passed and after.refused == before.refused:
            if not limiter.is_full(now):
                self._want_a_little(limiter, demanded)
        else:
            limiter.used()
            self.is_mixed = self.is_mixed or is_mixed
            self._active[limiter] = after

    # ---- called by the registry

    def attach(self, serve: Callable[[list[Limiter], int], None], on_change: Callable[[Limiter, int], None]) -> None:
        """Set the registry's callbacks for changes of shares. The registry calls this before it makes a limiter.

        Registry and shared limits call each other, and the decider is made with the shared limits, before the registry.

        Args:
            serve: Called with limiters whose share has changed or may be used again: serves their waiting streams.
            on_change: Called with a limiter that is about to have another share, and the time.
        """
        self._serve, self._on_change = serve, on_change

    def is_shared(self, scope: Scope) -> bool:
        """Return whether limits of this scope are shared."""
        return scope.level in self._levels

    def made(self, limiter: Limiter, now: int) -> None:
        """Take a limiter that was made with `lease` and `on_activity`. It replaces the limiter of the same name."""
        kind, name = _kind_of(limiter.scope), limiter.scope.name
        limiters = self._limiters.setdefault(kind, {})
        replaced = limiters.pop(name, None)
        if replaced is not None:
            limiter.shared_units = replaced.shared_units
            self._forget(replaced)
        limiters[name] = limiter
        limiter.expect_use()
        if replaced is not None:
            self._activate(limiter, now)

    def left(self, limiter: Limiter) -> None:
        """Note that a limiter has no streams any more: other processes may have its share."""
        if limiter in self._active:
            self._left[limiter] = None
            self._on_urgent()

    def outdated(self, limiter: Limiter) -> None:
        """Note that a limiter without streams may have an outdated value, which its next stream will update.

        Until then it has no part of the limit: of different values the lowest holds in all processes, so an outdated
        one would hold in others for as long as no stream comes.
        """
        if limiter.shared_units:
            self._outdated[limiter] = None
            self._on_urgent()

    def retuned(self, limiter: Limiter, in_force: LimitRates, now: int) -> None:
        """Note that a limiter has another value. A higher one holds only when the decider has answered.

        Other processes may still have the lower value, which then holds for all.

        Args:
            limiter: The limiter.
            in_force: The rates that held for it before, and hold until the answer.
            now: Monotonic nanoseconds.
        """
        if limiter.rates() != in_force:
            limiter.share(limiter.shares, in_force, now)
        self._activate(limiter, self._clock())
        self._on_urgent()

    def forgotten(self, limiter: Limiter) -> None:
        """Note that a limiter is not at work any more: other processes may have its share."""
        limiters, name = self._limiters.get(_kind_of(limiter.scope), {}), limiter.scope.name
        if limiters.get(name) is limiter:
            del limiters[name]
            self._forget(limiter)
            self._waited_on.pop(limiter, None)
            for unit in UNITS:
                self._raises.pop(key_of(limiter.scope, unit), None)
            self._set_reported(limiter, set())

    def _forget(self, limiter: Limiter) -> None:
        limiter.used()
        limiter.waited()
        self._active.pop(limiter, None)
        self._filling.pop(limiter, None)
        for of_some in (self._left, self._outdated, self._first_used, self._waiting_again):
            of_some.pop(limiter, None)

    def _used(self, limiter: Limiter) -> None:
        if not limiter.is_quiet:  # already in use; this is its first wait
            limiter.waited()
        if self._raises:
            self._waited_on[limiter] = None
        self._activate(limiter, self._clock())
        self._on_urgent()

    def _activate(self, limiter: Limiter, now: int) -> None:
        limiter.used()
        if limiter not in self._active:
            self._filling.pop(limiter, None)
            self._active[limiter] = _Counted(limiter, now, is_first=True)
            self._first_used[limiter] = None

    def _rest_of(self, limiter: Limiter, now: int, demanded: dict[UnitKey, Demanded]) -> None:
        self._set_reported(limiter, _want_nothing(limiter, demanded))
        if not limiter.is_full(now):
            self._want_a_little(limiter, demanded)
        limiter.expect_use()

    def _want_a_little(self, limiter: Limiter, demanded: dict[UnitKey, Demanded]) -> None:
        self._filling[limiter] = None
        for unit in UNITS:
            key = key_of(limiter.scope, unit)
            demand = demanded.get(key)
            if demand is not None and demand.wanted == 0:
                demanded[key] = demand._replace(wanted=1, streams=1)

    def _drop_outdated(self) -> None:
        for limiter in _taken(self._outdated, _MOST_OTHERS):
            if not limiter.streams:
                self._forget(limiter)
                limiter.expect_use()
                self._set_reported(limiter, set())

    def _check_filling(self, now: int, demanded: dict[UnitKey, Demanded]) -> None:
        for limiter in list(islice(self._filling, _FILLING_LOOKED_AT)):
            del self._filling[limiter]
            if limiter.is_full(now):
                self._set_reported(limiter, _want_nothing(limiter, demanded))
            else:
                self._filling[limiter] = None
        if not self._filling:
            self._filling = {}

    def _demand_of(
        self,
        limiter: Limiter,
        before: _Counted,
        after: _Counted,
        held: tuple[int, int],
        demanded: dict[UnitKey, Demanded],
    ) -> None:
        """Put a limiter's demand for each of its units into `demanded`.

            wanted = `UNBOUNDED`                      if streams waited nearly all the time, or consumers are held back
                     1.01 · the greater one of        else (`_MARGIN`)
                         used / (1 - part of the span in which streams waited for this unit)
                         used + refused + held, each per second

        A unit without a rate has no demand.
        """
        own = _own_rates(limiter)
        span, waited = after.at - before.at, after.waited
        messages, size = (_per_second(after.passed[index] - before.passed[index], span) for index in range(2))
        used = after.used = messages, size
        after.claimed = claimed(len(limiter.waiters), before.claimed, len(limiter.streams), span)
        refused = [_per_second(after.refused[index] - before.refused[index], span) for index in range(2)]
        waits_for = self._waits_for(limiter, used, after.at) if waited > 0 else (False, False)
        asked = {window.unit for window in limiter.windows if window.asking}
        units = set[Unit]()
        for index, unit in enumerate(UNITS):
            rate, peak = own[index]
            if rate is None:
                continue
            units.add(unit)
            part = waited if waits_for[index] else 0.0
            is_used_up = used[index] >= _USED_UP * rate.per_second * 1000 * limiter.shares[index] / WHOLE
            if part >= _ALWAYS or (unit in asked and is_used_up):
                wanted = UNBOUNDED
            else:
                backlog = _per_second(held[index], span) if waits_for[index] else 0
                wanted = int(max(used[index] / (1 - part), used[index] + refused[index] + backlog) * _MARGIN)
            claim = max(1, round(after.claimed)) if wanted else 0
            demanded[key_of(limiter.scope, unit)] = Demanded(used[index], wanted, claim, _numbers_of(rate, peak))
        self._set_reported(limiter, units)

    def _set_reported(self, limiter: Limiter, units: set[Unit]) -> None:
        """Set the units whose demand is reported; earlier ones that are missing now are gone.

        The tuple is one of few objects, as there may be many limiters.
        """
        gone = [unit for unit in limiter.shared_units if unit not in units]
        self._gone.update({key_of(limiter.scope, unit): None for unit in gone})
        limiter.shared_units = UNITS if len(units) == len(UNITS) else _ALONE[next(iter(units))] if units else ()

    def _waits_for(self, limiter: Limiter, used: tuple[int, int], now: int) -> tuple[bool, bool]:
        """Return which units make streams wait: those without a token, else the one with the greatest part used."""
        lacks = limiter.lacks(now)
        if lacks[0] or lacks[1]:
            return lacks
        messages, _, size, _ = limiter.rates()
        if messages is None or size is None:
            return messages is not None, size is not None
        by_count = used[0] / messages.per_second / max(1, limiter.shares[0])
        by_size = used[1] / size.per_second / max(1, limiter.shares[1])
        return by_count >= by_size, by_size >= by_count


def claimed(waiting: int, before: float, streams: int, span: int) -> float:
    """Return for how many streams a process claims a part of a limit: those that wait, or waited in the last seconds.

    A share that is large enough for a moment lets no stream wait. If none counted then, a process whose streams wait
    would have that share a moment later, and the two would change places again and again.

    Args:
        waiting: The streams that wait.
        before: The result a while ago. Half of these count after five seconds; many, beyond those that wait, are halved
            sooner, so that those which have all ceased to wait do not keep the share from others for long.
        streams: The number of open streams.
        span: That while, in nanoseconds.
    """
    if before <= waiting:
        return waiting
    more = max(_FEW, (before - waiting) * exp2(-span / _MANY_HALVED_NS))
    remembered = min(before * exp2(-span / _HALVED_NS), waiting + more)
    return max(waiting, min(streams, remembered))


def _taken(keys: dict[_Key, None], most: int) -> list[_Key]:
    """Remove up to `most` keys, the oldest first, and return them."""
    taken = list(islice(keys, most))
    for key in taken:
        del keys[key]
    if not keys:
        keys.clear()  # an emptied dict keeps its memory
    return taken


def key_of(scope: Scope, unit: Unit) -> UnitKey:
    """Return the key of a unit of a scope's limiter."""
    return _kind_of(scope), scope.name, unit


def _kind_of(scope: Scope) -> str:
    return intern(f"{scope.direction} {scope.level}")


def _own_rates(limiter: Limiter) -> tuple[tuple[Rate | None, Rate | None], tuple[Rate | None, Rate | None]]:
    """Return rate and peak of each unit of a limiter, as this process' own policies have them."""
    limit = limiter.limit
    return (limit.messages, limit.peak_messages), (limit.size, limit.peak_size)


def _want_nothing(limiter: Limiter, demanded: dict[UnitKey, Demanded]) -> set[Unit]:
    """Put into `demanded` that a limiter wants nothing of its units, and return the units."""
    units = set[Unit]()
    for unit, (rate, peak) in zip(UNITS, _own_rates(limiter), strict=True):
        if rate is not None:
            units.add(unit)
            demanded[key_of(limiter.scope, unit)] = Demanded(0, 0, 0, _numbers_of(rate, peak))
    return units


def _per_second(tokens: int, span_ns: int) -> int:
    """Return a rate in thousandths of a token per second, rounded up: a use is never reported as 0."""
    return -(-tokens * _MILLI_NS // span_ns)


def _numbers_of(rate: Rate, peak: Rate | None) -> QuotaNumbers:
    above = None if peak is None else (peak.tokens, peak.period_ns, peak.burst)
    return rate.tokens, rate.period_ns, rate.burst, above


def _rates_of(quota: QuotaNumbers | None) -> tuple[Rate | None, Rate | None]:
    if quota is None:
        return None, None
    tokens, period_ns, burst, peak = quota
    return Rate(tokens, period_ns, burst), None if peak is None else Rate(*peak)
