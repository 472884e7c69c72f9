"""The places of callers at the admin address: no token, no address and no tenant takes those of others.

A request has a place until its answer is made. Probes need none: `/healthz` waits for nothing, and `/readyz` for the
one probe of the broker that all share. Answers that grow with the proxy have fewer places, in which they are made:

    request ──▶ place of its caller ──▶ is its answer large? ──▶ one of MOST_LARGE turns, else in line ──▶ handler
                     └─▶ 503: its caller has too many             └─▶ 503: its caller has too many in line    │ made
                                                                                                              ▼
                        the connection ends ◀── its caller has the most bytes of all ◀── the client takes it slowly

However slowly an answer is taken, it takes no place and no turn: only bytes of memory, of which tenants' callers and
the others have as many, or of the disk, if it is a backup.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from limiter.names import counted_as
from proxy.admin.auth import CALLER, Caller
from proxy.admin.handlers import ON_MADE, description_of
from proxy.admin.refusals import RefusalCause, RefusalLog, refusal
from proxy.admin.tenant_scope import ALWAYS_OPEN
from proxy.policies.keys import ANONYMOUS

MOST_LARGE: Final = 4
"""Large answers under way at once. One place is kept for callers for all tenants."""
MOST_LARGE_OF_ONE: Final = 2
MOST_IN_LINE_OF_ONE: Final = 8
"""Requests of one caller for large answers that wait for their turn."""
MOST_UNTAKEN: Final = 32 << 20
"""Bytes of answers that tenants' callers take slowly, and as many of all others; one answer may be larger."""
MOST_UNTAKEN_FILES: Final = 1 << 30
"""Bytes of backups, which are files, that callers take slowly; one may be larger."""
SLOW_S: Final = 1.0
"""Seconds after which an answer is one that is taken slowly."""
_PART_OF_ONE, _PART_OF_TENANTS = 4, 2
"""One caller may have a quarter of all places, and all callers with tokens for some tenants together half."""
_RETRY_S = "1"


class NoPlaceError(Exception):
    """All places that a caller may have are taken.

    Args:
        own: Places of this caller.
        total: Places of all callers.
    """

    def __init__(self, own: int, total: int) -> None:
        super().__init__(f"{own} of {total} places are the caller's own")
        self.own = own
        self.total = total


class CallerShares:
    """Places, of which callers with tokens for some tenants have half together.

    A caller gets no more places than it leaves to the next: the first has half, the next one a quarter, and so on.

    Args:
        most: All places.
        most_of_one: Most of one caller; by default half of all, which the rule above leaves.
    """

    def __init__(self, most: int, most_of_one: int | None = None) -> None:
        self._most = most
        self._most_of_one = most if most_of_one is None else max(1, most_of_one)
        self._most_of_tenants = max(1, most // _PART_OF_TENANTS)
        self._taken: Counter[str] = Counter()
        self._of_tenants = 0

    @contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """Take a place of a caller while the block runs.

        Raises:
            NoPlaceError: If the caller has as many as it may.
        """
        key, of_tenant = key_of(caller), caller.tenants is not None
        own, total = self._taken[key], self._taken.total()
        left = self._most - total
        if of_tenant:
            left = min(left, self._most_of_tenants - self._of_tenants)
        if own >= min(self._most_of_one, left):
            raise NoPlaceError(own, total)
        self._taken[key] += 1
        self._of_tenants += of_tenant
        try:
            yield
        finally:
            self._of_tenants -= of_tenant
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


class Places:
    """Gives each request a place among those of its caller.

    Args:
        most: Connections that the address serves at once.
        patience_s: Seconds for which a request may wait for its turn.
        refused: Counts and logs requests without a place.
    """

    def __init__(self, most: int, patience_s: float, refused: RefusalLog) -> None:
        self._shares = CallerShares(most, most // _PART_OF_ONE)
        self._patience_s = patience_s
        self._refused = refused
        self._turns = LargeTurns()
        self._untaken = {
            (of_tenant, is_file): Untaken(MOST_UNTAKEN_FILES if is_file else MOST_UNTAKEN)
            for of_tenant in (False, True)
            for is_file in (False, True)
        }

    @web.middleware
    async def take(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """503 for a request whose caller has too many under way, or whose large answer has too many before it."""
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical in ALWAYS_OPEN:
            return await handler(request)
        caller = request[CALLER]
        with ExitStack() as held:
            try:
                held.enter_context(self._shares.place(caller))
            except NoPlaceError as error:
                return self._refuse(request, f"{error.own} requests of {caller.name} are under way")
            if _is_large(request):
                if not await self._has_turn(caller):
                    return self._refuse(request, "other large answers are still being made")
                held.callback(self._turns.end, caller)
            request[ON_MADE] = partial(self._made, request, caller, held)
            return await handler(request)

    def _made(self, request: web.BaseRequest, caller: Caller, held: ExitStack, size: int, *, is_file: bool) -> None:
        """Give the place and the turn of a request back; its caller has `size` bytes until it has taken them."""
        held.close()
        untaken, lose = self._untaken[caller.tenants is not None, is_file], partial(self._lose, request)
        held.callback(untaken.taken, lose)
        untaken.add(lose, key_of(caller), size)

    def _lose(self, request: web.BaseRequest) -> None:
        self._refused.count(
            RefusalCause.BUSY, "its answer was taken so slowly that others need its room", request.remote or "?"
        )
        if request.transport is not None:
            request.transport.abort()

    async def _has_turn(self, caller: Caller) -> bool:
        try:
            async with asyncio.timeout(self._patience_s):
                return await self._turns.wait(caller)
        except TimeoutError:
            return False

    def _refuse(self, request: web.Request, why: str) -> web.Response:
        self._refused.count(RefusalCause.BUSY, why, request.remote or "?")
        answer = refusal(503, f"{request.method} {request.path}: {why}: try again")
        answer.headers["Retry-After"] = _RETRY_S
        return answer


def _is_large(request: web.Request) -> bool:
    description = description_of(request.match_info.route.handler)
    return description is not None and description.is_large and request.method in {"GET", "HEAD"}


def key_of(caller: Caller) -> str:
    """Return the key by which a caller is counted: its name, else its address (IPv6: its /64)."""
    return counted_as(caller.address) if caller.name == ANONYMOUS else f"{caller.name}@"


class LargeTurns:
    """Lets `MOST_LARGE` large answers be made at once. Callers in line have the next turn one after the other."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._lines: dict[str, deque[tuple[asyncio.Future[None], Caller]]] = {}
        """The line of each caller, that of the caller with the next turn first."""

    async def wait(self, caller: Caller) -> bool:
        """Return when the caller has its turn, which `end` ends; False if too many of its requests wait for theirs."""
        key = key_of(caller)
        if key not in self._lines and self._has_room(caller):
            self._running[key] += 1
            return True
        line = self._lines.setdefault(key, deque())
        if len(line) >= MOST_IN_LINE_OF_ONE:
            return False
        turn = asyncio.get_running_loop().create_future()
        line.append((turn, caller))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end(caller)
            else:
                self._leave(key, turn)
            raise
        return True

    def end(self, caller: Caller) -> None:
        """End the turn of a caller, and begin those of the first in line that may have one."""
        key = key_of(caller)
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
        for each, line in list(self._lines.items()):
            turn, waiting = next((place for place in line if not place[0].done()), (None, caller))
            if turn is not None and self._has_room(waiting):
                self._lines[each] = self._lines.pop(each)  # the next turn is another caller's
                self._leave(each, turn)
                self._running[each] += 1
                turn.set_result(None)

    def _leave(self, key: str, turn: asyncio.Future[None]) -> None:
        rest = deque(place for place in self._lines.pop(key) if place[0] is not turn)
        if rest:
            self._lines[key] = rest

    def _has_room(self, caller: Caller) -> bool:
        most = MOST_LARGE if caller.tenants is None else MOST_LARGE - 1
        return self._running.total() < most and self._running[key_of(caller)] < MOST_LARGE_OF_ONE


class Untaken:
    """Bounds the bytes of answers that are made and that their callers take slowly.

    If they are too many, the caller with the most bytes loses the answer that it has been taking for the longest.
    Answers younger than `SLOW_S` stay, up to twice the bytes.

    Args:
        most: Bytes of all.
        clock: Seconds, monotonic.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = 0
        self._most = most
        self._clock = clock
        self._sizes: Counter[str] = Counter()
        self._answers: dict[Callable[[], None], tuple[str, int, float]] = {}
        """The caller of each answer, its bytes, and when it was made."""

    def add(self, lose: Callable[[], None], key: str, size: int) -> None:
        """Take note that an answer of `size` bytes is made, until `taken`; `lose` is called if it is lost."""
        now = self._clock()
        self._answers[lose] = key, size, now
        self._sizes[key] += size
        self.size += size
        while self.size > self._most and len(self._answers) > 1:
            slow = [each for each, (_, _, made) in self._answers.items() if now - made >= SLOW_S]
            if not slow and self.size <= 2 * self._most:
                return
            lost = max(slow or self._answers, key=lambda each: self._sizes[self._answers[each][0]])  # the first of them
            self.taken(lost)
            lost()

    def taken(self, lose: Callable[[], None]) -> None:
        """Take note that an answer is taken, or will not be."""
        key, size, _ = self._answers.pop(lose, ("", 0, 0.0))
        self.size -= size
        self._sizes[key] -= size
        if not self._sizes[key]:
            del self._sizes[key]
