"""Totals by namespace and direction for the metrics; a bounded number of them."""

MOST_NAMESPACES = 1000
OTHERS = ("_others", "_others")


class Totals:
    """Counts of one namespace in one direction since the start. `received` is what was offered to the limits."""

    __slots__ = (
        "dropped_messages",
        "passed_bytes",
        "passed_messages",
        "received_bytes",
        "received_messages",
        "throttled_ns",
    )

    def __init__(self) -> None:
        self.received_messages = 0
        self.received_bytes = 0
        self.passed_messages = 0
        self.passed_bytes = 0
        self.dropped_messages = 0
        self.throttled_ns = 0


class NamespaceTotals:
    """One `Totals` a (tenant, namespace, direction); what is over the bound is counted together as `_others`."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str, str], Totals] = {}

    def label(self, tenant: str, namespace: str, direction: str) -> tuple[str, str, str]:
        """The labels under which a namespace is counted."""
        key = (tenant, namespace, direction)
        if key in self.by_name or len(self.by_name) < 2 * MOST_NAMESPACES:
            return key
        return (*OTHERS, direction)

    def of(self, tenant: str, namespace: str, direction: str) -> Totals:
        """The totals to add to."""
        return self.by_name.setdefault(self.label(tenant, namespace, direction), Totals())
