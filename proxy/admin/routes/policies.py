"""`/sluice/policies`: return all limits and blocks in force as one set, and apply another set, all or nothing.

`GET /sluice/backup`: return the policy store as a file.

`GET /sluice/audit?limit=100`: return the audit log: each change with its principal, old and new value, the newest
first.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, TypedDict

import msgspec
from aiohttp import web
from pydantic import Field, ValidationError, field_validator

from proxy.admin.handlers import (
    JSON,
    Either,
    Number,
    asked,
    caller_of,
    described,
    explaining,
    file_sent,
    json_text,
    sent,
)
from proxy.admin.json_text import escaped, json_of, json_with
from proxy.block_rules import Block, each_once
from proxy.bulk import PIECE, in_pieces, in_thread, let_go
from proxy.config.limits import Limits
from proxy.config.sections import AdmissionBounds
from proxy.config.sources import cut, problems_line
from proxy.mistakes import BOUNDED, ConfigSection, ReadSoFar
from proxy.policies.bodies import BodyError, check_for_nulls, requested_body
from proxy.policies.held import ValueBefore, read
from proxy.policies.kept_blocks import BlockDesk
from proxy.policies.keys import PolicyKey
from proxy.policies.policy_set import (
    ApplyPlan,
    Difference,
    Exchanged,
    PolicySet,
    as_yaml,
    differences,
    encoded,
    in_force,
    of_file,
    path_of,
    plan,
    rules_by_key,
)
from proxy.policies.service import PolicyService
from proxy.policies.state import PolicyState
from proxy.policies.store import Action, Audited, Store
from proxy.runtime import paused_collector

_PATH = "/sluice/policies"
_FORMAT = Either(
    name="format", meaning="yaml as the configuration has it, or json as `sluice diff` reads it", words=("yaml", "json")
)
_DRY_RUN = Either(name="dry_run", meaning="1 shows the changes, and makes none", words=("0", "1"))
_YAML = "application/yaml"
MOST_INNER = 10_000
"""Most entries of a list, and of a table within the entry of a name, in a body: as many as there can be blocks."""
MOST_SHOWN = 1000
"""Most differences in an answer; the others are counted."""


_LIMITS = {
    "plans": {"gold": {"publish": {"messages": 500, "burst_messages": 1000}, "dispatch": {"bytes": "20MB"}}},
    "tenants": {"acme": {"plan": "gold"}, "free-*": {"publish": {"bytes": "1MB", "burst_bytes": "4MB"}}},
    "namespaces": {"acme/shop": {"plan": "gold", "subscribe": "5/30s"}},
    "topics": {
        "persistent://acme/shop/orders": {
            "publish": {"messages": "30/min", "mode": "reject"},
            "subscriptions": {"audit": {"dispatch": {"messages": 100}}},
        }
    },
    "each_topic": {"publish": {"messages": 1000}, "dispatch": {"messages": 2000, "relativeToPublishRate": True}},
    "each_subscription": {"dispatch": {"bytes": "5MB"}},
    "resource_groups": {"batch": {"dispatch": {"bytes": "10MB"}, "namespaces": ["acme/reports"]}},
    "roles": {"import": {"publish": {"messages": 50}}},
    "addresses": {"10.0.0.0/8": {"dispatch": {"bytes": "50MB"}}},
    "proxy": {"publish": {"bytes": "200MB"}},
}
_BLOCKS = [{"role": "intruder", "reason": "spam"}, {"address": "192.0.2.0/24"}]
"""Examples for the OpenAPI page."""


class WantedPolicies(ConfigSection):
    """The limits of a configuration; `limits` is required, so that nothing is taken away by mistake.

    Without `blocks`, these stay as they are.
    """

    limits: Limits = Field(examples=[_LIMITS])
    admission: AdmissionBounds = Field(AdmissionBounds(), examples=[{"subscribe_rate_per_consumer": "10/30s"}])
    blocks: tuple[Annotated[Block, BOUNDED], ...] | None = Field(None, examples=[_BLOCKS])

    @field_validator("blocks")
    @classmethod
    def _each_once(cls, blocks: tuple[Block, ...] | None) -> tuple[Block, ...] | None:
        return None if blocks is None else each_once(blocks)


class ShownDifferences(TypedDict):
    """The differences between the requested policies and those in force."""

    changes: list[Difference]
    more_changes: int


class Applied(ShownDifferences):
    """The changes that were or would be made; `hidden`: limits of the file that a run-time value puts out of force."""

    applied: bool
    hidden: list[str]


class PoliciesRest:
    """Serves all limits and blocks as one set.

    Args:
        service: The policies.
        desk: The blocks.
    """

    def __init__(self, service: PolicyService, desk: BlockDesk) -> None:
        self._service = service
        self._desk = desk

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get(_PATH, explaining(self.get)), web.put(_PATH, explaining(self.put))]

    @described({200: {_YAML: dict[str, Any], JSON: Exchanged}}, query=(_FORMAT,), is_large=True)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """Show all in force: YAML that `sluice check` accepts, or (format=json) `proxy.policies.policy_set`'s form."""
        form = _FORMAT.read(asked(request, (_FORMAT,)))
        is_json = form == "json"
        content = JSON if is_json else f"{_YAML}; charset=utf-8"

        def pieces(held: PolicySet) -> list[bytes]:
            written = list(map(escaped, encoded(held)) if is_json else as_yaml(held))
            let_go(held.values)
            return written

        held = await self._service.look(self._held)
        return await sent(request, await asyncio.to_thread(pieces, held), {"Content-Type": content})

    @described({200: Applied}, query=(_DRY_RUN,), body=WantedPolicies, refuses=(415, 503))
    async def put(self, request: web.Request) -> web.Response:
        """Put the body's limits in force, and no others, and its blocks, if it has any; dry_run=1 only compares."""
        dry_run = _DRY_RUN.read(asked(request, (_DRY_RUN,))) == "1"
        text, made, shown = await json_text(request), ApplyPlan(), ShownDifferences(changes=[], more_changes=0)

        async def planner() -> dict[PolicyKey, str | None]:
            nonlocal made, shown
            made, shown = await in_thread(self._service.ending, self._planned, wanted)
            return made.wanted

        with paused_collector():
            wanted = await in_thread(self._service.ending, read_set, text)
            if dry_run:
                made, shown = await self._service.look(lambda _: self._planned(wanted))
            else:
                await self._service.rework_slowly(planner, caller_of(request))
            for needless in (wanted.values, made.wanted):
                await asyncio.to_thread(let_go, needless)
        answer: Applied = {"applied": not dry_run, **shown, "hidden": made.hidden[:MOST_SHOWN]}
        return web.Response(body=json_of(answer), content_type=JSON)

    def _held(self, state: PolicyState) -> PolicySet:
        return replace(in_force(state), blocks=rules_by_key(self._desk.blocklist.rules.all()))

    def _planned(self, wanted: PolicySet) -> tuple[ApplyPlan, ShownDifferences]:
        held = self._held(self._service)
        made = plan(self._service, wanted, held)
        if wanted.blocks is not None:
            made.wanted.update(self._desk.plan(wanted.blocks))
        shown = _shown_differences(wanted, held)
        let_go(held.values)
        return made, shown


def _shown_differences(wanted: PolicySet, held: PolicySet) -> ShownDifferences:
    rest = differences(wanted, held)
    shown = list(islice(rest, MOST_SHOWN))
    return {"changes": shown, "more_changes": sum(1 for _ in rest)}


def read_set(text: bytes) -> PolicySet:
    """Return the set of limits that a body wants in force.

    A section of many names is checked in pieces, and the first piece with errors is the last one that is read.

    Raises:
        BodyError: If the body is no such set, with its errors.
    """
    written = requested_body(text, Any, "set of limits", 'send JSON as {"limits": {"namespaces": …}}')
    so_far, wanted = ReadSoFar(), PolicySet()
    try:
        check_for_nulls(text, written)
        for piece in _pieces(written):
            wanted = _joined(wanted, _read_piece(piece, so_far))
    finally:
        let_go(written)
    return wanted


def _pieces(written: Any) -> Iterator[Any]:
    """Yield parts of a body, each of which is a body with at most `PIECE` names in a section of its limits."""
    limits = written.get("limits") if isinstance(written, dict) else None
    if not isinstance(limits, dict):
        yield written
        return
    large = {name: section for name, section in limits.items() if isinstance(section, dict) and len(section) > PIECE}
    rest = {name: section for name, section in limits.items() if name not in large}
    plans = large.get("plans", {})
    yield {**written, "limits": _plans_of(rest, plans) | rest}
    for name, section in large.items():
        for items in in_pieces(section.items()):
            piece = {name: dict(items)}
            yield {"limits": _plans_of(piece, plans or rest.get("plans", {})) | piece}


def _plans_of(sections: Mapping[str, Any], plans: Any) -> dict[str, Any]:
    """Return the plans that a piece needs: those that its names have; all, if they are few, to suggest one of them."""
    if not isinstance(plans, dict) or not plans or "plans" in sections:
        return {}
    if len(plans) <= PIECE:
        return {"plans": plans}
    entries = [entry for name in ("tenants", "namespaces") for entry in sections.get(name, {}).values()]
    given = [entry.get("plan") if isinstance(entry, dict) else entry for entry in entries]
    return {"plans": {name: plans[name] for name in given if isinstance(name, str) and name in plans}}


def _read_piece(written: Any, so_far: ReadSoFar) -> PolicySet:
    _check_sizes(written)
    try:
        body = WantedPolicies.model_validate(written, context=so_far)
    except ValidationError as error:
        raise BodyError(problems_line(error, WantedPolicies)) from None
    except ValueError:
        raise BodyError('the body is not JSON as {"limits": {"namespaces": …}}') from None
    finally:
        so_far.let_go()
    return of_file(body.limits, body.admission.subscribe_rate_per_consumer, body.blocks)


def _check_sizes(written: Any) -> None:
    """Check lists and tables other than the sections of limits, each of which is checked in one go."""
    if not isinstance(written, dict):
        return
    limits = written.get("limits")
    sections = [("limits", section) for section in limits.values()] if isinstance(limits, dict) else []
    inner = [
        (name, part)
        for _, section in sections
        if isinstance(section, dict)
        for name, entry in section.items()
        for part in (entry.values() if isinstance(entry, dict) else (entry,))
    ]
    for name, part in (*written.items(), *inner):
        if name != "limits" and isinstance(part, dict | list) and len(part) > MOST_INNER:
            raise BodyError(f"{cut(name)}: {len(part)} entries are here, and at most {MOST_INNER} can be")


def _joined(policies: PolicySet, other: PolicySet) -> PolicySet:
    """Return both parts of a body as one set; the first one is not used any more.

    Raises:
        BodyError: If a target or an attachment is in both.
    """
    for target, value in other.values.items():
        if target in policies.values:
            raise BodyError(f"{cut('.'.join(path_of(target)))}: occurs twice, in two spellings; leave one out")
        policies.values[target] = value
    for member, attached in other.attached.items():
        before = policies.attached.get(member)
        if before is not None:
            names = f"{cut(member[1])!r} is attached to {before.group!r} and to {attached.group!r}"
            raise BodyError(f"limits.resource_groups: {names}: leave one out")
        policies.attached[member] = attached
    return replace(
        policies,
        groups=policies.groups | other.groups,
        blocks=policies.blocks if other.blocks is None else other.blocks,
    )


BACKUP = "application/vnd.sqlite3"


class BackupRest:
    """Serves the policy store as a file.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/backup", explaining(self.get))]

    @described({200: {BACKUP: bytes}}, is_large=True)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """Return all that was set at run time, and the audit log, as `sluice restore` takes it: a SQLite file."""
        async with self._turn:
            backup = await asyncio.to_thread(self._store.backup)
        with backup:
            return await file_sent(request, backup, {"Content-Type": BACKUP})


LIMIT = Number(name="limit", meaning="the number of changes", default=100, most=10_000)


class HeldValue(TypedDict):
    """A value that was in force; `limit` is as the configuration writes it, `text` a group or the reason of a block.

    `setting` and `name` have the value: they may be wider than those of the change. `words` has all in one line.
    """

    kind: str
    setting: str
    name: str
    limit: dict[str, Any]
    text: str
    origin: str
    plan: str
    words: str


class AuditedChange(TypedDict):
    """A change. The origin is the layer: rest, global or tenant.

    `before` and `after` are the bodies that were set at run time: an object, a text for a key of the dynamic
    configuration or the group of an attachment, null for none. `words` has the new value in one line, in the words of
    `held`, with the mode that the file gave it then; or `taken back`, and the value that holds since, if it was known.
    It is empty if it was not recorded.

    `held` has the values in force before, whatever their source: none if there was no limit, null if they were not
    recorded. An action (`drain`, `kick`, or one of a later version) has no setting, and its effect in `after`.
    """

    at: str
    who: str
    address: str
    kind: str
    setting: str
    name: str
    origin: str
    before: dict[str, Any] | str | None
    after: dict[str, Any] | str | None
    words: str
    held: list[HeldValue] | None


class AuditPage(TypedDict):
    """The latest changes."""

    changes: list[AuditedChange]


class AuditRest:
    """Serves the audit log.

    Args:
        store: The store that keeps the audit log.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/audit", explaining(self.get))]

    @described({200: AuditPage}, query=(LIMIT,), is_large=True)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """List the changes of policies, the newest first: who changed what, from what to what."""
        most = LIMIT.read(asked(request, (LIMIT,)))
        return await sent(request, await asyncio.to_thread(self._page, most), {"Content-Type": JSON})

    def _page(self, most: int) -> bytes:
        return json_with({}, changes=(json_of(_shown(audited)) for audited in self._store.audited(most)))


def _shown(audited: Audited) -> AuditedChange:
    change, at = audited.change, datetime.fromtimestamp(audited.at_ns / 10**9, UTC)
    shown: AuditedChange = {
        "at": at.isoformat(timespec="milliseconds"),
        "who": audited.who,
        "address": audited.address,
        "kind": "",
        "setting": "",
        "name": "",
        "origin": "",
        "before": None,
        "after": None,
        "words": "",
        "held": None,
    }
    if isinstance(change, Action):
        shown["kind"], shown["name"], shown["after"] = str(change.kind), change.name, change.effect
        shown["words"] = change.effect
        return shown
    shown["kind"], shown["name"] = change.key.kind.value, change.key.name
    shown["setting"], layer = change.key.setting_and_layer
    shown["origin"] = layer.origin
    shown["before"], shown["after"] = _as_value(change.before), _as_value(change.after)
    shown["words"] = change.words or ""
    shown["held"] = None if change.held is None else [_value_held(held) for held in read(change.held)]
    return shown


def _as_value(kept: str | None) -> dict[str, Any] | str | None:
    """Return a kept body as JSON has it; one that is no object stays a text."""
    try:
        body = msgspec.json.decode(kept) if kept else kept
    except msgspec.DecodeError:
        return kept
    return body if isinstance(body, dict) else kept


def _value_held(held: ValueBefore) -> HeldValue:
    return {
        "kind": held.kind,
        "setting": held.setting,
        "name": held.name,
        "limit": held.limit,
        "text": held.text,
        "origin": held.origin,
        "plan": held.plan,
        "words": held.words(),
    }
