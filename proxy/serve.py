"""The process of `sluice serve`: its parts put together, started, kept going until SIGTERM, and stopped in order."""

import asyncio
import importlib.metadata
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog
import uvloop

from fleet.messages import WrittenLimits
from limiter.handing import LOOK_S, HandedLimits
from limiter.limiter import Limiter
from limiter.policies import LimitTally, Policies
from protocol.endpoint import Endpoint
from proxy.admin.app import Guards, Parts, Readiness, admin_app, metrics_app
from proxy.admin.auth import Authenticator
from proxy.admin.forwarding.broker import BrokerAdmin
from proxy.admin.forwarding.fleet_namespace import FleetNamespace, may_make_namespaces
from proxy.admin.forwarding.forwarder import Forwarder
from proxy.admin.listener import Connections, Listener, RequestLimits
from proxy.admin.metrics import MetricsPage, SluiceCollector
from proxy.admin.places import Places
from proxy.admin.refusals import RefusalLog
from proxy.admin.routes.status import Run
from proxy.change_log import ChangeLog, FileContent, FileDifference, difference
from proxy.checkup import Checkup
from proxy.config.limits import Limits
from proxy.config.model import NO_LIMITS, Config
from proxy.counters import Counters
from proxy.degraded import DegradedStates
from proxy.descriptors import DescriptorShares, limit_in_force, raise_limit
from proxy.drain import DrainService
from proxy.files import FileReader
from proxy.fleet.configured_link import link_of, own_auth
from proxy.fleet.policy_topic import PolicyTopic
from proxy.fleet.service import FleetService
from proxy.identity.evidence import Verifier
from proxy.limit_state import LimitState, StateError
from proxy.observe.access_log import AccessLog, open_access_log
from proxy.observe.intervals import Intervals
from proxy.observe.log_lines import AddressKeyError
from proxy.observe.log_writer import LogTrouble
from proxy.observe.operator_log import set_up_operator_log
from proxy.observe.totals import NamespaceTotals
from proxy.policies.bodies import BodyError
from proxy.policies.kept_blocks import BlockDesk, KeptBlocks
from proxy.policies.keys import PolicyKind, Principal
from proxy.policies.layers import FilePolicies, file_policies
from proxy.policies.room import TenantShare
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store, StoreError, left_over
from proxy.reload import Reloader, changes_of, fingerprints
from proxy.runtime import Searches, Tasks, be_scheduled, keep_for_ever, paused_collector, set_up_runtime
from proxy.server import Server, Sockets
from proxy.service_manager import ServiceManager
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from proxy.slices import Work
from proxy.takeover import START_S, Door, Handovers, SocketLink, Successor, TakeoverError
from proxy.tls.certificates import Certificates, Expiry, ExpiryLog

_LOOK_S = 0.2
"""Seconds between two looks at a process that was started to take over."""

if TYPE_CHECKING:
    from proxy.admin.otlp import OtlpExport


class StartError(Exception):
    """The proxy cannot start; the text says why."""


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The source of the configuration.

    Args:
        file: The file in it, if there is one.
        read: Reads it. Raises ConfigError.
        members: The number of members of the fleet, if its members are the processes of one parent; else 0.
        reread: Reads it while it is in force, see `ConfigFiles.reread`; None: as `read` does.
    """

    file: Path | None
    read: Callable[[], Config]
    members: int = 0
    reread: Callable[[], Config] | None = None


class CredentialFiles:
    """The files of certificates, keys and tokens that the parts of a proxy read, and the certificates in force.

    Args:
        tls: The TLS contexts for clients and brokers.
        authenticator: Authenticates callers of the admin address.
        broker_admin: The client of the brokers' admin address, if requests are forwarded there.
        identity: Verifies clients; None where brokers do.

    Attributes:
        log: Warns of certificates that expire soon.
    """

    def __init__(
        self,
        tls: Certificates,
        authenticator: Authenticator,
        broker_admin: BrokerAdmin | None,
        identity: Verifier | None,
    ) -> None:
        self._tls = tls
        self._authenticator = authenticator
        self._broker_admin = broker_admin
        self._identity = identity
        self._in_force = frozenset(self.expiries())
        self.log = ExpiryLog(self.expiries)
        tls.warn()

    def expiries(self) -> tuple[Expiry, ...]:
        """Return the expiries of the certificates in force."""
        of_forwarding = self._broker_admin.expiries() if self._broker_admin else ()
        return *self._tls.expiries(), *self._authenticator.expiries(), *of_forwarding

    def readers(self) -> list[FileReader]:
        """Return the readers of all files."""
        owners = (self._tls, self._authenticator, self._identity, self._broker_admin)
        return [reader for owner in owners if owner is not None for reader in owner.readers()]

    def on_read(self) -> None:
        """Log the certificates that have come into force, now that the files were read again."""
        before, self._in_force = self._in_force, frozenset(self.expiries())
        for expiry in self.expiries():
            if expiry not in before:
                structlog.get_logger().info("certificate taken for new connections", certificate=str(expiry))
        self._tls.warn()
        self.log.report()


class Proxy:
    """The parts of a running `sluice serve`.

    Args:
        source: The source of the configuration, which is read at once.
        successor: The takeover of the process before; None: there is none.

    Raises:
        StartError: If the access log's folder cannot be made, or the policy store or `drain.state` not be used.
        ConfigError: If a file of tokens, certificates or keys cannot be used.

    Attributes:
        read_files: Files whose changes are a reason to read the configuration again, as they were before it was read.
        config: The configuration without its limits, which the service keeps.
        ended: Set when this process is to end.
        handovers: Lets the next process take over; None where that is not possible.
        metrics_address: `host:port` of the address that serves metrics alone; None without one.
    """

    def __init__(  # noqa: PLR0915 - the parts, one after the other
        self, source: ConfigSource, successor: Successor | None = None
    ) -> None:
        self.read_files = fingerprints([source.file] if source.file else [])
        config = source.read()
        self.read_files |= fingerprints(_files_of(config))
        self.config = config.model_copy(update={"limits": Limits()})
        self._names_limits = "limits" in config.model_fields_set
        self.metrics_address: str | None = None
        self._source = source
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop in which the proxy serves; None before `start` and after `stop`."""
        self._tasks, self._looks, self._ends = Tasks(), Tasks(), Tasks()
        self._sharing: tuple[SocketLink, HandedLimits] | None = None
        """The limits that another process shares, and the link to it."""
        self._listeners: dict[str, Listener] = {}
        self._successor = successor
        self.ended = asyncio.Event()
        self.handovers: Handovers | None = None
        if may_be_taken_over(config) and config.drain.state is not None:
            door = Door(config.drain.state, config.proxy_id)
            self.handovers = Handovers(door, partial(Handed, self, ServiceManager(os.environ)))
        counters = Counters()
        self._refused = RefusalLog(counters.admin_refused, time.monotonic_ns)
        self.authenticator = Authenticator(config.admin_access, self._refused, config.admin.host)
        self._forwarder = Forwarder.of(config, counters, self._refused)
        self.totals = NamespaceTotals()
        self.descriptors = _share_descriptors(config, counters)
        self.access = _open_access_log(config, self._on_log_trouble)
        with ExitStack() as unless_made:  # without the log's end, the next run would take this one for killed
            unless_made.callback(self.access.close)
            self._changes = ChangeLog(self.access)
            policies = Policies(tally=None if config.fleet is None else LimitTally(config.fleet.shared_levels))
            self.fleet = self._make_fleet(policies)
            self.limit_state = _take_limit_state(
                config, self.access.boot_id, counters, is_takeover=successor is not None
            )
            unless_made.callback(self._leave_limits, [])
            self.engine = Engine(
                self.descriptors.within(self.config),
                policies,
                counters,
                shared_limits=None if self.fleet is None else self.fleet.shared,
                siblings=None if self.fleet is None else self.fleet.brokers,
                bound_of_clients=self.descriptors.bound_of_clients(self.config),
                first=None if self.limit_state is None else self.limit_state.first,
            )
            self.intervals = Intervals(
                self.access,
                self.totals,
                (config.access_log.interval, config.access_log.steady_interval),
                self.engine,
            )
            self._link = None if self.fleet is None else link_of(self.config, self.engine)
            self._store = _open_store(config)
            kept_blocks = KeptBlocks(self.engine.blocklist)
            self.service = self._open_policies(_file_policies(config), self.engine, self._store, kept_blocks)
            self._blocks = BlockDesk(self.service, kept_blocks)
            is_of_one_proxy = source.members > 0 and config.policies.topic is None
            self.policy_topic = _policy_topic(self.config, self.engine, self.service, is_of_one_proxy=is_of_one_proxy)
            self._files = CredentialFiles(
                self.engine.tls,
                self.authenticator,
                self._forwarder.broker if self._forwarder else None,
                self.engine.identity,
            )
            self.reloader = Reloader(
                self.config,
                source.reread or source.read,
                self._files.readers(),
                self._prepare,
                counters,
                on_files=self._files.on_read,
                on_outcome=self._look_at_states,
                measure=partial(self.engine.slices.measure, Work.FILES),
            )
            self.states = DegradedStates(
                watched=[part.degraded for part in (self.fleet, self.policy_topic) if part is not None],
                announced=[self.service.degraded, self.reloader.degraded, self.access.degraded],
            )
            self._export = self._make_export()
            self.server = Server(
                self.engine, SessionLog(counters, self.intervals, self.access), most=self.descriptors.clients
            )
            self.drain = DrainService(config.drain, self.engine, self.server, self.service.note)
            self.readiness = Readiness(self.engine, self.drain)
            unless_made.pop_all()

    def _make_fleet(self, policies: Policies) -> FleetService | None:
        """Make the proxy's part in its fleet; it measures its work by the engine, which is made later and needs it."""
        if self.config.fleet is None:
            return None
        return FleetService(
            self.config.fleet,
            self.config.proxy_id,
            on_share=self.access.share,
            written=partial(_written_limits, policies),
            measure=lambda: self.engine.slices.measure(Work.FLEET),
            members=self._source.members,
        )

    def _open_policies(self, file: FilePolicies, engine: Engine, store: Store, blocks: KeptBlocks) -> PolicyService:
        around = Around(
            before=self.intervals.change,
            after=engine.policies_changed,
            changed=self._changes.changed,
            handlers={PolicyKind.BLOCK: blocks},
            ready=self.intervals.lines_written,
            on_degraded=self._look_at_states,
        )
        try:
            return PolicyService(engine.registry.policies, file, store, around)
        except (StoreError, BodyError) as error:
            raise StartError(str(error)) from None

    @property
    def is_unlimited(self) -> bool:
        """Whether no limit is in force, and the configuration does not say that this is meant."""
        return not self._names_limits and self.engine.registry.policies.is_empty

    async def start(self) -> tuple[str, str]:
        """Listen on all addresses; returns those for clients and for the admin REST.

        Raises:
            StartError: If one cannot be had.
        """
        self.intervals.start()
        await self._forget_needless()
        inherited = {} if self._successor is None else self._successor.sockets
        admin = await self._bind_admin(inherited)
        try:
            listen = await self.server.bind(inherited)
        except OSError as error:
            where = ", ".join(each.address for each in self.config.listen)
            raise StartError(f"listen: cannot listen on {where}: {error.strerror or error}") from None
        if self._successor is not None:
            await self._begin_after(self._successor)
        if self.handovers is not None:
            self.handovers.listen()
        for listener in self._listeners.values():
            listener.accept()
        if self.fleet is not None and self._link is not None:
            await self.fleet.start(self._link)
            self._keep_namespace(self.fleet)
        if self.policy_topic is not None:
            await self.policy_topic.start()
        await self.server.accept()
        if self.limit_state is not None:
            self.limit_state.serve()
        self.readiness.is_accepting = True
        self.engine.slices.heartbeat.start()
        self._files.log.start()
        self._loop = asyncio.get_running_loop()
        self.states.look()
        if self._successor is not None:
            self._tasks.start(self._share_until_alone(self._successor), "share limits with the process before")
        elif self.handovers is not None:
            self.handovers.start()
        return listen, admin

    async def _begin_after(self, successor: Successor) -> None:
        """Wait until this process may serve; it has nothing of any limit then, and asks the one before."""
        self._refuse_if_ended()
        try:
            await successor.ready()
        except TakeoverError as error:
            raise StartError(f"takeover: {error}") from None
        self._refuse_if_ended()
        if successor.is_alone:
            self.engine.registry.first.empty_at(self.engine.clock())
        else:
            self.share_limits(successor.link, has_all=False)

    def _refuse_if_ended(self) -> None:
        if self.drain.cause:
            raise StartError("takeover: this process was ended before it served; the running one goes on")

    async def _share_until_alone(self, successor: Successor) -> None:
        """Share limits until the process before has ended; then the next one may take over."""
        await successor.serves()
        await self.keep_all_limits()
        structlog.get_logger().info("takeover is over: the process before has ended")
        if self.handovers is not None:
            self.handovers.start()

    def share_limits(self, link: SocketLink, *, has_all: bool) -> None:
        """Share all limits with the process at the other end of a link; `has_all`: it takes over from this one."""
        self._sharing = link, self.engine.registry.hand_over(link, has_all=has_all)
        link.share(self._sharing[1])
        self._looks.start(self._look_at_shares(self._sharing[1]), "share limits with the other process")

    async def _look_at_shares(self, limits: HandedLimits) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._in_slices(limits.look())

    async def keep_all_limits(self) -> None:
        """Have each limit whole again: the other process has ended."""
        if self._sharing is not None:
            over, self._sharing = self._sharing[0].over, None
            self._looks.cancel()
            registry, empty_since = self.engine.registry, None if over is None else over.empty_since
            await self._in_slices(registry.keep_all(self.engine.clock, empty_since, is_orderly=over is not None))

    async def _in_slices(self, units: Iterator[None]) -> None:
        done = asyncio.Event()
        self.engine.slices.run(Work.POLICIES, units, done.set)
        await done.wait()

    def end_after_drain(self) -> None:
        """End this process as soon as its drain is over."""
        self._ends.start(self._end_after_drain(), "end after the drain")

    async def _end_after_drain(self) -> None:
        await self.drain.over()
        self.ended.set()

    def sockets(self) -> Sockets:
        """Return the listening sockets of all addresses."""
        return self.server.sockets() | {key: each.sockets for key, each in self._listeners.items()}

    def pause_accepting(self) -> None:
        """Accept no connection at any address until `accept_again`."""
        self.server.pause_accepting()
        for listener in self._listeners.values():
            listener.pause_accepting()

    async def accept_again(self) -> None:
        """Accept connections at all addresses again."""
        await self.server.accept()
        for listener in self._listeners.values():
            listener.accept()

    def stop_listening(self) -> None:
        """Listen no more: another process has the sockets."""
        self.server.stop_listening()
        for listener in self._listeners.values():
            listener.stop_listening()

    async def serve_again(self) -> None:
        """Serve as before the drain: no other process has the sockets any more."""
        self._ends.cancel()
        self.drain.cancel()
        await self.accept_again()

    async def lend_store(self) -> None:
        """Lend the policy store to the next process."""
        await asyncio.to_thread(self._store.lend)

    async def take_files_back(self) -> None:
        """Use the policy store and the file of balances again."""
        try:
            await asyncio.to_thread(self._store.take_back)
        except StoreError as error:
            structlog.get_logger().error(
                "policies cannot be changed: the store was lent, and is lost", error=str(error)
            )
        try:
            if self.limit_state is not None:
                await asyncio.to_thread(self.limit_state.take_back)
        except OSError as error:
            structlog.get_logger().error("the next run begins with empty buckets", error=error.strerror)

    async def stop(self) -> None:
        """End sessions, then the log, then the admin address."""
        self.readiness.is_accepting = False
        self.engine.slices.heartbeat.stop()
        self._files.log.stop()
        self._loop = None
        self.states.stop()
        self.drain.stop()
        await self.server.stop(self.config.linger)
        if self.fleet is not None:
            await self.fleet.stop()
        if self.policy_topic is not None:
            await self.policy_topic.stop()
        self.intervals.stop()
        self._looks.cancel()
        if self._sharing is not None:
            link, limits = self._sharing
            await link.leave(limits.leave(self.engine.clock), self.engine.registry.first.empty_since)
        await asyncio.to_thread(self._leave_limits, list(self.engine.registry.limiters.values()))
        is_whole = await asyncio.to_thread(self.access.close)
        troubles = [str(state.reason) for state in self.access.degraded()]
        if troubles or not is_whole:
            structlog.get_logger().error(
                "access log: the disk did not take the last lines; the next run will say so", error="; ".join(troubles)
            )
        for listener in self._listeners.values():
            await listener.stop()
        self._tasks.cancel()
        self._ends.cancel()
        await self.service.close()
        if self.handovers is not None:
            self.handovers.stop()

    def _keep_namespace(self, fleet: FleetService) -> None:
        if self._forwarder is not None and may_make_namespaces(self.config):
            link = fleet.link
            keeper = FleetNamespace(
                fleet.config.namespace, self._forwarder.broker, lambda: link is not None and link.finds_nothing
            )
            self._tasks.start(keeper.keep(), "make the fleet's namespace")

    def _leave_limits(self, limiters: list[Limiter]) -> None:
        is_replaced = self.handovers is not None and self.handovers.is_under_way
        if self.limit_state is None or is_replaced or self._sharing is not None:
            return
        try:
            count = self.limit_state.end(limiters)
        except (OSError, StateError) as error:
            structlog.get_logger().error(
                "balances of limits are not kept: the next run begins with empty buckets",
                state=str(self.config.drain.state),
                error=getattr(error, "strerror", None) or str(error),
            )
            return
        if count is not None:
            structlog.get_logger().info("balances of limits are kept for the next run", limiters=count)

    def lost_at_end(self) -> list[str]:
        """Return the losses at the end of this process, each with the key that avoids it."""
        config = self.config
        lost = ["balances of limits: the next start fills all buckets (drain.state)"] if not config.drain.state else []
        if config.policies.store is None and config.policy_topic is None:
            lost.append("limits and blocks set at run time (policies.store)")
        return lost

    def _look_at_states(self) -> None:
        self.states.look()

    def _on_log_trouble(self, _trouble: LogTrouble, _error: str | None) -> None:
        """Called in either thread: have the loop look at the degraded states."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._look_at_states)

    def _prepare(self, config: Config) -> Callable[[Principal], Awaitable[bool]]:
        file, blocks = _file_policies(config), config.blocks
        rules = [block.rule() for block in blocks]

        def compare(before: FilePolicies) -> FileDifference:
            return difference(FileContent(before, self.reloader.config.blocks), FileContent(file, blocks))

        async def take(who: Principal) -> bool:
            blocks_changed = False

            def take_blocks(changed: FileDifference, at: tuple[int, int]) -> None:
                nonlocal blocks_changed
                self._changes.reloaded(changed, who, at)
                if changed.removed:
                    named = ", ".join((*changed.removed_names, "…")[: changed.removed])
                    structlog.get_logger().warning(
                        f"limits removed from {self._source.file}: {changed.removed}: {named}"
                    )
                blocks_changed = self.engine.blocklist.reload(rules)
                self._tasks.start(self._forget_needless(), "forget lifted blocks that the file does not have")

            return await self.service.take_file(file, compare, take_blocks) or blocks_changed

        return take

    async def _forget_needless(self) -> None:
        try:
            await self._blocks.forget_needless()
        except StoreError as error:
            structlog.get_logger().error("lifted blocks that left the file are not forgotten", error=str(error))

    def _collector(self) -> SluiceCollector:
        return SluiceCollector(
            self.engine,
            self.totals,
            self.access,
            self.intervals.settling,
            self._files.expiries,
            fleet=self.fleet,
            policy_topic=self.policy_topic,
            states=self.states,
            room=self._store.room,
        )

    def _checkup(self) -> Checkup:
        config = self.config
        folders = {
            "access_log.dir": config.access_log.dir,
            "drain.state": config.drain.state,
            "policies.store": None if config.policies.store is None else config.policies.store.parent,
        }
        return Checkup(
            brokers=self.readiness.asked,
            expiries=self._files.expiries,
            states=self.states,
            shortage=self.descriptors.shortage(),
            connections=config.max_connections,
            folders={key: folder for key, folder in folders.items() if folder is not None},
            policies=self.engine.registry.policies,
            slices=self.engine.slices,
            clock=time.time,
        )

    def _make_export(self) -> "OtlpExport | None":
        if self.config.otlp.url is None:
            return None
        from proxy.admin.otlp import OtlpExport  # noqa: PLC0415 - its messages take a megabyte

        return OtlpExport(
            self.config.otlp,
            self._collector(),
            self.engine.slices,
            self.engine.counters,
            resource={
                "service.name": "sluice",
                "service.instance.id": self.config.proxy_id,
                "service.version": self._run().version,
            },
        )

    async def _bind_admin(self, inherited: Sockets) -> str:
        config, slices = self.config, self.engine.slices
        metrics = MetricsPage(self._collector(), slices)
        bounds = RequestLimits(config.admin_access, self._refused, self.engine.clock)
        parts = Parts(
            self.service,
            self._blocks,
            self._run(),
            self.reloader,
            forwarder=self._forwarder,
            fleet=self.fleet,
            policy_topic=self.policy_topic,
            states=self.states,
            drain=self.drain,
            checkup=self._checkup(),
        )
        places = Places(self.descriptors.admin, config.admin_access.request_timeout, self._refused)
        app = admin_app(self.engine, metrics, self.readiness, parts, Guards(bounds, self.authenticator, places))
        if self._export is not None:
            self._tasks.start(self._export.run(), "export metrics by OTLP")
        if config.metrics is not None:
            pages = metrics_app(self.engine, metrics, self.readiness, parts, bounds)
            listener = Listener(pages, self._connections(), keep_alive=config.keep_alive)
            self.metrics_address = await self._bind("metrics", listener, config.metrics, inherited)
        listener = Listener(app, self._connections(), self.authenticator.context, config.keep_alive)
        return await self._bind("admin", listener, config.admin, inherited)

    def _run(self) -> Run:
        file, store = self._source.file, self.config.policies.store
        return Run(
            proxy_id=self.config.proxy_id,
            boot_id=self.access.boot_id,
            started_ns=time.time_ns(),
            version=importlib.metadata.version("pulsar-sluice"),
            config_file=str(file) if file else None,
            policies_file=str(store) if store else None,
        )

    async def _bind(self, key: str, listener: Listener, endpoint: Endpoint, inherited: Sockets) -> str:
        name = f"{key} {endpoint}"
        self._listeners[name] = listener
        try:
            return await listener.bind(endpoint, inherited.pop(name, None))
        except OSError as error:
            raise StartError(f"{key}: cannot listen on {endpoint.address}: {error.strerror or error}") from None

    def _connections(self) -> Connections:
        access = self.config.admin_access
        return Connections(self.descriptors.admin, access.request_timeout, self._refused, self.engine.slices)


def _files_of(config: Config) -> list[Path]:
    """Return the files of tokens, certificates, keys and authorities, which are read again when they change."""
    access, broker_tls = config.admin_access, config.broker_tls
    listeners = [each for each in (config.tls, access.tls) if each is not None]
    of_listeners = [file for each in listeners for file in (each.certificate, each.key, each.client_ca)]
    of_brokers = (broker_tls.ca, broker_tls.certificate, broker_tls.key)
    of_brokers_admin = config.admin_forward.ca  # its token is read for each request
    named = (access.tokens, *of_listeners, *of_brokers, of_brokers_admin, *config.authentication.files())
    return [file for file in named if file is not None]


def _share_descriptors(config: Config, counters: Counters) -> DescriptorShares:
    shares = DescriptorShares.of(config, limit_in_force())
    counters.descriptors |= {"limit": shares.limit, "needed": shares.needed, "clients": 2 * shares.clients}
    return shares


def _policy_topic(
    config: Config, engine: Engine, service: PolicyService, *, is_of_one_proxy: bool
) -> PolicyTopic | None:
    if config.policy_topic is None:
        return None
    auth = own_auth(config.fleet, engine)
    return PolicyTopic(
        config.policy_topic,
        config.broker,
        engine.dialer,
        auth,
        config.proxy_id,
        service,
        is_of_one_proxy=is_of_one_proxy,
    )


def _file_policies(config: Config) -> FilePolicies:
    return file_policies(config.limits, config.admission.subscribe_rate_per_consumer)


def _open_store(config: Config) -> Store:
    path = config.policies.store
    try:
        share = TenantShare(config.policies.tenant_policies, config.policies.tenant_bytes)
        is_alone = config.policy_topic is None and config.processes == 1
        store = Store(path, config.policies.audit_changes, share, is_alone=is_alone)
    except StoreError as error:
        raise StartError(str(error)) from None
    if path is not None and store.is_new:
        structlog.get_logger().info("policies: a new store was made; nothing is set at run time", store=str(path))
    if path is not None and config.processes == 1:  # else the parent looks
        for warning in left_over(path, 1):
            structlog.get_logger().warning(warning)
    return store


def _take_limit_state(config: Config, run: str, counters: Counters, *, is_takeover: bool) -> LimitState | None:
    folder = config.drain.state
    if folder is None:
        return None
    shared = () if config.fleet is None else config.fleet.shared_levels
    try:
        state = LimitState(folder, config.proxy_id, run, shared, time.monotonic_ns)
    except OSError as error:
        raise StartError(
            f"drain.state: {folder}: cannot be read and written by this user ({error.strerror}): chown or chmod it, or "
            "mount it writable"
        ) from None
    if is_takeover:  # its mark is that of the process before, which has the balances and drains
        return state
    counters.limit_state[state.found] = 1
    log = structlog.get_logger()
    if state.found == "loaded":
        log.info("limits go on with the balances of the run before", balances=state.detail)
    else:
        log.log(
            logging.INFO if state.found == "missing" else logging.WARNING,
            "limits begin with empty buckets, which fill from now on",
            state=str(folder),
            reason=state.detail,
        )
    return state


def _written_limits(policies: Policies) -> WrittenLimits:
    tally = policies.tally
    assert tally is not None, "policies of a fleet's member have a tally"
    return WrittenLimits(tally.digest, tally.total)


def _open_access_log(config: Config, on_trouble: Callable[[LogTrouble, str | None], None]) -> AccessLog:
    section = config.access_log
    try:
        return open_access_log(section, config.proxy_id, on_trouble, config.fleet.name if config.fleet else "")
    except AddressKeyError as error:
        raise StartError(f"access_log.address_key: {error}") from None
    except OSError as error:
        raise StartError(f"access_log.dir: {section.dir}: {error.strerror}") from None


def may_be_taken_over(config: Config) -> bool:
    """Return whether a process may be taken over: a fleet, and `processes: N`, would see two members of one name."""
    return config.fleet is None and config.processes == 1


class Handed:
    """The parts of a process that the next one takes, see `Predecessor` in `proxy/takeover.py`.

    Args:
        proxy: This process.
        manager: The manager of its service.
        process: The id of the next process.
        link: The connection to it.
    """

    def __init__(self, proxy: Proxy, manager: ServiceManager, process: int, link: SocketLink) -> None:
        self._proxy = proxy
        self._manager = manager
        self._process = process
        self._link = link
        self._is_given = False

    async def lend(self) -> Sockets:
        """Lend the policy store; return the listening sockets."""
        await self._proxy.lend_store()
        return self._proxy.sockets()

    async def give(self) -> None:
        """Accept no more, and share all limits."""
        self._is_given = True
        self._proxy.pause_accepting()
        self._proxy.share_limits(self._link, has_all=True)

    async def take_back(self) -> None:
        """Undo `lend`, `give` and `leave`."""
        if self._is_given:
            await self._proxy.keep_all_limits()
            await self._proxy.serve_again()
        await self._proxy.take_files_back()

    def leave(self) -> None:
        """Have all clients leave, and end then."""
        self._manager.replaced(self._process)
        self._proxy.drain.begin("takeover", is_replaced=True)
        self._proxy.end_after_drain()

    async def release(self) -> None:
        """Listen no more, and have each limit whole."""
        self._proxy.stop_listening()
        await self._proxy.keep_all_limits()


class Parent(Protocol):
    """The parent of one of several processes.

    Attributes:
        index: The number of this process.
    """

    index: int

    def starting(self) -> None:
        """Cancel the calling task if the parent ends before `serving` is called."""
        ...

    def serving(self, places: dict[str, str | None], on_parent_end: Callable[[], None]) -> None:
        """Send the parent this process's addresses and files, and signs of life; call `on_parent_end` at its end."""
        ...


def successor_of(config: Config) -> Successor | None:
    """Ask the running process for its sockets; None if no process runs that could be taken over.

    Raises:
        StartError: If this configuration allows no takeover, or the running process does not answer in time.
    """
    if not may_be_taken_over(config):
        raise StartError(
            "takeover: not possible for the members of a fleet, nor with `processes`: restart them in turn"
        )
    if config.drain.state is None:
        raise StartError("takeover: needs drain.state, the folder by which the running process is found")
    try:
        return Successor.ask(Door(config.drain.state, config.proxy_id), config.drain.timeout + config.linger + START_S)
    except TakeoverError as error:
        raise StartError(f"takeover: {error}") from None


def run(source: ConfigSource, parent: Parent | None = None, successor: Successor | None = None) -> None:
    """Serve until SIGTERM, which drains first, or SIGINT; SIGHUP and changed files reload.

    Args:
        source: Where the configuration comes from.
        parent: The parent of this process, if it is one of several.
        successor: The takeover of the process before.

    Raises:
        ConfigError: If the configuration cannot be used.
        StartError: If the proxy cannot start.
    """
    set_up_operator_log(None if parent is None else parent.index)
    set_up_runtime()
    raise_limit()
    uvloop.run(_serve(source, parent, successor))


async def _serve(source: ConfigSource, parent: Parent | None = None, successor: Successor | None = None) -> None:
    with paused_collector():
        proxy = Proxy(source, successor)
        keep_for_ever()
    if parent is not None:
        parent.starting()
    slices = proxy.engine.slices
    searches = Searches(asyncio.get_running_loop().call_soon_threadsafe, partial(slices.measure, Work.MEMORY))
    slices.after_work(searches.search_youngest)
    with searches.at_work():
        await _serve_until_signal(proxy, parent)


async def _serve_until_signal(proxy: Proxy, parent: Parent | None = None) -> None:
    log = structlog.get_logger()
    config, ending, tasks = proxy.config, proxy.ended, Tasks()
    try:
        shortage = proxy.descriptors.shortage()
        if shortage is not None:
            log.warning(shortage, max_connections=config.max_connections)
        if proxy.is_unlimited and (parent is None or parent.index == 0):
            log.warning(NO_LIMITS)
        problem = be_scheduled(config.scheduling)
        if problem is not None:
            log.warning("not scheduled as configured", scheduling=config.scheduling, error=problem)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, _end_at_once, proxy)
        loop.add_signal_handler(signal.SIGTERM, _drain_or_end(proxy))
        loop.add_signal_handler(signal.SIGHUP, lambda: tasks.start(_reload(proxy, "SIGHUP"), "reload"))
        listen, admin = await proxy.start()
        addresses = {"listen": listen, "admin": admin, "metrics": proxy.metrics_address}
        files = {"access_log": config.access_log.dir, "policies": config.policies.store}
        named = addresses | {key: None if file is None else str(file) for key, file in files.items()}
        log.info("serving", **named, broker=", ".join(map(str, config.broker)))
        loop.add_signal_handler(signal.SIGUSR2, lambda: tasks.start(_start_next(proxy), "start the next process"))
        manager = ServiceManager(os.environ if parent is None else {})
        lost = proxy.lost_at_end()
        if lost:
            log.info("not kept beyond the end of this process", lost="; ".join(lost))
        if parent is not None:
            parent.serving(named, ending.set)
        tasks.start(manager.serving(), "report to the service manager")
        tasks.start(_watch(proxy), "watch the configuration")
        await ending.wait()
        if proxy.handovers is None or not proxy.handovers.is_under_way:
            manager.ending()
        log.info("ending", connections=sum(proxy.engine.counters.connections_open.values()))
    finally:
        tasks.cancel()
        await proxy.stop()
    log.info("ended")


def _drain_or_end(proxy: Proxy) -> Callable[[], None]:
    """Return the handler of SIGTERM: the first one drains, or awaits the drain that REST has begun; the second ends."""
    is_first = True

    def on_signal() -> None:
        nonlocal is_first
        if is_first:
            if not proxy.readiness.is_accepting:
                structlog.get_logger().info("ended before it serves")
            proxy.drain.begin("SIGTERM")
            proxy.end_after_drain()
        else:
            proxy.drain.end()
        is_first = False

    return on_signal


def _end_at_once(proxy: Proxy) -> None:
    if not proxy.ended.is_set():
        proxy.drain.end("SIGINT")
        proxy.ended.set()


async def _start_next(proxy: Proxy) -> None:
    """Start a process with the command of this one, which takes over from it; report its failure."""
    log = structlog.get_logger()
    if proxy.handovers is None:
        log.error("no takeover: it needs drain.state, and is not possible in a fleet or with `processes`")
        return
    command = [*sys.orig_argv, *(["--takeover"] if "--takeover" not in sys.orig_argv else [])]
    environment = {name: value for name, value in os.environ.items() if name != "WATCHDOG_PID"}
    start = partial(subprocess.Popen[bytes], command, env=environment, stdin=subprocess.DEVNULL)
    try:
        process = await asyncio.to_thread(start)
        while process.poll() is None:  # noqa: ASYNC110 - a child of another loop's making
            await asyncio.sleep(_LOOK_S)
    except OSError as error:
        log.error("takeover: no process can be started", command=command[0], error=error.strerror)  # noqa: TRY400
        return
    log.error("takeover: the new process has ended; its own lines say why", code=process.returncode)


async def _reload(proxy: Proxy, cause: str) -> None:
    try:
        await proxy.reloader.reload(cause)
    except Exception:  # noqa: BLE001 - the watch must go on for the next reload
        structlog.get_logger().exception("reload failed", cause=cause)


async def _watch(proxy: Proxy) -> None:
    if not proxy.read_files:
        return
    try:
        async for _ in changes_of(proxy.read_files):
            await _reload(proxy, "file changed")
    except (OSError, RuntimeError) as error:
        structlog.get_logger().error(
            "changes of the configuration's files are not noticed; send SIGHUP", error=str(error)
        )
