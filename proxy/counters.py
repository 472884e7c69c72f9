"""Counters of this process, as `/metrics` has them: plain integers, and counts by a fixed word."""

from collections import Counter
from dataclasses import dataclass, field

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
"""The label of a late timer that nothing explains: the event loop itself, or the machine."""
SLOW_READS_WORK = "slow_reads"
"""The label of a late timer that slow reads explain: small frames, each of which is looked at."""
CONNECTIONS_WORK = "connections"
"""The label of a late timer that many connections explain, each of which was read, or lost, in a moment."""


@dataclass(slots=True)
class Counters:
    """Counters of this process since it started."""

    connections_accepted: int = 0
    descriptors: Words = field(default_factory=Words)
    """File descriptors: the process's limit, the number that the configuration needs, and the clients' part."""
    descriptors_refused: int = 0
    """Client connections that were closed at once: the last descriptors are kept for brokers, admin and log files."""
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
    kicked: Words = field(default_factory=Words)
    """Connections, and streams, that operators have ended."""
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
    otlp_exports: Words = field(default_factory=Words)
    """Exports of the metrics to a collector, by outcome."""
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
    beats_by_lateness: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_NS) + 1))
    """The same of the heartbeat's."""
    beat_lag_ns: int = 0
    """Sum of the lateness of the heartbeat's timers, in nanoseconds."""
