"""`GET /sluice/audit?limit=100`: who changed what from what to what, the newest first."""

import asyncio
from datetime import UTC, datetime
from typing import TypedDict

import msgspec
from aiohttp import web

from proxy.admin.openapi.described import described
from proxy.admin.questions import Number, asked, explaining
from proxy.policies.store import Audited, Store

LIMIT = Number(name="limit", meaning="how many of them", default=100, most=10_000)


class AuditedChange(TypedDict):
    """A change; bodies are as the store keeps them, null for none."""

    at: str
    who: str
    address: str
    kind: str
    setting: str
    name: str
    before: str | None
    after: str | None


class AuditPage(TypedDict):
    """The latest changes."""

    changes: list[AuditedChange]


class AuditRest:
    """Serves it.

    Args:
        store: Which remembers it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [web.get("/sluice/audit", explaining(self.get))]

    @described({200: AuditPage}, query=(LIMIT,))
    async def get(self, request: web.Request) -> web.Response:
        """Who changed what from what to what, the newest first."""
        most = LIMIT.read(asked(request, (LIMIT,)))
        body = await asyncio.to_thread(self._page, most)
        return web.Response(body=body, content_type="application/json")

    def _page(self, most: int) -> bytes:
        answer: AuditPage = {"changes": [_shown(audited) for audited in self._store.audited(most)]}
        return msgspec.json.encode(answer)


def _shown(audited: Audited) -> AuditedChange:
    change = audited.change
    return {
        "at": datetime.fromtimestamp(audited.at_ns / 10**9, UTC).isoformat(timespec="milliseconds"),
        "who": audited.who,
        "address": audited.address,
        "kind": change.key.kind.value,
        "setting": change.key.setting,
        "name": change.key.name,
        "before": change.before,
        "after": change.after,
    }
