"""`/sluice/blocks`: list blocks, and block and unblock at run time."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, TypedDict

import msgspec
from aiohttp import web
from msgspec import Meta

from proxy.admin.handlers import (
    JSON,
    Either,
    Text,
    asked,
    caller_of,
    described,
    encoded_each,
    explaining,
    read_body_of,
    sent,
)
from proxy.admin.json_text import json_with
from proxy.admin.refusals import refusal
from proxy.block_rules import (
    MOST_NAME,
    MOST_REASON,
    Key,
    Kind,
    Rule,
    TooManyRulesError,
    read_key,
    read_reason,
)
from proxy.kicks import DryBlock, KickEffect, kicking
from proxy.policies.bodies import requested_body
from proxy.policies.kept_blocks import BlockDesk
from proxy.session.engine import Engine
from proxy.slices import Work

_PATH = "/sluice/blocks"
_KINDS = tuple(Kind)
_KIND = Text(name="kind", meaning="the kind of name that is blocked", words=_KINDS, is_needed=True)
_NAME = Text(name="name", meaning="whose, as it was blocked", longest=MOST_NAME, is_needed=True)
_TOPIC = Text(name="topic", meaning="the one topic that the block is of, if it is narrowed so")
_NAMESPACE = Text(name="namespace", meaning="the one namespace that the block is of, if it is narrowed so")
_KEY = (_KIND, _NAME, _TOPIC, _NAMESPACE)
_DRY_RUN = Either(
    name="dry_run", meaning="1 counts the connections and streams that would end, and blocks nothing", words=("0", "1")
)
_LIFTED_IN_FILE = "the configuration file has it as well: it is lifted until it is blocked again; remove it there"
_UNTIL_START = "the configuration file has it as well: it blocks again from the next start on; remove it there"


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST; `topic` or `namespace` narrows a name.

    `dry_run` is the same as in the query. A proxy of a version without it refuses the body, and ignores the query.
    """

    kind: Annotated[str, Meta(extra_json_schema={"enum": [*_KINDS]})]
    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MOST_NAME})]
    topic: str = ""
    namespace: str = ""
    reason: Annotated[str, Meta(extra_json_schema={"maxLength": MOST_REASON})] = ""
    dry_run: bool = False


class ShownBlock(TypedDict):
    """A rule; `hits` counts the connections and streams that it refused or ended."""

    kind: str
    name: str
    topic: str
    namespace: str
    reason: str
    since: str
    origin: str
    hits: int


class Blocks(TypedDict):
    """The rules in force; `lifted` are those of the file that were unblocked at run time."""

    blocks: list[ShownBlock]
    lifted: list[ShownBlock]


class EndedCounts(TypedDict):
    """Counts of what a block ended; `streams` counts those of ended connections as well."""

    connections: int
    streams: int


class Blocked(EndedCounts):
    """The result of a block: the counts of what it ended, or would end (`blocked` is false).

    `block` is the rule as it is, or would be; `ended` is nothing where it was a dry run. `was_blocked`: it was blocked
    before.
    """

    blocked: bool
    was_blocked: bool
    block: ShownBlock
    ended: EndedCounts


class Unblocked(TypedDict):
    """The result of an unblocking; the note says what else to do."""

    unblocked: bool
    note: str


class BlockRest:
    """Serves the rules of this process.

    Args:
        desk: Sets and removes rules.
        engine: Has the sessions.
        lasts: Whether rules that are set outlive the process.
    """

    def __init__(self, desk: BlockDesk, engine: Engine, *, lasts: bool) -> None:
        self._engine = engine
        self._slices = engine.slices
        self._desk = desk
        self._blocklist = desk.blocklist
        self._note = _LIFTED_IN_FILE if lasts else _UNTIL_START

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [
            web.get(_PATH, self.get),
            web.post(_PATH, explaining(self.post)),
            web.delete(_PATH, explaining(self.delete)),
        ]

    @described({200: Blocks}, is_large=True)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """List every rule in force; `lifted` are those of the file that were unblocked at run time."""
        rules, lifted = await asyncio.to_thread(self._blocklist.all_and_lifted)
        shown = [await encoded_each(self._slices, map(self._one, some)) for some in (rules, lifted)]
        body = json_with({}, blocks=shown[0], lifted=shown[1])
        return await sent(request, body, {"Content-Type": JSON})

    @described({200: Blocked}, query=(_DRY_RUN,), body=Body, refuses=(409,))
    async def post(self, request: web.Request) -> web.Response:
        """Block; doing it again changes nothing but the reason."""
        is_dry = _DRY_RUN.read(asked(request, (_DRY_RUN,))) == "1"
        try:
            body = await read_body_of(request, _body, await request.read())
            key, reason = read_key(body.kind, body.name, body.topic, body.namespace), read_reason(body.reason)
            was_blocked = self._blocklist.rules.get(key) is not None
            if is_dry or body.dry_run:
                return await self._counted(key, reason, was_blocked=was_blocked)
            outcome = await self._desk.block(key, reason, caller_of(request))
        except TooManyRulesError as error:
            return refusal(409, str(error))
        assert outcome.rule is not None, "it is in force"
        ended: EndedCounts = {"connections": outcome.ended.connections, "streams": outcome.ended.streams}
        answer: Blocked = {
            **ended,
            "blocked": True,
            "was_blocked": was_blocked,
            "block": self._one(outcome.rule),
            "ended": ended,
        }
        return web.json_response(answer)

    async def _counted(self, key: Key, reason: str, *, was_blocked: bool) -> web.Response:
        """Answer with what a block would end.

        Raises:
            TooManyRulesError: If there is no room for it.
        """
        rule, effect = self._blocklist.would_be(key, reason), KickEffect()
        await self._slices.done(Work.REQUESTS, kicking(self._engine.sessions, DryBlock(key), effect))
        answer: Blocked = {
            "connections": effect.connections,
            "streams": effect.streams,
            "blocked": False,
            "was_blocked": was_blocked,
            "block": self._one(rule),
            "ended": {"connections": 0, "streams": 0},
        }
        return web.json_response(answer)

    @described({200: Unblocked}, query=_KEY)
    async def delete(self, request: web.Request) -> web.Response:
        """Unblock; a key that is not blocked stays unblocked."""
        query = asked(request, _KEY)
        key = read_key(*(part.read(query) for part in _KEY))
        outcome = await self._desk.unblock(key, caller_of(request))
        note = self._note if outcome.rule is not None and self._blocklist.stands_in_file(key) else ""
        answer: Unblocked = {"unblocked": outcome.rule is not None, "note": note}
        return web.json_response(answer)

    def _one(self, rule: Rule) -> ShownBlock:
        return _shown(rule, self._blocklist.hits[rule.key])


def _body(text: bytes) -> Body:
    return requested_body(text, Body, "block")


def _shown(rule: Rule, hits: int) -> ShownBlock:
    key = rule.key
    is_topic = "://" in key.within
    return {
        "kind": key.kind.value,
        "name": key.name,
        "topic": key.within if is_topic else "",
        "namespace": "" if is_topic else key.within,
        "reason": rule.reason,
        "since": datetime.fromtimestamp(rule.since_ns // 10**9, UTC).isoformat(),
        "origin": rule.origin,
        "hits": hits,
    }
