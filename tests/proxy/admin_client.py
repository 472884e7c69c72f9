"""The admin address, asked without a fixed port."""

from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from limiter.levels import Setting
from limiter.policies import Policies, Value
from limiter.rates import Direction, Limit
from limiter.testing import ManualClock
from proxy.admin.app import Guards, Parts, admin_app
from proxy.admin.bounds import RequestBounds
from proxy.admin.doors import Doors
from proxy.admin.metrics import SluiceCollector
from proxy.admin.readiness import Readiness
from proxy.admin.refused import Refused
from proxy.admin.status_rest import Run
from proxy.blocking.kept import BlockDesk, KeptBlocks
from proxy.config.limits import file_policies
from proxy.config.model import Config, ConfigError
from proxy.config.reload import Reloader
from proxy.engine import Engine
from proxy.observe.access_log import AccessLog
from proxy.observe.counters import Counters
from proxy.observe.totals import NamespaceTotals
from proxy.policies.book import Around, Book
from proxy.policies.key import Kind
from proxy.policies.store import Store


class Admin:
    """An engine with its admin application on some free port.

    Attributes:
        clock: That of the bounds on requests; it stands unless a test moves it.
        limits_before_changes: The publish limit of acme/shop whenever the application said that it would change values.
    """

    def __init__(self, **settings: Any) -> None:
        config = Config.model_validate(settings)
        self.engine = Engine(config, Policies(), Counters(), lambda: None)
        kept = KeptBlocks(self.engine.blocklist)
        around = Around(self._before_change, self.engine.policies_changed, keepers={Kind.BLOCK: kept})
        self.store = Store(None)
        file = file_policies(config.limits, config.admission.subscribe_rate_per_consumer)
        self.book = Book(self.engine.registry.policies, file, self.store, around)
        self.readiness = Readiness(self.engine)
        self.limits_before_changes: list[Limit | None] = []
        metrics = CollectorRegistry(auto_describe=False)
        access = AccessLog("p", "boot", None)
        metrics.register(SluiceCollector(self.engine, NamespaceTotals(), access, lambda: None))
        self.clock = ManualClock()
        self.refused = Refused(self.engine.counters.admin_refused, self.clock)
        self.doors = Doors(config.admin_access, self.refused)
        guards = Guards(RequestBounds(config.admin_access, self.refused, self.clock), self.doors)
        self.problems: list[str] = []
        reloader = Reloader(config, lambda: config, self._check, lambda _: lambda: False, self.engine.counters)
        parts = Parts(self.book, BlockDesk(self.book, kept), Run("p", "boot", 0, "0", None, None), reloader)
        self.app = admin_app(self.engine, metrics, self.readiness, parts, guards)
        self.client = TestClient(TestServer(self.app))

    @property
    def policies(self) -> dict[Any, Value]:
        """What is set for each topic of namespaces, by direction and namespace."""
        policies, setting = self.engine.registry.policies, Setting.TOPIC_OF_NAMESPACE
        directions: tuple[Direction, ...] = ("publish", "dispatch")
        return {
            (direction, name): value
            for direction in directions
            for name, value in policies.put_under(direction, setting).items()
        }

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """The status, and the answer's JSON, text or None."""
        async with self.client.request(method, path, **more) as response:
            if response.content_type == "application/json":
                return response.status, await response.json()
            return response.status, await response.text() or None

    def _check(self) -> None:
        if self.problems:
            raise ConfigError(self.problems)

    def _before_change(self) -> None:
        value = self.policies.get(("publish", "acme/shop"))
        self.limits_before_changes.append(value.limit if value else None)
