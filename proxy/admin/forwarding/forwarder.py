"""Passes requests on to the broker's admin, and its answers back: bounded, counted, and each change told."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Self, TypeVar

import aiohttp
import structlog
from aiohttp import web
from multidict import CIMultiDict

from proxy.admin.connections import connection_of
from proxy.admin.doors import CALLER
from proxy.admin.forwarding.answer import hand_on, json_in
from proxy.admin.forwarding.body import BodyRefusedError, ClientBody
from proxy.admin.forwarding.broker import BrokerAdmin, Question
from proxy.admin.forwarding.headers import VIA, asking
from proxy.admin.forwarding.outcome import ForwardError, Outcome
from proxy.admin.forwarding.paths import changes_something, is_for_broker, is_of_a_page, why_not
from proxy.admin.forwarding.shared import list_of_both, together
from proxy.admin.forwarding.spellings import is_served_decoded
from proxy.admin.pages import READING
from proxy.admin.refusal import refusal
from proxy.admin.refused import Refused, Why
from proxy.config.model import Config
from proxy.observe.counters import Counters

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")
_LONGEST_PATH = 1000
"""Characters of it in a line of the log."""
_WHY = {408: Why.TIME, 413: Why.SIZE}


class Forwarder:
    """Between the callers of the admin address, who have passed its doors, and the broker's admin.

    Args:
        config: Of which `admin_forward.url` is given.
        counters: Told of outcomes.
        refused: Told of bodies and callers that are refused here.

    Raises:
        ConfigError: If a file that `admin_forward` names cannot be used.
    """

    def __init__(self, config: Config, counters: Counters, refused: Refused) -> None:
        self._section = config.admin_forward
        self._patience_s = config.admin_access.request_timeout
        self._broker = BrokerAdmin(config)
        self._counters = counters
        self._refused = refused
        self._in_flight = 0
        self._name = f"1.1 sluice-{uuid.uuid4().hex}"

    @classmethod
    def of(cls, config: Config, counters: Counters, refused: Refused) -> Self | None:
        """None where nothing is passed on."""
        return cls(config, counters, refused) if config.admin_forward.url else None

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """For `cleanup_ctx` of the application."""
        async with self._broker.connected():
            yield

    @web.middleware
    async def unless_served(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass on what nothing here serves. It stands before the bounds of bodies, having its own."""
        if is_for_broker(request):
            return await self.pass_on(request)
        response = await handler(request)
        kind = list_of_both(request)
        if kind is None or response.status != HTTPStatus.OK or not isinstance(response, web.Response):
            return response
        try:
            return together(response.text, await self._told(request, kind))
        except ForwardError as error:
            return _refusal(request, error.status, str(error))

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Let the broker answer."""
        body = ClientBody(request, self._section.max_body, self._patience_s)
        try:
            if refused := await self._why_refused(request):
                return refused
            await body.begin()
        except BodyRefusedError as error:
            return self._refuse_body(request, error)
        return await self._exchanged(request, body)

    async def _told(self, request: web.Request, kind: type[T]) -> T:
        """What the broker says at the same path."""
        outcome = Outcome.CLIENT
        try:
            async with self._asked(request, "GET", request.path, None) as answer:
                found = await json_in(answer, kind)
                outcome = Outcome.DONE
                return found
        except ForwardError as error:
            outcome = error.outcome
            raise
        finally:
            self._counters.admin_forwarded[outcome.value] += 1

    async def _exchanged(self, request: web.Request, body: ClientBody) -> web.StreamResponse:
        outcome, status = Outcome.CLIENT, None
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
        with self._place(), _ended_by_hanging_up(request):
            async with self._broker.ask(Question(method, target, headers, body)) as answer:
                yield answer

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        most = self._section.max_in_flight
        if self._in_flight >= most:
            what = f"{most} requests are at the broker already (admin_forward.max_in_flight): try again"
            raise ForwardError(503, Outcome.BUSY, what)
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def _via(self, request: web.Request) -> str:
        came = [each.strip() for value in request.headers.getall(VIA, []) for each in value.split(",")]
        if self._name in came:
            what = "admin_forward.url leads back to this address: name the broker's own web service there"
            raise ForwardError(508, Outcome.UNREACHABLE, what)
        return ", ".join((*came, self._name))

    async def _why_refused(self, request: web.Request) -> web.Response | None:
        caller, wrong = request[CALLER], why_not(request.raw_path)
        if wrong is None and await is_served_decoded(request):
            wrong = "decoded it is a path that Sluice serves: write that one"
        if wrong is not None:
            return _refusal(request, 400, f"not passed on to the broker: {wrong}")
        if request.method not in READING or not changes_something(request):
            return None  # the doors have looked at its method
        why = Why.READ_ONLY if caller.access == "read" else Why.CROSS_SITE if is_of_a_page(request) else None
        if why is not None:
            reason = "this GET changes something at the broker: it takes write access, and no web page may send it"
            self._refused.count(why, reason, caller.address)
            return _refusal(request, 403, reason)
        return None

    def _refuse_body(self, request: web.Request, error: BodyRefusedError) -> web.Response:
        if why := _WHY.get(error.status):
            self._refused.count(why, str(error), request[CALLER].address)
        return _refusal(request, error.status, str(error))

    def _tell(self, request: web.Request, outcome: Outcome, status: int | None) -> None:
        self._counters.admin_forwarded[outcome.value] += 1
        if request.method in READING and not changes_something(request):
            return
        caller, what = request[CALLER], {"method": request.method, "path": request.raw_path[:_LONGEST_PATH]}
        structlog.get_logger().info(
            "passed on to the broker",
            **what,
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
