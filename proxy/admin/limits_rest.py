"""`/sluice/limits`: every limit in force, and one limit set, shown or taken back in Sluice's own form."""

import asyncio
import heapq
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from limiter.policies import Value
from proxy.admin.pulsar.answers import caller_of, json_text
from proxy.admin.questions import asked, explaining, number
from proxy.admin.refusal import refusal
from proxy.policies.bodies import BodyError
from proxy.policies.book import Book
from proxy.policies.layers import Layer, Place
from proxy.policies.own_limits import to_set, to_take_back
from proxy.policies.place_names import read_about, read_place, read_setting
from proxy.policies.policy_set import in_force
from proxy.policies.sections import section_of

_PATH = "/sluice/limits"
_PLACE = ("direction", "setting", "name")
MOST_SHOWN = 10_000
SHOWN_UNLESS_TOLD = 1000


class LimitsRest:
    """Serves them.

    Args:
        book: Where they are.
    """

    def __init__(self, book: Book) -> None:
        self._book = book

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [
            web.get(_PATH, explaining(self.get)),
            web.put(_PATH, explaining(self.put)),
            web.delete(_PATH, explaining(self.delete)),
        ]

    async def get(self, request: web.Request) -> web.Response:
        """One limit if a name is given, be it an empty one; else all in force, or those of one setting or direction."""
        query = asked(request, *_PLACE, "after", "limit")
        if "name" in query:
            return self._one(_place(query))
        return await self._all(query)

    async def put(self, request: web.Request) -> web.Response:
        """Set one limit, live. The body is its section of the configuration, or null to limit nothing there."""
        place = _place(asked(request, *_PLACE))
        section = _section(await json_text_or_null(request))
        await self._book.rework(lambda: to_set(self._book, place, section), caller_of(request))
        return self._one(place)

    async def delete(self, request: web.Request) -> web.Response:
        """Take back what was set here; what the file says holds again."""
        place = _place(asked(request, *_PLACE))
        changes = await self._book.rework(lambda: to_take_back(self._book, place), caller_of(request))
        value = self._book.layers.policies.put_under(place[0], place[1]).get(place[2])
        return web.json_response({"taken_back": bool(changes), "in_force": _shown(place, value) if value else None})

    def _one(self, place: Place) -> web.Response:
        value = self._book.layers.policies.put_under(place[0], place[1]).get(place[2])
        if value is None:
            return refusal(404, f"nothing is set for {' '.join(part for part in place if part)}")
        layers = self._book.layers
        hidden = [(layer, layers.written(layer, place)) for layer in reversed(Layer) if layer.origin != value.origin]
        others = [_shown(place, other) for _, other in hidden if other]
        return web.json_response(_shown(place, value) | {"hidden": others})

    async def _all(self, query: Mapping[str, str]) -> web.Response:
        about = read_about(query["direction"]) if "direction" in query else None
        setting = read_setting(query["setting"]) if "setting" in query else None
        after, most = _after(query.get("after")), number(query, "limit", SHOWN_UNLESS_TOLD, MOST_SHOWN)
        found = [
            (place, value)
            for place, value in in_force(self._book).values.items()
            if about in {None, place[0]} and setting in {None, place[1]}
        ]
        body = await asyncio.to_thread(_page, found, after, most)
        return web.Response(body=body, content_type="application/json")


async def json_text_or_null(request: web.Request) -> bytes:
    """The body as it is; a browser cannot be made to say for another site that it is JSON."""
    await json_text(request)
    return await request.read()


def _page(found: list[tuple[Place, Value]], after: tuple[str, ...], most: int) -> bytes:
    """In the order of their places; for all of 100,000 this takes a while, so it runs in a thread."""
    rest = [one for one in found if one[0] > after]
    shown = heapq.nsmallest(most, rest, key=lambda one: one[0])
    answer = {
        "limits": [_shown(place, value) for place, value in shown],
        "left_out": len(rest) - len(shown),
        "next": " ".join(shown[-1][0]) if len(rest) > len(shown) else None,
    }
    return msgspec.json.encode(answer)


def _after(text: str | None) -> tuple[str, ...]:
    """The last place of the page before; it need not be there any more."""
    return tuple(text.split(" ", 2)) if text else ()


def _place(query: Mapping[str, str]) -> Place:
    if "direction" not in query or "setting" not in query:
        raise ValueError("write ?direction=…&setting=…&name=…")
    return read_place(query["direction"], query["setting"], query.get("name", ""))


def _section(text: bytes) -> dict[str, Any] | None:
    try:
        section = msgspec.json.decode(text, type=dict[str, Any] | None)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BodyError('the body is not a limit: send JSON as {"messages": "500/s", "bytes": "10MB/s"}') from None
    return section


def _shown(place: Place, value: Value) -> dict[str, Any]:
    about, setting, name = place
    return {
        "direction": about,
        "setting": setting.value,
        "name": name,
        "limit": section_of(about, value.limit),
        "origin": value.origin,
    }
