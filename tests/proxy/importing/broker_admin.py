"""A stand-in for a broker's admin REST, in the test's own loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

QUIET: dict[str, Any] = {
    "brokers/configuration/runtime": {"clusterName": "here"},
    "brokers/configuration/values": {},
    "resourcegroups": [],
    "tenants": [],
    "clusters": ["here"],
}
"""What a broker without any limit says."""


@dataclass
class BrokerAdmin:
    """Answers by path under /admin/v2 (escaped, with its query): JSON, a status and JSON, or what makes a response."""

    answers: dict[str, Any]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0

    def add_namespace(
        self, name: str, policies: dict[str, Any], *topics: str, partitioned: tuple[str, ...] = ()
    ) -> None:
        tenant = name.partition("/")[0]
        if tenant not in self.answers["tenants"]:
            self.answers["tenants"] = [*self.answers["tenants"], tenant]
        self.answers.setdefault(f"namespaces/{tenant}", []).append(name)
        self.answers[f"namespaces/{name}"] = policies
        for domain in ("persistent", "non-persistent"):
            self.answers[f"{domain}/{name}"] = [topic for topic in topics if topic.startswith(f"{domain}:")]
            self.answers[f"{domain}/{name}/partitioned"] = [
                topic for topic in partitioned if topic.startswith(f"{domain}:")
            ]

    def set_rate(self, path: str, body: object, *, is_global: bool = False) -> None:
        """A topic policy: the topic's path, and behind it publishRate or another."""
        self.answers[f"{path}?applied=false&isGlobal={str(is_global).lower()}"] = body

    async def answer(self, request: web.Request) -> web.Response:
        path = request.raw_path.removeprefix("/admin/v2/")
        self.asked.append(path)
        self.tokens.add(request.headers.get("Authorization"))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        answer = self.answers.get(path, None if "isGlobal=" in path else (404, {"reason": "not found"}))
        if callable(answer):
            response: web.Response = answer()
            return response
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        return web.Response(status=204) if body is None else web.json_response(body, status=status)


@asynccontextmanager
async def broker_admin(**answers: Any) -> AsyncIterator[BrokerAdmin]:
    admin = BrokerAdmin({**QUIET, **answers})
    app = web.Application()
    app.router.add_get("/admin/v2/{path:.*}", admin.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    admin.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield admin
    finally:
        await runner.cleanup()
