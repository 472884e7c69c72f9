"""The limiters at work, by what they limit."""

from limiter.limiter import Limiter, Scope
from limiter.permit_meter import PermitMeter, horizon_of
from limiter.policies import InForce
from limiter.rates import Limit, Rate
from limiter.relative_limits import RelativeLimits
from limiter.under_way import Unit

_SWEEP_AT = 1024


class Limiters:
    """Makes them when streams need them, gives them other values, forgets them when they are idle and full.

    Args:
        relative: The limits that are relative to publish rates.

    Attributes:
        by_scope: All of them.
        tuned: Those that got another value while streams were within them: whoever waits there is to be woken.
    """

    def __init__(self, relative: RelativeLimits) -> None:
        self.by_scope: dict[Scope, Limiter] = {}
        self.tuned: dict[Limiter, None] = {}
        self._relative = relative
        self._sweep_at = _SWEEP_AT

    def put(self, entry: InForce, topic: str, now: int) -> Limiter:
        """The limiter of what applies to a stream of `topic`, with that value in force."""
        limit = self._relative.in_force(entry.scope, entry.limit, topic, now)
        limiter = self.by_scope.get(entry.scope)
        if limiter is None:
            limiter = self.by_scope[entry.scope] = Limiter(entry.scope, limit, entry.source, now)
        elif limiter.is_observed != (limit.mode == "observe"):
            limiter = self._in_place_of(limiter, limit, entry.source, now)
        elif limiter.limit != limit or limiter.source != entry.source:
            limiter.retune(limit, entry.source, now)
            if limiter.streams:
                self.tuned[limiter] = None
        limiter.meters = _meters(limiter)
        return limiter

    def retune(self, limits: dict[Scope, Limit], now: int) -> list[Limiter]:
        """Give them values that were measured anew."""
        changed = [self.by_scope[scope] for scope in limits]
        for limiter in changed:
            limiter.retune(limits[limiter.scope], limiter.source, now)
            limiter.meters = _meters(limiter)
        return changed

    def take_tuned(self) -> dict[Limiter, None]:
        """What is in `tuned`, which is empty then."""
        tuned, self.tuned = self.tuned, {}
        return tuned

    def sweep(self, now: int) -> None:
        """Forget idle ones once in a while; never before the streams that they were made for have joined them."""
        if len(self.by_scope) < self._sweep_at:
            return
        for scope in [scope for scope, limiter in self.by_scope.items() if limiter.is_idle(now)]:
            del self.by_scope[scope]
            self._relative.forget(scope)
        self._sweep_at = max(_SWEEP_AT, 2 * len(self.by_scope))

    def _in_place_of(self, old: Limiter, limit: Limit, source: str, now: int) -> Limiter:
        """A limit is only observed from now on, or no longer: who waits there must not meet who waits here."""
        limiter = self.by_scope[old.scope] = Limiter(old.scope, limit, source, now)
        limiter.inherit(old, now)
        return limiter


def _meters(limiter: Limiter) -> tuple[PermitMeter, ...]:
    """The permit meters that a limit of deliveries needs: one for messages, one for bytes."""
    if limiter.scope.direction != "dispatch" or limiter.is_observed:
        return ()
    known = {meter.unit: meter for meter in limiter.meters}
    rates: tuple[tuple[Unit, Rate | None], ...] = (("messages", limiter.limit.messages), ("bytes", limiter.limit.size))
    for unit, rate in rates:
        if rate is None:
            known.pop(unit, None)
        else:
            known.setdefault(unit, PermitMeter(1, unit)).horizon = horizon_of(rate)
    return tuple(known.values())
