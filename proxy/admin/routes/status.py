"""`GET /sluice/status`: return the version and run, the configuration in force, and errors of the last reload.

`POST /sluice/reload`: reload the configuration, as SIGHUP does, with an answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from aiohttp import web

from proxy.admin.handlers import caller_of, described
from proxy.admin.in_force import moment
from proxy.reload import Outcome, Reloader


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the proxy.

    Args:
        proxy_id: The id of the proxy.
        boot_id: The id of its run.
        started_ns: When it started, nanoseconds since 1970.
        version: The version of Sluice.
        config_file: The configuration file; None if there is none.
        policies_file: The policy store; None if policies that are set by REST end with the process.
    """

    proxy_id: str
    boot_id: str
    started_ns: int
    version: str
    config_file: str | None
    policies_file: str | None


class Counts(TypedDict):
    """Numbers of open connections and of limiters in memory."""

    connections: int
    limiters: int


class Reloaded(TypedDict):
    """The result of a reload; values and files that problems name stay as before, all others are in force.

    `problems` are errors and `warnings` are none, each in the order of `sluice check`. `cause` is `rest`, `SIGHUP` or
    `file changed`; `who` and `address` are null unless it is `rest`. `files_taken` are changed files of a folder
    that are in force where others are not; `files_kept` are the others, each with the reason in a few words.
    """

    at: str
    cause: str
    who: str | None
    address: str | None
    in_force: bool
    problems: list[str]
    warnings: list[str]
    needs_restart: list[str]
    files_taken: list[str]
    files_kept: dict[str, str]


class Status(Counts):
    """The running proxy: version, start, configuration; files are null where there are none."""

    version: str
    proxy_id: str
    boot_id: str
    started: str
    config: str | None
    policies_store: str | None
    reload: Reloaded | None


class StatusRest:
    """Serves the status and reloads.

    Args:
        run: The run of the proxy.
        reloader: Reloads the configuration.
        counts: Returns the present counts.
    """

    def __init__(self, run: Run, reloader: Reloader, counts: Callable[[], Counts]) -> None:
        self._run = run
        self._reloader = reloader
        self._counts = counts

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/status", self.get), web.post("/sluice/reload", self.reload)]

    @described({200: Status})
    async def get(self, _request: web.Request) -> web.Response:
        """Return the state of the process."""
        run, last = self._run, self._reloader.last
        answer: Status = {
            "version": run.version,
            "proxy_id": run.proxy_id,
            "boot_id": run.boot_id,
            "started": moment(run.started_ns),
            "config": run.config_file,
            "policies_store": run.policies_file,
            **self._counts(),
            "reload": None if last is None else _shown(last),
        }
        return web.json_response(answer)

    @described({200: Reloaded, 409: Reloaded})
    async def reload(self, request: web.Request) -> web.Response:
        """Reload the configuration; 409 if a value or a file in it cannot be used."""
        outcome = await self._reloader.reload("rest", caller_of(request))
        return web.json_response(_shown(outcome), status=409 if outcome.problems else 200)


def _shown(outcome: Outcome) -> Reloaded:
    return {
        "at": moment(outcome.at_ns),
        "cause": outcome.cause,
        "who": outcome.who.name if outcome.who else None,
        "address": outcome.who.address if outcome.who else None,
        "in_force": not outcome.problems,
        "problems": list(outcome.problems),
        "warnings": list(outcome.warnings),
        "needs_restart": list(outcome.needs_restart),
        "files_taken": list(outcome.files_taken),
        "files_kept": dict(outcome.files_kept),
    }
