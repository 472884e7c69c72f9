"""Forward requests to the broker's admin, and its answers back: bounded, counted, and each change logged.

Only listed headers pass, so that none passes that means something else on the other side. Not passed are credentials,
unless `admin_forward.caller` says so; headers of one connection; X-Original-Principal, by which a broker lets proxies
speak for others (Sluice may write its own); and Location and Access-Control, by which an answer would lead clients and
browsers around Sluice.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Self, TypeVar

import aiohttp
import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict

from proxy.admin.auth import CALLER, Caller
from proxy.admin.browser_guard import READING
from proxy.admin.forwarding.broker import (
    PART,
    BodyRefusedError,
    BrokerAdmin,
    BrokerQuestion,
    ClientBody,
    ForwardError,
    ForwardOutcome,
    outcome_of,
)
from proxy.admin.forwarding.paths import (
    changes_something,
    is_for_broker,
    is_of_a_page,
    is_served_decoded,
    limits_in,
    list_of_both,
    makes_namespace,
    together,
    why_not,
)
from proxy.admin.handlers import BODIES
from proxy.admin.listener import connection_of
from proxy.admin.places import CallerShares, NoPlaceError
from proxy.admin.refusals import RefusalCause, RefusalLog, refusal
from proxy.admin.tenant_scope import why_not_at_broker
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.fleet_topics import FleetTopics
from proxy.policies.keys import ANONYMOUS

VIA = "Via"

_ASKING = ("Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent")
_ANSWERING = frozenset(
    {"content-type", "content-encoding", "content-disposition", "retry-after", "cache-control", "vary"}
)
_OF_MESSAGES = "x-pulsar-"
"""Prefix of the headers with a peeked message's metadata."""


def asking(came: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers of a request that the broker gets."""
    return CIMultiDict((name, came[name]) for name in _ASKING if name in came)


def answering(came: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers of the broker's answer that the caller gets."""
    return CIMultiDict((name, value) for name, value in came.items() if _passes(name.lower()))


def _passes(name: str) -> bool:
    return name in _ANSWERING or name.startswith(_OF_MESSAGES)


T = TypeVar("T")
_MOST_JSON = 256 * 1024
"""Most bytes of an answer that is decoded here, in one call of C: 5 ms. A broker's list of all its keys has 20 KiB."""


class _NotTakenError(Exception):
    """The caller does not take the answer."""


async def hand_on(
    answer: aiohttp.ClientResponse, request: web.Request, patience_s: float
) -> tuple[web.StreamResponse, ForwardOutcome]:
    """Pass the broker's answer to the caller, as it comes.

    Args:
        answer: The broker's answer.
        request: The caller's request.
        patience_s: Seconds that the caller may need for each MiB.
    """
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=answering(answer.headers))
    response.content_length = answer.content_length
    taker = _Taker(response, patience_s)
    try:
        piece = await answer.content.readany()
        if not piece and answer.content_length is None and request.method != "HEAD":
            response.content_length = 0  # else aiohttp invents a content type, and pulsar-admin waits for ever
        await response.prepare(request)
        while piece:
            await taker.write(piece)
            piece = await answer.content.readany()
        await taker.end()
    except (aiohttp.ClientConnectionResetError, _NotTakenError):
        _abort(request)
        return response, ForwardOutcome.CLIENT
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        structlog.get_logger().warning(
            "the broker's answer broke off", path=request.path, error=str(error) or type(error).__name__
        )
        _abort(request)
        return response, ForwardOutcome.BROKEN_OFF
    return response, outcome_of(answer.status)


async def json_in(answer: aiohttp.ClientResponse, read: Callable[[bytes], Awaitable[T]]) -> T:
    """Return what `read` makes of an answer in JSON.

    Raises:
        ForwardError: If the answer is an error, breaks off, is too long, or is not what `read` takes.
    """
    try:
        text = await _all_of(answer)
        if answer.status != 200:
            error = text.decode(errors="replace")[:1000]
            raise ForwardError(answer.status, outcome_of(answer.status), f"{answer.url}: the broker says: {error}")
        return await read(text)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise ForwardError(
            502, ForwardOutcome.BROKEN_OFF, f"{answer.url}: the broker's answer breaks off: {reason}"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ForwardError(
            502, ForwardOutcome.BROKEN_OFF, f"{answer.url}: the answer is not a broker's: {error}"
        ) from None


async def _all_of(answer: aiohttp.ClientResponse) -> bytes:
    text = bytearray()
    async for piece in answer.content.iter_any():
        text += piece
        if len(text) > _MOST_JSON:
            reason = f"{answer.url}: the broker's answer has more than {_MOST_JSON} bytes"
            raise ForwardError(502, ForwardOutcome.BROKEN_OFF, reason)
    return bytes(text)


class _Taker:
    """Writes an answer to its caller, whose time for each MiB is bounded. The broker's time does not count.

    Args:
        response: The answer.
        patience_s: Seconds for each MiB.
    """

    def __init__(self, response: web.StreamResponse, patience_s: float) -> None:
        self._response = response
        self._patience_s = self._left_s = patience_s
        self._size = 0

    async def write(self, piece: bytes) -> None:
        """Write a piece.

        Raises:
            _NotTakenError: If the caller takes too long.
        """
        begin = asyncio.get_running_loop().time()
        await self._within(self._response.write(piece))
        self._left_s -= asyncio.get_running_loop().time() - begin
        self._size += len(piece)
        if self._size >= PART:
            self._left_s, self._size = self._patience_s, 0

    async def end(self) -> None:
        """End the answer.

        Raises:
            _NotTakenError: As `write`.
        """
        await self._within(self._response.write_eof())

    async def _within(self, writing: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._left_s):
                await writing
        except TimeoutError:
            raise _NotTakenError from None


def _abort(request: web.Request) -> None:
    """Abort the connection: the answer's head is sent, so only this shows that the rest is missing."""
    if request.transport is not None:
        request.transport.abort()


_LONGEST_PATH = 1000
"""Most characters of a path in a line of the log."""
_WHY = {408: RefusalCause.TIME, 413: RefusalCause.SIZE}


class Forwarder:
    """Forwards requests of authenticated callers to the broker's admin.

    Args:
        config: The configuration; it has `admin_forward.url`.
        counters: Count outcomes.
        refused: Counts and logs bodies and callers that are refused here.

    Raises:
        ConfigError: If a file that `admin_forward` names cannot be used.

    Attributes:
        broker: The client of the broker's admin.
    """

    def __init__(self, config: Config, counters: Counters, refused: RefusalLog) -> None:
        self._section = config.admin_forward
        self._patience_s = config.admin_access.request_timeout
        self.broker = BrokerAdmin(config)
        self._counters = counters
        self._refused = refused
        self._fleet_topics = FleetTopics(config)
        self._shares = CallerShares(self._section.max_in_flight)
        self._name = f"1.1 sluice-{uuid.uuid4().hex}"

    @classmethod
    def of(cls, config: Config, counters: Counters, refused: RefusalLog) -> Self | None:
        """Return a forwarder; None if nothing is to be forwarded."""
        return cls(config, counters, refused) if config.admin_forward.url else None

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Keep the session with the broker; for `cleanup_ctx` of the application."""
        async with self.broker.connected():
            yield

    @web.middleware
    async def unless_served(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Forward requests that Sluice does not serve. This precedes the bounds of bodies, having its own."""
        if is_for_broker(request):
            return await self.pass_on(request)
        response = await handler(request)
        kind = list_of_both(request)
        if kind is None or response.status != HTTPStatus.OK or not isinstance(response, web.Response):
            return response
        try:
            return web.Response(
                body=await self._read_at_broker(request, partial(together, response.text, kind)),
                content_type="application/json",
            )
        except ForwardError as error:
            return _refusal(request, error.status, str(error))

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Forward a request, and return the broker's answer."""
        body = ClientBody(request, self._section.max_body, self._patience_s)
        try:
            if refused := await self._why_refused(request):
                return refused
            await body.begin()
            may_have_limits = body.first and makes_namespace(request.method, request.raw_path)
            if may_have_limits and (wrong := await request.app[BODIES].read(limits_in, body.first)):
                return _refusal(request, 400, f"not passed on to the broker: {wrong}")
        except BodyRefusedError as error:
            return self._refuse_body(request, error)
        return await self._exchanged(request, body)

    async def _read_at_broker(self, request: web.Request, read: Callable[[bytes], T]) -> T:
        """Return what `read` makes of the broker's answer at the same path."""
        outcome = ForwardOutcome.CLIENT
        try:
            async with self._asked(request, "GET", request.path, None) as answer:
                content = await json_in(answer, partial(request.app[BODIES].read, read))
                outcome = ForwardOutcome.DONE
                return content
        except ForwardError as error:
            outcome = error.outcome
            raise
        finally:
            self._counters.admin_forwarded[outcome.value] += 1

    async def _exchanged(self, request: web.Request, body: ClientBody) -> web.StreamResponse:
        outcome, status = ForwardOutcome.CLIENT, None
        try:
            async with self._asked(request, request.method, request.raw_path, body) as answer:
                response, outcome = await hand_on(answer, request, self._patience_s)
                status = response.status
                return response
        except ForwardError as error:
            outcome, status = error.outcome, error.status
            return _refusal(request, status, str(error))
        except BodyRefusedError as error:
            status = error.status
            return self._refuse_body(request, error)
        finally:
            self._tell(request, outcome, status)

    @contextlib.asynccontextmanager
    async def _asked(
        self, request: web.Request, method: str, target: str, body: ClientBody | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = asking(request.headers) if body else CIMultiDict(Accept="application/json")
        headers[VIA] = self._via(request)
        if self._section.caller == "principal" and request[CALLER].name != ANONYMOUS:
            headers["X-Original-Principal"] = request[CALLER].name
        elif self._section.caller == "authorization" and "Authorization" in request.headers:
            headers["Authorization"] = request.headers["Authorization"]
        with self._place(request[CALLER]), _ended_by_hanging_up(request):
            async with self.broker.ask(BrokerQuestion(method, target, headers, body)) as answer:
                yield answer

    @contextlib.contextmanager
    def _place(self, caller: Caller) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._shares.place(caller))
            except NoPlaceError as error:
                most = f"admin_forward.max_in_flight is {self._section.max_in_flight}, and each caller leaves as many"
                reason = f"{error.total} requests are at the broker, {error.own} of {caller.name} ({most}): try again"
                raise ForwardError(503, ForwardOutcome.BUSY, reason) from None
            yield

    def _via(self, request: web.Request) -> str:
        came = [each.strip() for value in request.headers.getall(VIA, []) for each in value.split(",")]
        if self._name in came:
            reason = "admin_forward.url leads back to this address: name the broker's own web service there"
            raise ForwardError(508, ForwardOutcome.UNREACHABLE, reason)
        return ", ".join((*came, self._name))

    async def _why_refused(self, request: web.Request) -> web.Response | None:
        caller, wrong = request[CALLER], why_not(request.raw_path)
        outside = None if caller.tenants is None else why_not_at_broker(request, caller.tenants)
        if caller.tenants is not None and self._fleet_topics.are_at(request.raw_path):
            outside = "this namespace is a fleet's, or that of policies.topic: it takes a token for all tenants"
        if outside is not None:
            self._refused.count(RefusalCause.TENANT, outside, caller.address)
            return _refusal(request, 403, outside)
        if wrong is None and await is_served_decoded(request):
            wrong = "decoded it is a path that Sluice serves: write that one"
        if wrong is not None:
            return _refusal(request, 400, f"not passed on to the broker: {wrong}")
        if request.method not in READING or not changes_something(request):
            return None  # the authenticator has looked at its method
        why = (
            RefusalCause.READ_ONLY
            if caller.access == "read"
            else RefusalCause.CROSS_SITE
            if is_of_a_page(request)
            else None
        )
        if why is not None:
            reason = "this GET changes something at the broker: it takes write access, and no web page may send it"
            self._refused.count(why, reason, caller.address)
            return _refusal(request, 403, reason)
        return None

    def _refuse_body(self, request: web.Request, error: BodyRefusedError) -> web.Response:
        if why := _WHY.get(error.status):
            self._refused.count(why, str(error), request[CALLER].address)
        return _refusal(request, error.status, str(error))

    def _tell(self, request: web.Request, outcome: ForwardOutcome, status: int | None) -> None:
        self._counters.admin_forwarded[outcome.value] += 1
        if request.method in READING and not changes_something(request):
            return
        caller = request[CALLER]
        structlog.get_logger().info(
            "passed on to the broker",
            method=request.method,
            path=request.raw_path[:_LONGEST_PATH],
            status=status,
            outcome=outcome.value,
            by=caller.name,
            address=caller.address,
        )


def _ended_by_hanging_up(request: web.Request) -> contextlib.AbstractContextManager[None]:
    connection, task = connection_of(request), asyncio.current_task()
    assert task is not None, "a handler is one"
    return connection.taking_along(task) if connection else contextlib.nullcontext()


def _refusal(request: web.Request, status: int, reason: str) -> web.Response:
    answer = refusal(status, f"{request.method} {request.path}: {reason}")
    if not request.content.at_eof():
        answer.force_close()
    return answer
