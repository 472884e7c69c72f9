"""The room for policies, in a store and on the topic of a fleet: each tenant has a bounded part.

    ┌─────────────── MOST_CHANGES ───────────────┐ ┌ MOST_BLOCKS ┐
    │ tenants, half at most │ operators, the rest │ │   blocks    │
    └───────────────────────┴─────────────────────┘ └─────────────┘

So no tenant takes another's room, all tenants together leave room for operators, and an operator can block even when
the room for limits is full.
"""

from collections import Counter
from typing import Final, NamedTuple

from proxy.policies.keys import BLOCKS, OPERATOR

MOST_CHANGES: Final = 400_000
"""Policies other than blocks, at most."""
MOST_BYTES: Final = 128 << 20
"""Bytes of these policies, at most, as `size_of` counts."""
MOST_BLOCKS: Final = 40_000
"""Blocks, at most: those that can be in force, and records of blocks that were taken back."""
MOST_BLOCK_BYTES: Final = 64 << 20
"""Bytes of blocks, at most: twice the blocks that can be in force have room with the longest names."""


class TenantShare(NamedTuple):
    """The part of one tenant: policies that its tokens set, and their bytes."""

    policies: int = 1000
    size: int = 1 << 20


def size_of(name: str, body: str | None) -> int:
    """Return about how many bytes a policy takes in memory: its objects take 300."""
    return 300 + len(name) + len(body or "")


class Room:
    """Counts policies by owner (`owner_of`), and decides whether an owner has room for more.

    Args:
        share: Each tenant's part.

    Attributes:
        counts: Policies of each owner.
        sizes: Their bytes.
    """

    def __init__(self, share: TenantShare) -> None:
        self.share = share
        self.counts: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()
        self._total = self._size = 0

    def add(self, owner: str, policies: int, size: int) -> None:
        """Add policies and bytes of an owner; negative numbers take some away."""
        self.counts[owner] += policies
        self.sizes[owner] += size
        self._total += policies
        self._size += size
        if not self.counts[owner]:
            del self.counts[owner], self.sizes[owner]

    def forget(self) -> None:
        """Forget all policies: they are counted again."""
        self.counts.clear()
        self.sizes.clear()
        self._total = self._size = 0

    @property
    def total(self) -> int:
        """The policies of all owners."""
        return self._total

    @property
    def size(self) -> int:
        """Their bytes."""
        return self._size

    @property
    def of_tenants(self) -> tuple[int, int]:
        """The policies of all tenants together, and their bytes."""
        of_others = (OPERATOR, BLOCKS)
        return (
            self._total - sum(self.counts[owner] for owner in of_others),
            self._size - sum(self.sizes[owner] for owner in of_others),
        )

    @property
    def fullest_tenant(self) -> float:
        """How full the fullest tenant's part is: 1 if it has no room left."""
        return max(map(self._own, self.counts.keys() - {OPERATOR, BLOCKS}), default=0.0)

    def _own(self, owner: str) -> float:
        return max(self.counts[owner] / self.share.policies, self.sizes[owner] / self.share.size)

    def holds(self, owner: str, policies: int, size: int) -> bool:
        """Return whether this number of policies and bytes more fits in all, without regard to an owner's part."""
        if owner == BLOCKS:
            return self.counts[BLOCKS] + policies <= MOST_BLOCKS and self.sizes[BLOCKS] + size <= MOST_BLOCK_BYTES
        total, taken = self._total - self.counts[BLOCKS], self._size - self.sizes[BLOCKS]
        return total + policies <= MOST_CHANGES and taken + size <= MOST_BYTES

    def fullness(self, owner: str) -> float:
        """Return how full an owner's room is: 1 if none is left."""
        if owner == BLOCKS:
            return max(self.counts[BLOCKS] / MOST_BLOCKS, self.sizes[BLOCKS] / MOST_BLOCK_BYTES)
        total, size = self._total - self.counts[BLOCKS], self._size - self.sizes[BLOCKS]
        of_all = max(total / MOST_CHANGES, size / MOST_BYTES)
        if owner == OPERATOR:
            return of_all
        count, size = self.of_tenants
        of_tenants = 2 * max(count / MOST_CHANGES, size / MOST_BYTES)
        return max(of_all, of_tenants, self._own(owner))

    def problem(self, owner: str, policies: int, size: int) -> str:
        """Return why an owner has no room for this number of policies and bytes more; empty if it has."""
        if not self.holds(owner, policies, size):
            return "there is no room for more: take policies back that are not needed"
        if owner in {OPERATOR, BLOCKS}:
            return ""
        count, taken = self.counts[owner], self.sizes[owner]
        if count + policies > self.share.policies or taken + size > self.share.size:
            return (
                f"tenant {owner} has {count} policies of {taken} bytes, and at most {self.share.policies} of "
                f"{self.share.size} bytes: take policies back, or raise policies.tenant_policies and .tenant_bytes"
            )
        count, taken = self.of_tenants
        if 2 * (count + policies) > MOST_CHANGES or 2 * (taken + size) > MOST_BYTES:
            return "all tenants together have half of the room, the most that they can: take policies back"
        return ""
