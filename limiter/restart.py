"""The balances with which the limiters of a process begin, so that its restart gives no second burst.

A process that ends in order leaves the balances of its limiters. The next one begins each limiter with its balance. A
limiter without one was full. A process that was killed leaves nothing. All limiters of the next one begin as if their
buckets had been empty when it started, and as if they had filled since. That also holds for a limiter that is made
minutes later, because the process before may have used its burst.

    ended in order       limiter with a balance: that balance, and the rate since      any other: full
    killed, or unknown   every limiter: 0 at the start, and the rate since, up to the burst

So over any number of restarts at most burst + rate * time and one entry for each restart pass. The entry is the last
one before a kill, which may leave a debt that the next process does not know.

A limiter that was empty at a start may be as good as empty at the next one. So a process that follows a killed one and
ends in order also leaves the age of that start (`empty_since`).
"""

from collections.abc import Iterable, Iterator

from limiter.limiter import LeftBalances, Limiter, Scope
from limiter.token_bucket import LeftBalance, TokenBucket

Left = dict[Scope, tuple[LeftBalances, int]]
"""Balances that limiters had, and when; monotonic nanoseconds."""


class FirstBalances:
    """The balances of limiters that are still to be made.

    Args:
        left: The balances that limiters of the process before had, by scope.
        left_at: When they had these; monotonic nanoseconds, as everywhere.
        empty_since: When the buckets of all other limiters were empty; None: all others begin full.

    Attributes:
        empty_since: As given.
    """

    def __init__(
        self, left: dict[Scope, LeftBalances] | None = None, left_at: int = 0, empty_since: int | None = None
    ) -> None:
        self.empty_since = empty_since
        self._left: Left = {scope: (balances, left_at) for scope, balances in (left or {}).items()}

    def empty_at(self, now: int) -> None:
        """Have all limiters begin as if their buckets had been empty at that time, and forget all balances."""
        self.empty_since, self._left = now, {}

    def replace(self, left: Left, empty_since: int | None) -> None:
        """Have all limiters begin with other balances, which are aged when they are used."""
        self._left, self.empty_since = left, empty_since

    def add(self, left: Left) -> None:
        """Have these limiters begin with other balances."""
        self._left.update(left)

    def take(self, scope: Scope, now: int) -> tuple[LeftBalances, int | None]:
        """Take the balances of a limiter that another process makes; None where it was full, or empty at that time."""
        left = self._left.pop(scope, None)
        aged = None if left is None else at(*left, now)
        return aged or (None,) * 4, self.empty_since if left is None else None

    def begin(self, limiter: Limiter, now: int) -> None:
        """Give a new limiter its balances. A balance is given once: a limiter that was forgotten since was full."""
        left = self._left.pop(limiter.scope, None)
        if left is not None:
            limiter.begin(*left, now)
        elif self.empty_since is not None:
            limiter.begin_empty(self.empty_since, now)

    def left(self, limiters: Iterable[Limiter], now: int) -> Iterator[tuple[Scope, LeftBalances]]:
        """Yield the balances that the next process needs: of limiters, and of those that were not made in this one."""
        for limiter in limiters:
            balances = limiter.left(now)
            if balances is not None:
                yield limiter.scope, balances
        yield from self.kept(now)

    def kept(self, now: int) -> Iterator[tuple[Scope, LeftBalances]]:
        """Yield the balances of limiters that were not made in this process, and are not full."""
        for scope, left in list(self._left.items()):
            aged = at(*left, now)
            if aged is not None:
                yield scope, aged


def at(balances: LeftBalances, since: int, now: int) -> LeftBalances | None:
    """Return the balances that buckets have `now` which had `balances` at `since`; None if all are full."""
    aged = tuple(None if balance is None else _aged(balance, since, now) for balance in balances)
    return aged if any(balance is not None for balance in aged) else None


def _aged(balance: LeftBalance, since: int, now: int) -> LeftBalance | None:
    bucket = TokenBucket(balance.rate, now)
    bucket.begin(balance, since, now)
    return bucket.left(now)
