"""`POST /sluice/drain`: have all clients go on elsewhere, as SIGTERM does, and keep running. `GET`: how far that is."""

from typing import TypedDict

from aiohttp import web

from proxy.admin.handlers import caller_of, described
from proxy.admin.in_force import moment
from proxy.admin.refusals import refusal
from proxy.drain import DrainCause, DrainService


class ShownDrain(TypedDict):
    """A drain.

    `phase` is `serving`, `delaying` (not ready, and serving as before), `moving` or `drained`. `cause` is `SIGTERM`,
    `rest`, `takeover` or `replaced` (one of several processes). `outcome` is `moved`, `time_over` or `ended` (by a
    second signal). These and `since` are null before. `connections` and `streams` are left, `moved_…` have gone on.
    """

    phase: str
    cause: str | None
    since: str | None
    outcome: str | None
    connections: int
    streams: int
    moved_connections: int
    moved_streams: int


class DrainRest:
    """Serves the drain.

    Args:
        drain: Drains the process; None where there is no process, as in tests.
    """

    def __init__(self, drain: DrainService | None) -> None:
        self._drain = drain

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/drain", self.get), web.post("/sluice/drain", self.begin)]

    @described({200: ShownDrain}, refuses=(404,))
    async def get(self, _request: web.Request) -> web.Response:
        """Return the state of the drain."""
        return _none() if self._drain is None else web.json_response(_shown(self._drain))

    @described({202: ShownDrain}, refuses=(404,))
    async def begin(self, request: web.Request) -> web.Response:
        """Begin to drain; the answer comes at once. Without clients the process runs on, until SIGTERM."""
        if self._drain is None:
            return _none()
        self._drain.begin(DrainCause.REST, caller_of(request))
        return web.json_response(_shown(self._drain), status=202)


def _none() -> web.Response:
    return refusal(404, "this process cannot drain")


def _shown(drain: DrainService) -> ShownDrain:
    return {
        "phase": drain.phase,
        "cause": drain.cause,
        "since": moment(drain.begun_at_ns) if drain.cause else None,
        "outcome": drain.outcome,
        "connections": drain.connections,
        "streams": drain.streams,
        "moved_connections": drain.moved["connections"],
        "moved_streams": drain.moved["streams"],
    }
