"""`GET /console`: a page that shows and changes the proxy by its REST, and `GET /sluice/caller`, the rights of a token.

The page and its parts have no data, so that a browser gets them without a token. Its user pastes one into the page,
which keeps it in memory and sends it as a header with each request to the REST; there is no cookie. The page makes
elements and sets their text: no name becomes markup. The headers have the browser hold to that.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from aiohttp import web

from proxy.admin.auth import CALLER, Access
from proxy.admin.handlers import described

_FOLDER = Path(__file__).parent.parent / "console"
_CONTENT = "{}; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The page has resources of its own origin only, no inline script and style, and no place where text is markup."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}


class ShownCaller(TypedDict):
    """The sender of the request: the name and access of its token or certificate; `tenants` is null if it is for all.

    `proxy_id` and `version` are those of the proxy that answers.
    """

    name: str
    access: Access
    tenants: list[str] | None
    proxy_id: str
    version: str


class ConsoleRest:
    """Serves the console.

    Args:
        proxy_id: The id of this proxy.
        version: The version of Sluice.
    """

    def __init__(self, proxy_id: str, version: str) -> None:
        self._proxy_id = proxy_id
        self._version = version

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [
            _resource("/console", "console.html", "text/html", "The console, a page for operators and tenants."),
            _resource("/console/console.css", "console.css", "text/css", "The style of the console."),
            _resource("/console/console.js", "console.js", "text/javascript", "The script of the console."),
            web.get("/sluice/caller", self.get),
        ]

    @described({200: ShownCaller})
    async def get(self, request: web.Request) -> web.Response:
        """Return the name and the rights of the caller."""
        caller = request[CALLER]
        answer: ShownCaller = {
            "name": caller.name,
            "access": caller.access,
            "tenants": None if caller.tenants is None else sorted(caller.tenants),
            "proxy_id": self._proxy_id,
            "version": self._version,
        }
        return web.json_response(answer)


def _resource(path: str, file: str, media: str, meaning: str) -> web.RouteDef:
    body = (_FOLDER / file).read_bytes()
    headers = {**HEADERS, "Content-Type": _CONTENT.format(media), "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}

    async def show(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers=headers)

    show.__doc__ = meaning
    handler: Callable[[web.Request], object] = described({200: {media: str}})(show)
    return web.get(path, handler)  # type: ignore[arg-type]
