"""`POST /sluice/kick`: end what a tenant, a topic, a client or a connection has open; it may come again at once."""

import asyncio
from typing import TypedDict

import structlog
from aiohttp import web

from proxy.admin.handlers import ANY_TEXT, Either, Query, Text, asked, caller_of, described, explaining
from proxy.admin.tenant_scope import KICK
from proxy.kicks import Kick, KickEffect, kicking, read_kick
from proxy.policies.keys import LONGEST, OPERATOR, ActionKind, Principal
from proxy.policies.service import PolicyService
from proxy.policies.store import Action
from proxy.session.engine import Engine
from proxy.slices import Work

_TENANT = Text(name="tenant", meaning="producers and consumers of its topics")
_TOPIC = Text(
    name="topic",
    meaning="its producers and consumers; of a partitioned one, those of all partitions",
    longest=LONGEST,
    pattern=ANY_TEXT,
)
_ROLE = Text(name="role", meaning="connections of clients with this role", pattern=ANY_TEXT)
_ADDRESS = Text(name="address", meaning="connections from this address or range, as 10.1.2.3 or 10.1.0.0/16")
_CONNECTION = Text(name="connection", meaning="the connection of this `connection_id`", longest=18, pattern="[0-9]+")
_DRY_RUN = Either(
    name="dry_run", meaning="1 counts the connections and streams that would end, and ends none", words=("0", "1")
)
_CHOICE = (_TENANT, _TOPIC, _ROLE, _ADDRESS, _CONNECTION)


class Kicked(TypedDict):
    """The numbers of connections, and of producers and consumers, that ended, or would end (`kicked` is false).

    `streams` counts those of ended connections as well.
    """

    kicked: bool
    connections: int
    streams: int


class KickRest:
    """Ends connections and streams, in slices, and notes it in the audit log.

    Args:
        engine: Has the sessions.
        service: Has the audit log.
    """

    def __init__(self, engine: Engine, service: PolicyService) -> None:
        self._engine = engine
        self._service = service
        self._under_way: set[asyncio.Task[KickEffect]] = set()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.post(KICK, explaining(self.post))]

    @described({200: Kicked}, query=(*_CHOICE, _DRY_RUN))
    async def post(self, request: web.Request) -> web.Response:
        """End what all given words mean; with a tenant or topic, producers and consumers, else whole connections."""
        author = caller_of(request)
        kick = _read(asked(request, (*_CHOICE, _DRY_RUN)), author)
        kicked = asyncio.get_running_loop().create_task(self._kick(kick, author))
        self._under_way.add(kicked)
        kicked.add_done_callback(self._under_way.discard)
        effect = await asyncio.shield(kicked)  # it is counted and audited even if the caller hangs up
        answer: Kicked = {"kicked": not kick.is_dry, "connections": effect.connections, "streams": effect.streams}
        return web.json_response(answer)

    async def _kick(self, kick: Kick, author: Principal) -> KickEffect:
        effect = KickEffect()
        work = Work.REQUESTS if kick.is_dry else Work.ENDINGS
        try:
            await self._engine.slices.done(work, kicking(self._engine.sessions, kick, effect))
        finally:
            if not kick.is_dry:
                await self._note(kick, effect, author)
        return effect

    async def _note(self, kick: Kick, effect: KickEffect, author: Principal) -> None:
        counters = self._engine.counters
        counters.kicked["connections"] += effect.connections
        counters.kicked["streams"] += effect.streams
        structlog.get_logger().warning(
            "kicked",
            what=str(kick),
            connections=effect.connections,
            streams=effect.streams,
            by=author.name,
            address=author.address,
        )
        owner = OPERATOR if author.tenants is None else min(author.tenants)
        await self._service.note(Action(ActionKind.KICK, str(kick), f"ended {effect}", owner), author)


def _read(query: Query, author: Principal) -> Kick:
    words = {key.name: key.read(query) for key in _CHOICE if key.name in query}
    return read_kick(words, author.tenants, is_dry=_DRY_RUN.read(query) == "1")
