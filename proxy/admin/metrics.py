"""Prometheus metrics: a collector that reads the integers of the data path at each scrape."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from itertools import accumulate
from typing import NamedTuple, get_args

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from limiter.levels import LEVELS
from limiter.limiter import Stream
from proxy.admin.forwarding.broker import ForwardOutcome
from proxy.admin.limit_metrics import LimitMetrics, batched
from proxy.admin.process_metrics import process_metrics
from proxy.admin.readiness import Readiness
from proxy.admin.refusals import RefusalCause
from proxy.admin.shared_work import SharedWork
from proxy.admission_control import BoundName
from proxy.block_rules import Kind
from proxy.counters import CONNECTIONS_WORK, LATENESS_NS, SLOW_READS_WORK, UNNAMED_WORK, Counters
from proxy.degraded import CAUSES, DegradedStates
from proxy.fleet.link import LinkCounts, LinkState
from proxy.fleet.policy_topic import PolicyTopic, TopicState
from proxy.fleet.service import FleetService
from proxy.limit_state import Found
from proxy.observe.access_log import AccessLog
from proxy.observe.limit_history import MOST_LIMITS, LimitHistory
from proxy.observe.operator_log import lines_lost
from proxy.observe.totals import DELAY_BOUNDS_NS, OTHERS, DirectionTotals, LevelTotals, NamespaceTotals
from proxy.policies.keys import BLOCKS, OPERATOR
from proxy.policies.room import Room, TenantShare
from proxy.session.engine import Engine
from proxy.session.events import CloseReason
from proxy.session.proxy_headers import HeaderResult
from proxy.session.transport import PauseReason
from proxy.slices import Slices, Work
from proxy.tls.certificates import Expiry
from proxy.tls.transport import TlsFailure

_LABELS = ("tenant", "namespace", "direction")
_LEVEL = ("direction", "level")
_LEVEL_KEYS = {(direction, level.word): 0 for direction in ("publish", "dispatch") for level in LEVELS}
_DELAY_BOUNDS = (*(f"{bound / 1e9:g}" for bound in DELAY_BOUNDS_NS), "+Inf")
_WOULD_EXCEED = (
    "Messages that would not have fitted into the bytes that a connection may hold, or would have been left at its "
    "end, if limits in mode observe were enforced"
)
_DEFECTS = "Parts of the link that a defect of Sluice has ended, and that started again; the log names the defect"
_BY_NAMESPACE: tuple[tuple[str, str, Callable[[DirectionTotals], float]], ...] = (
    ("sluice_messages_received", "Messages that arrived at the limits", lambda t: t.received_messages),
    ("sluice_bytes_received", "Metered bytes that arrived at the limits", lambda t: t.received_bytes),
    ("sluice_messages_passed", "Messages passed on", lambda t: t.passed_messages),
    ("sluice_bytes_passed", "Metered bytes passed on", lambda t: t.passed_bytes),
    ("sluice_messages_dropped", "Held messages that ended with their connection", lambda t: t.dropped_messages),
    ("sluice_messages_rejected", "Messages refused by limits in mode reject", lambda t: t.rejected_messages),
    ("sluice_bytes_rejected", "Metered bytes refused by limits in mode reject", lambda t: t.rejected_bytes),
    ("sluice_throttled_seconds", "Time that streams were held, summed", lambda t: t.throttled_ns / 1e9),
    ("sluice_permits_asked", "Permits that consumers asked for", lambda t: t.permits_asked),
    ("sluice_permits_granted", "Permits passed on to brokers", lambda t: t.permits_granted),
    (
        "sluice_would_throttle_seconds",
        "Time that limits in mode observe would have held streams, summed",
        lambda t: t.would_throttle_ns / 1e9,
    ),
    (
        "sluice_would_exceed_messages",
        _WOULD_EXCEED,
        lambda t: t.would_exceed_messages,
    ),
)


class ExportOutcome(StrEnum):
    """The outcome of an export, counted on `/metrics`."""

    DONE = "done"
    PARTIAL = "partial"
    """The collector took a part of it, and rejected data points."""
    REFUSED = "refused"
    """The collector answered with another status than 200."""
    UNREACHABLE = "unreachable"
    """The collector cannot be reached, does not answer in time, or the token cannot be read."""


class _OfCounters(NamedTuple):
    """A metric that is a field of `Counters`.

    Attributes:
        name: The metric's name.
        text: The meaning of the metric.
        labels: One for each blank-separated word in the keys of `Words`.
        words: The words that are shown before they have been counted.
        field: The field of `Counters`, if it is not the name without `sluice_`.
        kind: The kind of metric.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()
    words: Iterable[str] = ()
    field: str = ""
    kind: type[CounterMetricFamily | GaugeMetricFamily] = CounterMetricFamily

    def source(self) -> str:
        """Return the name of the field of `Counters`."""
        return self.field or self.name.removeprefix("sluice_")


_READING = ("side", "cause")


def _of_sides(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{side} {word}" for side in ("client", "broker") for word in words)


_FOREIGN = ("tls_hello", "http_request", "proxy_protocol")
_OF_PROXY_HEADERS = ("malformed", "unsupported", "too_long")
_OF_BOTH_SIDES = ("protocol", "too_large", "malformed")
FRAME_ERRORS = (
    *_of_sides(_OF_BOTH_SIDES),
    *(f"broker {word}" for word in ("name_too_long", "unexpected_answer", "producer_after_close")),
    *(
        f"client {word}"
        for word in (
            *_FOREIGN,
            *_OF_PROXY_HEADERS,
            "no_connect",
            "too_many_messages",
            "brokers_command",
            "fleet_topic",
            "not_offered",
            "second_connect",
            "unasked_auth_response",
            "too_much_unfinished",
        )
    ),
)
"""The words of `sluice_frame_errors`: causes of `protocol.frames.ProtocolError` by the side that can have them."""
AUTHENTICATIONS = tuple(
    f"{method} {result}"
    for method in ("token", "basic", "tls", "other")
    for result in ("accepted", "refreshed", "expired", "refused", "busy")
)
"""The words of `sluice_authentications`, where Sluice verifies clients."""
DROPPED = ("disconnected", "slow", "oversized", "foreign", "refused")
"""The words of `sluice_fleet_messages_dropped`: causes of `proxy.fleet.link.LinkCounts.dropped`."""
_UNREADABLE = ("oversized", "malformed", "version", "kind", "columns", "name", "value")
REFUSED_BY_FLEET = (
    *_UNREADABLE,
    *("fleet", "epoch", "deposed", "session", "repeated", "seen", "members", "limiters", "doubled", "unknown"),
)
"""The words of `sluice_fleet_messages_refused`: causes of `BadMessage`, and of members, coordinator and share table."""
REFUSED_BY_POLICY_TOPIC = (*DROPPED, "malformed", "version", "value", "key", "full", "body")
"""The words of `sluice_policy_topic_messages_refused`: causes of `BadChangeError` and of the topic's link."""

OF_COUNTERS = (
    _OfCounters("sluice_connections_accepted", "Client connections accepted"),
    _OfCounters(
        "sluice_connections",
        "Open client connections",
        ("role",),
        ("handshake", "lookup", "data"),
        field="connections_open",
        kind=GaugeMetricFamily,
    ),
    _OfCounters("sluice_connections_ended", "Client connections by what ended them", ("cause",), CloseReason),
    _OfCounters(
        "sluice_broker_up",
        "1 for each configured broker that answered a CONNECT at the latest look, else 0: the start, scrapes and "
        "/readyz have all asked, at most each 5 s",
        ("broker",),
        kind=GaugeMetricFamily,
    ),
    _OfCounters("sluice_draining", "1 while the process drains, and when it has", kind=GaugeMetricFamily),
    _OfCounters(
        "sluice_drain_moved",
        "Connections, and their producers and consumers, that went on elsewhere because the process drains",
        ("kind",),
        ("connections", "streams"),
    ),
    _OfCounters(
        "sluice_kicked",
        "Connections, and producers and consumers, that operators have ended; those of an ended connection also count",
        ("kind",),
        ("connections", "streams"),
    ),
    _OfCounters(
        "sluice_drain_refused",
        "Connections that came shortly before the end of a drain, and were closed",
        ("role",),
        ("data", "lookup"),
    ),
    _OfCounters(
        "sluice_descriptors",
        "File descriptors: the process's limit, what the configuration needs, and the part of clients, two for each",
        ("kind",),
        ("limit", "needed", "clients"),
        kind=GaugeMetricFamily,
    ),
    _OfCounters(
        "sluice_descriptors_refused",
        "Client connections closed at once: the descriptors that are left are kept for brokers, admin and log files",
    ),
    _OfCounters(
        "sluice_limit_state",
        "1 for the state that the start has found in `drain.state`: balances of the run before, no file, the mark of "
        "a run that was killed, or a file that was refused; except with `loaded`, limits begin with empty buckets",
        ("found",),
        get_args(Found),
        kind=GaugeMetricFamily,
    ),
    _OfCounters(
        "sluice_authentications",
        "Credentials of clients that Sluice verified (`authentication`), by the result",
        ("method", "result"),
    ),
    _OfCounters("sluice_frame_errors", "Connections closed because a peer broke the protocol", _READING, FRAME_ERRORS),
    _OfCounters(
        "sluice_tls_failures",
        "Connections closed because TLS failed, in the handshake or after it",
        ("side", "failure"),
        _of_sides(TlsFailure),
    ),
    _OfCounters(
        "sluice_brokers_passed_over",
        "Times that a broker of the list `broker` did not answer a client, or its TLS failed: the next one is tried",
        ("broker",),
    ),
    _OfCounters(
        "sluice_proxy_headers",
        "Client connections where `proxy_protocol` is on, by the result of reading their header",
        ("result",),
        HeaderResult,
    ),
    _OfCounters(
        "sluice_reading_paused",
        "Reasons for which reading is paused now",
        _READING,
        _of_sides(PauseReason),
        field="throttled",
        kind=GaugeMetricFamily,
    ),
    _OfCounters("sluice_pauses", "Reasons to pause reading that began", _READING, _of_sides(PauseReason)),
    _OfCounters("sluice_resumes", "Reasons to pause reading that ended", _READING, _of_sides(PauseReason)),
    _OfCounters("sluice_keep_alives", "PONGs sent in the place of a paused client, or to it"),
    _OfCounters("sluice_entries_ignored", "Entries of no open producer or consumer, not passed"),
    _OfCounters("sluice_broker_urls_stripped", "Broker addresses kept from clients"),
    _OfCounters("sluice_loop_timers", "Timers that fired", field="timers_fired"),
    _OfCounters(
        "sluice_late_timers",
        "Timers and beats that were 10 ms late, by the work that held the loop; `connections`: many were read or lost "
        "in one turn; `unnamed`: the event loop itself, or the machine",
        ("work",),
        (*Work, SLOW_READS_WORK, CONNECTIONS_WORK, UNNAMED_WORK),
    ),
    _OfCounters("sluice_blocked", "Connections, producers and consumers that blocks refused or ended", ("kind",), Kind),
    _OfCounters(
        "sluice_admission_refused",
        "Connections, lookups, producers and consumers over a bound of `admission`, by its key",
        ("what",),
        BoundName,
        field="not_admitted",
    ),
    _OfCounters(
        "sluice_admin_refused", "Requests and connections that the admin address refused", ("kind",), RefusalCause
    ),
    _OfCounters(
        "sluice_admin_forwarded",
        "Requests passed on to the broker's own admin, by outcome",
        ("outcome",),
        ForwardOutcome,
    ),
    _OfCounters(
        "sluice_batches_not_believed",
        "Delivered batches that declare more messages than publish.max_batch_messages, and are counted as that many",
    ),
    _OfCounters(
        "sluice_config_reloads",
        "Times that the configuration and its files were read again: taken, unchanged, or refused in whole or in part",
        ("outcome",),
        ("taken", "unchanged", "refused"),
        field="reloads",
    ),
    _OfCounters(
        "sluice_reload_successful",
        "1 while the files of this key (`config`: the configuration itself) are in force as last read, else 0",
        ("key",),
        kind=GaugeMetricFamily,
    ),
    _OfCounters(
        "sluice_reload_success_timestamp_seconds",
        "When the files of this key were last read and could be used, in seconds since 1970",
        ("key",),
        field="reload_success_at",
        kind=GaugeMetricFamily,
    ),
    _OfCounters(
        "sluice_reload_failures",
        "Times that the files of this key were read again and could not be used",
        ("key",),
    ),
    _OfCounters(
        "sluice_otlp_exports",
        "Exports of these metrics to a collector (`otlp`), by the outcome",
        ("outcome",),
        ExportOutcome,
    ),
    _OfCounters(
        "sluice_fields_left_out",
        "Clients' commands that went on without fields that this proxy does not know, or in fewer bytes",
    ),
    _OfCounters("sluice_answers_ignored", "Brokers' answers to no request of their connection, which were dropped"),
    _OfCounters(
        "sluice_address_overruns",
        "Times that the connections of one address took the loop for themselves and began to be read in turns",
    ),
)
"""The metrics that are fields of `Counters`. Computed metrics are in `SluiceCollector` and `_loop`."""


def _of_counters(counters: Counters, further: Mapping[str, Iterable[str]]) -> Iterator[Metric]:
    """Yield the metrics of `OF_COUNTERS`.

    Args:
        counters: The counts.
        further: Words that the configuration has, by the metric that shows them before they have been counted.
    """
    for row in OF_COUNTERS:
        value = getattr(counters, row.source())
        if row.labels:
            words = (*row.words, *further.get(row.name, ()))
            yield _labelled(row.kind, row.name, row.text, row.labels, _from_zero(words, value))
        else:
            yield row.kind(row.name, row.text, value=value)
    yield _labelled(
        GaugeMetricFamily,
        "sluice_broker_round_trip_seconds",
        "From the dial of a configured broker to its latest answer to a CONNECT",
        ("broker",),
        {broker: spent / 1e9 for broker, spent in counters.broker_round_trip_ns.items()},
    )


MOST_SAMPLES = 64
"""Samples that are made and written in one step."""
_STREAMS, SAMPLES_IN_A_UNIT = 20, 4
"""Streams that are looked at, and samples that are written, in one unit of work."""


class _Only(Collector):
    """One metric, in the place of a registry."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        yield self._metric


def writing(parts: Iterable[Metric | None], lines: list[bytes]) -> Iterator[None]:
    """Write metrics in Prometheus' text form, a unit of work in each step.

    Args:
        parts: The metrics, as `SluiceCollector.parts` yields them.
        lines: Gets the text.
    """
    name = ""
    for part in parts:
        if part is None:
            yield
            continue
        text = generate_latest(_Only(part))
        lines.append(text.split(b"\n", 2)[2] if part.name == name else text)  # it has its heading
        name = part.name
        for _ in range(1 + len(part.samples) // SAMPLES_IN_A_UNIT):
            yield


_KEPT_S, _NEVER_KEPT = 1.0, 128 * 1024
"""Seconds for which a text is handed out again, and the bytes up to which none is: it takes a few turns to make."""


class MetricsPage:
    """The text of `/metrics`: made in slices, once for all callers that wait for it.

    Args:
        collector: The metrics.
        slices: Bounds the work in one turn of the loop.
    """

    def __init__(self, collector: "SluiceCollector", slices: Slices) -> None:
        self._collector = collector
        self._slices = slices
        self._shared = SharedWork(self._write, lambda text: _KEPT_S if len(text) > _NEVER_KEPT else 0.0)
        self._of_all = SharedWork(partial(self._write, all_limits=True), lambda _: 0.0)

    async def text(self, *, all_limits: bool = False, has_place: bool = False) -> bytes:
        """Return the text of now, or of a moment ago; that with all limits is never kept, as it may have 15 MB.

        Args:
            all_limits: Whether all limits are in it.
            has_place: As for `SharedWork.get`.

        Raises:
            TooManyWaitError: If too many wait for it.
            TooManyLimitsError: If there are too many limits for `all_limits`.
        """
        if not all_limits:
            return await self._shared.get(has_place=has_place)
        text = await self._of_all.get(has_place=has_place)
        self._of_all.last = None
        return text

    async def _write(self, *, all_limits: bool = False) -> bytes:
        lines: list[bytes] = []
        await self._slices.done(Work.SCRAPES, writing(self._collector.parts(all_limits=all_limits), lines))
        with self._slices.measure(Work.SCRAPES):
            return b"".join(lines)


class SluiceCollector(Collector):
    """Collects all metrics of one process. Label sets are bounded (see `totals`).

    Args:
        engine: Limits, budgets and counters.
        totals: Sums by namespace.
        access: The access log.
        settling: Begun first, so that the totals are as of now; a unit of work in each step.
        expiries: Gives those of the certificates in force.
        fleet: This proxy's part in its fleet, if it has one.
        policy_topic: The topic by which the fleet's policies are changed, if they are.
        states: The degraded states.
        room: Counts the policies that are kept.
        readiness: Decides whether the process is ready; None: it never is.
        history: The last hour of limits in use; None: of none.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        engine: Engine,
        totals: NamespaceTotals,
        access: AccessLog,
        settling: Callable[[], Iterator[None]],
        expiries: Callable[[], Iterable[Expiry]] = tuple,
        fleet: FleetService | None = None,
        policy_topic: PolicyTopic | None = None,
        states: DegradedStates | None = None,
        room: Room | None = None,
        readiness: Readiness | None = None,
        history: LimitHistory | None = None,
    ) -> None:
        self._states = states or DegradedStates()
        self._fleet = fleet
        self._policy_topic = policy_topic
        self._room = room or Room(TenantShare())
        self._readiness = readiness
        self._history = history
        self._expiries = expiries
        self._engine = engine
        self._totals = totals
        self._access = access
        self._settling = settling
        shared = () if fleet is None else fleet.config.shared_levels
        self._limits = LimitMetrics(engine.registry.policies, shared, engine.registry.is_outdated)
        self._peaks = _RecentPeaks(engine.counters, engine.slices, engine.clock)

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics, each as a whole."""
        whole: Metric | None = None
        for part in self.parts():
            if part is not None and whole is not None and part.name == whole.name:
                whole.samples += part.samples
            elif part is not None:
                if whole is not None:
                    yield whole
                whole = part
        if whole is not None:
            yield whole

    def choose_limits(self, entries: Iterable[str]) -> None:
        """Show the limits that these entries of `metrics_limits` name in any case, from now on."""
        self._limits.choose(entries)

    def policies_changed(self) -> None:
        """Find the limits of the configuration that `metrics_limits` names again: values have changed."""
        self._limits.policies_changed()

    def parts(self, *, all_limits: bool = False) -> Iterator[Metric | None]:
        """Yield all metrics, those with many samples in parts; None after work that has yielded nothing yet.

        Args:
            all_limits: Whether to show all limits in place of those that `metrics_limits` names and the fullest ones.

        Raises:
            TooManyLimitsError: If there are too many limits for that.
        """
        yield from self._settling()
        yield from self._by_namespace()
        yield from self._delays()
        yield from self._by_level()
        yield from self._held()
        limits = self._limits.parts_of_all if all_limits else self._limits.parts
        yield from limits(self._engine.registry.limiters, self._engine.clock())
        yield from _of_counters(self._engine.counters, self._words())
        yield _gauge(
            "sluice_ready",
            "1 while /readyz is 200: the process accepts clients, does not drain, a broker has answered since the "
            "start, and no state of admin_access.not_ready_when lasts",
            int(self._readiness is not None and self._readiness.problem() is None),
        )
        yield from _loop(self._engine.counters, self._engine.slices, self._peaks)
        yield from process_metrics()
        yield _labelled(
            GaugeMetricFamily, "sluice_blocks", "Blocks in force", ("kind",), self._engine.blocklist.rules.by_kind()
        )
        yield self._certificates()
        degraded = self._states.causes
        yield _labelled(
            GaugeMetricFamily,
            "sluice_degraded",
            "1 for each state in which the proxy serves, and not all of its configuration holds",
            ("cause",),
            {cause: int(cause in degraded) for cause in CAUSES},
        )
        yield from _fleet(self._fleet)
        yield from _policies(self._room)
        yield from _policy_topic(self._policy_topic)
        lookups, memory = self._engine.lookups, self._engine.memory
        yield _counter(
            "sluice_lookups_refused", "Lookups refused because max_lookups_in_flight were in flight", lookups.refused
        )
        yield _gauge(
            "sluice_lookups_in_flight",
            "Requests about topics (lookups and metadata) that the broker has not answered yet",
            lookups.used,
        )
        yield _counter(
            "sluice_client_memory_refused", "Commands refused as memory for clients was full", memory.refused
        )
        yield _gauge(
            "sluice_client_memory_used_bytes",
            "Bytes kept for clients: their streams, limiters, requests and CONNECTs",
            memory.used,
        )
        yield _gauge("sluice_client_memory_most_bytes", "Most bytes kept for clients since the start", memory.most)
        yield _gauge(
            "sluice_client_memory_limit_bytes",
            "Most bytes that may be kept for clients (client_memory.total)",
            memory.limit,
        )
        yield _gauge(
            "sluice_unsent_bytes",
            "Bytes sent to clients and not taken yet, of clients that had any at the latest look (each 2 s)",
            self._engine.shared.unsent.size,
        )
        yield _gauge("sluice_limiters", "Limiters in memory", len(self._engine.registry.limiters))
        with_history, without = (0, 0) if self._history is None else (len(self._history), self._history.left_out)
        yield _gauge("sluice_limit_histories", "Limits whose last hour is kept for the console", with_history)
        yield _gauge(
            "sluice_limit_histories_left_out",
            f"Limits in use whose last hour is not kept for the console, which has {MOST_LIMITS:,} at most",
            without,
        )
        yield _gauge(
            "sluice_limiter_debts_bytes",
            "Memory of limiters that have no stream, and are kept because their tokens are owed (debts)",
            self._engine.registry.debts,
        )
        yield _counter(
            "sluice_limiters_forgiven",
            "Limiters without streams that were forgotten with unpaid debts, because debts took too much memory",
            self._engine.registry.forgiven,
        )
        yield from self._access_log()

    def _words(self) -> dict[str, Iterable[str]]:
        return {
            "sluice_authentications": () if self._engine.identity is None else AUTHENTICATIONS,
            "sluice_brokers_passed_over": map(str, self._engine.targets.brokers),
            "sluice_reload_failures": self._engine.counters.reload_successful,
        }

    def _access_log(self) -> Iterator[Metric]:
        yield _counter(
            "sluice_log_lines_dropped",
            "Lines of the operator's log that standard error did not take",
            lines_lost(),
        )
        yield _counter("sluice_access_log_lines", "Lines of the access log", self._access.lines)
        yield _counter(
            "sluice_access_log_lines_dropped",
            "Lines of the access log that were not written",
            self._access.dropped_lines,
        )
        yield _counter(
            "sluice_access_log_files_deleted",
            "Old files of the access log that were deleted",
            self._access.deleted_files,
        )
        closed, most = self._access.closed_bytes
        yield _gauge(
            "sluice_access_log_closed_bytes", "Bytes of the access log's closed files, if these are bounded", closed
        )
        yield _gauge(
            "sluice_access_log_limit_bytes",
            "Most bytes of the access log's files (access_log.retain_size); 0: no bound",
            most,
        )

    def _certificates(self) -> Metric:
        family = GaugeMetricFamily(
            "sluice_certificate_expiry_timestamp_seconds",
            "When the first certificate of a file expires, in seconds since 1970, by the key that names the file",
            labels=("key",),
        )
        for expiry in self._expiries():
            family.add_metric((expiry.key,), expiry.at)
        return family

    def _by_namespace(self) -> Iterator[Metric]:
        for name, text, read in _BY_NAMESPACE:
            for totals_of_some in batched(list(self._totals.by_name.items()), MOST_SAMPLES):
                family = CounterMetricFamily(name, text, labels=_LABELS)
                for key, totals in totals_of_some:
                    family.add_metric(key, read(totals))
                yield family

    def _delays(self) -> Iterator[Metric]:
        for some in batched(list(self._totals.delays.items()), MOST_SAMPLES // len(DELAY_BOUNDS_NS)):
            family = HistogramMetricFamily(
                "sluice_held_seconds",
                "How long messages were held before they passed",
                labels=("tenant", "direction"),
            )
            for key, delays in some:
                buckets = list(zip(_DELAY_BOUNDS, accumulate(delays.counts), strict=True))
                family.add_metric(key, buckets, delays.sum_ns / 1e9)
            yield family

    def _by_level(self) -> Iterator[Metric]:
        throttled = CounterMetricFamily(
            "sluice_limiter_throttled_seconds", "Time that streams waited on limits, summed over limits", labels=_LEVEL
        )
        rejected = CounterMetricFamily(
            "sluice_limiter_messages_rejected", "Messages refused by limits in mode reject", labels=_LEVEL
        )
        for key, totals in {**{key: LevelTotals() for key in _LEVEL_KEYS}, **self._totals.by_level}.items():
            throttled.add_metric(key, totals.throttled_ns / 1e9)
            rejected.add_metric(key, totals.rejected_messages)
        yield from (throttled, rejected)

    def _held(self) -> Iterator[Metric | None]:
        held = _Held(self._totals, self._engine.clock())
        for streams in batched(self._engine.registry.live(), _STREAMS):
            for stream in streams:
                held.count_open(stream)
                if stream.holds or (stream.permits is not None and stream.permits.asked):
                    held.count(stream)
            yield None
        yield from held.metrics()
        budget = self._engine.held
        yield _gauge("sluice_hold_budget_used_bytes", "Bytes of frames held, not taken, or unfinished", budget.memory)
        yield _gauge(
            "sluice_hold_budget_most_bytes",
            "Most bytes of frames held, not taken, or unfinished at one time since the start",
            budget.most,
        )
        yield _gauge("sluice_hold_budget_limit_bytes", "Bytes from which on reading pauses", budget.limit)


class _Held:
    """Sums of held messages and bytes; labels are bounded as those of the totals are."""

    def __init__(self, totals: NamespaceTotals, now: int) -> None:
        names = dict.fromkeys(totals.by_name, 0)
        self._totals = totals
        self._now = now
        self._messages: Counter[tuple[str, ...]] = Counter(names)
        self._sizes: Counter[tuple[str, ...]] = Counter(names)
        self._withheld: Counter[tuple[str, ...]] = Counter(names)
        self._would: Counter[tuple[str, ...]] = Counter(names)
        self._open: Counter[tuple[str, ...]] = Counter(names)
        self._oldest: dict[tuple[str, ...], float] = dict.fromkeys(totals.by_name, 0.0)
        self._streams_of_level: Counter[tuple[str, ...]] = Counter(_LEVEL_KEYS)
        self._messages_of_level: Counter[tuple[str, ...]] = Counter(_LEVEL_KEYS)
        self._connections: Counter[tuple[str, ...]] = Counter({(tenant,): 0 for tenant, _ in totals.delays})
        self._seen: set[tuple[int, str]] = set()
        self._tenants = {tenant for tenant, _ in totals.delays}

    def count_open(self, stream: Stream) -> None:
        """Add an open stream, and its connection where that is the connection's first of the tenant."""
        name = stream.name
        key = self._totals.label(name.tenant, name.namespace, name.direction)
        self._open[key] += 1
        tenant = key[0] if key[0] in self._tenants else OTHERS[0]
        if (id(stream.connection), tenant) not in self._seen:
            self._seen.add((id(stream.connection), tenant))
            self._connections[tenant,] += 1

    def count(self, stream: Stream) -> None:
        """Add a stream that holds entries, or would, or whose permits are withheld."""
        name, usage = stream.name, stream.usage
        key = self._totals.label(name.tenant, name.namespace, name.direction)
        if stream.permits is not None:
            self._withheld[key] += stream.permits.asked
        if stream.observed is not None:
            self._would[key] += stream.observed.usage.held_messages
        if stream.held:
            self._messages[key] += usage.held_messages
            self._sizes[key] += usage.held_size
            age = (self._now - stream.held[0].since) / 1e9
            self._oldest[key] = max(self._oldest.get(key, 0.0), age)
            level = (name.direction, stream.waits_on.scope.level if stream.waits_on else stream.last_reason)
            self._streams_of_level[level] += 1
            self._messages_of_level[level] += usage.held_messages

    def metrics(self) -> Iterator[Metric]:
        """Yield the sums as metrics."""
        for metric, text, labels, values in (
            ("sluice_held_messages", "Messages held right now", _LABELS, self._messages),
            ("sluice_held_bytes", "Metered bytes held right now", _LABELS, self._sizes),
            ("sluice_held_oldest_seconds", "Age of the message that is held longest", _LABELS, self._oldest),
            ("sluice_streams", "Open producers (publish) and consumers (dispatch)", _LABELS, self._open),
            (
                "sluice_tenant_connections",
                "Client connections with an open producer or consumer of the tenant",
                ("tenant",),
                self._connections,
            ),
            ("sluice_permits_withheld", "Permits asked for, not yet passed on", _LABELS, self._withheld),
            ("sluice_would_hold_messages", "Messages that limits in mode observe would hold", _LABELS, self._would),
            ("sluice_held_streams", "Streams that wait on a limit of a level", _LEVEL, self._streams_of_level),
            (
                "sluice_held_messages_by_level",
                "Messages that wait on a limit of a level",
                _LEVEL,
                self._messages_of_level,
            ),
        ):
            for some in batched(list(values.items()), MOST_SAMPLES):
                family = GaugeMetricFamily(metric, text, labels=labels)
                for key, value in some:
                    family.add_metric(key, value)
                yield family


def _fleet(fleet: FleetService | None) -> Iterator[Metric]:
    """Yield metrics of a fleet; without one all are 0."""
    counts = LinkCounts() if fleet is None or fleet.link is None else fleet.link.counts
    state = "" if fleet is None else fleet.state
    states: tuple[LinkState, ...] = get_args(LinkState)
    yield _labelled(
        GaugeMetricFamily,
        "sluice_fleet_state",
        "Whether this member reaches its fleet, and whether it coordinates: 1 for the present state",
        ("state",),
        {word: int(word == state) for word in states},
    )
    members = shares = disagreed = limit_sets = twins = lease_ends = 0
    is_isolated, lease_left_s = False, 0.0
    if fleet is not None:
        members, shares, is_isolated = fleet.member.members, fleet.member.total, fleet.member.isolated
        lease_ends, lease_left_s = fleet.lease_ends, fleet.lease_left_ns() / 1e9
        if fleet.coordinator is not None:
            disagreed, twins = fleet.coordinator.table.disagreements, len(fleet.coordinator.names_taken_twice())
        limit_sets = len(fleet.member.limit_sets) or 1
    yield _gauge("sluice_fleet_members", "Members of the fleet, as the coordinator last reported", members)
    yield _gauge(
        "sluice_fleet_isolated",
        "1 while this member is cut off and passes the part of its limits that `fleet.isolated` allows",
        int(is_isolated),
    )
    yield _gauge("sluice_fleet_lease_left_seconds", "Seconds until the shares end if no answer comes", lease_left_s)
    yield _gauge("sluice_fleet_shares", "Limits in which this member has a share", shares)
    yield _counter(
        "sluice_fleet_lease_ends",
        "Times that this member's shares ended because no coordinator renewed their lease",
        lease_ends,
    )
    yield _gauge(
        "sluice_fleet_limits_disagreed",
        "Limits in use that members have in different values, where this member coordinates",
        disagreed,
    )
    yield _gauge(
        "sluice_fleet_names_taken_twice",
        "Names (`proxy_id`) that several members have, where this member coordinates",
        twins,
    )
    yield _gauge(
        "sluice_fleet_limit_sets",
        "Different sets of limits that are written in members, 5 at most: 1 if all members have the same limits",
        limit_sets,
    )
    yield _counter("sluice_fleet_takeovers", "Times that this member began to coordinate", counts.takeovers)
    yield _counter(
        "sluice_fleet_reconnects", "Connections for the fleet's topic that were made again", counts.reconnects
    )
    yield _counter("sluice_fleet_defects", _DEFECTS, counts.defects)
    yield _counter("sluice_fleet_messages_received", "Reports and grants received", counts.messages_in)
    yield _counter("sluice_fleet_messages_sent", "Reports and grants sent", counts.messages_out)
    yield _labelled(
        CounterMetricFamily,
        "sluice_fleet_messages_dropped",
        "Reports and grants that were dropped, by cause",
        ("cause",),
        _from_zero(DROPPED, counts.dropped),
    )
    yield _labelled(
        CounterMetricFamily,
        "sluice_fleet_messages_refused",
        "Reports and grants that were not taken, whole or in part, by cause",
        ("cause",),
        _from_zero(REFUSED_BY_FLEET, {} if fleet is None else fleet.dropped_messages()),
    )


def _policies(room: Room) -> Iterator[Metric]:
    """Yield metrics of the policies that are set at run time."""
    (count, size), rest = room.of_tenants, {"operator": OPERATOR, "blocks": BLOCKS}
    counts = {"tenants": count} | {word: room.counts[owner] for word, owner in rest.items()}
    sizes = {"tenants": size} | {word: room.sizes[owner] for word, owner in rest.items()}
    yield _labelled(GaugeMetricFamily, "sluice_policies", "Policies set at run time", ("owner",), counts)
    yield _labelled(
        GaugeMetricFamily,
        "sluice_policies_bytes",
        "About how many bytes the policies set at run time take",
        ("owner",),
        sizes,
    )
    yield _gauge(
        "sluice_policies_fullest_tenant_ratio",
        "How full the fullest tenant's room is (policies.tenant_policies, tenant_bytes): 1 if none is left",
        room.fullest_tenant,
    )


def _policy_topic(topic: PolicyTopic | None) -> Iterator[Metric]:
    """Yield metrics of the topic by which policies are changed; without one all are 0."""
    counts = LinkCounts() if topic is None else topic.counts
    state = "" if topic is None else topic.state
    states: tuple[TopicState, ...] = get_args(TopicState)
    yield _labelled(
        GaugeMetricFamily,
        "sluice_policy_topic_state",
        "Whether policies change by the fleet's topic: away, behind or in_step; 1 for the present state",
        ("state",),
        {word: int(word == state) for word in states},
    )
    changes, size = (0, 0) if topic is None else (topic.log.changes, topic.log.size)
    yield _gauge("sluice_policy_topic_changes", "Changes of policies on the topic, as heard", changes)
    yield _gauge(
        "sluice_policy_topic_changes_bytes", "About how many bytes the changes of policies on the topic take", size
    )
    yield _counter("sluice_policy_topic_messages_received", "Messages received from the topic", counts.messages_in)
    yield _counter("sluice_policy_topic_messages_sent", "Messages sent to the topic", counts.messages_out)
    yield _counter(
        "sluice_policy_topic_reconnects", "Connections for the topic that were made again", counts.reconnects
    )
    yield _counter("sluice_policy_topic_defects", _DEFECTS, counts.defects)
    yield _counter(
        "sluice_policy_topic_conflicts",
        "Changes of this member that lost to an earlier one of another member",
        0 if topic is None else topic.conflicts,
    )
    yield _labelled(
        CounterMetricFamily,
        "sluice_policy_topic_messages_refused",
        "Messages of the topic that were not taken, or not sent, by cause",
        ("cause",),
        _from_zero(REFUSED_BY_POLICY_TOPIC, {} if topic is None else topic.dropped_messages()),
    )


_PEAKS_NS = 60_000_000_000
"""Nanoseconds for which peaks are kept, before they begin once more and the former ones are shown beside them."""


class _RecentPeaks:
    """The longest times within a minute or two, the same for all scrapers.

    Args:
        counters: Have the lateness of the loop.
        slices: Have the time of each kind of work.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, counters: Counters, slices: Slices, clock: Callable[[], int]) -> None:
        self._counters = counters
        self._slices = slices
        self._clock = clock
        self._since = clock()
        self._former_lag = 0
        self._former: dict[Work, int] = {}

    def look(self) -> tuple[int, dict[Work, int]]:
        """Return the latest that a timer was, and the longest turn of each kind of work, in nanoseconds."""
        lag, longest = self._counters.loop_lag_max_ns, dict(self._slices.longest_ns)
        shown = (
            max(lag, self._former_lag),
            {work: max(longest.get(work, 0), self._former.get(work, 0)) for work in Work},
        )
        if self._clock() - self._since >= _PEAKS_NS:
            self._since, self._former_lag, self._former = self._clock(), lag, longest
            self._counters.loop_lag_max_ns = 0
            self._slices.longest_ns.clear()
        return shown


def _loop(counters: Counters, slices: Slices, peaks: _RecentPeaks) -> Iterator[Metric]:
    lag_max_ns, longest_ns = peaks.look()
    yield _counter("sluice_loop_lag_seconds", "How late timers fired, summed", counters.loop_lag_ns / 1e9)
    yield _gauge(
        "sluice_loop_lag_max_seconds",
        "Latest that a timer of a limit or the heartbeat fired within a minute or two",
        lag_max_ns / 1e9,
    )
    yield _gauge(
        "sluice_kept_reads_bytes",
        "Bytes read from sockets that wait to be processed, because slow reads have used up the loop's turn",
        slices.slow_reads.kept,
    )
    bounds = [*(f"{bound / 1e9:g}" for bound in LATENESS_NS), "+Inf"]
    for name, text, counts, sum_ns in (
        ("timer_lateness", "How late timers fired", counters.timers_by_lateness, counters.loop_lag_ns),
        (
            "added_latency",
            "How late the heartbeat fired: a message without a limit waits as long to be read; no message is measured",
            counters.beats_by_lateness,
            counters.beat_lag_ns,
        ),
    ):
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        yield HistogramMetricFamily(f"sluice_{name}_seconds", text, buckets=buckets, sum_value=sum_ns / 1e9)
    yield _labelled(
        CounterMetricFamily,
        "sluice_loop_work_seconds",
        "Time of the loop by kind of work",
        ("work",),
        {work: counters.work_ns[work] / 1e9 for work in Work},
    )
    yield _labelled(
        GaugeMetricFamily,
        "sluice_loop_work_max_seconds",
        "Longest time that a kind of work took in one turn of the loop within a minute or two",
        ("work",),
        {work: longest_ns.get(work, 0) / 1e9 for work in Work},
    )
    yield _labelled(
        GaugeMetricFamily,
        "sluice_loop_work_waiting",
        "Pieces of work that are done in slices and are not over",
        ("work",),
        {work: slices.waiting(work) for work in Work},
    )


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _from_zero(words: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts, with a 0 for each word that has not been counted."""
    return {**dict.fromkeys(words, 0), **counts}


def _labelled(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    labels: tuple[str, ...],
    values: Mapping[str, float],
) -> Metric:
    """Return a family whose keys are fixed words, one for each label, separated by blanks."""
    family = kind(name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key.split(" "), value)
    return family
