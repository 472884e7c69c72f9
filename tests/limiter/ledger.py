"""What passed and what waited, written down apart from the gate, and what must be true of it."""

from collections import defaultdict
from dataclasses import dataclass

from limiter.limiter import Limiter
from limiter.rates import Limit, Rate
from limiter.stream import Stream


@dataclass(frozen=True, slots=True)
class Charge:
    """Something that passed a limiter; `entries` of it at once, if it was a chunk."""

    at: int
    messages: int
    size: int


class Ledger:
    """Passed entries by limiter since its value was last changed, in order of time."""

    def __init__(self) -> None:
        self.charges: dict[Limiter, list[Charge]] = defaultdict(list)
        self.limits: dict[Limiter, Limit] = {}

    def passed(self, stream: Stream, charge: Charge) -> None:
        for limiter in stream.chain:
            if self.limits.setdefault(limiter, limiter.limit) != limiter.limit:
                raise AssertionError("a changed limit begins a new span first")
            self.charges[limiter].append(charge)

    def values_changed(self) -> None:
        """Judge the spans that end now, and begin new ones."""
        self.check()
        self.charges.clear()
        self.limits.clear()

    def check(self) -> None:
        """P2 for each limiter and interval, in messages and in bytes."""
        for limiter, charges in self.charges.items():
            limit = self.limits[limiter]
            if limit.messages is not None:
                within(limit.messages, [(charge.at, charge.messages) for charge in charges])
            if limit.size is not None:
                within(limit.size, [(charge.at, charge.size) for charge in charges])


def within(rate: Rate, passed: list[tuple[int, int]]) -> None:
    """No interval sees more than the burst, what the rate gives in it, and its last entry beyond a token.

    That is a little stricter than burst + rate · time + one entry. One walk finds the worst interval: it starts where
    what had passed before was furthest behind what the rate had given.
    """
    total, worst_start = 0, None
    for at, tokens in passed:
        level = total * rate.period_ns - at * rate.tokens
        worst_start = level if worst_start is None else min(worst_start, level)
        if tokens:
            assert level + rate.period_ns - worst_start <= rate.burst * rate.period_ns, f"{rate} at {at}"
        total += tokens
