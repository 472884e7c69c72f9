"""The limiters at work, by what they limit."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
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
FEW_DEBTS = 65_536
"""Bytes of debts that every address may have."""
MOST_DEBTS = 256 * 1024 * 1024
_COPIES = 4
"""Times that its name is kept: in its scope, in what the access log is to tell of it, and in what finds both."""

Kept = Callable[[str, int], None]
"""Told the address of a client (see `limiter.networks.counted_as`), and how many bytes more are kept for it."""


class Limiters:
    """Makes limiters when streams need them, gives them other values, forgets them when they are idle and full.

    A limiter of which tokens are taken stays until it is full, whoever leaves: a client that connects again gains
    nothing by it, and a batch of 100,000 messages under 1/s is owed for a day. So what limiters take is counted for the
    address of the stream that each was made for, or was taken up by last: while it has streams as memory of that
    client, afterwards as its debt. An address that owes more than is still free for debts may open no more streams; one
    that owes little always may. So clients that make ever new debts stop themselves, and nobody else. Only if many
    addresses together owe all that may be, a debt is forgotten for the next one: the oldest of an address that owes
    much.

    Args:
        relative: The limits that are relative to publish rates.
        retuned: Called with each that is about to have another value, and the time.
        kept: Told of each that streams take up or leave, and, with 0, when an address owes less.
        most_debts: Bytes that limiters without streams may take.

    Attributes:
        by_scope: All of them.
        tuned: Those that got another value while streams were within them: whoever waits there is to be woken.
        debts: Bytes that limiters without streams take.
        forgiven: How many were forgotten although tokens were taken of them.
    """

    def __init__(
        self,
        relative: RelativeLimits,
        retuned: Callable[[Limiter, int], None],
        kept: Kept,
        most_debts: int = MOST_DEBTS,
    ) -> None:
        self.by_scope: dict[Scope, Limiter] = {}
        self.tuned: dict[Limiter, None] = {}
        self.debts = 0
        self.forgiven = 0
        self._most_debts = most_debts
        self._debts_of: dict[str, int] = {}
        self._most_full = KEPT
        self._kept = kept
        self._kept_for: dict[Scope, str] = {}
        self._relative = relative
        self._retuned = retuned
        self._resting: OrderedDict[Scope, None] = OrderedDict()
        """Those without streams; the one that nobody has looked at for longest comes first."""

    def put(self, entry: InForce, topic: str, address: str, now: int) -> Limiter:
        """The limiter of what applies to a stream of `topic` whose client is at `address`, with that value in force."""
        limit = self._relative.in_force(entry.scope, entry.limit, topic, now)
        if entry.scope in self._resting:
            self._owe(entry.scope, -1)
            self._use(entry.scope, address)
        limiter = self.by_scope.get(entry.scope)
        if limiter is None:
            limiter = self.by_scope[entry.scope] = Limiter(entry.scope, limit, entry.source, now)
            self._use(entry.scope, address)
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
                if limiter.scope not in resting:
                    forgotten += self._forgiven_for(limiter.scope)
                    self._owe(limiter.scope, 1)
                resting[limiter.scope] = None
                forgotten += [one for _ in range(2) if (one := self._look_at_oldest(now, self._most_full)) is not None]
        return forgotten

    def make_room(self, now: int) -> list[Limiter]:
        """A client is to be refused for its debts: forget some that are paid. Returns these."""
        looked_at = [self._look_at_oldest(now, 0) for _ in range(min(LOOKED_AT, len(self._resting)))]
        return [limiter for limiter in looked_at if limiter is not None]

    def owes_too_much(self, address: str) -> bool:
        """Whether clients at an address have left more debts than are still free for debts."""
        return self._debts_of.get(address, 0) > max(self._most_debts - self.debts, FEW_DEBTS)

    def _use(self, scope: Scope, address: str) -> None:
        """A client at `address` has a stream within it, the first one."""
        self._kept_for[scope] = address
        self._kept(address, memory_of(scope))

    def _owe(self, scope: Scope, times: int) -> None:
        """It has no streams any more (1), or has some again, or is to be forgotten (-1)."""
        size, address = memory_of(scope), self._kept_for[scope]
        self.debts += times * size
        owed = self._debts_of.get(address, 0) + times * size
        if owed:
            self._debts_of[address] = owed
        else:
            del self._debts_of[address]
        if times > 0:
            self._kept(address, -size)
        else:
            del self._kept_for[scope], self._resting[scope]
            self._kept(address, 0)

    def _forgiven_for(self, scope: Scope) -> list[Limiter]:
        """Make room for one more debt, if there is none. Returns what is forgotten."""
        forgiven = list[Limiter]()
        while self._resting and self.debts + memory_of(scope) > self._most_debts:
            oldest = islice(self._resting, LOOKED_AT)
            one = max(oldest, key=lambda resting: self._debts_of[self._kept_for[resting]])
            forgiven.append(self._forget(one))
            self.forgiven += 1
        return forgiven

    def _forget(self, scope: Scope) -> Limiter:
        self._owe(scope, -1)
        self._relative.forget(scope)
        return self.by_scope.pop(scope)

    def _look_at_oldest(self, now: int, most_full: int) -> Limiter | None:
        """Of those that rest, look at the one that nobody has looked at for longest; returns it if it is forgotten."""
        if len(self._resting) <= most_full:
            return None
        scope = next(iter(self._resting))
        if self.by_scope[scope].is_idle(now):
            return self._forget(scope)
        self._resting.move_to_end(scope)
        return None

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
