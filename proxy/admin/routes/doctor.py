"""`GET /sluice/doctor`: examine the running proxy; each finding has its remedy."""

from datetime import UTC, datetime
from typing import TypedDict, cast

from aiohttp import web

from proxy.admin.handlers import described, explaining
from proxy.admin.shared_work import SharedWork
from proxy.checkup import Checkup, Finding, Severity

_KEPT_S = 1.0


class ShownFinding(TypedDict):
    """The result of one check; `remedy` is empty where there is nothing to do."""

    check: str
    severity: Severity
    text: str
    remedy: str


class Findings(TypedDict):
    """All findings, problems first; `at` is the proxy's time."""

    at: str
    findings: list[ShownFinding]


class DoctorRest:
    """Serves the examination; all callers share one at a time.

    Args:
        checkup: Examines the process; None: there is none to examine.
    """

    def __init__(self, checkup: Checkup | None) -> None:
        self._checkup = checkup
        self._shared = SharedWork(self._examine, lambda _: _KEPT_S)

    def routes(self) -> list[web.RouteDef]:
        """Return the route, for aiohttp."""
        return [web.get("/sluice/doctor", explaining(self.examine))]

    async def _examine(self) -> list[Finding]:
        return [] if self._checkup is None else await self._checkup.findings()

    @described({200: Findings}, refuses=(503,))
    async def examine(self, _request: web.Request) -> web.StreamResponse:
        """Examine the process: brokers, clocks, certificates, states, bounds of the machine, folders, fleet, limits."""
        findings = await self._shared.get(has_place=True)
        answer: Findings = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "findings": cast("list[ShownFinding]", [each._asdict() for each in findings]),
        }
        return web.json_response(answer)
