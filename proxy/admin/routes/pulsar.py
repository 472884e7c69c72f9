"""The part of Pulsar's admin REST that `pulsar-admin` uses to set limits.

Served are publish, dispatch and subscribe rates of namespaces, topics and subscriptions; resource groups and their
attachments; and keys of the broker's dynamic configuration that are limits. Paths, bodies and answers are those of a
4.0.8 broker, seen at work. Where Sluice answers otherwise, its test says why.

Source: org.apache.pulsar.common.naming.NamedEntity, NamespaceName, TopicName
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import unquote_plus

import msgspec
from aiohttp import web

from limiter.levels import About, Setting
from limiter.policies import PolicyTarget, Value, stricter
from limiter.token_bucket import DIRECTIONS, Limit
from protocol.topic_name import TopicName, is_entity, parse_topic
from proxy.admin.handlers import (
    NOTHING,
    Either,
    RequestRefusedError,
    Text,
    answering,
    caller_of,
    described,
    expected_by,
    json_text,
    layer_of,
    read_body_of,
    shown,
    tagged,
)
from proxy.block_rules import MOST_NAME
from proxy.bulk import in_order
from proxy.config.limits import RELATIVE
from proxy.config.values import LONGEST_PART
from proxy.policies.bodies import (
    NO_RATE,
    PERIOD,
    DispatchRate,
    PublishRate,
    ResourceGroup,
    SubscribeRate,
    check_numbers,
    kept_as_pulsar_s,
    own_group,
    pulsar_body,
    pulsar_group,
    read_body,
    requested_fields,
)
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, rate_key
from proxy.policies.layers import DYNAMIC_KEYS, read_dynamic
from proxy.policies.service import PolicyService
from proxy.policies.state import to_set_numbers

_LETTERS = "[-=:.A-Za-z0-9_]+"
_NAMES = (
    Text(name="domain", meaning="persistent or non-persistent", words=("persistent", "non-persistent")),
    Text(name="tenant", meaning="a tenant", longest=LONGEST_PART, pattern=_LETTERS),
    Text(name="namespace", meaning="a namespace of the tenant", longest=LONGEST_PART, pattern=_LETTERS),
    Text(name="topic", meaning="a topic of the namespace, without partition", longest=LONGEST_PART),
    Text(name="subscription", meaning="a subscription of the topic", longest=MOST_NAME),
    Text(name="group", meaning="a resource group", longest=MOST_NAME),
    Text(name="name", meaning="a key of the dynamic configuration", words=tuple(sorted(DYNAMIC_KEYS))),
    Text(name="value", meaning="a whole number; 0 and below mean no limit", longest=20, pattern="-?[0-9]{1,19}"),
)
PATH_NAMES = {name.name: name for name in _NAMES}
"""The variables of the paths."""
_OF_A_PARTITION = "Not allowed to set/get topic policy for a partition"


def namespace_in(request: web.Request) -> str:
    """Return the path's `tenant/namespace`.

    Raises:
        RequestRefusedError: If Pulsar does not take such names.
    """
    parts = request.match_info["tenant"], request.match_info["namespace"]
    if not all(len(part) <= LONGEST_PART and is_entity(part) for part in parts):
        raise RequestRefusedError(412, "Namespace name is not valid")
    return "/".join(parts)


def member_in(request: web.Request) -> tuple[str, str]:
    """Return the path's member of a resource group: `namespace` or `tenant`, and its name.

    Raises:
        RequestRefusedError: If Pulsar does not take such names.
    """
    if "namespace" in request.match_info:
        return "namespace", namespace_in(request)
    tenant = request.match_info["tenant"]
    if len(tenant) > LONGEST_PART or not is_entity(tenant):
        raise RequestRefusedError(412, "Tenant name is not valid")
    return "tenant", tenant


def topic_in(request: web.Request) -> TopicName:
    """Return the path's topic.

    Raises:
        RequestRefusedError: If the name is invalid, or that of a partition.
    """
    namespace, local = namespace_in(request), _form_decoded(request, _TOPIC_PART)
    _check_line("Topic", local)
    try:
        topic = parse_topic(f"{request.match_info['domain']}://{namespace}/{local}")
    except ValueError as error:
        raise RequestRefusedError(412, str(error)) from None
    if topic.partition >= 0:
        raise RequestRefusedError(412, f"{_OF_A_PARTITION}: set it for {topic.partitioned}")
    return topic


def subscription_in(request: web.Request) -> str:
    """Return the path's subscription.

    Raises:
        RequestRefusedError: If the name is invalid.
    """
    return _check_line("Subscription", _form_decoded(request, _TOPIC_PART + 1), MOST_NAME)


def group_in(request: web.Request) -> str:
    """Return the path's resource group; a broker does not check its name at all.

    Raises:
        RequestRefusedError: If the name is invalid.
    """
    return _check_line("ResourceGroup", request.match_info["group"], MOST_NAME)


_TOPIC_PART = 6
"""The place of a topic's name among the parts of a path; a subscription's name is the next one."""


def _form_decoded(request: web.Request, target: int) -> str:
    """Return a part of the path as a broker reads names of topics and subscriptions: a `+` is a space.

    pulsar-admin encodes these names as forms are encoded. A broker reads all other parts of a path as HTTP has it.

    Raises:
        RequestRefusedError: If the part has a `;`, or is not UTF-8 in percent encoding.

    Source: org.apache.pulsar.common.util.Codec, and @Encoded in org.apache.pulsar.broker.admin
    """
    part = request.rel_url.raw_path.split("/")[target]
    if ";" in part:  # a broker cuts it off: for `orders;a` it would set the limit of `orders`
        raise RequestRefusedError(412, "write ; in the path as %3B")
    try:
        return unquote_plus(part, errors="strict")
    except UnicodeError:
        raise RequestRefusedError(412, "the name is not UTF-8 in percent encoding") from None


def _check_line(kind: str, name: str, most: int = LONGEST_PART) -> str:
    """Check a name. Subscriptions and groups may be as long as in the configuration, so that all can be exported."""
    if len(name) > most or not name.isprintable():
        raise RequestRefusedError(412, f"{kind} name is not valid: more than {most} characters, or not in one line")
    return name


_NAMESPACES = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}"
_BODIES: dict[About, type[PublishRate | DispatchRate | SubscribeRate]] = {
    "publish": PublishRate,
    "dispatch": DispatchRate,
    "subscribe": SubscribeRate,
}
_APPLIED = Either(name="applied", meaning="true: the value in force, wherever it was set", words=("false", "true"))
_GLOBAL = Either(name="isGlobal", meaning="true: the global value (of topics)", words=("false", "true"))
_REFUSES = (404, 412)
Candidates = tuple[PolicyTarget, ...]
"""Places of values that may apply, the narrowest first. A request sets the first."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A path of Pulsar's REST, and the rates that it serves.

    Args:
        path: The path of the REST.
        about: The kind of rate.
        candidates: Returns the targets of a request.
        unset: The status of the answer if nothing is set, as a broker gives it.
    """

    path: str
    about: About
    candidates: Callable[[web.Request], Candidates]
    unset: int = 200


def _of_namespace(about: About, narrow: Setting, broad: Setting) -> Callable[[web.Request], Candidates]:
    return lambda request: ((about, narrow, namespace_in(request)), (about, broad, ""))


def _of_topic(about: About) -> Callable[[web.Request], Candidates]:
    def candidates(request: web.Request) -> Candidates:
        topic = topic_in(request)
        return (
            (about, Setting.TOPIC, topic.full),
            (about, Setting.TOPIC_OF_NAMESPACE, topic.namespace_name),
            (about, Setting.TOPIC_OF_BROKER, ""),
        )

    return candidates


def _of_each_subscription(request: web.Request) -> Candidates:
    topic = topic_in(request)
    return (
        ("dispatch", Setting.SUBSCRIPTION_OF_TOPIC, topic.full),
        ("dispatch", Setting.SUBSCRIPTION_OF_NAMESPACE, topic.namespace_name),
        ("dispatch", Setting.SUBSCRIPTION_OF_BROKER, ""),
    )


def _of_subscription(request: web.Request) -> Candidates:
    own: PolicyTarget = ("dispatch", Setting.SUBSCRIPTION, f"{subscription_in(request)}@{topic_in(request).full}")
    return (own, *_of_each_subscription(request))


_TOPIC, _SUBSCRIPTION = Setting.TOPIC_OF_NAMESPACE, Setting.SUBSCRIPTION_OF_NAMESPACE
_EACH_TOPIC, _EACH_SUBSCRIPTION = Setting.TOPIC_OF_BROKER, Setting.SUBSCRIPTION_OF_BROKER
RESOURCES = (
    Resource(f"{_NAMESPACES}/publishRate", "publish", _of_namespace("publish", _TOPIC, _EACH_TOPIC)),
    Resource(f"{_NAMESPACES}/dispatchRate", "dispatch", _of_namespace("dispatch", _TOPIC, _EACH_TOPIC)),
    Resource(
        f"{_NAMESPACES}/subscriptionDispatchRate",
        "dispatch",
        _of_namespace("dispatch", _SUBSCRIPTION, _EACH_SUBSCRIPTION),
    ),
    Resource(f"{_NAMESPACES}/subscribeRate", "subscribe", _of_namespace("subscribe", _TOPIC, _EACH_TOPIC)),
    Resource(f"{_TOPICS}/publishRate", "publish", _of_topic("publish"), unset=204),
    Resource(f"{_TOPICS}/dispatchRate", "dispatch", _of_topic("dispatch")),
    Resource(f"{_TOPICS}/subscriptionDispatchRate", "dispatch", _of_each_subscription),
    Resource(f"{_TOPICS}/subscribeRate", "subscribe", _of_topic("subscribe")),
    Resource(f"{_TOPICS}/{{subscription}}/dispatchRate", "dispatch", _of_subscription),
)


class RateRest:
    """Serves one resource of rates.

    Args:
        service: The policies.
        resource: The resource.
    """

    def __init__(self, service: PolicyService, resource: Resource) -> None:
        self._service = service
        self._resource = resource

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        path, body = self._resource.path, _BODIES[self._resource.about]
        answers = {self._resource.unset: NOTHING, 200: body}
        get = described(answers, query=(_APPLIED, _GLOBAL), refuses=_REFUSES)
        post = described(
            {204: NOTHING},
            query=(_GLOBAL,),
            body=body,
            refuses=(*_REFUSES, 415),
            is_conditional=True,
        )
        delete = described({204: NOTHING}, query=(_GLOBAL,), refuses=_REFUSES, is_conditional=True)
        return [
            web.get(path, get(answering(self.get))),
            web.post(path, post(answering(self.post))),
            web.delete(path, delete(answering(self.delete))),
        ]

    async def get(self, request: web.Request) -> web.Response:
        """Show the rate that is set here, empty for none; with `applied=true`, the rate that applies here."""
        candidates = self._resource.candidates(request)
        if _flag(request, _APPLIED):
            return self._answer(self._applied(candidates))
        layer = self._layer(request)
        kept = self._service.read(rate_key(*candidates[0], layer))
        if layer is Layer.GLOBAL:
            return tagged(self._answer(self._body(Layer.GLOBAL, candidates[0])), kept)
        own = self._body(layer, candidates[0]) or self._body(Layer.REST, candidates[0])
        return tagged(self._answer(own or self._body(Layer.FILE, candidates[0])), kept)

    async def post(self, request: web.Request) -> web.Response:
        """Set the rate, live. A body without a rate is refused: DELETE removes one."""
        target, text = self._resource.candidates(request)[0], await json_text(request)
        body = await read_body_of(request, partial(_rates_in, form=_BODIES[self._resource.about]), text or b"{}")
        return await self._change(request, target, kept_as_pulsar_s(body))

    async def delete(self, request: web.Request) -> web.Response:
        """Remove the rate that was set here; the file's value, if there is one, holds again."""
        return await self._change(request, self._resource.candidates(request)[0], None)

    async def _change(self, request: web.Request, target: PolicyTarget, kept: str | None) -> web.Response:
        key = rate_key(*target, self._layer(request))
        await self._service.change({key: kept}, caller_of(request), expected_by(request, key))
        return tagged(web.Response(status=204), kept)

    def _layer(self, request: web.Request) -> Layer:
        """Return the layer that a request is about. A global value is the operator's; `check_within` says so."""
        return Layer.GLOBAL if _flag(request, _GLOBAL) else layer_of(request)

    def _answer(self, body: msgspec.Struct | None) -> web.Response:
        return web.Response(status=self._resource.unset) if body is None else shown(body)

    def _applied(self, candidates: Candidates) -> msgspec.Struct | None:
        """Return the rate that limits here; if none does, the narrowest value that is set, as it was written."""
        layers = self._service.layers
        held, own = _narrowest(candidates, layers.of_operator), _narrowest(candidates, layers.of_tenant)
        if held is None and own is None:
            return self._nothing()
        limits = [placed[1].limit if placed else Limit() for placed in (held, own)]
        both = stricter(*limits)
        for placed, limit in ((held, limits[0]), (own, limits[1])):
            if placed is not None and limit == both:
                return self._body(Layer[placed[1].origin.upper()], placed[0])
        return _BODIES[self._resource.about].of(both)

    def _body(self, layer: Layer, target: PolicyTarget) -> msgspec.Struct | None:
        value = self._service.layers.written(layer, target)
        if value is None:
            return None
        if layer in {Layer.REST, Layer.GLOBAL, Layer.TENANT}:
            kept = self._service.read(rate_key(*target, layer))
            return pulsar_body(rate_key(*target, layer), kept) if kept is not None else None
        return _BODIES[self._resource.about].of(value.limit)

    def _nothing(self) -> msgspec.Struct | None:
        """Return what a broker says applies if nothing is set anywhere: the zeros of its own configuration."""
        return None if self._resource.about == "publish" else _BODIES[self._resource.about].of(Limit())


def _narrowest(
    candidates: Candidates, find: Callable[[PolicyTarget], Value | None]
) -> tuple[PolicyTarget, Value] | None:
    """Return the narrowest value that limits; if none does, the narrowest."""
    placed = [(target, value) for target in candidates if (value := find(target)) is not None]
    return next(((target, value) for target, value in placed if value.limit), placed[0] if placed else None)


def refuse_replication() -> list[web.RouteDef]:
    """Return routes that refuse rates of replication, which does not go through Sluice: these are the broker's."""

    @described({}, refuses=_REFUSES)
    @answering
    async def refuse(_request: web.Request) -> web.Response:
        """Refuse: replication does not go through Sluice."""
        raise RequestRefusedError(
            412, "replication does not go through Sluice: set this rate at the broker's own admin address"
        )

    return [
        route(f"{path}/replicatorDispatchRate", refuse)
        for path in (_NAMESPACES, _TOPICS)
        for route in (web.get, web.post, web.delete)
    ]


def _flag(request: web.Request, key: Either) -> bool:
    """Return whether a flag is `true`; anything else is false, as with Pulsar."""
    return request.query.get(key.name, "").lower() == "true"


_Rates = TypeVar("_Rates", bound=msgspec.Struct)
_BESIDE_RATES = frozenset({PERIOD, RELATIVE})


def _rates_in(text: bytes, form: type[_Rates], *, may_be_empty: bool = False) -> _Rates:
    """Return the rates in a body of Pulsar's form; unknown keys beside them are ignored, as with a broker.

    Args:
        text: The body.
        form: The form.
        may_be_empty: A body without any key is one, too: pulsar-admin makes a resource group without rates so.

    Raises:
        BodyError: If it has another form, or a number in it is no rate.
        RequestRefusedError: If no rate is in it: a misspelt key alone would put the file's limit out of force.
    """
    body, written = requested_fields(text, form)
    check_numbers(body)
    rates = [key for key in form.__struct_fields__ if key not in _BESIDE_RATES]
    if written.isdisjoint(rates) and (written or not may_be_empty):
        remedy = f"write {' or '.join(rates)}"
        raise RequestRefusedError(412, f"the body sets no rate: {remedy}; DELETE removes what is set here")
    return body


_GROUPS = "/admin/v2/resourcegroups"
_OF_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"
_OF_TENANT = "/sluice/tenants/{tenant}/resourcegroup"
"""Pulsar attaches no tenants, so this path is Sluice's own."""


class AttachedTenant(msgspec.Struct, frozen=True):
    """The resource group that a tenant is attached to."""

    resource_group: str | None


class ResourceGroupRest:
    """Serves resource groups and their attachments.

    Args:
        service: The policies.
    """

    def __init__(self, service: PolicyService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        path = f"{_GROUPS}/{{group}}"
        groups = [
            web.get(_GROUPS, answering(self.list)),
            web.get(path, answering(self.get)),
            web.put(path, answering(self.put)),
            web.delete(path, answering(self.delete)),
        ]
        for member, attached in ((_OF_NAMESPACE, self.attached), (_OF_TENANT, self.attached_tenant)):
            groups += [
                web.get(member, answering(attached)),
                web.post(f"{member}/{{group}}", answering(self.attach)),
                web.delete(member, answering(self.detach)),
            ]
        return groups

    @described({200: tuple[str, ...]})
    async def list(self, _request: web.Request) -> web.Response:
        """Return the names of all resource groups, in order."""
        return shown(await self._service.look(lambda state: [*in_order(state.groups())]))

    @described({200: ResourceGroup}, refuses=(404, 412))
    async def get(self, request: web.Request) -> web.Response:
        """Show one group's rates; -1 is no limit."""
        name = group_in(request)
        return tagged(shown(_filled(self._found(name))), self._service.read(_group(name)))

    @described({204: NOTHING}, body=ResourceGroup | None, refuses=(412, 415), needs_body=False, is_conditional=True)
    async def put(self, request: web.Request) -> web.Response:
        """Make a group or change it; rates that the body leaves out stay as they are."""
        name = group_in(request)
        read = partial(_rates_in, form=ResourceGroup, may_be_empty=True)
        body = await read_body_of(request, read, await json_text(request) or b"{}")
        expected = expected_by(request, _group(name))
        await self._service.rework(lambda: to_set_numbers(self._service, name, body), caller_of(request), expected)
        return tagged(web.Response(status=204), self._service.read(_group(name)))

    @described({204: NOTHING}, refuses=(404, 412), is_conditional=True)
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a group without attachments; if there is none, a broker answers 500."""
        name = group_in(request)
        expected = expected_by(request, _group(name))
        await self._service.rework(lambda: self._to_end(name), caller_of(request), expected)
        return web.Response(status=204)

    @described({200: str}, refuses=(412,))
    async def attached(self, request: web.Request) -> web.Response:
        """Return the group that a namespace is attached to, without quotes; empty for none."""
        group = self._service.layers.policies.groups_of_namespaces.get(namespace_in(request))
        return shown(group) if group else web.Response()

    @described({200: AttachedTenant}, refuses=(412,))
    async def attached_tenant(self, request: web.Request) -> web.Response:
        """Return the group that a tenant is attached to."""
        _, tenant = member_in(request)
        return shown(AttachedTenant(self._service.layers.policies.groups_of_tenants.get(tenant) or None))

    @described({204: NOTHING}, refuses=(412,))
    async def attach(self, request: web.Request) -> web.Response:
        """Attach a namespace or tenant to a group, live; a namespace's own group goes before its tenant's."""
        key, name = _attachment(request), group_in(request)

        def to_attach() -> dict[PolicyKey, str | None]:
            if not self._service.has_group(name):
                raise RequestRefusedError(412, "ResourceGroup does not exist")
            return {key: name}

        await self._service.rework(to_attach, caller_of(request))
        return web.Response(status=204)

    @described({204: NOTHING}, refuses=(412,))
    async def detach(self, request: web.Request) -> web.Response:
        """Remove the attachment of a namespace or tenant; the file's, if there is one, holds again."""
        await self._service.change({_attachment(request): None}, caller_of(request))
        return web.Response(status=204)

    def _to_end(self, name: str) -> dict[PolicyKey, str | None]:
        key = _group(name)
        self._found(name)
        if self._service.read(key) is None:
            raise RequestRefusedError(412, "ResourceGroup is in the configuration file: remove it there")
        if self._service.is_attached(name) and name not in self._service.groups_of_file():
            raise RequestRefusedError(412, "ResourceGroup is in use")
        return {key: None}

    def _found(self, name: str) -> ResourceGroup:
        kept = self._service.read(_group(name))
        if kept is not None and own_group(kept) is None:
            return read_body(kept, ResourceGroup)
        if not self._service.has_group(name):
            raise RequestRefusedError(404, "ResourceGroup does not exist")
        return pulsar_group({about: self._limit((about, Setting.RESOURCE_GROUP, name)) for about in DIRECTIONS})

    def _limit(self, target: PolicyTarget) -> Limit | None:
        value = self._service.layers.policies.get(*target)
        return value.limit if value else None


def _group(name: str) -> PolicyKey:
    return PolicyKey(PolicyKind.GROUP, "", name)


def _attachment(request: web.Request) -> PolicyKey:
    return PolicyKey(PolicyKind.ATTACHMENT, *member_in(request))


def _filled(group: ResourceGroup) -> ResourceGroup:
    rates = {field: -1 if value is None else value for field, value in msgspec.structs.asdict(group).items()}
    return msgspec.structs.replace(group, **rates)


_CONFIGURATION = "/admin/v2/brokers/configuration"


class DynamicConfigRest:
    """Serves the broker's dynamic configuration, as far as its keys are limits.

    Args:
        service: The policies.
    """

    def __init__(self, service: PolicyService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [
            web.get(_CONFIGURATION, answering(self.names)),
            web.get(f"{_CONFIGURATION}/values", answering(self.values)),
            web.post(f"{_CONFIGURATION}/{{name}}/{{value}}", answering(self.update)),
            web.delete(f"{_CONFIGURATION}/{{name}}", answering(self.delete)),
        ]

    @described({200: tuple[str, ...]})
    async def names(self, _request: web.Request) -> web.Response:
        """List every key that means something here."""
        return shown(sorted(DYNAMIC_KEYS))

    @described({200: dict[str, str]})
    async def values(self, _request: web.Request) -> web.Response:
        """Return the keys that are set, each value as it was written."""
        return shown(dict(sorted(self._service.dynamic.items())))

    @described({200: NOTHING}, refuses=(412,))
    async def update(self, request: web.Request) -> web.Response:
        """Set a key, live. The value must be a number; a broker takes any text and goes on as before."""
        name, value = request.match_info["name"], request.match_info["value"]
        if name not in DYNAMIC_KEYS:
            raise RequestRefusedError(412, "Can't update non-dynamic configuration")
        try:
            number = read_dynamic(name, value)
        except ValueError as error:
            raise RequestRefusedError(412, str(error)) from None
        if number < NO_RATE:
            reason = f"{name}: {value} is no rate: write 0 or -1 for no limit, or delete the key"
            raise RequestRefusedError(412, reason)
        return await self._change(request, name, value)

    @described({200: NOTHING}, refuses=(412,))
    async def delete(self, request: web.Request) -> web.Response:
        """Remove a key; the file's value holds again."""
        name = request.match_info["name"]
        if name not in DYNAMIC_KEYS:
            raise RequestRefusedError(412, "Can't delete non-dynamic configuration")
        return await self._change(request, name, None)

    async def _change(self, request: web.Request, name: str, value: str | None) -> web.Response:
        await self._service.change({PolicyKey(PolicyKind.DYNAMIC, "", name): value}, caller_of(request))
        return web.Response(status=200)


def pulsar_routes(service: PolicyService) -> list[web.RouteDef]:
    """Return the routes, for aiohttp; those of replication precede routes that would also match them."""
    rates = [route for resource in RESOURCES for route in RateRest(service, resource).routes()]
    return [*refuse_replication(), *rates, *ResourceGroupRest(service).routes(), *DynamicConfigRest(service).routes()]
