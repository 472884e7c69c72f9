"""The places of callers at the admin address: no token, no address and no tenant takes those of others.

A request has a place while it is under way. Probes need none: `/healthz` waits for nothing, and `/readyz` for the one
probe of the broker that all share. Answers that grow with the proxy have fewer places, in which they are made:

    request ──▶ place of its caller ──▶ is its answer large? ──▶ one of MOST_LARGE turns, else in line ──▶ handler
                     └─▶ 503: its caller has too many             └─▶ 503: too many are in line
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from limiter.names import counted_as
from proxy.admin.auth import CALLER, Caller
from proxy.admin.handlers import description_of
from proxy.admin.refusals import RefusalCause, RefusalLog, refusal
from proxy.admin.tenant_scope import ALWAYS_OPEN
from proxy.policies.keys import ANONYMOUS

MOST_LARGE: Final = 4
"""Large answers under way at once. One place is kept for callers for all tenants."""
MOST_LARGE_OF_ONE: Final = 2
MOST_IN_LINE: Final = 32
"""Requests for large answers that wait for their turn."""
MOST_IN_LINE_OF_ONE: Final = 8
_PART_OF_ONE, _PART_OF_TENANTS = 4, 2
"""One caller may have a quarter of all places, and all callers with tokens for some tenants together half."""
_RETRY_S = "1"


class Places:
    """Gives each request a place among those of its caller.

    Args:
        most: Connections that the address serves at once.
        patience_s: Seconds for which a request may wait for its turn.
        refused: Counts and logs requests without a place.
    """

    def __init__(self, most: int, patience_s: float, refused: RefusalLog) -> None:
        self._most_of_one = max(1, most // _PART_OF_ONE)
        self._most_of_tenants = max(1, most // _PART_OF_TENANTS)
        self._patience_s = patience_s
        self._refused = refused
        self._under_way: Counter[str] = Counter()
        self._of_tenants = 0
        self._turns = LargeTurns()

    @web.middleware
    async def take(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """503 for a request whose caller has too many under way, or whose large answer has too many before it."""
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical in ALWAYS_OPEN:
            return await handler(request)
        caller = request[CALLER]
        key = key_of(caller)
        if self._under_way[key] >= self._most_of_one:
            return self._refuse(request, f"{self._most_of_one} requests of {caller.name} are under way")
        if caller.tenants is not None and self._of_tenants >= self._most_of_tenants:
            return self._refuse(request, f"{self._of_tenants} requests of tenants' tokens are under way")
        with self._counted(key, of_tenant=caller.tenants is not None):
            return await self._in_turn(request, handler, caller)

    async def _in_turn(self, request: web.Request, handler: Handler, caller: Caller) -> web.StreamResponse:
        description = description_of(request.match_info.route.handler)
        if description is None or not description.is_large or request.method not in {"GET", "HEAD"}:
            return await handler(request)
        try:
            async with asyncio.timeout(self._patience_s):
                has_turn = await self._turns.wait(caller)
        except TimeoutError:
            has_turn = False
        if not has_turn:
            return self._refuse(request, "other large answers are still being made or taken")
        try:
            return await handler(request)
        finally:
            self._turns.end(caller)

    @contextmanager
    def _counted(self, key: str, *, of_tenant: bool) -> Iterator[None]:
        self._under_way[key] += 1
        self._of_tenants += of_tenant
        try:
            yield
        finally:
            self._of_tenants -= of_tenant
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]

    def _refuse(self, request: web.Request, why: str) -> web.Response:
        self._refused.count(RefusalCause.BUSY, why, request.remote or "?")
        answer = refusal(503, f"{request.method} {request.path}: {why}: try again")
        answer.headers["Retry-After"] = _RETRY_S
        return answer


def key_of(caller: Caller) -> str:
    """Return the key by which a caller is counted: its name, else its address (IPv6: its /64)."""
    return counted_as(caller.address) if caller.name == ANONYMOUS else f"{caller.name}@"


class LargeTurns:
    """Lets `MOST_LARGE` large answers be made at once; other requests wait in the order in which they came."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._line: dict[asyncio.Future[None], Caller] = {}

    async def wait(self, caller: Caller) -> bool:
        """Return when the caller has its turn, which `end` ends; False if too many wait, then it has none."""
        key = key_of(caller)
        in_line = sum(key_of(each) == key for each in self._line.values())
        if not in_line and self._has_room(caller):
            self._running[key] += 1
            return True
        if len(self._line) >= MOST_IN_LINE or in_line >= MOST_IN_LINE_OF_ONE:
            return False
        turn = asyncio.get_running_loop().create_future()
        self._line[turn] = caller
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end(caller)
            raise
        finally:
            self._line.pop(turn, None)
        return True

    def end(self, caller: Caller) -> None:
        """End the turn of a caller, and begin that of the first in line who may have one."""
        key = key_of(caller)
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
        for turn, waiting in list(self._line.items()):
            if not turn.done() and self._has_room(waiting):
                del self._line[turn]
                self._running[key_of(waiting)] += 1
                with suppress(asyncio.InvalidStateError):
                    turn.set_result(None)

    def _has_room(self, caller: Caller) -> bool:
        most = MOST_LARGE if caller.tenants is None else MOST_LARGE - 1
        return self._running.total() < most and self._running[key_of(caller)] < MOST_LARGE_OF_ONE
