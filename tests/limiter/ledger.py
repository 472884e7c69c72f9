"""Records of passed and waiting entries, apart from the scheduler, and the properties that they must have."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from limiter.limiter import Limiter
from limiter.token_bucket import Limit, Rate


@dataclass(frozen=True, slots=True)
class Charge:
    """Something that passed a limiter; `entries` of it at once, if it was a chunk."""

    at: int
    messages: int
    size: int


class Ledger:
    """What passed each limit since its value was last changed, in order of time.

    A limit goes by its name, not by its limiter: one that is forgotten and made anew, or replaced when its mode
    changes, is still the same limit and owes the same. What an observed limit would have passed counts for it, too.
    """

    def __init__(self) -> None:
        self.charges: dict[Hashable, list[Charge]] = defaultdict(list)
        self.limits: dict[Hashable, Limit] = {}

    def passed(self, limits: Iterable[tuple[Hashable, Limit]], charge: Charge) -> None:
        for name, limit in limits:
            rates = replace(limit, mode="enforce")
            if self.limits.setdefault(name, rates) != rates:
                raise AssertionError("a changed limit begins a new span first")
            self.charges[name].append(charge)

    def values_changed(self) -> None:
        """Judge the spans that end now, and begin new ones."""
        self.check()
        self.charges.clear()
        self.limits.clear()

    def in_force_now(self, limits: Iterable[tuple[Hashable, Limit]]) -> None:
        """Judge all spans; those of limits that are not among these, as they were, end here. The others go on."""
        self.check()
        stay = {name: replace(limit, mode="enforce") for name, limit in limits}
        for name in [name for name, limit in self.limits.items() if stay.get(name) != limit]:
            del self.limits[name], self.charges[name]

    def check(self) -> None:
        """P2 for each limit and interval, in messages and in bytes, for the sustained rate and for the peak."""
        for name, charges in self.charges.items():
            limit = self.limits[name]
            for rate in (limit.messages, limit.peak_messages):
                if rate is not None:
                    within(rate, [(charge.at, charge.messages) for charge in charges])
            for rate in (limit.size, limit.peak_size):
                if rate is not None:
                    within(rate, [(charge.at, charge.size) for charge in charges])


def named(chain: Iterable[Limiter]) -> list[tuple[Hashable, Limit]]:
    """The limits of a chain, as the scheduler itself has them."""
    return [(limiter.scope, limiter.limit) for limiter in chain]


def capacity(rate: Rate) -> Fraction:
    """Tokens that a bucket may hold: the burst; with a small one, a token and 20 ms' worth, but not a token more."""
    late = 1 + Fraction(rate.tokens * 20_000_000, rate.period_ns)
    return max(Fraction(rate.burst), min(late, rate.burst + 1 - grain(rate)))


def grain(rate: Rate) -> Fraction:
    """The part of a token in which a bucket counts: at most the part that it earns in a nanosecond."""
    return Fraction(1, Fraction(rate.tokens, rate.period_ns).denominator)


def within(rate: Rate, passed: list[tuple[int, int]]) -> None:
    """No interval sees more than the burst, what the rate gives in it, and its last entry beyond a token.

    That is stricter than burst + rate · time + one entry, even with the room for a late look at the clock, which is
    less than a token. One walk finds the worst interval: it starts where
    what had passed before was furthest below what the rate had given.
    """
    total, worst_start = 0, None
    for at, tokens in passed:
        level = total * rate.period_ns - at * rate.tokens
        worst_start = level if worst_start is None else min(worst_start, level)
        if tokens:
            assert level + rate.period_ns - worst_start <= capacity(rate) * rate.period_ns, f"{rate} at {at}"
        total += tokens


def within_all(steps: list[tuple[int, Rate | int]]) -> None:
    """The same over rates that follow each other: what they give in an interval is their sum.

    Args:
        steps: When a rate began, or so many tokens were taken, in order; the first is a rate.
    """
    (since, rate), given, total, furthest = steps[0], Fraction(0), 0, None
    assert isinstance(rate, Rate)
    for at, step in steps:
        given, since = given + Fraction((at - since) * rate.tokens, rate.period_ns), at
        rate = step if isinstance(step, Rate) else rate
        room = total - given + capacity(rate)
        furthest = room if furthest is None else min(furthest, room)
        if step and not isinstance(step, Rate):
            assert total - given + 1 <= furthest, f"{rate} at {at}"
            total += step
