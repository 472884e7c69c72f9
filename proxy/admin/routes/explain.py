"""`GET /sluice/explain?topic=…&producer=…`: the limits that hold, and why; a key for each of `CLIENT_PARTS`."""

from ipaddress import ip_address
from typing import TypedDict

import msgspec
from aiohttp import web

from limiter.levels import ADDRESS, CLIENT_PARTS, About, Client
from protocol.topic_name import parse_topic
from proxy.admin.handlers import Query, Text, asked, described, explaining
from proxy.policies.explain import Explained, ExplainedGroup, ExplainedValue, LevelLines, explain, explain_subscribes
from proxy.policies.keys import LONGEST
from proxy.policies.service import PolicyService

_TOPIC = Text(name="topic", meaning="persistent://tenant/namespace/topic", is_needed=True, longest=LONGEST)
_CLIENT = {part: Text(name=part.word, meaning=part.meaning) for part in CLIENT_PARTS}
_KEYS = (_TOPIC, *_CLIENT.values())


class ExplainedLevel(TypedDict):
    """A level, whether values were looked up there, and every value that was written for it."""

    level: str
    asked: bool
    values: list[ExplainedValue]


class Explanation(TypedDict):
    """The limits that hold for a topic and a client, and why."""

    topic: str
    exempt: bool
    resource_group: ExplainedGroup | None
    publish: list[ExplainedLevel]
    dispatch: list[ExplainedLevel]
    subscribe: ExplainedLevel


class ExplainRest:
    """Serves explanations of limits.

    Args:
        service: The policies.
    """

    def __init__(self, service: PolicyService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/explain", explaining(self.get))]

    @described({200: Explanation}, query=_KEYS)
    async def get(self, request: web.Request) -> web.Response:
        """Explain the limits of a producer and of a consumer, each with its own names.

        A producer has no subscription and a consumer no producer's name, so each direction has its own client.
        """
        query = asked(request, _KEYS)
        topic = parse_topic(_TOPIC.read(query))
        publish = explain(self._service, "publish", topic, _client(query, "publish"))
        answer: Explanation = {
            "topic": publish.topic,
            "exempt": publish.is_exempt,
            "resource_group": publish.group,
            "publish": _levels(publish),
            "dispatch": _levels(explain(self._service, "dispatch", topic, _client(query, "dispatch"))),
            "subscribe": _level(explain_subscribes(self._service, topic)),
        }
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _levels(explained: Explained) -> list[ExplainedLevel]:
    return [_level(level) for level in explained.levels]


def _level(level: LevelLines) -> ExplainedLevel:
    return {"level": level.level, "asked": level.asked, "values": list(level.lines)}


def _client(query: Query, direction: About) -> Client:
    """Return what the query says of a client, as far as streams of the direction have it."""
    said = {part: key.read(query) for part, key in _CLIENT.items()}
    said[ADDRESS] = _address(said[ADDRESS])
    return Client(**{part.field: value for part, value in said.items() if direction in part.directions})


def _address(text: str) -> str:
    try:
        return str(ip_address(text)) if text else ""
    except ValueError:
        raise ValueError(f"address: {text[:100]!r} is not an address of a client, as 10.1.2.3") from None
