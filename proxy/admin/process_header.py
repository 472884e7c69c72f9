"""The header `Sluice-Process`: the process that answers, and in a request the process that it is meant for.

Behind one address of several replicas, as a Service of Kubernetes, each request may reach another process. A caller
that has read from one process sends that process' header with the next request: another process then refuses it.
"""

from http import HTTPStatus
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler

from proxy.admin.auth import CALLER
from proxy.admin.refusals import refusal
from proxy.admin.tenant_scope import ALWAYS_OPEN

PROCESS = "Sluice-Process"
_OF_SLUICE = "/sluice/"


class ProcessHeader:
    """Names the process in the answers of Sluice's own paths, and refuses requests that are meant for another one.

    Requests of Pulsar's own paths are refused as well, also those that are passed on to the broker.

    Args:
        proxy_id: The id of the proxy.
        boot_id: The id of its run.
    """

    def __init__(self, proxy_id: str, boot_id: str) -> None:
        self.own = f"{quote(proxy_id, safe='')}/{quote(boot_id, safe='')}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request pass unless it is meant for another process; so do probes and the console's page."""
        meant = request.headers.get(PROCESS, self.own)
        resource = request.match_info.route.resource
        if meant != self.own and (resource is None or resource.canonical not in ALWAYS_OPEN):
            reason = f"nothing was done: this is the process {self.own}, and the request is meant for {meant[:200]}"
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, reason)
        return await handler(request)

    async def name(self, request: web.Request, answer: web.StreamResponse) -> None:
        """Name the process in an answer that is about to be sent to a caller with access."""
        if CALLER in request and request.path.startswith(_OF_SLUICE):
            answer.headers[PROCESS] = self.own
