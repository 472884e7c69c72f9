"""The part of Pulsar's admin REST that sets limits: what `pulsar-admin namespaces set-publish-rate` talks to.

Source: https://pulsar.apache.org/admin-rest-api/ (namespaces: publishRate, dispatchRate)
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import msgspec
from aiohttp import web

from limiter.policies import Setting, Value
from limiter.rates import NANOS_PER_SECOND, NOTHING_PUBLISHED, Direction, Limit, Rate, rate
from proxy.admin.refusal import refusal
from proxy.engine import Engine

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What the fields hold in Pulsar."""


class PublishRate(msgspec.Struct):
    """Pulsar's PublishRate; numbers of 0 and below mean no limit."""

    publishThrottlingRateInMsg: Int32 = -1  # noqa: N815 - Pulsar's own name
    publishThrottlingRateInByte: Int64 = -1  # noqa: N815

    def limit(self) -> Limit:
        """The same, as the limiter takes it."""
        return _limit(self.publishThrottlingRateInMsg, self.publishThrottlingRateInByte, 1)

    @classmethod
    def of(cls, limit: Limit) -> "PublishRate":
        """What Pulsar's tools are to see: here always per second."""
        return cls(_number(limit.messages, NANOS_PER_SECOND), _number(limit.size, NANOS_PER_SECOND))


class DispatchRate(msgspec.Struct):
    """Pulsar's DispatchRate; numbers of 0 and below mean no limit."""

    dispatchThrottlingRateInMsg: Int32 = -1  # noqa: N815
    dispatchThrottlingRateInByte: Int64 = -1  # noqa: N815
    relativeToPublishRate: bool = False  # noqa: N815
    ratePeriodInSecond: Int32 = 1  # noqa: N815

    def limit(self) -> Limit:
        """The same, as the limiter takes it."""
        period_s = max(1, self.ratePeriodInSecond)
        limit = _limit(self.dispatchThrottlingRateInMsg, self.dispatchThrottlingRateInByte, period_s)
        return replace(limit, published=NOTHING_PUBLISHED) if self.relativeToPublishRate else limit

    @classmethod
    def of(cls, limit: Limit) -> "DispatchRate":
        """What Pulsar's tools are to see."""
        periods = [r.period_ns for r in (limit.messages, limit.size) if r]
        period = max([NANOS_PER_SECOND, *periods])
        messages, size = _number(limit.messages, period), _number(limit.size, period)
        return cls(messages, size, limit.published is not None, period // NANOS_PER_SECOND)


Body = PublishRate | DispatchRate
_BODIES: dict[Direction, type[PublishRate] | type[DispatchRate]] = {"publish": PublishRate, "dispatch": DispatchRate}


class PolicyRest:
    """Serves one setting of namespaces for each direction.

    Args:
        engine: Where the limits are.
        before_change: Called before values change, so that no log line mixes two of them.
    """

    def __init__(self, engine: Engine, before_change: Callable[[], None]) -> None:
        self._engine = engine
        self._before_change = before_change

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        found = []
        directions: tuple[Direction, ...] = ("publish", "dispatch")
        for direction in directions:
            path = f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{direction}Rate"
            setting = NamespaceSetting(self._engine, direction, self._before_change)
            found += [web.get(path, setting.get), web.post(path, setting.post), web.delete(path, setting.delete)]
        return found


class NamespaceSetting:
    """One direction's rate of namespaces."""

    def __init__(self, engine: Engine, direction: Direction, before_change: Callable[[], None]) -> None:
        self._engine = engine
        self._direction = direction
        self._before_change = before_change
        self._from_file = engine.registry.policies.put_under(direction, Setting.TOPIC_OF_NAMESPACE)

    async def get(self, request: web.Request) -> web.Response:
        """The value in force; `null` is said with 204, as Pulsar does where nothing is set."""
        value = self._engine.registry.policies.get(self._direction, Setting.TOPIC_OF_NAMESPACE, _name(request))
        if value is None:
            return web.Response(status=204)
        body = _BODIES[self._direction].of(value.limit)
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def post(self, request: web.Request) -> web.Response:
        """Set it, live. A limit that was observed or rejecting stays so: Pulsar's tools know values only."""
        try:
            body: Body = msgspec.json.decode(await request.read(), type=_BODIES[self._direction])
        except msgspec.DecodeError as error:
            return refusal(400, f"the body is not a {self._direction}Rate: {error}")
        known = self._engine.registry.policies.get(self._direction, Setting.TOPIC_OF_NAMESPACE, _name(request))
        mode = known.limit.mode if known else "enforce"
        self._change(request, Value(replace(body.limit(), mode=mode), "rest"))
        return web.Response(status=204)

    async def delete(self, request: web.Request) -> web.Response:
        """Take back what was set here; the file's value, if there is one, holds again."""
        self._change(request, self._from_file.get(_name(request)))
        return web.Response(status=204)

    def _change(self, request: web.Request, value: Value | None) -> None:
        self._before_change()
        self._engine.registry.policies.put(self._direction, Setting.TOPIC_OF_NAMESPACE, _name(request), value)
        self._engine.policies_changed(_name(request))


def _name(request: web.Request) -> str:
    return f"{request.match_info['tenant']}/{request.match_info['namespace']}"


def _limit(messages: int, size: int, period_s: int) -> Limit:
    period_ns = period_s * NANOS_PER_SECOND
    return Limit(
        rate(messages, period_ns) if messages > 0 else None,
        rate(size, period_ns) if size > 0 else None,
    )


def _number(found: Rate | None, period_ns: int) -> int:
    """Tokens in a period of the answer, which need not be the rate's own."""
    return -1 if found is None else max(1, found.tokens * period_ns // found.period_ns)
