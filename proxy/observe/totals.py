"""Totals for the metrics, by namespace and by level of limits; a bounded number of them."""

from limiter.stream import StreamName

MOST_NAMESPACES = 1000
MOST_UNHEARD_OF = 500
"""Of these, as many may be ones of which no message has come. A client can name any namespace, but to have a message
pass it needs one that the broker has."""
LONGEST_NAME = 200
"""Characters of a tenant and of a namespace; a longer name is counted among the others, so that a scrape is bounded."""
OTHERS = ("_others", "_others")


class Totals:
    """Counts of one namespace in one direction since the start. `received` is what was offered to the limits.

    The two `would_…` tell what limits in mode `observe` would have done.
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
        """Add what one stream counted (`changes.STREAM`)."""
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
        """Add what one stream's observed limits counted (`changes.OBSERVED`)."""
        self.would_throttle_ns += changes["throttled_ns"]
        self.would_exceed_messages += changes["exceeded_messages"]


class LevelTotals:
    """Counts of all enforced limits of one level in one direction since the start."""

    __slots__ = ("rejected_messages", "throttled_ns")

    def __init__(self) -> None:
        self.rejected_messages = 0
        self.throttled_ns = 0

    def add(self, changes: dict[str, int]) -> None:
        """Add what one limiter counted (`changes.LIMITER`)."""
        self.rejected_messages += changes["rejected_messages"]
        self.throttled_ns += changes["throttled_ns"]


class NamespaceTotals:
    """One `Totals` a (tenant, namespace, direction); what is over the bound is counted together as `_others`.

    Attributes:
        by_level: One `LevelTotals` a (direction, level): both are fixed words.
    """

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str, str], Totals] = {}
        self.by_level: dict[tuple[str, str], LevelTotals] = {}

    def label(self, tenant: str, namespace: str, direction: str, *, has_messages: bool = True) -> tuple[str, str, str]:
        """The labels under which a namespace is counted; `has_messages` if some have come of it."""
        key = (tenant, namespace, direction)
        if key in self.by_name:
            return key
        most = 2 * (MOST_NAMESPACES if has_messages else MOST_UNHEARD_OF)
        if len(self.by_name) < most and len(tenant) <= LONGEST_NAME and len(namespace) <= LONGEST_NAME:
            return key
        return (*OTHERS, direction)

    def of(self, name: StreamName, *, has_messages: bool = True) -> Totals:
        """The totals to add to for a stream."""
        label = self.label(name.tenant, name.namespace, name.direction, has_messages=has_messages)
        totals = self.by_name.get(label)
        if totals is None:
            totals = self.by_name[label] = Totals()
        return totals

    def of_level(self, direction: str, level: str) -> LevelTotals:
        """The totals of a level to add to."""
        return self.by_level.setdefault((direction, level), LevelTotals())
