"""The limits that a process shares with others: its share of each limit, and its demand for each.

Each process enforces its share of a limit by itself, in leased token buckets (`TokenBucket`). Who decides on the
shares is not known here: they come in by `assign`, and what they are decided by goes out by `demands`.

    streams ─use, wait─▶ Limiter ─on_activity─▶ SharedLimits ─demands─▶ whoever decides
                            ▲────── share ──────────┘◀──────── assign, renew ───┘

A limiter costs nothing here while nobody uses it: it tells of its first use after each report (`Limiter.is_quiet`), and
is looked at in reports until one has said that it is at rest.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from limiter.levels import SHAREABLE
from limiter.limiter import Limiter, LimitRates, Scope
from limiter.permits import Unit
from limiter.token_bucket import NANOS_PER_SECOND, WHOLE, Lease, Rate

UNBOUNDED = -1
"""Wanted where demand cannot be measured, as it is held back all the time."""
UNITS: tuple[Unit, Unit] = ("messages", "bytes")
_MARGIN = 1.01
"""A process wants so many times what it uses. While others wait, it gets no more than it wants, and the margin is then
lost to all: so it is small. It may be, as a process that outgrows its share waits, and its report says so.
"""
_ALWAYS = 0.95
"""Part of a span between reports: if streams waited for longer, what they could use cannot be told."""
_USED_UP = 0.8
"""Part of a share: consumers that ask for more messages may be held back by a share of which so much is used."""
_LEAST_SPAN_NS = 100_000_000
"""What is used and wanted is measured over so long at least, but for a limiter's first report: a few entries more or
less would look like another demand, and shares would never come to rest."""
LOOK_AGAIN_NS = 105_000_000
"""Demand of now can be told this long after a report that had to tell of a mixture."""
_LEAST_FALL = 32
"""Messages that had to be there in such a span: half of fewer ones may be chance."""
_LEAST_TURN = 8
"""Messages that pass or wait in it: a few that wait for the tokens of a small share would look like a great demand."""
_MILLI_NS = 10**12
"""Thousandths of a nanosecond in a second."""
RAISE_NS = 5_000_000_000
"""A raise that nobody waits for comes into force so late, and a lowering in between makes it needless. Where demand
goes up and down, far below the limit, shares would change several times a second, and with each lines of the log end.
"""
LOAN_NS = 1_000_000_000
"""A worker's loan of a shared limit ends after this time, if no more is lent."""

UnitKey = tuple[str, Unit]
"""A limiter, as `direction level name`, and a unit."""
QuotaNumbers = tuple[int, int, int, tuple[int, int, int] | None]
"""A limit of one unit, as other processes are told of it: tokens, nanoseconds of the period, burst; and the same three
of its peak, if it has one. `fleet.messages.Quota` has these four fields, in this order."""


class Demanded(NamedTuple):
    """The demand of one process for one unit of a limit.

    Attributes:
        used: Tokens that passed, in thousandths per second.
        wanted: Tokens that would be used if there were enough, likewise; or `UNBOUNDED`.
        streams: Streams that wait; at least 1 if any used or wants it.
        quota: The limit, as this process' own policies have it.
    """

    used: int
    wanted: int
    streams: int
    quota: QuotaNumbers


class _Counted:
    """What the last report said of a limiter: what it counted, and when; and of the span before that.

    Attributes:
        rate: Messages per second in that span.
        used: Messages and bytes that passed in it, thousandths of one per second.
        waited: The part of it in which streams waited.
    """

    __slots__ = ("at", "is_first", "passed", "rate", "refused", "throttled", "used", "waited")

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

    def turned_since(self, before: "_Counted", held: int) -> bool:
        """Return whether the span since `before` is a mixture: use fell to less than half, waiting began or ended."""
        span = self.at - before.at
        passed = self.passed[0] - before.passed[0]
        self.rate = passed * NANOS_PER_SECOND // span
        self.waited = (self.throttled - before.throttled) / span
        fell = 2 * self.rate < before.rate and before.rate * span >= _LEAST_FALL * NANOS_PER_SECOND
        turned = 0 < self.waited < _ALWAYS and not 0 < before.waited < _ALWAYS
        return fell or (turned and passed + held >= _LEAST_TURN)


class SharedLimits:
    """The shared limiters of one process. Given to a `Registry`, which makes the limiters of `levels` with the lease.

    Args:
        lease: While it lasts, shares earn tokens.
        levels: Levels whose limits are shared.
        clock: Monotonic nanoseconds: limiters tell of their use without the time.
        wants_now: Called when a limiter is used that was at rest, or is waited on first since the last `demands`: a
            report is worth sending at once. It may be called for each limiter, and should return quickly.
        on_raise: Called with a limiter's name and unit, and the share before and now, where a raise comes into force
            behind `assign`.

    Attributes:
        turned: What the last `demands` told of some limiter is a mixture of before and after: much less is used now, or
            waiting began or ended. Shares are right the sooner if it is called again `LOOK_AGAIN_NS` later.
    """

    def __init__(
        self,
        lease: Lease,
        levels: frozenset[str] = frozenset(SHAREABLE),
        *,
        clock: Callable[[], int],
        wants_now: Callable[[], None] = lambda: None,
        on_raise: Callable[[str, Unit, int, int], None] = lambda _limiter, _unit, _before, _after: None,
    ) -> None:
        self.lease = lease
        self.turned = False
        self._serve: Callable[[list[Limiter], int], None] = lambda _limiters, _now: None
        self._changing: Callable[[Limiter, int], None] = lambda _limiter, _now: None
        self._on_raise = on_raise
        self._levels = levels
        self._clock = clock
        self._wants_now = wants_now
        self._known: dict[str, Limiter] = {}
        self._active: dict[Limiter, _Counted] = {}
        self._units: dict[str, frozenset[Unit]] = {}
        """The units of each limiter that have been reported: who decides is to be told when they are gone."""
        self._gone: dict[UnitKey, None] = {}
        self._left: dict[Limiter, None] = {}
        """Limits in use that have lost their last stream since the last report."""
        self._raises: dict[UnitKey, tuple[int, int]] = {}
        """Shares that are not in force yet, and when they will be: the oldest first."""
        self._wanted: dict[str, None] = {}
        """Limiters that are waited on, and whose raises are to be in force now."""
        self._overlent: dict[Limiter, int] = {}
        """Limiters of which workers may use more than the share; and when that ends, if they do not answer."""

    # ---- called by whoever decides on shares

    def assign(self, limiter: str, unit: str, ppm: int, quota: QuotaNumbers | None, now: int) -> bool:
        """Put a share in force; who waits for the limiter is served.

        A raise to the double at most, of a share that is used to the half at most, is put off while nobody waits
        (`RAISE_NS`): so long it has less than it may.

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
        of: Unit = "messages" if unit == "messages" else "bytes"
        rates, key = _rates_of(quota), (limiter, of)
        quotas: LimitRates = (*rates, *known.quota[2:]) if of == "messages" else (*known.quota[:2], *rates)
        if quotas == known.quota and self._may_be_put_off(known, of, ppm):
            self._raises[key] = ppm, self._raises.get(key, (0, now + RAISE_NS))[1]
            return True
        self._raises.pop(key, None)
        self._share(known, of, ppm, quotas, now)
        return True

    def _share(self, limiter: Limiter, unit: Unit, ppm: int, quotas: LimitRates, now: int) -> None:
        messages, size = limiter.shares
        shares = (ppm, size) if unit == "messages" else (messages, ppm)
        if shares != limiter.shares or quotas != limiter.quota:
            self._changing(limiter, now)
            limiter.share(shares, quotas, now)
            self._serve([limiter], now)
            if limiter.is_overlent:
                self._overlent[limiter] = now + LOAN_NS

    def _may_be_put_off(self, limiter: Limiter, unit: Unit, ppm: int) -> bool:
        """Return whether a share is a raise that nobody needs now: half of what there is is enough, the burst, too."""
        of = UNITS.index(unit)
        share, counted, (rate, _) = limiter.shares[of], self._active.get(limiter), _own_rates(limiter)[of]
        if not share < ppm <= 2 * share or rate is None:
            return False
        if limiter.waiters or limiter.is_rejecting or any(meter.asking for meter in limiter.meters):
            return False
        return counted is None or 2 * counted.used[of] * WHOLE <= rate.per_second * 1000 * share

    def _raise(self, now: int) -> None:
        """Put the raises in force whose time has come, or that somebody waits for."""
        wanted, self._wanted = self._wanted, {}
        due = [(name, unit) for name in wanted for unit in UNITS if (name, unit) in self._raises]
        due += takewhile(lambda key: self._raises[key][1] <= now, self._raises)
        for key in dict.fromkeys(due):
            ppm, _ = self._raises.pop(key)
            name, unit = key
            limiter = self._known[name]
            before = limiter.shares[UNITS.index(unit)]
            self._share(limiter, unit, ppm, limiter.quota, now)
            self._on_raise(name, unit, before, ppm)

    def exceeds_shares(self, now: int) -> bool:
        """Return whether more than the shares in force may still be used, as workers were lent more of earlier ones.

        Who decides on shares must not hear of lowered ones before: what others are given then would come on top. A loan
        ends by itself, an entry that was released when its worker says so, or ends.
        """
        if self._overlent:
            overlent = [(one, end) for one, end in self._overlent.items() if one.is_overlent]
            self._overlent = {one: end for one, end in overlent if now < end or one.is_releasing}
        return bool(self._overlent)

    def share_in_force(self, limiter: str, unit: Unit) -> int | None:
        """Return the parts per million of a limiter, as `name_of` its scope; None if it is not known."""
        known = self._known.get(limiter)
        return None if known is None else known.shares[UNITS.index(unit)]

    def is_relative(self, limiter: str) -> bool:
        """Return whether a limiter, as `name_of` its scope, follows what is published through this process."""
        known = self._known.get(limiter)
        return known is not None and known.limit.published is not None

    def renew(self, until: int, now: int) -> None:
        """Let shares earn until `until`. If they earned nothing of late, who waits is served: alarms are far away.

        What workers have of the time before is recalled: others may have had it since.
        """
        if self.lease.renew(until, now):
            waiting = [limiter for limiter in self._active if limiter.waiters]
            for limiter in waiting:
                limiter.share(limiter.shares, limiter.quota, now)
            lent = [limiter for limiter in self._known.values() if limiter.borrowers and not limiter.waiters]
            self._serve([*waiting, *lent], now)

    def demands(self, now: int) -> tuple[dict[UnitKey, Demanded], list[UnitKey]]:
        """Return what is wanted of the limiters that were used or waited on since the last call, and those forgotten.

        A limiter that comes to rest is told of once more, with nothing used. It wants nothing then, or, where it is in
        debt or not full, next to nothing: without any share it could never be forgotten. One whose last stream has left
        is at rest at once: what it used until then, nobody will use.
        """
        self._raise(now)
        demanded = dict[UnitKey, Demanded]()
        left, self._left = self._left, {}
        self.turned = False
        for limiter, before in list(self._active.items()):
            if limiter in left and not limiter.streams:
                self._rest_of(limiter, now, demanded)
                continue
            after = _Counted(limiter, now)
            if after.at - before.at < (1 if before.is_first else _LEAST_SPAN_NS):
                continue
            held = limiter.waiters.held() if limiter.waiters else (0, 0)
            turned = after.turned_since(before, held[0])
            waited = after.waited
            self._demand_of(limiter, before, after, held, demanded)
            limiter.is_quiet = limiter.is_calm = waited == 0
            if waited == 0 and after.passed == before.passed and after.refused == before.refused:
                if not limiter.is_full(now):
                    _want_a_little(limiter, demanded)
                del self._active[limiter]
            else:
                limiter.is_quiet = False
                self.turned = self.turned or turned
                self._active[limiter] = after
        gone, self._gone = [key for key in self._gone if key not in demanded], {}
        return demanded, gone

    # ---- called by the registry

    def attach(self, serve: Callable[[list[Limiter], int], None], changing: Callable[[Limiter, int], None]) -> None:
        """Take what the registry does about changes of shares, before it makes the first limiter.

        Args:
            serve: Called with limiters whose streams are to be served, as their share has changed or may be used again.
            changing: Called with a limiter that is about to have another share, and the time.
        """
        self._serve, self._changing = serve, changing

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

    def left(self, limiter: Limiter) -> None:
        """Report that a limiter has no streams any more: others may have its share."""
        if limiter in self._active:
            self._left[limiter] = None
            self._wants_now()

    def retuned(self, limiter: Limiter, in_force: LimitRates, now: int) -> None:
        """Report a limiter that has another value; a higher one holds when who decides has answered.

        Others may have the lower one still, and then that holds for all.
        """
        if limiter.rates() != in_force:
            limiter.share(limiter.shares, in_force, now)
        self._look_at(limiter, self._clock())
        self._wants_now()

    def forgotten(self, limiter: Limiter) -> None:
        """Report a limiter that is not at work any more: others may have its share."""
        name = name_of(limiter.scope)
        if self._known.get(name) is limiter:
            del self._known[name]
            self._forget(limiter)
            self._wanted.pop(name, None)
            for unit in UNITS:
                self._raises.pop((name, unit), None)
            self._gone.update(dict.fromkeys([(name, unit) for unit in sorted(self._units.pop(name, ()))]))

    def _forget(self, limiter: Limiter) -> None:
        limiter.is_quiet = limiter.is_calm = False
        self._active.pop(limiter, None)
        self._left.pop(limiter, None)

    def _used(self, limiter: Limiter) -> None:
        if not limiter.is_quiet:  # it is in use already, and waited on only now
            limiter.is_calm = False
        if self._raises:
            self._wanted[name_of(limiter.scope)] = None
        self._look_at(limiter, self._clock())
        self._wants_now()

    def _look_at(self, limiter: Limiter, now: int) -> None:
        limiter.is_quiet = False
        if limiter not in self._active:
            self._active[limiter] = _Counted(limiter, now, is_first=True)

    def _rest_of(self, limiter: Limiter, now: int, demanded: dict[UnitKey, Demanded]) -> None:
        name, units = name_of(limiter.scope), set[Unit]()
        for unit, (rate, peak) in zip(UNITS, _own_rates(limiter), strict=True):
            if rate is not None:
                units.add(unit)
                demanded[name, unit] = Demanded(0, 0, 0, _told(rate, peak))
        self._tell_units(name, units)
        if not limiter.is_full(now):
            _want_a_little(limiter, demanded)
        limiter.is_quiet = limiter.is_calm = True
        del self._active[limiter]

    def _demand_of(
        self,
        limiter: Limiter,
        before: _Counted,
        after: _Counted,
        held: tuple[int, int],
        demanded: dict[UnitKey, Demanded],
    ) -> None:
        name, own = name_of(limiter.scope), _own_rates(limiter)
        span, waited = after.at - before.at, after.waited
        messages, size = (_per_second(after.passed[of] - before.passed[of], span) for of in range(2))
        used = after.used = messages, size
        refused = [_per_second(after.refused[of] - before.refused[of], span) for of in range(2)]
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
        self._tell_units(name, units)

    def _tell_units(self, name: str, units: set[Unit]) -> None:
        gone = self._units.get(name, frozenset()) - units
        self._gone.update(dict.fromkeys([(name, unit) for unit in sorted(gone)]))
        self._units[name] = frozenset(units)

    def _waits_for(self, limiter: Limiter, used: tuple[int, int], now: int) -> tuple[bool, bool]:
        """Tell which units make streams wait: those without a token, else the one with the greatest part used."""
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


def _own_rates(limiter: Limiter) -> tuple[tuple[Rate | None, Rate | None], tuple[Rate | None, Rate | None]]:
    """Return rate and peak of each unit, as this process has them."""
    limit = limiter.limit
    return (limit.messages, limit.peak_messages), (limit.size, limit.peak_size)


def _want_a_little(limiter: Limiter, demanded: dict[UnitKey, Demanded]) -> None:
    name = name_of(limiter.scope)
    for unit in UNITS:
        one = demanded.get((name, unit))
        if one is not None and one.wanted == 0:
            demanded[name, unit] = one._replace(wanted=1, streams=1)


def _per_second(tokens: int, span_ns: int) -> int:
    """Return thousandths of a token per second, rounded up: what is used is never told as nothing."""
    return -(-tokens * _MILLI_NS // span_ns)


def _told(rate: Rate, peak: Rate | None) -> QuotaNumbers:
    above = None if peak is None else (peak.tokens, peak.period_ns, peak.burst)
    return rate.tokens, rate.period_ns, rate.burst, above


def _rates_of(quota: QuotaNumbers | None) -> tuple[Rate | None, Rate | None]:
    if quota is None:
        return None, None
    tokens, period_ns, burst, peak = quota
    return Rate(tokens, period_ns, burst), None if peak is None else Rate(*peak)
