"""`/sluice/limits` lists all limits in force, and sets, shows or removes one limit in Sluice's own form.

`GET /sluice/explain?topic=…&producer=…` shows which limits hold for a topic and a client, and why. Its query has a key
for each of `CLIENT_PARTS`.
"""

import heapq
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, TypedDict, overload

from aiohttp import web

from limiter.levels import ABOUTS, ADDRESS, CLIENT_PARTS, About, Client, Setting
from limiter.policies import PolicyTarget, Value
from protocol.topic_name import parse_topic
from proxy.admin.handlers import (
    JSON,
    Either,
    Number,
    Query,
    Text,
    asked,
    author_shown,
    caller_of,
    described,
    expected_by,
    explaining,
    is_null,
    json_text,
    layer_of,
    read_body_of,
    sent,
    tagged,
)
from proxy.admin.in_force import LimitInForce, LimitsInForce, ShownDegraded, ShownInForce, ShownShares
from proxy.admin.json_text import json_of, json_with
from proxy.admin.refusals import refusal
from proxy.bulk import let_go
from proxy.config.limits import DispatchLimit, RateLimit, TopicDispatchLimit
from proxy.config.sources import cut
from proxy.policies.bodies import Section, SubscribeLimit, check_for_nulls, requested_body, section_of
from proxy.policies.explain import (
    Explained,
    ExplainedGroup,
    ExplainedValue,
    LevelLines,
    beneath,
    explain,
    explain_subscribes,
    hidden_at,
    holding,
)
from proxy.policies.keys import LONGEST, OF_OPERATOR, Layer, read_about, read_setting, read_target
from proxy.policies.policy_set import in_force
from proxy.policies.service import PolicyService
from proxy.policies.state import PolicyState, key_of, to_set, to_take_back

_PATH = "/sluice/limits"
_DIRECTION = Text(name="direction", meaning="the operation that it limits", words=ABOUTS)
_SETTING = Text(name="setting", meaning="the level of names that it is set for", words=tuple(Setting))
_NAME = Text(name="name", meaning="whose it is, as its setting has it; empty where that is of all", longest=LONGEST)
_AFTER = Text(name="after", meaning="`next` of the page before", longest=LONGEST + 100)
_LIMIT = Number(name="limit", meaning="how many to show", default=1000, most=10_000)
_LAYER = Either(
    name="layer",
    meaning="whose: the operator's, or a tenant's own (a token for tenants has that)",
    words=("rest", "tenant"),
)
_PLACE = (replace(_DIRECTION, is_needed=True), replace(_SETTING, is_needed=True), _NAME)


class ShownLimit(TypedDict):
    """A limit as the configuration writes it, with its setting and name, the layer that it is from, and its author.

    The author is the name of a token or certificate; it is empty for a file's limits.
    `plan`: the plan of the file that gives the limit; empty if the limit is of the name itself.
    `in_force`: the rates in force in this member of a fleet, if a limit of this name is shared and in use.
    """

    direction: About
    setting: str
    name: str
    limit: Section
    origin: str
    plan: str
    author: str
    in_force: ShownInForce | None


class HoldingLimit(ShownLimit):
    """The limit that holds at a target, and those that it hides there.

    `own` is the value in the layer whose ETag the answer has; null if nothing is set there. `beneath` is the operator's
    value that holds without it: of this name in a layer beneath, or else of a pattern or a wider setting, which its
    `setting` and `name` tell; null if there is none. A value that limits nothing counts as not set.
    """

    hidden: list[ShownLimit]
    own: ShownLimit | None
    beneath: ShownLimit | None
    shares: ShownShares | None


class LimitsPage(TypedDict):
    """Limits in force; `next` asks for the following ones. `shares`: those of a fleet in force, else null."""

    limits: list[ShownLimit]
    shares: ShownShares | None
    left_out: int
    next: str | None


class TakenBack(TypedDict):
    """The result of a DELETE: whether anything was taken back, and the limit that holds now.

    It may be that of a pattern or a wider setting, which its `setting` and `name` tell; null if there is none.
    """

    taken_back: bool
    in_force: ShownLimit | None


class LimitsRest:
    """Serves limits in Sluice's own form.

    Args:
        service: The policies.
        in_force: The limits in force in this proxy.
    """

    def __init__(self, service: PolicyService, in_force: LimitsInForce) -> None:
        self._service = service
        self._in_force = in_force

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [
            web.get(_PATH, explaining(self.get)),
            web.put(_PATH, explaining(self.put)),
            web.delete(_PATH, explaining(self.delete)),
        ]

    @described(
        {200: HoldingLimit | LimitsPage},
        query=(_DIRECTION, _SETTING, _NAME, _LAYER, _AFTER, _LIMIT),
        refuses=(404,),
        is_large=True,
    )
    async def get(self, request: web.Request) -> web.StreamResponse:
        """Show one limit if a name is given, even an empty one; else all, or those of one setting or direction.

        `layer` chooses the value of one limit whose ETag the answer has.
        """
        query = asked(request, (_DIRECTION, _SETTING, _NAME, _LAYER, _AFTER, _LIMIT))
        layer = Layer[_LAYER.read(query).upper()]
        if "name" in query:
            return self._one(request, _target(query), layer)
        return await self._all(request, query)

    @described(
        {200: HoldingLimit},
        query=_PLACE,
        body=RateLimit | DispatchLimit | TopicDispatchLimit | SubscribeLimit | None,
        refuses=(404, 415),
        is_conditional=True,
    )
    async def put(self, request: web.Request) -> web.Response:
        """Set one limit, live. The body is its section of the configuration, or null to limit nothing there."""
        target = _target(asked(request, _PLACE))
        section = await read_body_of(request, _section, await json_text_or_null(request))
        layer = layer_of(request)
        expected = expected_by(request, key_of(target, layer))
        await self._service.rework(lambda: to_set(self._service, target, section, layer), caller_of(request), expected)
        return self._one(request, target)

    @described({200: TakenBack}, query=(*_PLACE, _LAYER), is_conditional=True)
    async def delete(self, request: web.Request) -> web.Response:
        """Remove a limit that was set here; the value of the file holds again."""
        query = asked(request, (*_PLACE, _LAYER))
        target, layer = _target(query), max(layer_of(request), Layer[_LAYER.read(query).upper()])
        expected = expected_by(request, key_of(target, layer))
        changes = await self._service.rework(
            lambda: to_take_back(self._service, target, layer), caller_of(request), expected
        )
        held = holding(self._service, target)
        shown = self._shown if held and held[0] == target else self._written
        answer: TakenBack = {"taken_back": bool(changes), "in_force": shown(request, *held) if held else None}
        return web.json_response(answer)

    def _one(self, request: web.Request, target: PolicyTarget, layer: Layer = Layer.REST) -> web.Response:
        layers = self._service.layers
        value = layers.at(target)
        if value is None:
            return refusal(404, f"nothing is set for {cut(' '.join(part for part in target if part))}")
        hidden = hidden_at(layers, target)
        written = [layers.written(each, target) for each in (Layer.TENANT, *OF_OPERATOR) if each.origin in hidden]
        layer = max(layer, layer_of(request))
        below = beneath(self._service, target, layer)
        answer: HoldingLimit = {
            **self._shown(request, target, value),
            "hidden": [self._written(request, target, other) for other in written if other],
            "own": self._written(request, target, layers.written(layer, target)),
            "beneath": self._written(request, *below) if below else None,
            "shares": self._in_force.shares(),
        }
        return tagged(web.json_response(answer), self._service.read(key_of(target, layer)))

    @overload
    def _written(self, request: web.Request, target: PolicyTarget, value: Value) -> ShownLimit: ...
    @overload
    def _written(self, request: web.Request, target: PolicyTarget, value: Value | None) -> ShownLimit | None: ...
    def _written(self, request: web.Request, target: PolicyTarget, value: Value | None) -> ShownLimit | None:
        return None if value is None else _shown(target, value, self._author(request, target, value), _nothing)

    def _author(self, request: web.Request, target: PolicyTarget, value: Value) -> str:
        return author_shown(request, author_of(self._service, target, value.origin), value.origin)

    def _shown(self, request: web.Request, target: PolicyTarget, value: Value) -> ShownLimit:
        return _shown(target, value, self._author(request, target, value), self._in_force.limit)

    async def _all(self, request: web.Request, query: Query) -> web.StreamResponse:
        about = read_about(query["direction"]) if "direction" in query else None
        setting = read_setting(query["setting"]) if "setting" in query else None
        most, shares = _LIMIT.read(query), self._in_force.shares()
        after = tuple(_AFTER.read(query).split(" ", 2))  # the last target of the page before, which may be gone

        def page(contents: PolicyState) -> bytes:
            values = in_force(contents).values
            own = ((target, contents.layers.at(target)) for target in contents.layers.of_layer(Layer.TENANT))
            values.update((target, value) for target, value in own if value and value.limit)
            rest = [
                target
                for target in values
                if target > after and about in {None, target[0]} and setting in {None, target[1]}
            ]
            shown = [(target, values[target]) for target in heapq.nsmallest(most, rest)]
            let_go(values)
            return _page(contents, shown, len(rest) - len(shown), shares, self._in_force.limit)

        body = await self._service.look(page)
        return await sent(request, body, {"Content-Type": JSON})


async def json_text_or_null(request: web.Request) -> bytes:
    """Return the body as it is, checked to be JSON by its content type, which no other site's page can send."""
    await json_text(request)
    return await request.read()


def author_of(state: PolicyState, target: PolicyTarget, origin: str) -> str:
    """Return the author of a value; empty for a file's, and for values without an author of their own."""
    layer = Layer.__members__.get(origin.upper(), Layer.FILE)
    return state.store.author(key_of(target, layer)) if layer in {Layer.REST, Layer.GLOBAL, Layer.TENANT} else ""


def _page(
    contents: PolicyState,
    shown: list[tuple[PolicyTarget, Value]],
    left_out: int,
    shares: ShownShares | None,
    in_force: LimitInForce,
) -> bytes:
    """Return a page of limits."""
    page = {"shares": shares, "left_out": left_out, "next": " ".join(shown[-1][0]) if left_out else None}
    limits = (_shown(target, value, author_of(contents, target, value.origin), in_force) for target, value in shown)
    return json_with(page, limits=map(json_of, limits))


def _target(query: Query) -> PolicyTarget:
    if "direction" not in query or "setting" not in query:
        raise ValueError("write ?direction=…&setting=…&name=…")
    return read_target(query["direction"], query["setting"], query.get("name", ""))


def _section(text: bytes) -> dict[str, Any] | None:
    form = 'send JSON as {"messages": "500/s", "bytes": "10MB/s"}'
    if is_null(text):
        return None
    section = requested_body(text, dict[str, Any], "limit", form)
    check_for_nulls(text, section)
    return section


def _nothing(_direction: str, _level: str, _name: str) -> None:
    """Show nothing of a limit that another value hides."""


def _shown(target: PolicyTarget, value: Value, author: str, in_force: LimitInForce) -> ShownLimit:
    about, setting, name = target
    return {
        "direction": about,
        "setting": setting.value,
        "name": name,
        "limit": section_of(about, value.limit),
        "origin": value.origin,
        "plan": value.plan,
        "author": author,
        "in_force": in_force(about, setting.level.word, name),
    }


# ---- Explanations

_TOPIC = Text(name="topic", meaning="persistent://tenant/namespace/topic", is_needed=True, longest=LONGEST)
_CLIENT = {part: Text(name=part.word, meaning=part.meaning) for part in CLIENT_PARTS}
_KEYS = (_TOPIC, *_CLIENT.values())


class ExplainedLevel(TypedDict):
    """A level, whether values were looked up there, and every value that was written for it.

    `in_force`: the rates of the value that holds in this member, if a fleet shares it and clients use it.
    """

    level: str
    asked: bool
    values: list[ExplainedValue]
    in_force: ShownInForce | None


class Explanation(TypedDict):
    """The limits that hold for a topic and a client, and why; `shares` of a fleet's limits, null without a fleet."""

    topic: str
    exempt: bool
    shares: ShownShares | None
    degraded: list[ShownDegraded]
    resource_group: ExplainedGroup | None
    publish: list[ExplainedLevel]
    dispatch: list[ExplainedLevel]
    subscribe: ExplainedLevel


class ExplainRest:
    """Serves explanations of limits.

    Args:
        service: The policies.
        in_force: The limits in force in this proxy.
    """

    def __init__(self, service: PolicyService, in_force: LimitsInForce) -> None:
        self._service = service
        self._in_force = in_force

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/explain", explaining(self.get))]

    @described({200: Explanation}, query=_KEYS)
    async def get(self, request: web.Request) -> web.Response:
        """Explain the limits of a producer and of a consumer, each with its own names.

        A producer has no subscription and a consumer no producer's name, so each direction has its own client.
        """
        query = asked(request, _KEYS)
        topic = parse_topic(_TOPIC.read(query))
        publish = explain(self._service, "publish", topic, _client(query, "publish"))
        dispatch = explain(self._service, "dispatch", topic, _client(query, "dispatch"))
        answer: Explanation = {
            "topic": publish.topic,
            "exempt": publish.is_exempt,
            "resource_group": publish.group,
            "shares": self._in_force.shares(),
            "degraded": self._in_force.degraded(),
            "publish": self._levels(request, "publish", publish),
            "dispatch": self._levels(request, "dispatch", dispatch),
            "subscribe": self._level(request, "subscribe", explain_subscribes(self._service, topic)),
        }
        return web.Response(body=json_of(answer), content_type="application/json")

    def _levels(self, request: web.Request, about: About, explained: Explained) -> list[ExplainedLevel]:
        return [self._level(request, about, level) for level in explained.levels]

    def _level(self, request: web.Request, about: About, level: LevelLines) -> ExplainedLevel:
        holds = any(line.state == "holds" for line in level.lines)
        in_force = self._in_force.limit(about, level.level, level.name) if holds else None
        values = [replace(line, author=self._author(request, about, line)) for line in level.lines]
        return {"level": level.level, "asked": level.asked, "values": values, "in_force": in_force}

    def _author(self, request: web.Request, about: About, line: ExplainedValue) -> str:
        author = author_of(self._service, (about, line.setting, line.name), line.origin)
        return author_shown(request, author, line.origin)


def _client(query: Query, direction: About) -> Client:
    """Return the client of a query, with the parts that streams of the direction have."""
    values = {part: key.read(query) for part, key in _CLIENT.items()}
    values[ADDRESS] = _address(values[ADDRESS])
    return Client(**{part.field: value for part, value in values.items() if direction in part.directions})


def _address(text: str) -> str:
    try:
        return str(ip_address(text)) if text else ""
    except ValueError:
        raise ValueError(f"address: {text[:100]!r} is not an address of a client, as 10.1.2.3") from None
