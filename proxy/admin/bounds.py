"""How often an address may ask, and how large and slow a request may be."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from aiohttp import web

from limiter.admissions import Buckets, KeyedBuckets
from limiter.networks import counted_as
from limiter.rates import NANOS_PER_SECOND, Rate
from proxy.admin.connections import Connection
from proxy.admin.refusal import refusal
from proxy.admin.refused import Refused, Why
from proxy.config.admin import AdminAccess

MOST_CALLERS = 10_000
"""Addresses whose rates are remembered."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestBounds:
    """Two middlewares: the rate is asked first, the body is read once it is known that the caller may call.

    Args:
        access: The bounds.
        refused: Told of what is over them.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, access: AdminAccess, refused: Refused, clock: Callable[[], int]) -> None:
        tokens, period_ns = access.rate
        self._callers = KeyedBuckets(Rate(tokens, period_ns, access.burst), Buckets(MOST_CALLERS))
        self._said = f"at most {tokens} per {period_ns / NANOS_PER_SECOND:g} s (admin_access.rate)"
        self._retry_after_s = max(1, math.ceil(period_ns / tokens / NANOS_PER_SECOND))
        self._patience_s = access.request_timeout
        self.most_bytes = access.max_body
        self._refused = refused
        self._clock = clock

    @web.middleware
    async def rate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """429 for an address that asks too often."""
        try:
            return await self._at_rate(request, handler)
        finally:
            if connection := _connection(request):
                connection.request_is_answered()

    async def _at_rate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        caller = request.remote or "?"
        key, now = counted_as(caller), self._clock()
        if self._callers.admits(key, now):
            self._callers.take(key, now)
            return await handler(request)
        self._refused.count(Why.RATE, self._said, caller)
        answer = refusal(429, f"too many requests from {caller}: {self._said}")
        answer.headers["Retry-After"] = str(self._retry_after_s)
        return answer

    @web.middleware
    async def body(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """408 for a body that does not come in time, 413 for one that is too large; handlers find it read."""
        connection = _connection(request)
        due = connection.due if connection else asyncio.get_running_loop().time() + self._patience_s
        try:
            async with asyncio.timeout_at(due):
                await request.read()
        except TimeoutError:
            return self._refuse(request, 408, Why.TIME, f"no request within {self._patience_s:g} s")
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(request, 413, Why.SIZE, f"a body of more than {self.most_bytes} bytes")
        if connection:
            connection.request_is_there()
        return await handler(request)

    def _refuse(self, request: web.Request, status: int, why: Why, what: str) -> web.Response:
        key = "request_timeout" if why is Why.TIME else "max_body"
        self._refused.count(why, f"{what} (admin_access.{key})", request.remote or "?")
        answer = refusal(status, f"{request.method} {request.path}: {what} (admin_access.{key})")
        answer.force_close()
        return answer


def _connection(request: web.Request) -> Connection | None:
    found = request.transport.get_protocol() if request.transport else None
    return found if isinstance(found, Connection) else None
