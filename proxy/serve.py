"""Puts the parts together, runs them until SIGTERM, and takes them apart in order."""

import asyncio
import signal
import time

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from limiter.policies import Policies
from proxy.admin.app import Guards, admin_app, metrics_app
from proxy.admin.bounds import RequestBounds
from proxy.admin.connections import Connections
from proxy.admin.doors import Doors
from proxy.admin.listener import Listener
from proxy.admin.metrics import SluiceCollector
from proxy.admin.readiness import Readiness
from proxy.admin.refused import Refused
from proxy.config import Config
from proxy.config_limits import file_policies
from proxy.engine import Engine
from proxy.observe.access_log import AccessLog, new_boot_id
from proxy.observe.counters import Counters
from proxy.observe.intervals import Intervals
from proxy.observe.log_files import LogFiles, Rotation
from proxy.observe.operator_log import set_up_operator_log
from proxy.observe.totals import NamespaceTotals
from proxy.policies.bodies import BodyError
from proxy.policies.book import Around, Book
from proxy.policies.store import Store, StoreError
from proxy.server import Server
from proxy.sessions.session_log import SessionLog


class StartError(Exception):
    """The proxy cannot start; the text says what is in the way."""


class Proxy:
    """One process of Sluice.

    Args:
        config: The configuration.

    Raises:
        StartError: If the access log's folder cannot be made, or the policy store not be used.
        ConfigError: If a file that `admin_access` names cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        counters = Counters()
        self._refused = Refused(counters.admin_refused, time.monotonic_ns)
        self.doors = Doors(config.admin_access, self._refused)
        self.access = _open_access_log(config)
        self.totals = NamespaceTotals()
        self.intervals = Intervals(self.access, self.totals, counters, config.access_log.interval)
        self.engine = Engine(config, Policies(), counters, self.intervals.activity)
        self._store = _open_store(config)
        self.book = self._open_book()
        self.server = Server(self.engine, SessionLog(counters, self.intervals, self.access))
        self.readiness = Readiness(self.engine)
        self.metrics_address: str | None = None
        """Where metrics alone are served, if anywhere."""
        self._listeners: list[Listener] = []

    async def start(self) -> tuple[str, str]:
        """Listen on all addresses; returns those for clients and for the admin REST.

        Raises:
            StartError: If one cannot be had.
        """
        self.intervals.start(self.engine.journal, self.engine.registry)
        admin = await self._start_admin()
        try:
            listen = await self.server.start()
        except OSError as error:
            raise StartError(f"listen: cannot listen on {self.config.listen}: {error.strerror or error}") from None
        self.readiness.is_accepting = True
        return listen, admin

    async def stop(self) -> None:
        """End sessions, then the log, then the admin address."""
        self.readiness.is_accepting = False
        await self.server.stop(self.config.linger)
        self.intervals.stop()
        if not await asyncio.to_thread(self.access.close):
            structlog.get_logger().error("access log: the disk did not take the last lines in time")
        for listener in self._listeners:
            await listener.stop()
        self._store.close()

    def _open_book(self) -> Book:
        policies, file = self.engine.registry.policies, file_policies(self.config.limits)
        around = Around(self.intervals.flush, self.engine.policies_changed)
        try:
            return Book(policies, file, self._store, around)
        except (StoreError, BodyError) as error:
            raise StartError(str(error)) from None

    async def _start_admin(self) -> str:
        metrics = CollectorRegistry()
        metrics.register(SluiceCollector(self.engine, self.totals, self.access, self.intervals.settle))
        bounds = RequestBounds(self.config.admin_access, self._refused, self.engine.clock)
        app = admin_app(self.engine, metrics, self.readiness, self.book, Guards(bounds, self.doors))
        if self.config.metrics is not None:
            alone = Listener(metrics_app(metrics, bounds), self._connections())
            self.metrics_address = await self._listen("metrics", alone, self.config.metrics)
        return await self._listen("admin", Listener(app, self._connections(), self.doors.context), self.config.admin)

    async def _listen(self, key: str, listener: Listener, address: str) -> str:
        self._listeners.append(listener)
        try:
            return await listener.start(address)
        except OSError as error:
            raise StartError(f"{key}: cannot listen on {address}: {error.strerror or error}") from None

    def _connections(self) -> Connections:
        access = self.config.admin_access
        return Connections(access.max_connections, access.request_timeout, self._refused)


def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        StartError: If the proxy cannot start.
    """
    set_up_operator_log()
    uvloop.run(_serve(config))


async def _serve(config: Config) -> None:
    log = structlog.get_logger()
    proxy = Proxy(config)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    try:
        listen, admin = await proxy.start()
        addresses = {"listen": listen, "admin": admin, "metrics": proxy.metrics_address}
        files = {"access_log": str(config.access_log.dir), "policies": str(config.policies.store)}
        log.info("serving", **addresses, broker=config.broker, **files)
        await ending.wait()
        log.info("ending", connections=len(proxy.engine.sessions))
    finally:
        await proxy.stop()
    log.info("ended")


def _open_store(config: Config) -> Store:
    try:
        return Store(config.policies.store, config.policies.audit_changes)
    except StoreError as error:
        raise StartError(str(error)) from None


def _open_access_log(config: Config) -> AccessLog:
    section, boot_id = config.access_log, new_boot_id()
    if section.dir is None:
        return AccessLog(config.proxy_id, boot_id, None)
    rotation = Rotation(section.rotate_size, section.rotate_age, section.queue)
    try:
        files = LogFiles(section.dir, f"{config.proxy_id}-{boot_id}", rotation, _log_trouble)
    except OSError as error:
        raise StartError(f"access_log.dir: {section.dir}: {error.strerror}") from None
    return AccessLog(config.proxy_id, boot_id, files)


def _log_trouble(error: OSError | None) -> None:
    log = structlog.get_logger()
    if error is None:
        log.info("access log: writing works again")
    else:
        log.error("access log: lines are lost until this is mended", error=str(error))
