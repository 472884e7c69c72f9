"""The limiters at work, by what they limit."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from sys import getsizeof

from limiter.limiter import Limiter, Scope
from limiter.permit_meter import PermitMeter, horizon_of
from limiter.policies import InForce
from limiter.rates import Limit, Rate
from limiter.relative_limits import RelativeLimits
from limiter.under_way import Unit

KEPT = 1024
"""Limiters without streams that stay although they are full, for those who come again."""
LOOKED_AT = 16
"""Limiters without streams that are looked at where somebody needs room: a refused PRODUCER costs no more than that."""
LIMITER_MEMORY = 3_584
"""Bytes that a limiter takes beside its name."""
_COPIES = 4
"""Times that its name is kept: in its scope, in what the access log is to tell of it, and in what finds both."""

Kept = Callable[[str, int], None]
"""Told the address of a client (see `limiter.networks.counted_as`), and how many bytes more are kept for it."""


class Limiters:
    """Makes limiters when streams need them, gives them other values, forgets them when they are idle and full.

    A limiter of which tokens are taken stays until it is full, whoever leaves: a client that connects again gains
    nothing by it, and a batch of 100,000 messages under 1/s is owed for a day. So what limiters take is counted for the
    address of the stream that each was made for, or was taken up by last, and an address for which too much is kept may
    open no more streams: nobody's debts are forgotten for somebody else's.

    Args:
        relative: The limits that are relative to publish rates.
        retuned: Called with each that is about to have another value, and the time.
        kept: Told of each that is made or forgotten.

    Attributes:
        by_scope: All of them.
        tuned: Those that got another value while streams were within them: whoever waits there is to be woken.
    """

    def __init__(self, relative: RelativeLimits, retuned: Callable[[Limiter, int], None], kept: Kept) -> None:
        self.by_scope: dict[Scope, Limiter] = {}
        self.tuned: dict[Limiter, None] = {}
        self._most_full = KEPT
        self._kept = kept
        self._kept_for: dict[Scope, str] = {}
        self._relative = relative
        self._retuned = retuned
        self._resting: OrderedDict[Scope, None] = OrderedDict()
        """Those without streams, and some that streams have come back to."""

    def put(self, entry: InForce, topic: str, address: str, now: int) -> Limiter:
        """The limiter of what applies to a stream of `topic` whose client is at `address`, with that value in force."""
        limit = self._relative.in_force(entry.scope, entry.limit, topic, now)
        if entry.scope in self._resting:
            del self._resting[entry.scope]
            self._count(entry.scope, address)
        limiter = self.by_scope.get(entry.scope)
        if limiter is None:
            limiter = self.by_scope[entry.scope] = Limiter(entry.scope, limit, entry.source, now)
            self._count(entry.scope, address)
        elif limiter.is_observed != (limit.mode == "observe"):
            self._retuned(limiter, now)
            limiter = self._in_place_of(limiter, limit, entry.source, now)
        elif limiter.limit != limit or limiter.source != entry.source:
            self._retuned(limiter, now)
            limiter.retune(limit, entry.source, now)
            if limiter.streams:
                self.tuned[limiter] = None
        limiter.meters = _meters(limiter)
        return limiter

    def retune(self, limits: dict[Scope, Limit], now: int) -> list[Limiter]:
        """Give them values that were measured anew."""
        changed = [self.by_scope[scope] for scope in limits]
        for limiter in changed:
            self._retuned(limiter, now)
            limiter.retune(limits[limiter.scope], limiter.source, now)
            limiter.meters = _meters(limiter)
        return changed

    def take_tuned(self) -> dict[Limiter, None]:
        """What is in `tuned`, which is empty then."""
        tuned, self.tuned = self.tuned, {}
        return tuned

    def rest(self, left: Iterable[Limiter], now: int) -> list[Limiter]:
        """Streams have left these. Those without any are forgotten, as many as may be, once they are full.

        Two looks for each that begins to rest keep ahead of clients that open and close streams of ever new names.

        Returns:
            Those that are forgotten now.
        """
        resting, forgotten = self._resting, list[Limiter]()
        for limiter in left:
            if not limiter.streams and self.by_scope.get(limiter.scope) is limiter:
                resting[limiter.scope] = None
                forgotten += [one for _ in range(2) if (one := self._look_at_oldest(now, self._most_full)) is not None]
        return forgotten

    def make_room(self, now: int) -> list[Limiter]:
        """Somebody is to be refused as too much is kept: forget some that are full. Returns these."""
        looked_at = [self._look_at_oldest(now, 0) for _ in range(min(LOOKED_AT, len(self._resting)))]
        return [limiter for limiter in looked_at if limiter is not None]

    def _count(self, scope: Scope, address: str | None) -> None:
        """From now on it is kept for `address`; None: it is no longer."""
        size = memory_of(scope)
        before = self._kept_for.pop(scope, None)
        if before is not None:
            self._kept(before, -size)
        if address is not None:
            self._kept_for[scope] = address
            self._kept(address, size)

    def _look_at_oldest(self, now: int, most_full: int) -> Limiter | None:
        """Of those that rest, look at the one that nobody has looked at for longest; returns it if it is forgotten."""
        if len(self._resting) <= most_full:
            return None
        scope, _ = self._resting.popitem(last=False)
        limiter = self.by_scope[scope]
        if limiter.streams:
            return None
        if not limiter.is_idle(now):
            self._resting[scope] = None
            return None
        del self.by_scope[scope]
        self._count(scope, None)
        self._relative.forget(scope)
        return limiter

    def _in_place_of(self, old: Limiter, limit: Limit, source: str, now: int) -> Limiter:
        """A limit is only observed from now on, or no longer: who waits there must not meet who waits here."""
        limiter = self.by_scope[old.scope] = Limiter(old.scope, limit, source, now)
        limiter.inherit(old, now)
        return limiter


def memory_of(scope: Scope) -> int:
    """Bytes that its limiter takes."""
    return LIMITER_MEMORY + _COPIES * getsizeof(scope.name)


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
