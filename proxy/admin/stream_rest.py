"""`GET /sluice/streams?held=1&topic=…&tenant=…&limit=…`: who is served, and who waits for what."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec
from aiohttp import web

from limiter.stream import Stream
from protocol.topic_name import parse_topic
from proxy.admin.refusal import refusal
from proxy.admin.stream_view import Choice, Wanted, view
from proxy.engine import Engine

MOST_SHOWN = 10_000
SHOWN_UNLESS_TOLD = 1000
_LOOKED_AT_ONCE = 5000
_SHOWN_AT_ONCE = 250
"""Streams dealt with in one go, some milliseconds; in between the proxy serves its clients."""
_KEYS = ("held", "topic", "tenant", "limit")


class StreamRest:
    """Serves the view of the open streams.

    Args:
        engine: Where they are.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [web.get("/sluice/streams", self.get)]

    async def get(self, request: web.Request) -> web.Response:
        """The streams, those who hold most first."""
        try:
            wanted = read_wanted(request.query)
        except ValueError as error:
            return refusal(400, str(error))
        choice, shown = Choice(wanted), []
        async for streams in _bit_by_bit(self._engine.registry.live(), _LOOKED_AT_ONCE):
            choice.look_at(streams)
        at = self._engine.clock()
        async for streams in _bit_by_bit(choice.shown(), _SHOWN_AT_ONCE):
            shown += [view(stream, self._engine.clock()) for stream in streams]
        answer = {
            "monotonic_ms": at / 1e6,
            "totals": choice.totals,
            "streams": shown,
            "left_out": choice.totals["streams"] - len(shown),
        }
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


async def _bit_by_bit(streams: list[Stream], number: int) -> AsyncIterator[list[Stream]]:
    for begin in range(0, len(streams), number):
        yield streams[begin : begin + number]
        await asyncio.sleep(0)


def read_wanted(query: Mapping[str, str]) -> Wanted:
    """What a query asks for.

    Raises:
        ValueError: With what is wrong and what would be right.
    """
    for key in query:
        if key not in _KEYS:
            raise ValueError(f"{key[:50]!r} is not known here: ask by {', '.join(_KEYS)}")
    if len(query) > len(set(query)):
        raise ValueError("a key stands there twice: give each once")
    held = query.get("held", "0")
    if held not in ("0", "1"):
        raise ValueError(f"held: {held[:50]!r} is neither 1 (only streams of which something is held) nor 0")
    return Wanted(held == "1", _topic(query.get("topic")), query.get("tenant", ""), _most(query.get("limit")))


def _topic(name: str | None) -> str:
    try:
        return "" if name is None else parse_topic(name).full
    except ValueError as error:
        raise ValueError(f"topic: {error}") from None


def _most(text: str | None) -> int:
    if text is None:
        return SHOWN_UNLESS_TOLD
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= MOST_SHOWN):
        raise ValueError(f"limit: {text[:50]!r} is not a number of streams from 0 to {MOST_SHOWN}")
    return int(text)
