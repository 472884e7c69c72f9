"""A bounded amount of something that clients take: shared by their addresses, so that none of them can take it all.

The rule is the one of `shared_budget.py` (a dynamic threshold): an address gets more while it has no more than is still
free. One greedy address alone gets half, n of them get 1 / (n + 1) each, and as much is left for the next one. Beside
that each connection has a bound of its own.

    pool ┃ address a ┃ address b ┃ free ┃        a gets no more: a > free          b does: b ≤ free

Source: Choudhury & Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM ToN 6(2), 1998
"""

from collections.abc import Callable


class Pool:
    """One of a process.

    Args:
        limit: All that may be taken at once.
        per_connection: The most that one connection may take.
        make_room: Called before somebody is refused: gives back what is not needed any more.

    Attributes:
        used: What is taken.
        most: The most that has been taken at once.
        refused: How often somebody got no more.
    """

    def __init__(self, limit: int, per_connection: int, make_room: Callable[[], None] | None = None) -> None:
        self.limit = limit
        self.per_connection = per_connection
        self.used = 0
        self.most = 0
        self.refused = 0
        self.make_room = make_room
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
        address: As whom its client is counted (`limiter.networks.counted_as`).
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
        if not self._has_room(amount) and pool.make_room is not None:
            pool.make_room()
        allowed = self._has_room(amount)
        if allowed:
            self.add(amount)
        else:
            pool.refused += 1
        return allowed

    def _has_room(self, amount: int) -> bool:
        pool = self._pool
        free = pool.limit - pool.used
        return (
            self.held + amount <= pool.per_connection
            and amount <= free
            and pool.held_by(self._address) + amount <= max(free, 1)
        )

    def add(self, amount: int) -> None:
        """Take what is there in any case; negative to give back. Nothing, if the connection has ended."""
        if not self._is_over:
            self.held += amount
            self._pool.add(self._address, amount)

    def end(self) -> None:
        """The connection ends, and gives back what it still has."""
        self.add(-self.held)
        self._is_over = True
