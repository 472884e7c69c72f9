"""The objects that all sessions of a process share: limits, budgets, allow-list and counters."""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from mypy_extensions import mypyc_attr

from limiter.activity import ActivityJournal
from limiter.policies import Change, Policies
from limiter.registry import Registry
from limiter.restart import FirstBalances
from limiter.scheduler import Scheduler
from limiter.shadow import ShadowLimiter
from limiter.sharing import SharedLimits
from proxy.admission_control import Admission
from proxy.blocking.blocklist import Blocklist
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import SiblingBrokers, Targets
from proxy.budgets import ENTRY_OVERHEAD, Claim, Pool, SharedBudget
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.fleet_topics import FleetTopics
from proxy.identity.evidence import Verifier
from proxy.kicks import Kickable
from proxy.observe.connection import Connection, Refusals
from proxy.observe.operator_log import HoldLog, OversizedBatchLog
from proxy.session.broker_connector import BrokerConnector
from proxy.session.proxy_headers import ProxyHeaders
from proxy.session.session_admission import SessionAdmission
from proxy.session.transport import TransportContext
from proxy.slices import CallsInSlices, Slices, Work
from proxy.timers import TimedScheduler
from proxy.tls.certificates import Certificates

_STEPS = 10
"""Steps of a change (`Registry.go_on`) in one unit of work."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine:
    """The parts that outlive a session.

    Args:
        config: The configuration.
        policies: Limits by level.
        counters: The counters of the data path.
        clock: Monotonic nanoseconds.
        shared_limits: The limits that are shared with a fleet; None: each is this proxy's alone.
        siblings: The brokers that other members of the fleet name; None without a fleet.
        bound_of_clients: The name of the bound on client connections, for those that it refuses.
        first: The balances with which limiters begin, after a restart; None: they begin full.

    Raises:
        ConfigError: If a certificate, key or authority of the configuration cannot be used.

    Attributes:
        journal: The streams and limiters that do something.
        scheduler: Decides which entries pass.
        registry: Puts streams within their limits.
        admission: The bounds of connections, lookups and streams.
        fleet_topics: The topics that no client may use.
        proxy_headers: The rules for PROXY protocol headers; None where connections begin without.
        slices: Does work that is too much for one turn of the loop.
        losses: The connections that are gone, each with the call that handles it.
        arrivals: Bytes that came before a session forwards, and wait for their turn.
        sends_proxy_header: Connections to brokers begin with a PROXY protocol header.
    """

    def __init__(
        self,
        config: Config,
        policies: Policies,
        counters: Counters,
        clock: Callable[[], int] = time.monotonic_ns,
        shared_limits: SharedLimits | None = None,
        siblings: SiblingBrokers | None = None,
        bound_of_clients: str = "max_connections",
        first: FirstBalances | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.counters = counters
        self.journal = ActivityJournal()
        self.slices = Slices(counters, clock, self.journal.stood_still)
        self.losses = CallsInSlices(self.slices, Work.ENDINGS)
        self.arrivals = CallsInSlices(self.slices, Work.COMMANDS)
        self.oversized_batches = OversizedBatchLog(counters, clock)
        self.dispatch_rules = config.dispatch.rules()
        self.shared = TransportContext(counters, self.slices)
        self.held = SharedBudget(
            config.publish.hold_total,
            HoldLog(clock).on_over_share_changed,
            self.shared.heap.freed,
            partial(self.slices.run, Work.RELEASES),
        )
        self.refusals = Refusals()
        self.lookups = Pool(config.max_lookups_in_flight, config.max_lookups_in_flight_per_connection)
        self.memory = Pool(config.client_memory.total, config.client_memory.connection)
        self.proxy_headers = _proxy_headers(config, counters)
        self.sends_proxy_header = config.broker_proxy_protocol
        self.fleet_topics = FleetTopics(config)
        self.targets = _targets(config, siblings)
        self.tls = Certificates(config)
        self.dialer = BrokerDialer(self.targets, self.tls, counters, sends_proxy_header=config.broker_proxy_protocol)
        self.connector = BrokerConnector(config, self.targets, self.tls, self.shared, counters)
        self.sessions: set[Kickable] = set()
        """The sessions that are connected."""
        self.identity: Verifier | None = verifier_of(config, CallsInSlices(self.slices, Work.CREDENTIALS).add)
        """Verifies clients; None where brokers do."""
        self.blocklist = Blocklist(
            [block.rule() for block in config.blocks],
            counters,
            self.sessions,
            in_slices=partial(self.slices.run, Work.BLOCKS),
        )
        release = partial(self.slices.run, Work.RELEASES)
        scheduled = partial(TimedScheduler, clock, self.slices.lateness, release)
        self.scheduler: Scheduler = scheduled(self.journal)
        self.registry = Registry(
            policies,
            self.scheduler,
            ShadowLimiter(scheduled, self.journal, config.publish.hold_connection, ENTRY_OVERHEAD),
            self.dispatch_rules,
            clock,
            self.memory.add,
            config.client_memory.total // 2,
            self.journal.relative_began,
            shared_limits,
            first,
        )
        self.admission = Admission(config, counters, clock, policies, bound_of_clients)
        self._goes_on = False

    def take_brokers(self, config: Config) -> None:
        """Put other configured brokers in force, for connections that are made from now on."""
        self.targets.configure(config.broker, config.allowed_brokers, config.allowed_broker_networks)
        counters, configured = self.counters, set(map(str, config.broker))
        for counts in (counters.broker_up, counters.broker_round_trip_ns):
            for gone in counts.keys() - configured:
                del counts[gone]

    def lookup_slots_of(self, connection: Connection) -> Claim:
        """Return the lookups of one connection that are without an answer."""
        return Claim(self.lookups, connection.client_network)

    def memory_of(self, connection: Connection) -> Claim:
        """Return the bytes that are kept for one connection: its streams, and its requests without an answer."""
        return Claim(self.memory, connection.client_network)

    def session_admission(self, connection: Connection) -> SessionAdmission:
        """Return the admission of a new session: of its client, its lookups and its streams."""
        return SessionAdmission(self.admission, connection, self.refusals)

    def policies_changed(self, changes: Iterable[Change] | None = None, now: int | None = None) -> None:
        """Put changed policies in force on live streams, as of now; many streams follow in slices.

        Args:
            changes: The changes; None: all policies may have changed, and they are in force at once.
            now: A moment after which nothing has passed yet; None: this one.
        """
        now = self.clock() if now is None else now
        changed = None if changes is None else list(changes)
        if changed is None or any(change.about == "subscribe" for change in changed):
            self.admission.subscribe_rates_changed()
        if changed is None:
            self.registry.apply(now)
            return
        with self.slices.measure(Work.POLICIES):
            try:
                self.registry.change(changed, now)
            finally:
                self._go_on_soon()

    def _go_on_soon(self) -> None:
        """Continue with changes in slices, so that nothing waits for all streams."""
        if self.registry.is_changing and not self._goes_on:
            self._goes_on = True
            self.slices.run(Work.POLICIES, self._going_on(), later=True)

    def _going_on(self) -> Iterator[None]:
        try:
            while self.registry.is_changing:
                self.registry.go_on(self.clock(), _STEPS, 0)
                yield
        except Exception:  # whatever is wrong with one stream, the others follow
            self._goes_on = False
            self._go_on_soon()
            raise
        self._goes_on = False


def _proxy_headers(config: Config, counters: Counters) -> ProxyHeaders | None:
    if config.proxy_protocol.mode == "off":
        return None
    return ProxyHeaders(config.proxy_protocol, config.max_connections // 10, counters)


def _targets(config: Config, siblings: SiblingBrokers | None) -> Targets:
    siblings = siblings if config.dials_brokers_of_members else None
    return Targets(config.broker, config.allowed_brokers, config.allowed_broker_networks, siblings)


def verifier_of(config: Config, in_slices: Callable[[Callable[[], None], str], None] | None = None) -> Verifier | None:
    """Return what verifies clients; None where brokers do.

    Args:
        config: The configuration.
        in_slices: Makes a call for an address, which verifies on the loop, in one of the next turns; None: at once.

    Raises:
        ConfigError: If a file cannot be used.
    """
    if not config.authentication.is_terminated:
        return None
    from proxy.identity.authenticator import ClientAuthenticator  # noqa: PLC0415 - its libraries take 11 MiB

    shows_certificate = config.broker_tls.certificate is not None
    return ClientAuthenticator(config.authentication, shows_certificate=shows_certificate, in_slices=in_slices)
