"""`GET /sluice/limiters?search=…`: the limits at work in this process, their use, and the value and last hour of one.

A rate is the difference of a count in two answers, over the difference of their `monotonic_ms`.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Literal, TypedDict, cast

from aiohttp import web

from limiter.levels import ANYBODY, LEVEL_OF_WORD, Client, Level, Setting, StreamIdentity, Topic
from limiter.limiter import Limiter, Scope
from limiter.token_bucket import DIRECTIONS, Direction, Mode
from protocol.topic_name import parse_topic
from proxy.admin.handlers import (
    ANY_TEXT,
    JSON,
    Number,
    Text,
    asked,
    caller_of,
    described,
    encoded_each,
    explaining,
    sent,
)
from proxy.admin.in_force import FullestLimits, ShownInForce, shown_in_force
from proxy.admin.json_text import json_of, json_with
from proxy.admin.refusals import refusal
from proxy.admin.routes.streams import SEARCH
from proxy.observe.limit_history import STEP_S, LimitHistory
from proxy.observe.log_lines import per_second
from proxy.policies.bodies import Section, section_of
from proxy.policies.explain import ExplainedValue, explain_level, holders_at
from proxy.policies.keys import LONGEST, tenant_of
from proxy.policies.service import PolicyService
from proxy.session.engine import Engine
from proxy.slices import Work

_LOOKED_AT_ONCE = 10
"""Limiters in one unit of work."""
_DIRECTION = Text(name="direction", meaning="only limits of this direction", words=DIRECTIONS)
_LEVEL = Text(name="level", meaning="only limits of this level", words=tuple(LEVEL_OF_WORD))
_NAME = Text(name="name", meaning="only limits of this name", longest=LONGEST, pattern=ANY_TEXT)
_LIMIT = Number(name="limit", meaning="how many to show", default=200, most=1000)
_KEYS = (_DIRECTION, _LEVEL, _NAME, SEARCH, _LIMIT)
_ONE = (replace(_DIRECTION, is_needed=True), replace(_LEVEL, is_needed=True), _NAME)


class LimitSource(TypedDict):
    """The setting and name of a value that holds at a limit, its layer, and the plan of the file that gives it."""

    setting: Setting
    name: str
    origin: str
    plan: str


class ShownLimiter(TypedDict):
    """A limit at work; counts are since it was last made, and `waited_for_ms` is null while no stream waits.

    `source` is the source in the access log's words. `sources` has the values that hold by now, with their names, as of
    a pattern; two where a tenant's own is stricter in a part. `messages_per_s` and `bytes_per_s` are the whole limit;
    in a fleet `in_force` has this member's share of it.
    """

    direction: Direction
    level: str
    name: str
    source: str
    sources: list[LimitSource]
    mode: Mode
    messages_per_s: float | None
    bytes_per_s: float | None
    in_force: ShownInForce
    passed_messages: int
    passed_bytes: int
    rejected_messages: int
    throttled_ms: float
    waited_for_ms: float | None
    waiting_streams: int
    streams: int


class LimitersPage(TypedDict):
    """Limits at work; the clock is that of the counts."""

    monotonic_ms: float
    limiters: list[ShownLimiter]
    left_out: int


class ShownSample(TypedDict):
    """What a limit let pass in the minute that ended `ago_s` before the answer; `use` is the part of its limit."""

    ago_s: float
    messages_per_s: float
    bytes_per_s: float
    use: float


class LimitHour(TypedDict):
    """The samples of a limit's last hour, the oldest first; `step_s` is the time from one to the next."""

    step_s: float
    samples: list[ShownSample]


Reach = Literal["this limit", "each partition", "each topic"]


class LimitTarget(TypedDict):
    """The setting and its name by which `/sluice/limits` sets a limit.

    `reach`: the limits whose value the target gives, which may be more than this one: that of each partition of the
    topic, or that of each topic with such streams, of any tenant.
    """

    setting: Setting
    name: str
    reach: Reach


class LimitValue(TypedDict):
    """The value of a limit, whole: in a fleet that of all members together.

    `limit` is the value in force, as the configuration writes it; empty for no limit. `base` is the value that a change
    by the caller begins with: an operator's is the value that holds by operators' values alone, empty without one, and
    a tenant's is `limit`. `values` are those that are written for it, as `/sluice/explain` has them: by the limit's own
    name, a pattern, a plan, or a wider setting. `target` is the narrowest setting for it; null if a token for some
    tenants may not set it.
    """

    limit: Section
    base: Section
    values: list[ExplainedValue]
    target: LimitTarget | None


class LimiterRest:
    """Serves the view of the limits at work.

    Args:
        engine: The engine with the limiters.
        history: The last hour of limits in use.
        service: The policies.
    """

    def __init__(self, engine: Engine, history: LimitHistory, service: PolicyService) -> None:
        self._engine = engine
        self._history = history
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [
            web.get("/sluice/limiters", explaining(self.get)),
            web.get("/sluice/limiters/history", explaining(self.get_history)),
            web.get("/sluice/limiters/value", explaining(self.get_value)),
        ]

    @described({200: LimitersPage}, query=_KEYS, is_large=True)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """Return limits at work: first those on which streams wait, then those without tokens, then others in use.

        A token for some tenants gets the limits of these.
        """
        query = asked(request, _KEYS)
        direction, level, name = (key.read(query) for key in (_DIRECTION, _LEVEL, _NAME))
        search, tenants = SEARCH.read(query), caller_of(request).tenants
        at, slices = self._engine.clock(), self._engine.slices
        fullest = FullestLimits(_LIMIT.read(query))

        def look(limiter: Limiter) -> bool:
            scope = limiter.scope
            is_wanted = direction in {"", scope.direction} and level in {"", scope.level}
            if is_wanted and name in {"", scope.name} and search in scope.name:
                lacks, is_used = any(limiter.lacks(at)), not limiter.is_full(at)
                fullest.add((len(limiter.waiters), lacks, is_used, limiter.usage.messages), limiter)
            return False

        await slices.done(Work.REQUESTS, self._looking(tenants, look))
        chosen = fullest.first()
        shown = await encoded_each(slices, (self._shown(limiter, at) for limiter in chosen))
        sums = {"monotonic_ms": at / 1e6, "left_out": fullest.added - len(chosen)}
        return await sent(request, json_with(sums, limiters=shown), {"Content-Type": JSON})

    @described({200: LimitHour}, query=_ONE)
    async def get_history(self, request: web.Request) -> web.Response:
        """Return what one limit let pass in each minute of the last hour; no samples where it was not in use.

        A token for some tenants gets samples of the limits of these.
        """
        query = asked(request, _ONE)
        direction, level, name = (key.read(query) for key in _ONE)
        tenants, history = caller_of(request).tenants, self._history.of((direction, level, name))
        samples = history[1] if history is not None and (tenants is None or history[0].tenant in tenants) else []
        answer: LimitHour = {
            "step_s": STEP_S,
            "samples": [
                {
                    "ago_s": sample.ago_s,
                    "messages_per_s": sample.messages_per_s,
                    "bytes_per_s": sample.bytes_per_s,
                    "use": sample.use,
                }
                for sample in samples
            ],
        }
        return web.json_response(answer)

    @described({200: LimitValue}, query=_ONE, refuses=(404,))
    async def get_value(self, request: web.Request) -> web.Response:
        """Return the configured value of one limit, where it is from, and the target that changes it alone.

        A token for some tenants gets the values of the limits of these. Limits of the proxy, of tenants, namespaces and
        topics need no stream. 404: no stream is within a limit of another level.
        """
        query = asked(request, _ONE)
        direction, level, name = (key.read(query) for key in _ONE)
        tenants, limiters = caller_of(request).tenants, list[Limiter]()

        def look(limiter: Limiter) -> bool:
            if limiter.scope[:3] == (direction, level, name):
                limiters.append(limiter)
            return bool(limiters)

        await self._engine.slices.done(Work.REQUESTS, self._looking(tenants, look))
        identity = self._engine.registry.identity_at(limiters[0]) if limiters else None
        if identity is not None:
            answer = self._value(limiters[0].scope, identity, tenants)
        else:
            answer = self._value_named(cast("Direction", direction), LEVEL_OF_WORD[level], name, tenants)
        if answer is None:
            return refusal(404, "no stream is within such a limit now; /sluice/explain shows the limits of a topic")
        return web.Response(body=json_of(answer), content_type=JSON)

    def _looking(self, tenants: Collection[str] | None, look: Callable[[Limiter], bool]) -> Iterator[None]:
        """Look at the limiters of these tenants, some in each step, until `look` returns True."""
        registry = self._engine.registry
        for number, (scope, limiter) in enumerate(list(registry.limiters.items()), 1):
            is_theirs = tenants is None or scope.tenant in tenants
            if is_theirs and not registry.is_outdated(scope) and look(limiter):
                return
            if number % _LOOKED_AT_ONCE == 0:
                yield

    def _shown(self, limiter: Limiter, now: int) -> ShownLimiter:
        usage = limiter.usage
        return {
            "direction": limiter.scope.direction,
            "level": limiter.scope.level,
            "name": limiter.scope.name,
            "source": limiter.source,
            "sources": self._sources(limiter),
            "mode": limiter.limit.mode,
            "messages_per_s": per_second(limiter.limit.messages),
            "bytes_per_s": per_second(limiter.limit.size),
            "in_force": shown_in_force(limiter),
            "passed_messages": usage.messages,
            "passed_bytes": usage.size,
            "rejected_messages": usage.rejected_messages,
            "throttled_ms": usage.throttled.read(now) / 1e6,
            "waited_for_ms": usage.throttled.running_ns(now) / 1e6 if usage.throttled.is_running else None,
            "waiting_streams": len(limiter.waiters),
            "streams": len(limiter.streams),
        }

    def _sources(self, limiter: Limiter) -> list[LimitSource]:
        level, direction = LEVEL_OF_WORD[limiter.scope.level], limiter.scope.direction
        identity = self._engine.registry.identity_at(limiter) or _identity_named(level, limiter.scope.name)
        if identity is None:
            return []
        return [
            {"setting": setting, "name": name, "origin": value.origin, "plan": value.plan}
            for (_, setting, name), value in holders_at(self._service, direction, level, *identity)
        ]

    def _value(
        self, scope: Scope, identity: tuple[Topic, Client], tenants: Collection[str] | None
    ) -> LimitValue | None:
        """Return the value of a limit with a stream; None if it is none by now."""
        level, (topic, client) = LEVEL_OF_WORD[scope.level], identity
        policies = self._service.layers.policies
        in_force = policies.in_force_at(level, scope.direction, topic, client)
        if in_force is None or in_force.scope != scope:  # it was taken back, or the topic has another group, just now
            return None
        setting, naming, _ = level.lookups[0]
        named = naming(StreamIdentity(topic, client, policies.group_of(topic)))
        own = scope.name if level.is_of_addresses else named  # a limit of IPv6 is that of a whole /64
        return self._shown_value(scope.direction, level, identity, (setting, own), tenants)

    def _value_named(
        self, direction: Direction, level: Level, name: str, tenants: Collection[str] | None
    ) -> LimitValue | None:
        """Return the value of a limit that its name alone gives; None for others, and those of other tenants."""
        identity = _identity_named(level, name)
        if identity is None or not (tenants is None or (level.within and identity[0].tenant in tenants)):
            return None
        setting, naming, _ = level.lookups[0]
        own = naming(StreamIdentity(*identity, ""))
        return self._shown_value(direction, level, identity, (setting, own), tenants)

    def _shown_value(
        self,
        direction: Direction,
        level: Level,
        identity: tuple[Topic, Client],
        target: tuple[Setting, str],
        tenants: Collection[str] | None,
    ) -> LimitValue:
        policies = self._service.layers.policies
        in_force = policies.in_force_at(level, direction, *identity)
        base = policies.of_operator_at(level, direction, *identity) if tenants is None else in_force
        may_set = tenants is None or tenant_of(*target) in tenants
        return {
            "limit": section_of(direction, in_force.limit) if in_force else {},
            "base": section_of(direction, base.limit) if base else {},
            "values": [*explain_level(self._service, direction, level, *identity).lines],
            "target": {"setting": target[0], "name": target[1], "reach": _reach(level, identity[0])}
            if may_set
            else None,
        }


_TOPICS = {
    "proxy": "persistent://any/any/any",
    "tenant": "persistent://{}/any/any",
    "namespace": "persistent://{}/any",
    "partitioned_topic": "{}",
    "topic": "{}",
}
"""A topic within the limit of a name, by level."""


def _identity_named(level: Level, name: str) -> tuple[Topic, Client] | None:
    """Return a topic within a limit that its name alone gives, as of a tenant; None for other levels and names."""
    try:
        topic = parse_topic(_TOPICS[level.word].format(name))
    except (KeyError, ValueError):
        return None
    is_named = level.name(StreamIdentity(topic, ANYBODY, "")) == name
    return (topic, ANYBODY) if is_named and not topic.is_system else None


def _reach(level: Level, topic: Topic) -> Reach:
    """Return the limits whose value the narrowest setting of a level gives, for a limit on this topic."""
    named = level.settings[0].named
    if any(part not in named and part.by not in named for part in level.limited):
        return "each topic"
    return "each partition" if level.is_of_one_topic and topic.full != topic.partitioned else "this limit"
