"""The parts of a running `sluice serve`: put together, started, and stopped in order."""

import asyncio
import importlib.metadata
import os
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from fleet.messages import WrittenLimits
from limiter.policies import Change, LimitTally, Policies
from proxy.addresses import AGAIN_S, Addresses
from proxy.admin.app import Guards, Parts, admin_app, metrics_app
from proxy.admin.auth import Authenticator
from proxy.admin.forwarding.fleet_namespace import FleetNamespace, may_make_namespaces
from proxy.admin.forwarding.forwarder import Forwarder
from proxy.admin.listener import Connections, Listener, RequestLimits
from proxy.admin.metrics import MetricsPage, SluiceCollector
from proxy.admin.places import Places
from proxy.admin.readiness import BrokerHealth, Readiness
from proxy.admin.refusals import RefusalLog
from proxy.admin.routes.status import Run
from proxy.block_rules import Block
from proxy.blocking.blocklist import FileChange
from proxy.change_log import ChangeLog, FileContent, FileDifference, difference
from proxy.checkup import Checkup
from proxy.config.limits import Limits
from proxy.config.model import Config
from proxy.config.sections import Fleet
from proxy.config.written import passed_over
from proxy.counters import Counters
from proxy.credential_files import CredentialFiles
from proxy.degraded import DegradedStates
from proxy.descriptors import DescriptorShares, limit_in_force
from proxy.drain import DrainCause, DrainService
from proxy.files import warn_of_passed_over
from proxy.fleet.configured_link import FleetToken, link_of, own_auth
from proxy.fleet.link import Callbacks, FleetLink
from proxy.fleet.policy_topic import PolicyTopic
from proxy.fleet.service import FleetService
from proxy.kept_state import KeptState
from proxy.limit_sharing import Holding, LimitSharing
from proxy.observe.access_log import AccessLog, open_access_log
from proxy.observe.intervals import Intervals
from proxy.observe.limit_history import LimitHistory
from proxy.observe.log_lines import AddressKeyError
from proxy.observe.log_writer import LogTrouble
from proxy.observe.operator_log import choose_form
from proxy.observe.totals import NamespaceTotals
from proxy.policies.bodies import BodyError
from proxy.policies.kept_blocks import BlockDesk, KeptBlocks
from proxy.policies.keys import ActionKind, PolicyKind, Principal
from proxy.policies.layers import FilePolicies, file_policies
from proxy.policies.service import Around, Moment, PolicyService
from proxy.policies.store import Action, StoredChange, StoreError
from proxy.reload import BROKERS, Fingerprint, Reloader, fingerprints
from proxy.runtime import StartError, Tasks
from proxy.server import Server, Sockets
from proxy.service_manager import ServiceManager
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from proxy.slices import CallsInSlices, InTurn, Work, letting_go
from proxy.takeover import Door, Handovers, SocketLink, Successor, TakeoverError

if TYPE_CHECKING:
    from proxy.admin.otlp import OtlpExport


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


@dataclass(frozen=True, slots=True)
class _AdminAccess:
    """The objects that let callers of the admin address in, or send their requests on to a broker."""

    refused: RefusalLog
    authenticator: Authenticator
    forwarder: Forwarder | None


@dataclass(frozen=True, slots=True)
class _Opened:
    """The file descriptors of each purpose, the access log, and the state that a run leaves to the next one."""

    descriptors: DescriptorShares
    access: AccessLog
    kept: KeptState


@dataclass(frozen=True, slots=True)
class _Core:
    """The objects that limit clients, and count.

    Args:
        engine: The objects that all sessions share.
        intervals: Turns counts into lines and totals.
        totals: The sums by namespace.
        fleet: The proxy's part in its fleet; None without one.
        link: Makes the link to the fleet; None without one.
        token: The token of the fleet's own connections; None without one.
    """

    engine: Engine
    intervals: Intervals
    totals: NamespaceTotals
    fleet: FleetService | None
    link: Callable[[Callbacks], FleetLink] | None
    token: FleetToken | None


@dataclass(frozen=True, slots=True)
class _Policies:
    """The limits and blocks in force: of the file, and set at run time.

    Args:
        service: Reads and changes them.
        blocks: Reads and changes blocks.
        log: Writes each change into the access log.
        sharing: Shares all limits with the other process of a takeover, which gets each change.
        topic: Shares changes with other proxies; None without a topic.
    """

    service: PolicyService
    blocks: BlockDesk
    log: ChangeLog
    sharing: LimitSharing
    topic: PolicyTopic | None


@dataclass(frozen=True, slots=True)
class _Surface:
    """The parts by which clients and operators reach the proxy, and see how it is."""

    files: CredentialFiles
    reloader: Reloader
    brokers: BrokerHealth
    states: DegradedStates
    server: Server
    addresses: Addresses
    drain: DrainService
    readiness: Readiness


class Proxy:
    """The parts of a running `sluice serve`.

    Args:
        source: The source of the configuration, which is read at once.
        successor: The takeover of the process before; None: there is none.
        given: The sockets of the service manager, or of the parent.

    Raises:
        StartError: If the access log's folder cannot be made, or the policy store or `drain.state` not be used.
        ConfigError: If a file of tokens, certificates or keys cannot be used.

    Attributes:
        read_files: Files whose changes are a reason to read the configuration again, as they were before it was read.
        config: The configuration without its limits, which the service keeps.
        ended: Set when this process is to end.
        handovers: Lets the next process take over; None where that is not possible.
        limits: The limits and the file of their balances, as they change hands.
        metrics_address: `host:port` of the address that serves metrics alone; None without one.
    """

    def __init__(self, source: ConfigSource, successor: Successor | None = None, given: Sockets | None = None) -> None:
        self.read_files, config = _read(source)
        self.config = config.model_copy(update={"limits": Limits()})
        self._names_limits = "limits" in config.model_fields_set
        self._source, self._successor = source, successor
        self.metrics_address: str | None = None
        self.ended = asyncio.Event()
        self._is_to_end = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop in which the proxy serves; None before `start` and after `stop`."""
        self._tasks, self._ends = Tasks(), Tasks()
        self.handovers = self._make_handovers()
        counters = Counters()
        self._admin = _admin_access(config, counters)
        with ExitStack() as unless_made:  # without the log's end, the next run would take this one for killed
            opened = self._open(counters, unless_made)
            self.descriptors, self.access, self.kept = opened.descriptors, opened.access, opened.kept
            core = self._make_core(counters)
            self.engine, self.fleet, self._core = core.engine, core.fleet, core
            policies = self._make_policies(_file_policies(config))
            self.service, self.policy_topic, self._policies = policies.service, policies.topic, policies
            self.limits = Holding(self.engine, policies.sharing, self.kept)
            surface = self._make_surface(given)
            self.server, self.addresses, self.drain = surface.server, surface.addresses, surface.drain
            self.reloader, self.brokers, self._files = surface.reloader, surface.brokers, surface.files
            self.states, self.readiness = surface.states, surface.readiness
            self._history = LimitHistory(
                self.engine.registry.limiters, self.engine.journal, self.engine.slices, self.engine.clock
            )
            self._collector = self._make_collector()
            self._export = self._make_export()
            unless_made.pop_all()

    def _make_handovers(self) -> Handovers | None:
        state = self.config.drain.state
        if state is None or not may_be_taken_over(self.config):
            return None
        return Handovers(Door(state, self.config.proxy_id), partial(Handed, self, ServiceManager(os.environ)))

    def _open(self, counters: Counters, unless_made: ExitStack) -> _Opened:
        """Open the access log and what the run before has left; `unless_made` gets the calls that undo it."""
        config = self.config
        descriptors = _share_descriptors(config, counters)
        access = _open_access_log(config, self._on_log_trouble)
        unless_made.callback(access.close)
        kept = KeptState(config, access.boot_id, counters, is_takeover=self._successor is not None)
        unless_made.callback(kept.leave_balances, [])
        return _Opened(descriptors, access, kept)

    def _make_core(self, counters: Counters) -> _Core:
        config, section = self.config, self.config.fleet
        policies = Policies(tally=None if section is None else LimitTally(section.shared_levels))

        def in_slices(call: Callable[[], int | None], key: Hashable) -> None:
            """Make a call of the fleet in slices of the engine, which is made later."""
            fleet_calls.add(call, key)

        fleet = None if section is None else self._make_fleet(section, policies, in_slices)
        engine = Engine(
            self.descriptors.within(config),
            policies,
            counters,
            shared_limits=None if fleet is None else fleet.shared,
            siblings=None if fleet is None else fleet.brokers,
            bound_of_clients=self.descriptors.bound_of_clients(config),
            first=self.kept.first_balances,
        )
        fleet_calls = CallsInSlices(engine.slices, Work.FLEET)
        totals = NamespaceTotals()
        log = config.access_log
        intervals = Intervals(self.access, totals, engine, interval_s=log.interval, steady_s=log.steady_interval)
        token = None if section is None or section.token_file is None else FleetToken(section.token_file)
        link = None if fleet is None else link_of(config, token, engine)
        return _Core(engine, intervals, totals, fleet, link, token)

    def _make_fleet(self, section: Fleet, policies: Policies, in_slices: InTurn) -> FleetService:
        return FleetService(
            section,
            self.config.proxy_id,
            in_slices,
            on_share=self.access.share,
            written=partial(_written_limits, policies),
            members=self._source.members,
            version=importlib.metadata.version("pulsar-sluice"),
        )

    def _make_policies(self, file: FilePolicies) -> _Policies:
        kept_blocks = KeptBlocks(self.engine.blocklist)
        service = self._open_policies(file, kept_blocks)
        sharing = LimitSharing(self.engine, self._follow)
        topic = self._make_policy_topic(service)
        return _Policies(service, BlockDesk(service, kept_blocks), ChangeLog(self.access), sharing, topic)

    def _open_policies(self, file: FilePolicies, blocks: KeptBlocks) -> PolicyService:
        intervals = self._core.intervals
        around = Around(
            before=intervals.change,
            after=self._policies_changed,
            changed=self._policy_changed,
            handlers={PolicyKind.BLOCK: blocks},
            ready=intervals.lines_written,
            on_degraded=self._look_at_states,
        )
        try:
            return PolicyService(self.engine.registry.policies, file, self.kept.store, around)
        except (StoreError, BodyError) as error:
            raise StartError(str(error)) from None

    def _make_policy_topic(self, service: PolicyService) -> PolicyTopic | None:
        config = self.config
        if config.policy_topic is None:
            return None
        return PolicyTopic(
            config.policy_topic,
            self.engine.dialer,
            own_auth(self._core.token, self.engine),
            config.proxy_id,
            service,
            self.engine.slices,
            is_of_one_proxy=self._source.members > 0 and config.policies.topic is None,
        )

    def _make_surface(self, given: Sockets | None) -> _Surface:
        engine, service, admin = self.engine, self.service, self._admin
        broker_admin = None if admin.forwarder is None else admin.forwarder.broker
        files = CredentialFiles(engine.tls, admin.authenticator, broker_admin, engine.identity, self._core.token)
        reloader = self._make_reloader(files)
        brokers = BrokerHealth(engine, self._look_at_states)
        states = DegradedStates(
            watched=[part.degraded for part in (self.fleet, self.policy_topic) if part is not None],
            announced=[part.degraded for part in (service, reloader, self.access, brokers)],
        )
        log = SessionLog(engine.counters, self._core.intervals, self.access)
        server = Server(engine, log, most=self.descriptors.clients)
        inherited = Sockets() if self._successor is None else self._successor.sockets
        inherited.add(given or Sockets())
        drain = DrainService(self.config.drain, engine, server, service.note)
        return _Surface(
            files=files,
            reloader=reloader,
            brokers=brokers,
            states=states,
            server=server,
            addresses=Addresses(server, inherited),
            drain=drain,
            readiness=Readiness(engine, brokers, drain, states),
        )

    def _policy_changed(self, change: StoredChange, author: Principal, at: Moment) -> None:
        self._policies.log.changed(change, author, at)
        self._policies.sharing.changed(change, author)

    def _follow(self, change: StoredChange, author: Principal) -> None:
        """Put a change in force that the process has stored that takes over, until this one ends."""
        if self.readiness.is_accepting:
            self.service.follow(change, author)

    def _policies_changed(self, changes: Iterable[Change], now: int) -> None:
        changed = list(changes)
        self.engine.policies_changed(changed, now)
        self._collector.policies_changed()
        self.engine.slices.run(Work.SCRAPES, self._core.totals.expecting_changed(changed), later=True)

    def _make_reloader(self, files: CredentialFiles) -> Reloader:
        return Reloader(
            self.config,
            self._reread,
            files.readers(),
            self._prepare,
            self.engine.counters,
            on_files=files.on_read,
            on_outcome=self._look_at_states,
            measure=partial(self.engine.slices.measure, Work.FILES),
        )

    def _reread(self) -> Config:
        _warn_of_files(self._source.file)
        return (self._source.reread or self._source.read)()

    def _make_collector(self) -> SluiceCollector:
        collector = SluiceCollector(
            self.engine,
            self._core.totals,
            self.access,
            self._core.intervals.settling,
            self._files.expiries,
            fleet=self.fleet,
            policy_topic=self.policy_topic,
            states=self.states,
            room=self.kept.store.room,
            readiness=self.readiness,
            history=self._history,
        )
        collector.choose_limits(self.config.metrics_limits)
        return collector

    @property
    def is_unlimited(self) -> bool:
        """Whether no limit is in force, and the configuration does not say that this is meant."""
        return not self._names_limits and self.engine.registry.policies.is_empty

    async def start(self) -> tuple[str, str]:
        """Listen on all addresses; returns those for clients and for the admin REST.

        Raises:
            StartError: If one cannot be had.
        """
        self._core.intervals.start()
        self.engine.slices.run(Work.SCRAPES, self._core.totals.expecting(self.engine.registry.policies))
        admin = await self._bind_admin()
        listen = await self.addresses.bind_for_clients()
        if self._successor is not None:
            await self._begin_after(self._successor)
        await self._forget_needless()
        if self.handovers is not None:
            self.handovers.listen()
        self.addresses.accept_callers()
        if self.fleet is not None and self._core.link is not None:
            await self.fleet.start(self._core.link)
            self._keep_namespace(self.fleet)
        if self.policy_topic is not None:
            await self.policy_topic.start()
        await self.server.accept()
        self.kept.serve()
        self.readiness.is_accepting = True
        self.brokers.look()
        self._history.start()
        self.engine.slices.heartbeat.start()
        self._files.expiry_log.start()
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
            await asyncio.to_thread(self.kept.take_left)
        else:
            self._policies.sharing.begin(successor.link, has_all=False)

    def _refuse_if_ended(self) -> None:
        if self.drain.cause:
            raise StartError("takeover: this process was ended before it served; the running one goes on")

    async def _share_until_alone(self, successor: Successor) -> None:
        """Share limits until the process before has ended; then the next one may take over."""
        await successor.serves()
        took = Action(ActionKind.DRAIN, "", "took over from the process before")
        self.service.note(took, Principal(DrainCause.TAKEOVER, ""))
        await self.limits.take_over()
        structlog.get_logger().info("takeover is over: the process before has ended")
        if self.handovers is not None:
            self.handovers.start()

    def terminate(self, cause: DrainCause = DrainCause.SIGTERM) -> bool:
        """Drain, or await the drain that is under way, and end then; return False if that was asked for before."""
        if self._is_to_end:
            return False
        self._is_to_end = True
        self.drain.begin(cause, has_served=self.readiness.is_accepting)
        self.end_after_drain()
        return True

    def end_after_drain(self) -> None:
        """End this process as soon as its drain is over."""
        self._ends.start(self._end_after_drain(), "end after the drain")

    async def _end_after_drain(self) -> None:
        await self.drain.over()
        self.ended.set()

    async def follow_to_the_end(self) -> None:
        """Put all policies in force that the process has stored which had taken over, and was killed."""
        try:
            await self.service.come_back(Principal(DrainCause.TAKEOVER, ""))
        except StoreError as error:
            structlog.get_logger().error(
                "policies that were set at the process that was killed may hold after a restart alone", error=str(error)
            )

    async def serve_again(self) -> None:
        """Serve as before the takeover, which has failed, or until `stop`; a drain with another cause goes on."""
        if not self._is_to_end:
            self._ends.cancel()
            if self.drain.cause is DrainCause.TAKEOVER:
                self.drain.cancel()
        while self.readiness.is_accepting:
            try:
                await self.addresses.accept_again()
                break
            except OSError as error:
                structlog.get_logger().error(
                    "clients cannot be accepted again; it is tried each second", error=error.strerror or str(error)
                )
            await asyncio.sleep(AGAIN_S)

    async def stop(self) -> None:
        """End sessions, then the log, then the admin address."""
        if self.handovers is not None:
            self.handovers.refuse()
        self.readiness.is_accepting = False
        self.addresses.give_up()
        self.brokers.stop()
        self._history.stop()
        self.engine.slices.heartbeat.stop()
        self._files.expiry_log.stop()
        self._loop = None
        self.states.stop()
        self.reloader.stop()
        self.drain.stop()
        await self.server.stop(self.config.linger)
        if self.fleet is not None:
            await self.fleet.stop()
        if self.policy_topic is not None:
            await self.policy_topic.stop()
        self._core.intervals.stop()
        if await self.limits.leave() and self.handovers is not None:
            self.handovers.stop()  # the next process goes on with them, and need not wait for what follows
        is_whole = await asyncio.to_thread(self.access.close)
        troubles = [str(state.reason) for state in self.access.degraded()]
        if troubles or not is_whole:
            structlog.get_logger().error(
                "access log: the disk did not take the last lines; the next run will say so", error="; ".join(troubles)
            )
        await self.addresses.stop_callers()
        self._tasks.cancel()
        self._ends.cancel()
        await self.service.close()
        if self.handovers is not None:
            self.handovers.stop()

    def _keep_namespace(self, fleet: FleetService) -> None:
        if self._admin.forwarder is not None and may_make_namespaces(self.config):
            link = fleet.link
            keeper = FleetNamespace(
                fleet.config.namespace, self._admin.forwarder.broker, lambda: link is not None and link.finds_nothing
            )
            self._tasks.start(keeper.keep(), "make the fleet's namespace")

    def _look_at_states(self) -> None:
        self.states.look()

    def _on_log_trouble(self, _trouble: LogTrouble, _error: str | None) -> None:
        """Called in either thread: have the loop look at the degraded states."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._look_at_states)

    def _prepare(self, config: Config) -> Callable[[Principal], Awaitable[bool]]:
        file, blocks = _file_policies(config), config.blocks
        values = file.values
        assert isinstance(values, dict), "a table that was made of the configuration"
        rules = [block.rule() for block in blocks]
        blocklist, slices = self.engine.blocklist, self.engine.slices
        needless = dict[int, Block]()
        files = [file]

        def compare(before: FilePolicies) -> tuple[FileDifference, FileChange]:
            files.append(before)
            were = self.reloader.config.blocks
            needless.update(enumerate(were))
            return difference(FileContent(before, were), FileContent(file, blocks)), blocklist.compare(rules)

        async def take(principal: Principal) -> bool:
            blocks_changed = False
            change: FileChange | None = None

            def take_blocks(compared: tuple[FileDifference, FileChange], at: tuple[int, int]) -> None:
                nonlocal blocks_changed, change
                changed, change = compared
                self._policies.log.reloaded(changed, principal, at)
                if changed.removed:
                    structlog.get_logger().warning(
                        "limits or blocks removed from the configuration",
                        file=str(self._source.file),
                        removed=changed.removed,
                        names=", ".join((*changed.removed_names, "…")[: changed.removed]),
                    )
                with slices.measure(Work.BLOCKS):
                    blocks_changed = blocklist.lay(change)
                self._tasks.start(self._forget_needless(), "forget lifted blocks that the file does not have")

            try:
                limits_changed = await self.service.take_file(file, compare, take_blocks)
                if change is not None:
                    await slices.done(Work.BLOCKS, blocklist.laid(change))
                choose_form(config.log)
                self._collector.choose_limits(config.metrics_limits)
                others_chosen = config.metrics_limits != self.reloader.config.metrics_limits
                return self._take_brokers(config) or limits_changed or blocks_changed or others_chosen
            finally:  # the values of an unchanged file are garbage now, of a changed one the table alone
                slices.run(Work.MEMORY, letting_go(values, *self._attachments_of_others(files)))
                if needless:  # in a later turn: `Reloader.config` is the other one then
                    slices.run(Work.MEMORY, letting_go(needless), later=True)

        return take

    def _attachments_of_others(self, files: Iterable[FilePolicies]) -> Iterator[dict[str, str]]:
        """Yield the attachments to resource groups of the files that are not in force."""
        in_force = self.service.file
        for file in files:
            for name in ("groups_of_tenants", "groups_of_namespaces"):
                table = getattr(file, name)
                if table and table is not getattr(in_force, name):
                    yield table

    def _take_brokers(self, config: Config) -> bool:
        """Put the brokers in force, and return whether they are other ones."""
        before = self.reloader.brokers_of
        is_same = all(getattr(config, key) == getattr(before, key) for key in BROKERS)
        if is_same or config.way_to_brokers != self.config.way_to_brokers:
            return False
        self.engine.take_brokers(config)
        if self._admin.forwarder is not None:
            self._admin.forwarder.broker.take_brokers(config)
        self.brokers.brokers_changed()
        structlog.get_logger().info("brokers changed", broker=", ".join(map(str, config.broker)))
        return True

    async def _forget_needless(self) -> None:
        try:
            await self._policies.blocks.forget_needless()
        except StoreError as error:
            structlog.get_logger().error(
                "lifted blocks that the configuration has no more cannot be removed from the store", error=str(error)
            )

    def _checkup(self) -> Checkup:
        config = self.config
        folders = {
            "access_log.dir": config.access_log.dir,
            "drain.state": config.drain.state,
            "policies.store": None if config.policies.store is None else config.policies.store.parent,
        }
        return Checkup(
            brokers=self.brokers.asked,
            broker_clocks=None if self._admin.forwarder is None else self._admin.forwarder.broker.clocks_ahead_s,
            expiries=self._files.expiries,
            states=self.states,
            shortage=self.descriptors.shortage(),
            connections=config.max_connections,
            folders={key: folder for key, folder in folders.items() if folder is not None},
            member=None if self.fleet is None else self.fleet.member,
            shared=frozenset() if self.fleet is None else self.fleet.config.shared_levels,
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
            self._collector,
            self.engine.slices,
            self.engine.counters,
            fresh=self.readiness.fresh,
            resource={
                "service.name": "sluice",
                "service.instance.id": self.config.proxy_id,
                "service.version": self._run().version,
            },
        )

    async def _bind_admin(self) -> str:
        config, slices = self.config, self.engine.slices
        metrics = MetricsPage(self._collector, slices)
        bounds = RequestLimits(config.admin_access, self._admin.refused, self.engine.clock)
        parts = Parts(
            self.service,
            self._policies.blocks,
            self._run(),
            self.reloader,
            self._history,
            forwarder=self._admin.forwarder,
            fleet=self.fleet,
            policy_topic=self.policy_topic,
            states=self.states,
            drain=self.drain,
            checkup=self._checkup(),
        )
        places = Places(self.descriptors.admin, config.admin_access.request_timeout, self._admin.refused)
        app = admin_app(self.engine, metrics, self.readiness, parts, Guards(bounds, self._admin.authenticator, places))
        if self._export is not None:
            self._tasks.start(self._export.run(), "export metrics by OTLP")
        if config.metrics is not None:
            pages = metrics_app(self.engine, metrics, self.readiness, parts, bounds)
            listener = Listener(pages, self._connections(), keep_alive=config.keep_alive)
            self.metrics_address = await self.addresses.bind("metrics", listener, config.metrics)
        listener = Listener(app, self._connections(), self._admin.authenticator.context, config.keep_alive)
        return await self.addresses.bind("admin", listener, config.admin)

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

    def _connections(self) -> Connections:
        access = self.config.admin_access
        return Connections(self.descriptors.admin, access.request_timeout, self._admin.refused, self.engine.slices)


def _read(source: ConfigSource) -> tuple[dict[Path, Fingerprint | None], Config]:
    """Read the configuration; return it after the files that it depends on, as they were before it was read."""
    files = fingerprints([source.file] if source.file else [])
    config = source.read()
    choose_form(config.log)
    _warn_of_files(source.file)
    return files | fingerprints(_files_of(config)), config


def _admin_access(config: Config, counters: Counters) -> _AdminAccess:
    refused = RefusalLog(counters.admin_refused, time.monotonic_ns)
    authenticator = Authenticator(config.admin_access, refused, config.admin.host)
    return _AdminAccess(refused, authenticator, Forwarder.of(config, counters, refused))


def _files_of(config: Config) -> list[Path]:
    """Return the files of tokens, certificates, keys and authorities, which are read again when they change."""
    access, broker_tls = config.admin_access, config.broker_tls
    listeners = [each for each in (config.tls, access.tls) if each is not None]
    of_listeners = [file for each in listeners for file in (each.certificate, each.key, each.client_ca)]
    of_brokers = (broker_tls.ca, broker_tls.certificate, broker_tls.key)
    of_brokers_admin = config.admin_forward.ca  # its token is read for each request
    of_fleet = None if config.fleet is None else config.fleet.token_file
    named = (access.tokens, of_fleet, *of_listeners, *of_brokers, of_brokers_admin, *config.authentication.files())
    return [file for file in named if file is not None]


def _warn_of_files(path: Path | None) -> None:
    """Warn of files in the configuration's folder that are passed over."""
    warn_of_passed_over("a file of the configuration's folder is passed over", "config", str(path), passed_over(path))


def _share_descriptors(config: Config, counters: Counters) -> DescriptorShares:
    shares = DescriptorShares.of(config, limit_in_force())
    counters.descriptors |= {"limit": shares.limit, "needed": shares.needed, "clients": 2 * shares.clients}
    return shares


def _file_policies(config: Config) -> FilePolicies:
    return file_policies(config.limits, config.admission.subscribe_rate_per_consumer)


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
        self._proxy.limits.await_word()
        await self._proxy.kept.lend()
        return self._proxy.addresses.sockets()

    async def give(self) -> None:
        """Accept no more, and share all limits."""
        await self._proxy.limits.give_away(self._link, self._on_given)

    def _on_given(self) -> None:
        self._is_given = True
        self._proxy.addresses.pause()

    async def take_back(self) -> None:
        """Undo `lend`, `give` and `leave`."""
        is_back = await self._proxy.limits.come_back(was_given=self._is_given)
        if is_back and self._is_given:
            await self._proxy.follow_to_the_end()
        if self._is_given:
            await self._proxy.serve_again()

    def leave(self) -> None:
        """Have all clients leave, and end then."""
        self._manager.replaced(self._process)
        self._proxy.drain.begin(DrainCause.TAKEOVER)
        self._proxy.end_after_drain()

    async def release(self) -> None:
        """Listen no more, and have each limit whole."""
        self._proxy.addresses.leave()
        await self._proxy.limits.become_whole()
