"""The admin address, asked without a fixed port."""

from collections.abc import Callable
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from limiter.levels import Setting
from limiter.policies import Policies, Value
from limiter.token_bucket import DIRECTIONS, Limit
from proxy.admin.app import Guards, Parts, admin_app
from proxy.admin.auth import Authenticator
from proxy.admin.forwarding.forwarder import Forwarder
from proxy.admin.listener import RequestLimits
from proxy.admin.metrics import MetricsPage, SluiceCollector
from proxy.admin.places import Places
from proxy.admin.readiness import BrokerHealth, Readiness
from proxy.admin.refusals import RefusalLog
from proxy.admin.routes.status import Run
from proxy.checkup import Checkup
from proxy.config.model import Config, ConfigError
from proxy.counters import Counters
from proxy.degraded import DegradedStates
from proxy.files import FileReader
from proxy.observe.access_log import AccessLog
from proxy.observe.limit_history import LimitHistory
from proxy.observe.log_lines import Writer
from proxy.observe.totals import NamespaceTotals
from proxy.policies.kept_blocks import BlockDesk, KeptBlocks
from proxy.policies.keys import PolicyKind, Principal
from proxy.policies.layers import file_policies
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store
from proxy.reload import Reloader
from proxy.session.engine import Engine
from tests.manual_clock import ManualClock


class Admin:
    """An engine with its admin application on some free port.

    Attributes:
        clock: That of the bounds on requests; it stands unless a test moves it.
        limits_before_changes: The publish limit of acme/shop whenever the application said that it would change values.
    """

    def __init__(self, **settings: Any) -> None:
        config = Config.model_validate(settings)
        self.engine = Engine(config, Policies(), Counters())
        kept = KeptBlocks(self.engine.blocklist)
        around = Around(self._before_change, self.engine.policies_changed, handlers={PolicyKind.BLOCK: kept})
        self.store = Store(config.policies.store)
        file = file_policies(config.limits, config.admission.subscribe_rate_per_consumer)
        self.service = PolicyService(self.engine.registry.policies, file, self.store, around)
        self.brokers = BrokerHealth(self.engine)
        self.readiness = Readiness(self.engine, self.brokers)
        self.limits_before_changes: list[Limit | None] = []
        access = AccessLog(Writer("p", "boot"), None)
        self.totals = NamespaceTotals()
        collector = SluiceCollector(self.engine, self.totals, access, lambda: iter(()))
        self.metrics = MetricsPage(collector, self.engine.slices)
        self.clock = ManualClock()
        self.refused = RefusalLog(self.engine.counters.admin_refused, self.clock)
        self.authenticator = Authenticator(config.admin_access, self.refused, config.admin.host)
        bounds = RequestLimits(config.admin_access, self.refused, self.clock)
        self.places = Places(config.admin_access.max_connections, config.admin_access.request_timeout, self.refused)
        guards = Guards(bounds, self.authenticator, self.places)
        self.problems: list[str] = []
        files = (FileReader("tokens", self._read_file),)
        self.reloader = Reloader(config, lambda: config, files, lambda _: _take, self.engine.counters)
        run = Run("p", "boot", 0, "0", None, None)
        self.forwarder = Forwarder.of(config, self.engine.counters, self.refused)
        checkup = Checkup(
            brokers=self.brokers.asked,
            broker_clocks=None,
            expiries=tuple,
            states=DegradedStates(),
            shortage=None,
            connections=config.max_connections,
            folders={},
            member=None,
            shared=frozenset(),
            policies=self.engine.registry.policies,
            slices=self.engine.slices,
            clock=self.clock,
        )
        engine = self.engine
        self.history = LimitHistory(engine.registry.limiters, engine.journal, engine.slices, engine.clock)
        desk = BlockDesk(self.service, kept)
        self.parts = Parts(
            self.service, desk, run, self.reloader, self.history, forwarder=self.forwarder, checkup=checkup
        )
        self.app = admin_app(self.engine, self.metrics, self.readiness, self.parts, guards)
        self.client = TestClient(TestServer(self.app))

    @property
    def policies(self) -> dict[Any, Value]:
        """What is set for each topic of namespaces, by direction and namespace."""
        policies, setting = self.engine.registry.policies, Setting.TOPIC_OF_NAMESPACE
        return {
            (direction, name): value
            for direction in DIRECTIONS
            for name, value in policies.by_name(direction, setting).items()
        }

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """The status, and the answer's JSON, text or None."""
        async with self.client.request(method, path, **more) as response:
            if response.content_type == "application/json":
                return response.status, await response.json()
            return response.status, await response.text() or None

    def _read_file(self) -> Callable[[], None]:
        if self.problems:
            raise ConfigError(self.problems)
        return lambda: None

    def _before_change(self) -> tuple[int, int]:
        value = self.policies.get(("publish", "acme/shop"))
        self.limits_before_changes.append(value.limit if value else None)
        return 0, self.engine.clock()


async def _take(_principal: Principal) -> bool:
    """The same configuration as before."""
    return False
