"""Bounds on requests to the admin address: rate by client address, and size and time of each."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from aiohttp import web

from limiter.admission import Buckets, KeyedBuckets
from limiter.levels import counted_as
from limiter.rates import NANOS_PER_SECOND, Rate
from proxy.admin.rejections import Rejection, RejectionLog, refusal
from proxy.admin.server import connection_of
from proxy.config.sections import AdminAccess

MOST_CALLERS = 10_000
"""Most addresses whose rates are remembered."""
WHOLE_SETS = "/sluice/policies"
"""The path where 100,000 topics come in one body."""
RETRY_WHOLE_SET_S = 5

_STATUSES = {Rejection.TIME: 408, Rejection.SIZE: 413, Rejection.BUSY: 503}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestLimits:
    """Two middlewares: one checks the rate first; the other reads the body once the caller is authenticated.

    A body above the usual bound is accepted for a whole policy set only, and one at a time.

    Args:
        access: The bounds.
        refused: Counts and logs refused requests.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, access: AdminAccess, refused: RejectionLog, clock: Callable[[], int]) -> None:
        tokens, period_ns = access.rate
        self._callers = KeyedBuckets(Rate(tokens, period_ns, access.burst), Buckets(MOST_CALLERS))
        self._said = f"at most {tokens} per {period_ns / NANOS_PER_SECOND:g} s (admin_access.rate)"
        self._retry_after_s = max(1, math.ceil(period_ns / tokens / NANOS_PER_SECOND))
        self._patience_s = access.request_timeout
        self.most_bytes = access.max_body
        self._most_of_set = max(access.max_body, access.max_policies_body)
        self._whole_set = asyncio.Lock()
        self._refused = refused
        self._clock = clock

    @web.middleware
    async def rate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer 429 to an address that asks too often."""
        try:
            return await self._at_rate(request, handler)
        finally:
            if connection := connection_of(request):
                connection.request_is_answered()

    async def _at_rate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        caller = request.remote or "?"
        key, now = counted_as(caller), self._clock()
        if self._callers.admits(key, now):
            self._callers.take(key, now)
            return await handler(request)
        self._refused.count(Rejection.RATE, self._said, caller)
        answer = refusal(429, f"too many requests from {caller}: {self._said}")
        answer.headers["Retry-After"] = str(self._retry_after_s)
        return answer

    @web.middleware
    async def body(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Read the body for the handlers; answer 408 if it does not come in time, 413 if it is too large."""
        if not self._may_be_large(request):
            return await self._with_body(request, handler, "max_body")
        if self._whole_set.locked():
            return self._refuse_second(request)
        async with self._whole_set:
            large = request.clone(client_max_size=self._most_of_set)
            return await self._with_body(large, handler, "max_policies_body")

    async def _with_body(self, request: web.Request, handler: Handler, key: str) -> web.StreamResponse:
        connection = connection_of(request)
        due = connection.due if connection else asyncio.get_running_loop().time() + self._patience_s
        try:
            async with asyncio.timeout_at(due):
                await request.read()
        except TimeoutError:
            return self._refuse(request, Rejection.TIME, f"no request within {self._patience_s:g} s", "request_timeout")
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(request, Rejection.SIZE, f"a body of more than {request.client_max_size} bytes", key)
        if connection:
            connection.request_is_there()
        return await handler(request)

    def _may_be_large(self, request: web.Request) -> bool:
        resource, length = request.match_info.route.resource, request.content_length
        if resource is None or resource.canonical != WHOLE_SETS or request.method != "PUT":
            return False
        return length is None or length > self.most_bytes or "Content-Encoding" in request.headers

    def _refuse_second(self, request: web.Request) -> web.Response:
        answer = self._refuse(request, Rejection.BUSY, "another large policy set is being read or applied; try again")
        answer.headers["Retry-After"] = str(RETRY_WHOLE_SET_S)
        return answer

    def _refuse(self, request: web.Request, why: Rejection, what: str, key: str | None = None) -> web.Response:
        reason = f"{what} (admin_access.{key})" if key else what
        self._refused.count(why, reason, request.remote or "?")
        answer = refusal(_STATUSES[why], f"{request.method} {request.path}: {reason}")
        answer.force_close()
        return answer
