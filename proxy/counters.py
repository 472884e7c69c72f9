"""Counters of `/metrics` and the access log: the data path, totals by namespace and by level of limits.

Counters are plain integers. The number of totals, and of sums of refusals, is bounded: a client that floods the proxy
must not flood its log.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from limiter.limiter import StreamName

LATENESS_NS = tuple(
    tenths * 100_000 for tenths in (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 200, 500, 1000, 2000, 5000, 10_000)
)
"""Upper bounds by which timers are counted: finest where a loop is neither idle nor lost, up to a second."""


class Words(Counter[str]):
    """Counts by a fixed word.

    `Counter` deletes in Python, which makes each assignment a call of Python as well, at three times the cost.
    """

    __delitem__ = dict.__delitem__  # type: ignore[assignment] # of a key of this dictionary


UNNAMED_WORK = "unnamed"
"""The label of a late timer that no kind of work explains: messages, or the machine."""


@dataclass(slots=True)
class Counters:
    """Counters of this process since it started."""

    connections_accepted: int = 0
    descriptors: Words = field(default_factory=Words)
    """File descriptors: the process's limit, the number that the configuration needs, and the clients' part."""
    descriptors_refused: int = 0
    """Client connections that were closed at once: the last descriptors are kept for brokers, admin and log files."""
    ready: int = 0
    """1 where the latest look of `Readiness` found clients accepted and a broker that answers."""
    broker_up: Words = field(default_factory=Words)
    """1 for each configured broker that answered CONNECT at the latest look, else 0."""
    broker_round_trip_ns: Words = field(default_factory=Words)
    """Nanoseconds from the dial of each broker to its latest answer."""
    limit_state: Words = field(default_factory=Words)
    """1 for the state of limits that the start has found; see `proxy.limit_state`."""
    connections_open: Words = field(default_factory=Words)
    """Open connections by role: handshake, lookup, data."""
    connections_ended: Words = field(default_factory=Words)
    """Ended connections by close reason."""
    draining: int = 0
    """1 from the begin of a drain on."""
    drain_moved: Words = field(default_factory=Words)
    """Connections, and their streams, that a drain has moved."""
    drain_refused: Words = field(default_factory=Words)
    """Connections by role that came to a process which drains, and were closed."""
    authentications: Words = field(default_factory=Words)
    """Credentials of clients, by auth method and result, as `token refused`."""
    frame_errors: Words = field(default_factory=Words)
    """Frame errors by side and cause, as `client too_large`."""
    proxy_headers: Words = field(default_factory=Words)
    """Beginnings of connections where `proxy_protocol` is on, by result."""
    tls_failures: Words = field(default_factory=Words)
    """Failures of TLS, in the handshake or later, by side and failure, as `client plain_bytes`."""
    brokers_passed_over: Words = field(default_factory=Words)
    """Times that another broker of the list `broker` was tried in place of this one."""
    pauses: Words = field(default_factory=Words)
    """Times that a pause reason arose, by side and reason."""
    resumes: Words = field(default_factory=Words)
    """Times that a pause reason ended, by side and reason."""
    throttled: Words = field(default_factory=Words)
    """Pause reasons that exist now, by side and reason."""
    keep_alives: int = 0
    """Unsolicited PONGs sent, and broker PINGs answered, for paused clients."""
    entries_ignored: int = 0
    """SENDs and MESSAGEs of no open producer or consumer, which went nowhere."""
    fields_left_out: int = 0
    """Commands of clients that went on without the fields that this proxy does not know, or in fewer bytes."""
    answers_ignored: int = 0
    """Brokers' answers to no request of this connection, which went nowhere."""
    address_overruns: int = 0
    """Times that the connections of one address began to be read in turns."""
    blocked: Words = field(default_factory=Words)
    """Connections, producers and consumers that rules refused or ended, by the rule's kind."""
    not_admitted: Words = field(default_factory=Words)
    """Connections, lookups, producers and consumers that `admission` refused, by the bound's key."""
    admin_refused: Words = field(default_factory=Words)
    """Requests and connections that the admin address refused, by cause."""
    admin_forwarded: Words = field(default_factory=Words)
    """Requests for the broker's admin address, by the result of passing them on."""
    batches_not_believed: int = 0
    """Delivered batches that declare more messages than `publish.max_batch_messages`."""
    reloads: Words = field(default_factory=Words)
    """Times that the configuration was read again: `taken`, `unchanged`, or `refused` in whole or in part."""
    reload_failures: Words = field(default_factory=Words)
    """Times that files could not be used when they were read again, by the key that names them."""
    reload_successful: Words = field(default_factory=Words)
    """1 where the files are in force as they were last read, else 0, by the key that names them."""
    reload_success_at: Words = field(default_factory=Words)
    """When files were last read and could be used, in seconds since 1970, by the key that names them."""
    broker_urls_stripped: int = 0
    """Broker addresses taken out of commands that would have led clients around the proxy."""
    loop_lag_ns: int = 0
    """Sum of the lateness of all timers, in nanoseconds."""
    loop_lag_max_ns: int = 0
    work_ns: Words = field(default_factory=Words)
    """Nanoseconds of the loop by kind of work (`proxy.slices.Work`)."""
    late_timers: Words = field(default_factory=Words)
    """Timers that fired later than `LATE_NS`, by the kind of work that held the loop."""
    timers_fired: int = 0
    timers_by_lateness: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_NS) + 1))
    """Timers that fired no later than each bound and later than the one before; the last: later than all."""


MOST_NAMESPACES = 1000
MOST_UNHEARD_OF = 500
"""Most namespaces without a message. A client can name any namespace, but only one that the broker has passes its
messages."""
LONGEST_NAME = 200
"""Most characters of a tenant and of a namespace; longer ones count as `_others`, so that a scrape is bounded."""
OTHERS = ("_others", "_others")


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

    def of(self, name: StreamName, *, has_messages: bool = True) -> DirectionTotals:
        """Return the totals to add to for a stream."""
        label = self.label(name.tenant, name.namespace, name.direction, has_messages=has_messages)
        totals = self.by_name.get(label)
        if totals is None:
            totals = self.by_name[label] = DirectionTotals()
            self.delays_of(label[0], label[2])
        return totals

    def delays_of(self, tenant: str, direction: str) -> DelayTotals:
        """Return the delays to add to for a tenant."""
        found = self.delays.get((tenant, direction))
        if found is None:
            is_own = len(self.delays) < 2 * MOST_TENANTS and len(tenant) <= LONGEST_NAME
            found = self.delays.setdefault((tenant if is_own else OTHERS[0], direction), DelayTotals())
        return found

    def of_level(self, direction: str, level: str) -> LevelTotals:
        """Return the totals of a level to add to."""
        return self.by_level.setdefault((direction, level), LevelTotals())
