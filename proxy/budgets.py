"""Bounded amounts with many users: memory of one connection, pools shared by addresses, budgets shared by tenants.

All are shared by one rule, the dynamic threshold: a sharer (an address, a tenant) gets more while it has no more than
is still free. One greedy sharer alone gets half, n greedy ones get 1 / (n + 1) each, and the next one finds as much.

    pool ┃ address a ┃ address b ┃ free ┃        a gets no more: a > free          b does: b ≤ free

Entries are indivisible: connections that stop at once may still have filled the budget with one large entry each. So a
tenant that holds less than an equal share of the shared part is not over, whatever the others hold. Such tenants take
at most half of the shared part beyond it. The shared part is two thirds of the limit, so the limit holds.

Source: Choudhury & Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM ToN 6(2), 1998
"""

from collections.abc import Callable, Iterator
from typing import Final

ENTRY_OVERHEAD: Final = 512
"""Bytes of memory that a held frame takes in addition to its own, so that budgets count tiny frames as well."""


class Budget:
    """A bounded number with two states, filling and full; full ends only when half of the limit is free again.

    Args:
        limit: The amount at which the budget is full. A user that then stops at the next frame exceeds it by one entry
            at most.
        on_change: Called with True when the budget becomes full and with False when it has room again.
    """

    def __init__(self, limit: int, on_change: Callable[[bool], None]) -> None:
        self.limit = limit
        self.used = 0
        self.is_full = False
        self._on_change = on_change

    def take(self, size: int) -> None:
        """Count `size` more as in use."""
        self.used += size
        if not self.is_full and self.used >= self.limit:
            self.is_full = True
            self._on_change(True)

    def give(self, size: int) -> None:
        """Count `size` as no longer in use."""
        self.used -= size
        if self.is_full and self.used <= self.limit // 2:
            self.is_full = False
            self._on_change(False)


class Pool:
    """A bounded amount that the connections of a process share, by client address.

    Args:
        limit: Most that may be taken at once.
        per_connection: Most that one connection may take.

    Attributes:
        used: The amount taken now.
        most: The largest amount that has been taken at once.
        refused: Number of refused requests for more.
    """

    def __init__(self, limit: int, per_connection: int) -> None:
        self.limit = limit
        self.per_connection = per_connection
        self.used = 0
        self.most = 0
        self.refused = 0
        self._by_address: dict[str, int] = {}

    def held_by(self, address: str) -> int:
        """Return the amount that all connections of one address have taken."""
        return self._by_address.get(address, 0)

    def add(self, address: str, amount: int) -> None:
        """Count `amount` as taken by an address (negative: given back), without a check."""
        self.used += amount
        self.most = max(self.most, self.used)
        held = self._by_address.get(address, 0) + amount
        if held:
            self._by_address[address] = held
        else:
            self._by_address.pop(address, None)


class Claim:
    """The part of a pool that one connection has taken.

    Args:
        pool: The pool.
        address: The address or network that the client is counted as (`limiter.names.counted_as`).
    """

    __slots__ = ("_address", "_is_over", "_pool", "held")

    def __init__(self, pool: Pool, address: str) -> None:
        self.held = 0
        self._pool = pool
        self._address = address
        self._is_over = False

    def take(self, amount: int) -> bool:
        """Take `amount` more if the connection, its address and the pool allow it; return whether they do."""
        pool = self._pool
        free = pool.limit - pool.used
        allowed = (
            self.held + amount <= pool.per_connection
            and amount <= free
            and pool.held_by(self._address) + amount <= max(free, 1)
        )
        if allowed:
            self.add(amount)
        else:
            pool.refused += 1
        return allowed

    def add(self, amount: int) -> None:
        """Take `amount` without a check (negative: give back); does nothing once the connection has ended."""
        if not self._is_over:
            self.held += amount
            self._pool.add(self._address, amount)

    def end(self) -> None:
        """Give back all that is taken: the connection ends."""
        self.add(-self.held)
        self._is_over = True


_SWEEPS: Final = 16
"""Parts of the limit; whenever one more part is free, all tenants that are over are judged again."""
_MUCH: Final = 4 * 1024 * 1024
"""Decrease in bytes (at most a sixteenth of the limit) after which `freed` is called."""


class Share:
    """The bytes that one direction of one connection holds in a shared budget.

    Args:
        budget: The shared budget.
        on_pause: Called with True while a tenant that is over holds something here, else with False; perhaps several
            times with the same.
    """

    def __init__(self, budget: "SharedBudget", on_pause: Callable[[bool], None]) -> None:
        self.tenants_over = 0
        """Number of tenants that are over and hold something here."""
        self._budget = budget
        self._on_pause = on_pause
        self._last: _Part | None = None
        """The part of the tenant that was last used, as hardly a connection has streams of two tenants."""

    def take(self, tenant: str, size: int) -> None:
        """Count `size` bytes more, at least one, as held here for this tenant."""
        self._budget.take(self, self._part(tenant), size)

    def give(self, tenant: str, size: int) -> None:
        """Count `size` bytes of this tenant as no longer held."""
        self._budget.give(self, self._part(tenant), size)

    def set_aside(self, more: int) -> None:
        """See `SharedBudget.set_aside`."""
        self._budget.set_aside(more)

    def report(self) -> None:
        """Report the present state; the callee may take and give, and so change the state again."""
        self._on_pause(self.tenants_over > 0)

    def _part(self, tenant: str) -> "_Part":
        part = self._last
        if part is None or part.held == 0 or part.account.tenant != tenant:
            part = self._last = self._budget.part(self, tenant)
        return part


class _Part:
    """The bytes that a tenant holds in one share. The tenant's account refers to it while there are any.

    A part does not refer to its share, which refers to it: a reference cycle would be left to Python's search for
    garbage.
    """

    __slots__ = ("account", "held")

    def __init__(self, account: "_Account") -> None:
        self.account = account
        self.held = 0


class _Account:
    """The bytes that a tenant holds, and the shares that hold them. It exists while there are any."""

    __slots__ = ("held", "is_over", "parts", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.held = 0
        self.is_over = False
        self.parts: dict[Share, _Part] = {}


class SharedBudget:
    """A bounded number of bytes; pauses the connections that hold bytes of a tenant that is over its share.

    A tenant is judged when it takes: only then can it exceed its share. It is judged again when it gives, and when a
    sixteenth of the limit more has become free since it was judged last. So it goes on even if its own limit is the
    slowest of all. A tenant is over until it holds at most half of the free bytes, or nothing: no pause lasts for ever.

    Bound: `used` ≤ `limit` + one entry for each share, as a share whose tenant is over stops and takes no second entry.
    In addition, each share may have the rest of one read set aside, and the parts of one incomplete entry.

    Attributes:
        used: Bytes of entries that are held.
        aside: Bytes that wait for more, or for a pause to end.
        most: The largest sum of both that there has been.

    Args:
        limit: Most bytes.
        on_change: Called with a tenant's name, whether it is over now, and the bytes that it holds.
        freed: Called when much less is held than before.
        in_slices: Runs an iterator whose steps report to one share each; None: shares get all reports at once. A share
            whose report waits also gets it at its next take.
    """

    def __init__(
        self,
        limit: int,
        on_change: Callable[[str, bool, int], None],
        freed: Callable[[], None],
        in_slices: Callable[[Iterator[None]], None] | None = None,
    ) -> None:
        self.limit = limit
        self.used = 0
        self.aside = 0
        self.most = 0
        self._pool = max(limit * 2 // 3, 1)
        self._equal_share = self._pool
        """An equal share for one tenant more than there are."""
        self._on_change = on_change
        self._freed = freed
        self._in_slices = in_slices
        self._most_lately = 0
        self._much = max(min(_MUCH, limit // _SWEEPS), 1)
        self._accounts: dict[str, _Account] = {}
        self._over: set[_Account] = set()
        self._sweep_at = 0

    def set_aside(self, more: int) -> None:
        """Count `more` bytes (negative: fewer) that were read before a pause, or belong to an incomplete entry.

        These bytes leave less free for all, but pause nothing: a connection with the rest of a read is paused already,
        and one with an unfinished entry must be read on.
        """
        self.aside += more
        self._note()

    @property
    def memory(self) -> int:
        """Number of bytes that are held or set aside."""
        return self.used + self.aside

    def is_over(self, tenant: str) -> bool:
        """Return whether this tenant holds too much."""
        account = self._accounts.get(tenant)
        return account is not None and account.is_over

    def part(self, share: Share, tenant: str) -> _Part:
        """Return this tenant's part in this share, which may be empty yet."""
        account = self._accounts.get(tenant) or _Account(tenant)
        return account.parts.get(share) or _Part(account)

    def take(self, share: Share, part: _Part, size: int) -> None:
        """Count bytes as held, see `Share.take`; `part` is the tenant's in that share."""
        account, before = part.account, part.held
        part.held += size
        account.held += size
        self.used += size
        self._note()
        if before == 0:
            self._accounts[account.tenant] = account
            self._share_out()
            account.parts[share] = part
            share.tenants_over += account.is_over
        self._judge(account)
        if account.is_over:
            share.report()

    def give(self, share: Share, part: _Part, size: int) -> None:
        """Count bytes as no longer held, see `Share.give`; `part` is the tenant's in that share."""
        account = part.account
        part.held -= size
        account.held -= size
        self.used -= size
        left = part.held
        if left == 0:
            del account.parts[share]
            share.tenants_over -= account.is_over
        if account.held == 0:
            del self._accounts[account.tenant]
            self._share_out()
        self._note()
        self._judge(account)
        if left == 0:
            share.report()
        self._sweep()

    def _note(self) -> None:
        memory = self.used + self.aside
        if memory > self._most_lately:
            self._most_lately = memory
            self.most = max(self.most, memory)
        elif memory <= self._most_lately - self._much:
            self._most_lately = memory
            self._freed()

    def _judge(self, account: _Account) -> None:
        """Note whether a tenant is over: it holds as much as is free, and an equal share at least."""
        free = self._pool - self.memory
        threshold = max(max(free, self._equal_share), 1)  # noqa: PLW3301 - of three: a call of Python
        is_over = account.held >= (threshold // 2 + 1 if account.is_over else threshold)
        if is_over != account.is_over:
            self._turn(account, is_over=is_over)

    def _share_out(self) -> None:
        self._equal_share = self._pool // (len(self._accounts) + 1)

    def _turn(self, account: _Account, *, is_over: bool) -> None:
        account.is_over = is_over
        if is_over:
            self._over.add(account)
            self._sweep_at = max(self._sweep_at, self._next_sweep())
        else:
            self._over.discard(account)
        shares = list(account.parts)
        for share in shares:
            share.tenants_over += 1 if is_over else -1
        self._on_change(account.tenant, is_over, account.held)
        if self._in_slices is None:
            for share in shares:
                share.report()
        else:
            self._in_slices(_reports(shares))

    def _sweep(self) -> None:
        """Judge the tenants that are over, now and then: bytes are given back with each entry."""
        if not self._over or self.used > self._sweep_at:
            return
        self._sweep_at = self._next_sweep()
        for account in list(self._over):
            self._judge(account)

    def _next_sweep(self) -> int:
        return self.used - max(self.limit // _SWEEPS, 1)


def _reports(shares: list[Share]) -> Iterator[None]:
    for share in shares:
        share.report()
        yield
