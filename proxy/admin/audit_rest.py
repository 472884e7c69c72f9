"""`GET /sluice/audit?limit=100`: who changed what from what to what, the newest first."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from proxy.admin.questions import asked, explaining, number
from proxy.policies.store import Audited, Store

SHOWN_UNLESS_TOLD = 100
MOST_SHOWN = 10_000


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

    async def get(self, request: web.Request) -> web.Response:
        """The latest changes; bodies as the store keeps them, null for none."""
        most = number(asked(request, "limit"), "limit", SHOWN_UNLESS_TOLD, MOST_SHOWN)
        body = await asyncio.to_thread(self._page, most)
        return web.Response(body=body, content_type="application/json")

    def _page(self, most: int) -> bytes:
        return msgspec.json.encode({"changes": [_shown(audited) for audited in self._store.audited(most)]})


def _shown(audited: Audited) -> dict[str, Any]:
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
