"""`/sluice/blocks`: who is blocked, and the way to block and unblock at run time."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from proxy.admin.pulsar.answers import answering, caller_of
from proxy.admin.refusal import refusal
from proxy.blocking.kept import BlockDesk
from proxy.blocking.rules import Key, Rule, TooManyRulesError, read_key, read_reason

_PATH = "/sluice/blocks"
_KEY_PARTS = ("kind", "name", "topic", "namespace")
_STANDS_IN_FILE = "it stands in the configuration file too, and is lifted until it is blocked again; take it out there"
_UNTIL_START = "it stands in the configuration file too, and blocks again from the next start on; take it out there"


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """What POST takes; `topic` or `namespace` narrows a name."""

    kind: str
    name: str
    topic: str = ""
    namespace: str = ""
    reason: str = ""


class BlockRest:
    """Serves the rules of this process.

    Args:
        desk: Sets them and takes them back.
        lasts: Whether what is set outlives the process.
    """

    def __init__(self, desk: BlockDesk, *, lasts: bool) -> None:
        self._desk = desk
        self._blocklist = desk.blocklist
        self._note = _STANDS_IN_FILE if lasts else _UNTIL_START

    def routes(self) -> list[web.RouteDef]:
        """The routes, for aiohttp."""
        return [
            web.get(_PATH, self.get),
            web.post(_PATH, answering(self.post)),
            web.delete(_PATH, answering(self.delete)),
        ]

    async def get(self, _request: web.Request) -> web.Response:
        """Every rule in force; `lifted` are those of the file that were unblocked at run time."""
        rules, lifted = self._blocklist.rules.all(), self._blocklist.lifted()
        return web.json_response({"blocks": self._shown(rules), "lifted": self._shown(lifted)})

    async def post(self, request: web.Request) -> web.Response:
        """Block; saying it again changes nothing but the reason."""
        try:
            body = msgspec.json.decode(await request.read(), type=Body)
            key = read_key(body.kind, body.name, body.topic, body.namespace)
            outcome = await self._desk.block(key, read_reason(body.reason), caller_of(request))
        except msgspec.DecodeError as error:
            return refusal(400, f"the body is not a block: {error}")
        except (ValueError, TooManyRulesError) as error:
            return refusal(400, str(error))
        rules = [outcome.rule] if outcome.rule else []
        return web.json_response({"block": self._shown(rules)[0], "ended": outcome.ended._asdict()})

    async def delete(self, request: web.Request) -> web.Response:
        """Unblock; what is not blocked stays so."""
        try:
            key = _key_of(request)
            outcome = await self._desk.unblock(key, caller_of(request))
        except ValueError as error:
            return refusal(400, str(error))
        note = self._note if outcome.rule is not None and self._blocklist.stands_in_file(key) else ""
        return web.json_response({"unblocked": outcome.rule is not None, "note": note})

    def _shown(self, rules: list[Rule]) -> list[dict[str, Any]]:
        return [_shown(rule, self._blocklist.hits[rule.key]) for rule in rules]


def _key_of(request: web.Request) -> Key:
    strange = sorted(set(request.query) - set(_KEY_PARTS))
    if strange or not {"kind", "name"} <= set(request.query):
        what = f"{', '.join(strange)}: not known here; " if strange else ""
        raise ValueError(f"{what}write ?kind=…&name=…, and topic=… or namespace=… if the block has that")
    return read_key(*(request.query.get(part, "") for part in _KEY_PARTS))


def _shown(rule: Rule, hits: int) -> dict[str, Any]:
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
