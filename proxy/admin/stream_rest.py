"""`GET /sluice/streams?held=1&topic=…&tenant=…&limit=…`: who is served, and who waits for what."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypedDict

import msgspec
from aiohttp import web

from limiter.stream import Stream
from protocol.topic_name import parse_topic
from proxy.admin.openapi.described import described
from proxy.admin.questions import Either, Number, Query, Text, asked, explaining
from proxy.admin.refusal import refusal
from proxy.admin.stream_shape import ShownStream, Totals
from proxy.admin.stream_view import Choice, Wanted, view
from proxy.engine import NearEngine

_LOOKED_AT_ONCE = 5000
_SHOWN_AT_ONCE = 250
"""Streams dealt with in one go, some milliseconds; in between the proxy serves its clients."""
_HELD = Either(name="held", meaning="1 shows only streams of which something is held", words=("0", "1"))
_TOPIC = Text(name="topic", meaning="only its streams; of a partitioned one, those of all partitions")
_TENANT = Text(name="tenant", meaning="only streams of its topics")
MOST_AT_ONCE = 4
"""Answers under way; who comes then waits for as long as an answer may take to be taken."""
LIMIT = Number(name="limit", meaning="how many to show", default=1000, most=10_000, least=0)
_KEYS = (_HELD, _TOPIC, _TENANT, LIMIT)


class StreamsPage(TypedDict):
    """Open streams, and sums over all that were asked for, shown or not; the clock is the counts' own."""

    monotonic_ms: float
    totals: Totals
    streams: list[ShownStream]
    left_out: int


class StreamRest:
    """Serves the view of the open streams, piece by piece: an answer may have 10,000 streams with names of 4 KiB.

    Of an answer that is under way, some pieces are in memory, and the streams that are still to be shown, open or not.

    Args:
        engine: Where they are.
    """

    def __init__(self, engine: NearEngine) -> None:
        self._engine = engine
        self._patience_s = engine.config.admin_access.request_timeout
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [web.get("/sluice/streams", explaining(self.get))]

    @described({200: StreamsPage}, query=_KEYS)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """The streams, those who hold most first."""
        wanted, answer = read_wanted(asked(request, _KEYS)), web.StreamResponse()
        answer.content_type = "application/json"
        try:
            async with asyncio.timeout(self._patience_s), self._turns:
                await self._answer(answer, request, wanted)
        except TimeoutError:
            if not answer.prepared:
                return refusal(503, "other such answers are still being taken; try again")
            if request.transport is not None:
                request.transport.abort()
        return answer

    async def _answer(self, answer: web.StreamResponse, request: web.Request, wanted: Wanted) -> None:
        choice = Choice(wanted)
        async for streams in _bit_by_bit(self._engine.registry.live(), _LOOKED_AT_ONCE):
            choice.look_at(streams)
        shown, at = choice.shown(), self._engine.clock()
        sums = {"monotonic_ms": at / 1e6, "totals": choice.totals, "left_out": choice.totals["streams"] - len(shown)}
        await answer.prepare(request)
        if request.method == "HEAD":
            return
        before = msgspec.json.encode(sums)[:-1] + b',"streams":['
        async for streams in _bit_by_bit(shown, _SHOWN_AT_ONCE):
            views = [msgspec.json.encode(view(stream, self._engine.clock())) for stream in streams]
            await answer.write(before + b",".join(views))
            before = b","
        await answer.write(b"]}" if shown else before + b"]}")
        await answer.write_eof()


async def _bit_by_bit(streams: list[Stream], number: int) -> AsyncIterator[list[Stream]]:
    for begin in range(0, len(streams), number):
        yield streams[begin : begin + number]
        await asyncio.sleep(0)


def read_wanted(query: Query) -> Wanted:
    """What a query asks for.

    Raises:
        ValueError: With what is wrong and what would be right.
    """
    topic = _topic(_TOPIC.read(query)) if _TOPIC.name in query else ""
    return Wanted(_HELD.read(query) == "1", topic, _TENANT.read(query), LIMIT.read(query))


def _topic(name: str) -> str:
    try:
        return parse_topic(name).full
    except ValueError as error:
        raise ValueError(f"topic: {error}") from None
