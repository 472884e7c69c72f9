"""Totals since the start by namespace, by level of limits and by tenant: `counter_snapshot` adds, `/metrics` shows.

Their number is bounded: a client that names namespaces at will must not flood a scrape.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from limiter.levels import NAMESPACE, TENANT, Setting
from limiter.limiter import StreamName
from limiter.policies import Change, Policies
from limiter.token_bucket import DIRECTIONS

MOST_NAMESPACES = 1000
MOST_UNHEARD_OF = 500
"""Most namespaces without a message. A client can name any namespace, but only one that the broker has passes its
messages."""
LONGEST_NAME = 200
"""Most characters of a tenant and of a namespace; longer ones count as `_others`, so that a scrape is bounded."""
OTHERS = ("_others", "_others")
_EXPECTED: Final = 20
"""Names of settings that are looked at in one unit of work."""


class DirectionTotals:
    """Counts of one namespace in one direction since the start. `received` counts entries before limits.

    The two `would_…` count what limits in mode `observe` would have done.
    """

    __slots__ = (
        "dropped_messages",
        "passed_bytes",
        "passed_messages",
        "permits_asked",
        "permits_granted",
        "received_bytes",
        "received_messages",
        "rejected_bytes",
        "rejected_messages",
        "throttled_ns",
        "would_exceed_messages",
        "would_throttle_ns",
    )

    def __init__(self) -> None:
        self.received_messages = 0
        self.received_bytes = 0
        self.passed_messages = 0
        self.passed_bytes = 0
        self.dropped_messages = 0
        self.rejected_messages = 0
        self.rejected_bytes = 0
        self.throttled_ns = 0
        self.permits_asked = 0
        self.permits_granted = 0
        self.would_throttle_ns = 0
        self.would_exceed_messages = 0

    def add(self, changes: dict[str, int]) -> None:
        """Add the counts of one stream (`counter_snapshot.STREAM`)."""
        self.received_messages += changes["offered_messages"]
        self.received_bytes += changes["offered_bytes"]
        self.passed_messages += changes["passed_messages"]
        self.passed_bytes += changes["passed_bytes"]
        self.dropped_messages += changes["dropped_messages"]
        self.rejected_messages += changes["rejected_messages"]
        self.rejected_bytes += changes["rejected_bytes"]
        self.throttled_ns += changes["throttled_ns"]
        self.permits_asked += changes["permits_asked"]
        self.permits_granted += changes["permits_granted"]

    def add_observed(self, changes: dict[str, int]) -> None:
        """Add the counts of one stream's observed limits (`counter_snapshot.OBSERVED`)."""
        self.would_throttle_ns += changes["throttled_ns"]
        self.would_exceed_messages += changes["exceeded_messages"]


class LevelTotals:
    """Counts of all enforced limits of one level in one direction since the start."""

    __slots__ = ("rejected_messages", "throttled_ns")

    def __init__(self) -> None:
        self.rejected_messages = 0
        self.throttled_ns = 0

    def add(self, changes: dict[str, int]) -> None:
        """Add the counts of one limiter (`counter_snapshot.LIMITER`)."""
        self.rejected_messages += changes["rejected_messages"]
        self.throttled_ns += changes["throttled_ns"]


DELAY_BOUNDS_NS = tuple(1_000_000 << doublings for doublings in range(17))
"""Upper bounds by which held messages are counted: 1 ms, and each doubling up to 65.536 s."""
MOST_TENANTS = 200
"""Most tenants with delays of their own; those of all others are counted together as `_others`."""


class DelayTotals:
    """How long messages of one tenant were held before they passed, in one direction, since the start.

    Attributes:
        counts: Messages held no longer than each of `DELAY_BOUNDS_NS` and longer than the one before; the last: longer.
    """

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(DELAY_BOUNDS_NS) + 1)
        self.sum_ns = 0

    def add(self, by_bucket: Sequence[int], sum_ns: int) -> None:
        """Add counts by the buckets of `limiter.usage.bucket_of`, four of which make a doubling."""
        for bucket, messages in enumerate(by_bucket):
            self.counts[(bucket + 3) // 4] += messages
        self.sum_ns += sum_ns


class NamespaceTotals:
    """A `DirectionTotals` for each (tenant, namespace, direction); those over the bound count together as `_others`.

    Attributes:
        by_level: A `LevelTotals` for each (direction, level): both are fixed words.
        delays: A `DelayTotals` for each (tenant, direction).
    """

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str, str], DirectionTotals] = {}
        self.by_level: dict[tuple[str, str], LevelTotals] = {}
        self.delays: dict[tuple[str, str], DelayTotals] = {}

    def label(self, tenant: str, namespace: str, direction: str, *, has_messages: bool = True) -> tuple[str, str, str]:
        """Return the labels under which a namespace is counted; `has_messages`: some of its messages have come."""
        key = (tenant, namespace, direction)
        if key in self.by_name:
            return key
        most = 2 * (MOST_NAMESPACES if has_messages else MOST_UNHEARD_OF)
        if len(self.by_name) < most and len(tenant) <= LONGEST_NAME and len(namespace) <= LONGEST_NAME:
            return key
        return (*OTHERS, direction)

    def expect(self, tenant: str, namespace: str) -> None:
        """Count a tenant, and its namespace unless that is empty, from 0 on before their first stream.

        They have the places of names without a message, and half of those of tenants: where these are taken, nothing is
        expected.
        """
        for direction in DIRECTIONS:
            if len(self.delays) >= MOST_TENANTS and (tenant, direction) not in self.delays:
                continue
            if namespace and self.label(tenant, namespace, direction, has_messages=False)[:2] != OTHERS:
                self._at((tenant, namespace, direction))
            else:
                self.delays_of(tenant, direction)

    def expecting(self, policies: Policies) -> Iterator[None]:
        """Expect the tenants and namespaces that limits name, a unit of work in each step."""
        yield from self._expecting(
            (setting, name)
            for direction in DIRECTIONS
            for setting in Setting
            for name in list(policies.by_name(direction, setting))
        )
        yield from self._expecting((Setting.TENANT, name) for name in list(policies.groups_of_tenants))
        yield from self._expecting((Setting.NAMESPACE, name) for name in list(policies.groups_of_namespaces))

    def expecting_changed(self, changes: Iterable[Change]) -> Iterator[None]:
        """Expect the tenants and namespaces of changed values, a unit of work in each step."""
        return self._expecting((change.setting, change.name) for change in changes)

    def _expecting(self, names: Iterable[tuple[Setting, str]]) -> Iterator[None]:
        for number, (setting, name) in enumerate(names, 1):
            owner = owner_of(setting, name)
            if owner is not None:
                self.expect(*owner)
            if number % _EXPECTED == 0:
                yield

    def of(self, name: StreamName, *, has_messages: bool = True) -> DirectionTotals:
        """Return the totals to add to for a stream."""
        return self._at(self.label(name.tenant, name.namespace, name.direction, has_messages=has_messages))

    def _at(self, label: tuple[str, str, str]) -> DirectionTotals:
        totals = self.by_name.get(label)
        if totals is None:
            totals = self.by_name[label] = DirectionTotals()
            self.delays_of(label[0], label[2])
        return totals

    def delays_of(self, tenant: str, direction: str) -> DelayTotals:
        """Return the delays to add to for a tenant."""
        totals = self.delays.get((tenant, direction))
        if totals is None:
            is_own = len(self.delays) < 2 * MOST_TENANTS and len(tenant) <= LONGEST_NAME
            totals = self.delays.setdefault((tenant if is_own else OTHERS[0], direction), DelayTotals())
        return totals

    def of_level(self, direction: str, level: str) -> LevelTotals:
        """Return the totals of a level to add to."""
        return self.by_level.setdefault((direction, level), LevelTotals())


def owner_of(setting: Setting, name: str) -> tuple[str, str] | None:
    """Return the tenant and the namespace that a setting's name is of; the namespace is empty for a whole tenant.

    None for a pattern, and for a name that is of no tenant.
    """
    indexed = setting.record.streams_of(name)
    if indexed is None or len(indexed[1]) != 1:
        return None
    part, (of_stream,) = indexed
    if part is TENANT:
        return of_stream, ""
    path = of_stream if part is NAMESPACE else of_stream.partition("://")[2]
    tenant, _, rest = path.partition("/")
    namespace = rest.partition("/")[0]
    return (tenant, namespace) if tenant and namespace else None
