"""A service, and Pulsar's REST over it, for tests."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from limiter.levels import Setting
from limiter.policies import Policies, Value
from limiter.token_bucket import Direction
from proxy.admin.auth import CALLER, Caller
from proxy.admin.handlers import BODIES, BodyReader
from proxy.admin.routes.pulsar import pulsar_routes
from proxy.counters import Counters
from proxy.policies.layers import FilePolicies
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store
from proxy.slices import Slices

EMPTY = FilePolicies({}, {}, {})


@dataclass
class Serving:
    """Asks, and tells what came back."""

    client: TestClient[web.Request, web.Application]
    policies: Policies
    store: Store

    async def ask(self, method: str, path: str, body: Any = None, **arguments: Any) -> tuple[int, Any]:
        """Status and body: JSON where it is some, else text."""
        if body is not None:
            arguments["json"] = body
        async with self.client.request(method, f"/admin/v2{path}", **arguments) as response:
            text = await response.text()
            return response.status, await response.json() if text[:1] in {"{", "["} else text

    def messages(self, direction: Direction, setting: Setting, name: str) -> int | None:
        """The limit in force, in messages."""
        value = self.policies.get(direction, setting, name)
        return value.limit.messages.tokens if value and value.limit.messages else None


@web.middleware
async def _as_ann(request: web.Request, handler: Any) -> Any:
    request[CALLER] = Caller("ann", "10.0.0.1", "write")
    return await handler(request)


@contextlib.asynccontextmanager
async def serving(file: FilePolicies = EMPTY) -> AsyncIterator[Serving]:
    """Pulsar's REST on a free port."""
    policies, store = Policies(), Store(None)
    service = PolicyService(policies, file, store, Around(lambda: (0, 0), lambda _changes, _now: None))
    app = web.Application(middlewares=[_as_ann])
    app[BODIES] = BodyReader(Slices(Counters()))
    app.add_routes(pulsar_routes(service))
    try:
        async with TestClient(TestServer(app)) as client:
            yield Serving(client, policies, store)
    finally:
        store.close()


def file_says(**values: Value) -> FilePolicies:
    """A file with limits of each topic of namespaces, `acme_shop` for acme/shop."""
    return FilePolicies(
        {("publish", Setting.TOPIC_OF_NAMESPACE, name.replace("_", "/")): value for name, value in values.items()},
        {},
        {},
    )
