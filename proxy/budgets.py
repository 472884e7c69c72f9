"""Bounded amounts that many take of: of one connection, shared by addresses, and shared by tenants.

All share by one rule, the dynamic threshold: who shares (an address, a tenant) gets more while it has no more than is
still free. One greedy sharer alone gets half, n of them get 1 / (n + 1) each, and as much is left for the next one.

    pool ┃ address a ┃ address b ┃ free ┃        a gets no more: a > free          b does: b ≤ free

Entries are indivisible: connections that stop at once may still have filled the budget with one large entry each. So a
tenant that holds less than an equal share of it is not over, whatever the others did. What this may take beyond the
shared part is half of it at most; the shared part is two thirds of the limit, which therefore holds.

Source: Choudhury & Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM ToN 6(2), 1998
"""

from collections.abc import Callable
from typing import Final

ENTRY_OVERHEAD: Final = 512
"""Bytes of memory that a held frame takes besides its own: tiny frames must not cost what no budget sees."""


class Budget:
    """A bounded number in two states, filling and full; full ends only when half of it is free again.

    Args:
        limit: From which on it is full. Who stops then at the next frame goes over it by one entry at most.
        turned: Called with True when it becomes full and with False when it has room again.
    """

    def __init__(self, limit: int, turned: Callable[[bool], None]) -> None:
        self.limit = limit
        self.used = 0
        self.is_full = False
        self._turned = turned

    def take(self, size: int) -> None:
        """`size` more are in use."""
        self.used += size
        if not self.is_full and self.used >= self.limit:
            self.is_full = True
            self._turned(True)

    def give(self, size: int) -> None:
        """`size` are not in use any more."""
        self.used -= size
        if self.is_full and self.used <= self.limit // 2:
            self.is_full = False
            self._turned(False)


class Pool:
    """One of a process.

    Args:
        limit: All that may be taken at once.
        per_connection: The most that one connection may take.

    Attributes:
        used: What is taken.
        most: The most that has been taken at once.
        refused: How often somebody got no more.
    """

    def __init__(self, limit: int, per_connection: int) -> None:
        self.limit = limit
        self.per_connection = per_connection
        self.used = 0
        self.most = 0
        self.refused = 0
        self._by_address: dict[str, int] = {}

    def held_by(self, address: str) -> int:
        """What all connections of one address have taken."""
        return self._by_address.get(address, 0)

    def add(self, address: str, amount: int) -> None:
        """Take (give back: a negative `amount`), without a question."""
        self.used += amount
        self.most = max(self.most, self.used)
        held = self._by_address.get(address, 0) + amount
        if held:
            self._by_address[address] = held
        else:
            self._by_address.pop(address, None)

    def used_elsewhere(self, more: int) -> None:
        """So much more (less: negative) is taken in another process, which bounds it itself."""
        self.used += more
        self.most = max(self.most, self.used)


class Claim:
    """What one connection has taken of a pool.

    Args:
        pool: Of which it is a part.
        address: As whom its client is counted (`limiter.levels.counted_as`).
    """

    __slots__ = ("_address", "_is_over", "_pool", "held")

    def __init__(self, pool: Pool, address: str) -> None:
        self.held = 0
        self._pool = pool
        self._address = address
        self._is_over = False

    def take(self, amount: int) -> bool:
        """Take `amount` more, if the connection, its address and the pool allow it; whether they do."""
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
        """Take what is there in any case; negative to give back. Nothing, if the connection has ended."""
        if not self._is_over:
            self.held += amount
            self._pool.add(self._address, amount)

    def end(self) -> None:
        """The connection ends, and gives back what it still has."""
        self.add(-self.held)
        self._is_over = True


_SWEEPS: Final = 16
"""Into so many parts the limit is divided; whenever one more of them is free, all who are over are judged anew."""
_MUCH: Final = 4 * 1024 * 1024
"""So many bytes less than there have been (or a sixteenth of the limit): then it is said that memory came free."""


class Share:
    """What one direction of one connection holds.

    Args:
        budget: Of which it is a part.
        turned: Called with True while a tenant that is over holds something here, else with False; perhaps several
            times with the same.
    """

    def __init__(self, budget: "SharedBudget", turned: Callable[[bool], None]) -> None:
        self.tenants_over = 0
        """Of how many tenants that are over it holds something."""
        self._budget = budget
        self._turned = turned
        self._last: _Part | None = None
        """Of the tenant that was last meant, as hardly a connection has streams of two."""

    def take(self, tenant: str, size: int) -> None:
        """`size` bytes more, one at least, of this tenant are held here."""
        self._budget.take(self, self._part(tenant), size)

    def give(self, tenant: str, size: int) -> None:
        """`size` bytes of this tenant are not held any more."""
        self._budget.give(self, self._part(tenant), size)

    def set_aside(self, more: int) -> None:
        """See `SharedBudget.set_aside`."""
        self._budget.set_aside(more)

    def tell(self) -> None:
        """Say how it stands now: who is told may take and give, and what was true before is not any more."""
        self._turned(self.tenants_over > 0)

    def _part(self, tenant: str) -> "_Part":
        part = self._last
        if part is None or part.held == 0 or part.account.tenant != tenant:
            part = self._last = self._budget.part(self, tenant)
        return part


class _Part:
    """What a tenant holds in one share. It is the account's while that is more than nothing.

    It does not know its share, which remembers it: the two would be gone only when Python searches for such.
    """

    __slots__ = ("account", "held")

    def __init__(self, account: "_Account") -> None:
        self.account = account
        self.held = 0


class _Account:
    """What a tenant holds, and where. It is there while that is more than nothing."""

    __slots__ = ("held", "is_over", "parts", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.held = 0
        self.is_over = False
        self.parts: dict[Share, _Part] = {}


class SharedBudget:
    """A bounded number of bytes; stops those who hold something of a tenant that is over its share.

    A tenant is judged when it takes: only then can it exceed anything. It is judged again when it gives, and when a
    sixteenth of the limit more has become free than when it was judged last; so it goes on although its own limit is
    the slowest of all. Over ends at half of what is free, or with nothing held: nobody is stopped for ever.

    Bound: `used` ≤ `limit` + one entry for each share: whose tenant is over, stops, and takes no second one. Beside
    that each share may have the rest of one read set aside, and an entry of which parts are still to come.

    Attributes:
        used: Bytes of entries that are held.
        aside: Bytes that wait for more, or for a pause to end.
        most: Of both together, the most that there have been.

    Args:
        limit: Bytes.
        turned: Called with a tenant's name, whether it is over now, and the bytes that it holds.
        freed: Called when much less is held than before.
    """

    def __init__(self, limit: int, turned: Callable[[str, bool, int], None], freed: Callable[[], None]) -> None:
        self.limit = limit
        self.used = 0
        self.aside = 0
        self.most = 0
        self._pool = max(limit * 2 // 3, 1)
        self._equal_share = self._pool
        """For one tenant more than there are."""
        self._turned = turned
        self._freed = freed
        self._most_lately = 0
        self._much = max(min(_MUCH, limit // _SWEEPS), 1)
        self._accounts: dict[str, _Account] = {}
        self._over: set[_Account] = set()
        self._sweep_at = 0

    def set_aside(self, more: int) -> None:
        """So many bytes more (less: negative) were read behind a pause, or are of an entry that has not come whole.

        They leave less free for all, and stop nobody: those are stopped already, these need to be read on.
        """
        self.aside += more
        self._note()

    def hold_elsewhere(self, more: int) -> None:
        """So many bytes more (less: negative) are held by another process, whose memory they are."""
        self.used += more
        self.most = max(self.most, self.used + self.aside)

    @property
    def memory(self) -> int:
        """Bytes that are held or set aside."""
        return self.used + self.aside

    def is_over(self, tenant: str) -> bool:
        """Whether this tenant holds too much."""
        account = self._accounts.get(tenant)
        return account is not None and account.is_over

    def part(self, share: Share, tenant: str) -> _Part:
        """What this tenant holds in this share; it may be nothing yet."""
        account = self._accounts.get(tenant) or _Account(tenant)
        return account.parts.get(share) or _Part(account)

    def take(self, share: Share, part: _Part, size: int) -> None:
        """See `Share.take`; `part` is the tenant's in that share."""
        account, before = part.account, part.held
        part.held += size
        account.held += size
        self.used += size
        self._note()
        if before == 0:
            self._accounts[account.tenant] = account
            self._share_out()
            account.parts[share] = part
            if account.is_over:
                share.tenants_over += 1
                share.tell()
        self._judge(account)

    def give(self, share: Share, part: _Part, size: int) -> None:
        """See `Share.give`; likewise."""
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
            share.tell()
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
        threshold = self._threshold()
        is_over = account.held >= (threshold // 2 + 1 if account.is_over else threshold)
        if is_over != account.is_over:
            self._turn(account, is_over=is_over)

    def _threshold(self) -> int:
        """At how many bytes a tenant is over: what is free, but an equal share at least."""
        return max(max(self._pool - self.memory, self._equal_share), 1)  # noqa: PLW3301 - of three: a call of Python

    def _share_out(self) -> None:
        self._equal_share = self._pool // (len(self._accounts) + 1)

    def _turn(self, account: _Account, *, is_over: bool) -> None:
        account.is_over = is_over
        if is_over:
            self._over.add(account)
            self._sweep_at = max(self._sweep_at, self._next_sweep())
        else:
            self._over.discard(account)
        told = list(account.parts)
        for share in told:
            share.tenants_over += 1 if is_over else -1
        self._turned(account.tenant, is_over, account.held)
        for share in told:
            share.tell()

    def _sweep(self) -> None:
        """Judge those who are over and wait, but only now and then: others give with each entry."""
        if not self._over or self.used > self._sweep_at:
            return
        self._sweep_at = self._next_sweep()
        for account in list(self._over):
            self._judge(account)

    def _next_sweep(self) -> int:
        return self.used - max(self.limit // _SWEEPS, 1)
