"""`/sluice/policies`: all limits in force as one set, and the way to make another set hold, all or nothing."""

import asyncio
from dataclasses import asdict
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from proxy.admin.pulsar.answers import caller_of, json_text
from proxy.admin.questions import asked, explaining
from proxy.config.admission import AdmissionBounds
from proxy.config.limits import Limits
from proxy.policies.applying import Plan, plan
from proxy.policies.bodies import BodyError
from proxy.policies.book import Book
from proxy.policies.differences import differences
from proxy.policies.exchange import encoded
from proxy.policies.exporting import as_yaml
from proxy.policies.key import Key
from proxy.policies.policy_set import PolicySet, in_force, of_file

_PATH = "/sluice/policies"
MOST_TOLD = 1000
"""Differences that an answer tells; the others are counted."""
_MOST_PROBLEMS = 20


class _Body(BaseModel):
    """What a configuration says of limits; `limits` is needed, so that nothing is taken away by mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limits: Limits
    admission: AdmissionBounds = AdmissionBounds()


class PoliciesRest:
    """Serves them.

    Args:
        book: Where they are.
    """

    def __init__(self, book: Book) -> None:
        self._book = book

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [web.get(_PATH, explaining(self.get)), web.put(_PATH, explaining(self.put))]

    async def get(self, request: web.Request) -> web.Response:
        """All in force: as YAML that `sluice check` accepts, or (format=json) as `proxy.policies.exchange` has it."""
        form = asked(request, "format").get("format", "yaml")
        if form not in {"yaml", "json"}:
            raise ValueError(f"format: {form[:50]!r} is neither yaml nor json")
        held = in_force(self._book)
        if form == "json":
            return web.Response(body=await asyncio.to_thread(encoded, held), content_type="application/json")
        text = await asyncio.to_thread(as_yaml, held)
        return web.Response(text=text, content_type="application/yaml")

    async def put(self, request: web.Request) -> web.Response:
        """Make what the body says hold, and nothing else; with dry_run=1, only tell what would change."""
        dry_run = asked(request, "dry_run").get("dry_run", "0")
        if dry_run not in {"0", "1"}:
            raise ValueError(f"dry_run: {dry_run[:50]!r} is neither 1 nor 0")
        wanted = await asyncio.to_thread(_read, await json_text(request))
        made, told = Plan(), dict[str, Any]()

        async def think() -> dict[Key, str | None]:
            nonlocal made, told
            held = in_force(self._book)
            told = await asyncio.to_thread(_told, wanted, held)
            made = await asyncio.to_thread(plan, self._book, wanted, held)
            return {} if dry_run == "1" else made.wanted

        await self._book.rework_slowly(think, caller_of(request))
        return web.json_response({"applied": dry_run == "0", **told, "hidden": made.hidden[:MOST_TOLD]})


def _told(wanted: PolicySet, held: PolicySet) -> dict[str, Any]:
    found = differences(wanted, held)
    told = [asdict(one) for one in islice(found, MOST_TOLD)]
    return {"changes": told, "more_changes": sum(1 for _ in found)}


def _read(text: bytes) -> PolicySet:
    try:
        body = _Body.model_validate(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BodyError('the body is not JSON as {"limits": {"namespaces": …}}') from None
    except ValidationError as error:
        problems = [_problem(problem) for problem in error.errors()]
        more = len(problems) - _MOST_PROBLEMS
        told = [*problems[:_MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        raise BodyError("; ".join(told)) from None
    return of_file(body.limits, body.admission.subscribe_rate_per_consumer)


def _problem(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"] if part not in {"function-before", "[key]"}) or "(top)"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {problem['input']!r:.100}: {message}"
