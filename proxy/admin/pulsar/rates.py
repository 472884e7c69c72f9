"""Publish, dispatch and subscribe rates of namespaces, topics and subscriptions."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from aiohttp import web

from limiter.levels import About, Setting
from limiter.rates import Limit
from proxy.admin.openapi.described import NOTHING, described
from proxy.admin.pulsar.answers import RequestRefusedError, answering, caller_of, json_text, shown
from proxy.admin.pulsar.names import namespace_in, subscription_in, topic_in
from proxy.admin.questions import Either
from proxy.policies.bodies import DispatchRate, PublishRate, SubscribeRate, kept_as_pulsar_s, pulsar_body, read_body
from proxy.policies.keys import PolicyTarget, rate_key
from proxy.policies.layers import Layer
from proxy.policies.service import PolicyService

_NAMESPACES = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}"
_BODIES: dict[About, type[PublishRate | DispatchRate | SubscribeRate]] = {
    "publish": PublishRate,
    "dispatch": DispatchRate,
    "subscribe": SubscribeRate,
}
_APPLIED = Either(name="applied", meaning="true: what is in force, wherever it was set", words=("false", "true"))
_GLOBAL = Either(name="isGlobal", meaning="true: the global value (of topics)", words=("false", "true"))
_REFUSES = (404, 412)
Candidates = tuple[PolicyTarget, ...]
"""Where a value can be written that applies, the narrowest first. The first is the one that is set."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One path, and what is behind it.

    Args:
        path: Of the REST.
        about: Which rate.
        candidates: Of a request.
        unset: Status of the answer where nothing is set, as a broker gives it.
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
    """Serves one of them.

    Args:
        service: Where the values are.
        resource: Which one.
    """

    def __init__(self, service: PolicyService, resource: Resource) -> None:
        self._service = service
        self._resource = resource

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        path, body = self._resource.path, _BODIES[self._resource.about]
        found = {self._resource.unset: NOTHING, 200: body}
        get = described(found, query=(_APPLIED, _GLOBAL), refuses=_REFUSES)
        post = described({204: NOTHING}, query=(_GLOBAL,), body=body | None, refuses=(*_REFUSES, 415), needs_body=False)
        delete = described({204: NOTHING}, query=(_GLOBAL,), refuses=_REFUSES)
        return [
            web.get(path, get(answering(self.get))),
            web.post(path, post(answering(self.post))),
            web.delete(path, delete(answering(self.delete))),
        ]

    async def get(self, request: web.Request) -> web.Response:
        """What is set here, empty for nothing; with `applied=true`, what applies here, wherever it is set."""
        candidates = self._resource.candidates(request)
        if _flag(request, _APPLIED):
            return self._answer(self._applied(candidates))
        if _flag(request, _GLOBAL):
            return self._answer(self._body(Layer.GLOBAL, candidates[0]))
        return self._answer(self._body(Layer.REST, candidates[0]) or self._body(Layer.FILE, candidates[0]))

    async def post(self, request: web.Request) -> web.Response:
        """Set it, live; no body takes it back, as with Pulsar."""
        place, text = self._resource.candidates(request)[0], await json_text(request)
        kept = kept_as_pulsar_s(read_body(text, _BODIES[self._resource.about])) if text else None
        return await self._change(request, place, kept)

    async def delete(self, request: web.Request) -> web.Response:
        """Take back what was set here; the file's value, if there is one, holds again."""
        return await self._change(request, self._resource.candidates(request)[0], None)

    async def _change(self, request: web.Request, place: PolicyTarget, kept: str | None) -> web.Response:
        key = rate_key(*place, is_global=_flag(request, _GLOBAL))
        await self._service.change({key: kept}, caller_of(request))
        return web.Response(status=204)

    def _answer(self, body: msgspec.Struct | None) -> web.Response:
        return web.Response(status=self._resource.unset) if body is None else shown(body)

    def _applied(self, candidates: Candidates) -> msgspec.Struct | None:
        """What limits here; where nothing does, the narrowest value that is set, as it was written."""
        values = [(place, self._service.layers.policies.get(*place)) for place in candidates]
        found = [(place, value) for place, value in values if value]
        for place, value in sorted(found, key=lambda one: not one[1].limit):
            layer = Layer[value.origin.upper()]
            return self._body(layer, place) or _BODIES[self._resource.about].of(value.limit)
        return self._nothing()

    def _body(self, layer: Layer, place: PolicyTarget) -> msgspec.Struct | None:
        value = self._service.layers.written(layer, place)
        if value is None:
            return None
        if layer in {Layer.REST, Layer.GLOBAL}:
            key = rate_key(*place, is_global=layer is Layer.GLOBAL)
            kept = self._service.read(key)
            return pulsar_body(key, kept) if kept is not None else None
        return _BODIES[self._resource.about].of(value.limit)

    def _nothing(self) -> msgspec.Struct | None:
        """What a broker says applies where nothing is set anywhere: its own configuration's zeros."""
        return None if self._resource.about == "publish" else _BODIES[self._resource.about].of(Limit())


def refuse_replication() -> list[web.RouteDef]:
    """Rates of replication are the broker's: what replicates does not pass Sluice."""

    @described({}, refuses=_REFUSES)
    @answering
    async def refuse(_request: web.Request) -> web.Response:
        """Not here: what replicates does not pass Sluice."""
        raise RequestRefusedError(
            412, "replication does not pass Sluice: set this rate at the broker's own admin address"
        )

    return [
        route(f"{path}/replicatorDispatchRate", refuse)
        for path in (_NAMESPACES, _TOPICS)
        for route in (web.get, web.post, web.delete)
    ]


def _flag(request: web.Request, key: Either) -> bool:
    """Whatever is not true is false, as with Pulsar."""
    return request.query.get(key.name, "").lower() == "true"
