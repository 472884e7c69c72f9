"""The broker's dynamic configuration, as far as its keys are limits."""

from aiohttp import web

from proxy.admin.openapi.described import NOTHING, described
from proxy.admin.pulsar.answers import RequestRefusedError, answering, caller_of, shown
from proxy.policies.keys import PolicyKey, PolicyKind
from proxy.policies.layers import DYNAMIC_KEYS, read_dynamic
from proxy.policies.service import PolicyService

_ALL = "/admin/v2/brokers/configuration"


class DynamicConfigRest:
    """Serves it.

    Args:
        service: Where the values are.
    """

    def __init__(self, service: PolicyService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [
            web.get(_ALL, answering(self.names)),
            web.get(f"{_ALL}/values", answering(self.values)),
            web.post(f"{_ALL}/{{name}}/{{value}}", answering(self.update)),
            web.delete(f"{_ALL}/{{name}}", answering(self.delete)),
        ]

    @described({200: tuple[str, ...]})
    async def names(self, _request: web.Request) -> web.Response:
        """Every key that means something here."""
        return shown(sorted(DYNAMIC_KEYS))

    @described({200: dict[str, str]})
    async def values(self, _request: web.Request) -> web.Response:
        """The keys that are set, each as it was written."""
        return shown(dict(sorted(self._service.dynamic.items())))

    @described({200: NOTHING}, refuses=(412,))
    async def update(self, request: web.Request) -> web.Response:
        """Set a key, live; unlike a broker, which takes any text and goes on as before, it wants a number."""
        name, value = request.match_info["name"], request.match_info["value"]
        if name not in DYNAMIC_KEYS:
            raise RequestRefusedError(412, "Can't update non-dynamic configuration")
        try:
            read_dynamic(name, value)
        except ValueError as error:
            raise RequestRefusedError(412, str(error)) from None
        return await self._change(request, name, value)

    @described({200: NOTHING}, refuses=(412,))
    async def delete(self, request: web.Request) -> web.Response:
        """Take a key back; the file's value holds again."""
        name = request.match_info["name"]
        if name not in DYNAMIC_KEYS:
            raise RequestRefusedError(412, "Can't delete non-dynamic configuration")
        return await self._change(request, name, None)

    async def _change(self, request: web.Request, name: str, value: str | None) -> web.Response:
        await self._service.change({PolicyKey(PolicyKind.DYNAMIC, "", name): value}, caller_of(request))
        return web.Response(status=200)
