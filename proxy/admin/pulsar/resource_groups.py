"""Resource groups, and the namespaces that are attached to them."""

import msgspec
from aiohttp import web

from limiter.levels import Setting
from limiter.rates import DIRECTIONS, Direction, Limit
from proxy.admin.openapi.described import NOTHING, described
from proxy.admin.pulsar.answers import RequestRefusedError, answering, caller_of, json_text, shown
from proxy.admin.pulsar.names import group_in, namespace_in
from proxy.policies.bodies import ResourceGroup, own_group, pulsar_group, read_body
from proxy.policies.keys import PolicyKey, PolicyKind, PolicyTarget
from proxy.policies.service import PolicyService
from proxy.policies.state import to_set_numbers

_GROUPS = "/admin/v2/resourcegroups"
_OF_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"


class ResourceGroupRest:
    """Serves them.

    Args:
        service: Where they are.
    """

    def __init__(self, service: PolicyService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        one, attached = f"{_GROUPS}/{{group}}", f"{_OF_NAMESPACE}/{{group}}"
        return [
            web.get(_GROUPS, answering(self.list)),
            web.get(one, answering(self.get)),
            web.put(one, answering(self.put)),
            web.delete(one, answering(self.delete)),
            web.get(_OF_NAMESPACE, answering(self.attached)),
            web.post(attached, answering(self.attach)),
            web.delete(_OF_NAMESPACE, answering(self.detach)),
        ]

    @described({200: tuple[str, ...]})
    async def list(self, _request: web.Request) -> web.Response:
        """The names of all."""
        return shown(sorted(self._service.groups()))

    @described({200: ResourceGroup}, refuses=(404, 412))
    async def get(self, request: web.Request) -> web.Response:
        """One group's rates; what is not limited is -1."""
        return shown(_filled(self._found(group_in(request))))

    @described({204: NOTHING}, body=ResourceGroup | None, refuses=(412, 415), needs_body=False)
    async def put(self, request: web.Request) -> web.Response:
        """Make a group or change it: rates that the body leaves out stay as they are."""
        name = group_in(request)
        body = read_body(await json_text(request) or b"{}", ResourceGroup)
        await self._service.rework(lambda: to_set_numbers(self._service, name, body), caller_of(request))
        return web.Response(status=204)

    @described({204: NOTHING}, refuses=(404, 412))
    async def delete(self, request: web.Request) -> web.Response:
        """End a group to which nothing is attached; where there is none, a broker answers 500."""
        name = group_in(request)
        await self._service.rework(lambda: self._to_end(name), caller_of(request))
        return web.Response(status=204)

    @described({200: str}, refuses=(412,))
    async def attached(self, request: web.Request) -> web.Response:
        """The group that a namespace is attached to, without quotes; empty for none."""
        group = self._service.layers.policies.groups_of_namespaces.get(namespace_in(request))
        return shown(group) if group else web.Response()

    @described({204: NOTHING}, refuses=(412,))
    async def attach(self, request: web.Request) -> web.Response:
        """Attach a namespace, live."""
        key, name = _attachment(request), group_in(request)

        def to_attach() -> dict[PolicyKey, str | None]:
            if name not in self._service.groups():
                raise RequestRefusedError(412, "ResourceGroup does not exist")
            return {key: name}

        await self._service.rework(to_attach, caller_of(request))
        return web.Response(status=204)

    @described({204: NOTHING}, refuses=(412,))
    async def detach(self, request: web.Request) -> web.Response:
        """Take back an attachment; the file's, if there is one, holds again."""
        await self._service.change({_attachment(request): None}, caller_of(request))
        return web.Response(status=204)

    def _to_end(self, name: str) -> dict[PolicyKey, str | None]:
        key = PolicyKey(PolicyKind.GROUP, "", name)
        self._found(name)
        if self._service.read(key) is None:
            raise RequestRefusedError(412, "ResourceGroup stands in the configuration file: take it out there")
        if self._service.is_attached(name) and name not in self._service.groups_of_file():
            raise RequestRefusedError(412, "ResourceGroup is in use")
        return {key: None}

    def _found(self, name: str) -> ResourceGroup:
        kept = self._service.read(PolicyKey(PolicyKind.GROUP, "", name))
        if kept is not None and own_group(kept) is None:
            return read_body(kept, ResourceGroup)
        if name not in self._service.groups():
            raise RequestRefusedError(404, "ResourceGroup does not exist")
        return pulsar_group({place[0]: self._limit(place) for place in _places(name)})

    def _limit(self, place: PolicyTarget) -> Limit | None:
        value = self._service.layers.policies.get(*place)
        return value.limit if value else None


def _attachment(request: web.Request) -> PolicyKey:
    return PolicyKey(PolicyKind.ATTACHMENT, "namespace", namespace_in(request))


def _places(name: str) -> list[tuple[Direction, Setting, str]]:
    return [(direction, Setting.RESOURCE_GROUP, name) for direction in DIRECTIONS]


def _filled(group: ResourceGroup) -> ResourceGroup:
    said = {field: -1 if value is None else value for field, value in msgspec.structs.asdict(group).items()}
    return msgspec.structs.replace(group, **said)
