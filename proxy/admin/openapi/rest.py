"""`GET /sluice/openapi.json`: what the admin address serves, for programs."""

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from proxy.admin.openapi.described import described
from proxy.admin.openapi.page import page


class OpenApiRest:
    """Serves the page; it is made when it is first asked for.

    Args:
        version: Of Sluice.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._page = b""

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [web.get("/sluice/openapi.json", self.get)]

    @described({200: dict[str, Any]})
    async def get(self, request: web.Request) -> web.Response:
        """This page."""
        if not self._page:
            routes = list(request.app.router.routes())
            self._page = await asyncio.to_thread(lambda: msgspec.json.encode(page(routes, self._version)))
        return web.Response(body=self._page, content_type="application/json")
