"""`GET /sluice/explain?topic=…&subscription=…&producer=…&role=…&address=…`: which limits hold, and why."""

from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any

import msgspec
from aiohttp import web

from limiter.levels import Client
from protocol.topic_name import parse_topic
from proxy.admin.questions import asked, explaining
from proxy.policies.book import Book
from proxy.policies.explain import Explained, LevelLines, explain, explain_subscribes

_LONGEST = 2000
"""Characters of a name."""
_CLIENT = ("subscription", "producer", "role", "address")


class ExplainRest:
    """Serves it.

    Args:
        book: Where the limits are.
    """

    def __init__(self, book: Book) -> None:
        self._book = book

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [web.get("/sluice/explain", explaining(self.get))]

    async def get(self, request: web.Request) -> web.Response:
        """A producer has no subscription and a consumer no producer's name, so each direction has its own client."""
        query = asked(request, "topic", *_CLIENT)
        if "topic" not in query:
            raise ValueError("topic: write ?topic=persistent://tenant/namespace/topic, and what is known of the client")
        topic = parse_topic(_said(query, "topic"))
        role, address = _said(query, "role"), _address(_said(query, "address"))
        producer = Client(_said(query, "producer"), role, address)
        consumer = Client("", role, address, _said(query, "subscription"))
        publish = explain(self._book, "publish", topic, producer)
        answer = {
            "topic": publish.topic,
            "exempt": publish.is_exempt,
            "resource_group": asdict(publish.group) if publish.group else None,
            "publish": _levels(publish),
            "dispatch": _levels(explain(self._book, "dispatch", topic, consumer)),
            "subscribe": _level(explain_subscribes(self._book, topic)),
        }
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _levels(explained: Explained) -> list[dict[str, Any]]:
    return [_level(level) for level in explained.levels]


def _level(level: LevelLines) -> dict[str, Any]:
    return {"level": level.level, "asked": level.asked, "values": [asdict(line) for line in level.lines]}


def _said(query: Mapping[str, str], key: str) -> str:
    text = query.get(key, "")
    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"{key}: write it in one line of at most {_LONGEST} characters")
    return text


def _address(text: str) -> str:
    try:
        return str(ip_address(text)) if text else ""
    except ValueError:
        raise ValueError(f"address: {text[:100]!r} is not an address of a client, as 10.1.2.3") from None
