"""The objects that all sessions of a process share: budgets, allow-list, counters, and the keeper of their limits.

`LimiterEngine` has the limits in this process (`proxy/limiter_engine.py`). `WorkerEngine` has them in the supervisor
(`proxy/workers/worker.py`).
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from mypy_extensions import mypyc_attr

from limiter.levels import Client, Topic
from limiter.limiter import Answering, Entry, RateLimiter, Stream
from proxy.blocking.blocklist import Blockable, Blocklist
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import SiblingBrokers, Targets
from proxy.budgets import Claim, Pool, SharedBudget
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.fleet_topics import FleetTopics
from proxy.identity.evidence import Verifier
from proxy.observe.connection import Connection, Refusals
from proxy.observe.operator_log import HoldLog, OversizedBatchLog
from proxy.session.broker_connector import BrokerConnector
from proxy.session.proxy_headers import ProxyHeaders
from proxy.session.session_admission import SessionAdmission
from proxy.session.transport import PeerTransport, TransportContext
from proxy.slices import CallsInSlices, Slices, Work
from proxy.tls.certificates import Certificates


class Enrolment(Protocol):
    """The interface to the registry of streams: a `Registry`, or a proxy of one in another process."""

    def open(self, stream: Stream, topic: Topic, now: int, client: Client) -> None:
        """Register a stream of `topic` that begins."""

    def meter(self, stream: Stream, grant: Callable[[int], None]) -> None:
        """Meter the permits of an open stream, which is a consumer; `grant` passes them on."""

    def answer(self, stream: Stream, answering: Answering) -> None:
        """Note that an open stream is a producer, which can be answered."""

    def name(self, stream: Stream, producer_name: str, now: int) -> None:
        """Note the name of a producer that the broker accepted, and perhaps named."""

    def when_decided(self, streams: Iterable[Stream], then: Callable[[], None]) -> None:
        """Call `then` when what is held of these streams is held by a limit, and not only on its way to be judged."""

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """Remove a stream that ends; return the entries that it held."""

    def owes_too_much(self, address: str, now: int) -> bool:
        """Return whether an address may open no more streams, as limits have too many debts of its earlier ones."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine:
    """The parts that outlive a session, whoever decides what passes.

    Args:
        config: The configuration.
        counters: The counters of the data path.
        clock: Monotonic nanoseconds.
        siblings: The brokers that other members of the fleet name; None without a fleet.

    Raises:
        ConfigError: If a certificate, key or authority of the configuration cannot be used.

    Attributes:
        rate_limiter: Decides which of their entries pass; a subclass sets it, and the next.
        registry: Told of their streams.
        fleet_topics: The topics that no client may use.
        proxy_headers: The rules for PROXY protocol headers; None where connections begin without.
        slices: Does what is too much for one turn of the loop.
        losses: The connections that are gone, each with what is to be done then.
        arrivals: Bytes that came before a session forwards, and wait for their turn.
        names_clients: Connections to brokers begin with such a header.
    """

    rate_limiter: RateLimiter
    registry: Enrolment

    def __init__(
        self,
        config: Config,
        counters: Counters,
        clock: Callable[[], int] = time.monotonic_ns,
        siblings: SiblingBrokers | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.counters = counters
        self.slices = Slices(counters, clock)
        self.losses = CallsInSlices(self.slices, Work.ENDINGS)
        self.arrivals = CallsInSlices(self.slices, Work.COMMANDS)
        self.oversized_batches = OversizedBatchLog(counters, clock)
        self.dispatch_rules = config.dispatch.rules()
        self.shared = TransportContext(counters, self.slices)
        self.held = SharedBudget(
            config.publish.hold_total,
            HoldLog(clock).turned,
            self.shared.heap.freed,
            partial(self.slices.run, Work.RELEASES),
        )
        self.refusals = Refusals()
        self.lookups = Pool(config.max_lookups_in_flight, config.max_lookups_in_flight_per_connection)
        self.memory = Pool(config.client_memory.total, config.client_memory.connection)
        self.proxy_headers: ProxyHeaders | None = None
        if config.proxy_protocol.mode != "off":
            most = config.max_connections // 10
            self.proxy_headers = ProxyHeaders(config.proxy_protocol, most, counters)
        self.names_clients = config.broker_proxy_protocol
        self.fleet_topics = FleetTopics(config)
        siblings = siblings if config.dials_brokers_of_members else None
        self.targets = Targets(config.broker, config.allowed_brokers, config.allowed_broker_networks, siblings)
        self.tls = Certificates(config)
        self.dialer = BrokerDialer(self.targets, self.tls, counters, names_clients=config.broker_proxy_protocol)
        self.connector = BrokerConnector(config, self.targets, self.tls, self.shared, counters)
        self.sessions: set[Blockable] = set()
        """The sessions that are connected."""
        self.shared.heap.measure = partial(self.slices.measure, Work.MEMORY)
        self.identity: Verifier | None = verifier_of(config, CallsInSlices(self.slices, Work.CREDENTIALS).add)
        """Verifies clients; None where brokers do."""
        in_slices = partial(self.slices.run, Work.BLOCKS)
        self.blocklist = Blocklist(
            [block.rule() for block in config.blocks], counters, self.sessions, in_slices=in_slices
        )

    def lookup_slots_of(self, connection: Connection) -> Claim:
        """Return the lookups of one connection that are without an answer."""
        return Claim(self.lookups, connection.client_network)

    def memory_of(self, connection: Connection) -> Claim:
        """Return the bytes that are kept for one connection: its streams, and its requests without an answer."""
        return Claim(self.memory, connection.client_network)

    def session_admission(self, connection: Connection, client: PeerTransport) -> SessionAdmission:
        """Return the object that admits a session's client, its lookups and its streams."""
        raise NotImplementedError


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
