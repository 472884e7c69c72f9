"""`GET /sluice/fleet?limit=…`: this member's part in its fleet, its shares, and all shares where it coordinates."""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypedDict

from aiohttp import web

from fleet.coordinator import Coordinator
from fleet.messages import Quota
from fleet.shares import UNBOUNDED
from proxy.admin.handlers import JSON, Number, asked, described, encoded_each, explaining, sent
from proxy.admin.json_text import json_with
from proxy.admin.refusals import refusal
from proxy.fleet.member_limits import MemberLimit
from proxy.fleet.policy_topic import LastChange, PolicyTopic, TopicState
from proxy.fleet.service import FleetService
from proxy.slices import Slices

_MILLI = 1000
MOST_HOLDERS = 100_000
"""Shares of members that are listed, at most, of all limits together: 1,000 members may have 2,000,000."""
_LIMIT = Number(
    name="limit",
    meaning="Most limits that are listed, of each kind; fewer where many members share them",
    default=1000,
    most=100_000,
)


class ShownQuota(TypedDict):
    """A limit: tokens in a period, and the burst."""

    tokens: int
    period_s: float
    burst: int


class ShownShare(TypedDict):
    """One unit of a limit in this member; rates are per second, `wanted_per_s` is null if it is unbounded."""

    limiter: str
    unit: str
    share: float
    used_per_s: float | None
    wanted_per_s: float | None
    streams: int | None
    lower_limit: ShownQuota | None


class ShownHolder(TypedDict):
    """A member's part of a limit, as the coordinator has granted it."""

    member: str
    share: float
    used_per_s: float
    wanted_per_s: float | None


class ShownFleetLimit(TypedDict):
    """One unit of a limit in the whole fleet; `unchanged_s`: seconds since a share last changed."""

    limiter: str
    unit: str
    limit: ShownQuota
    members_disagree: bool
    unchanged_s: float
    holders: list[ShownHolder]


class ShownLimitSet(TypedDict):
    """The limits that are written alike in `members` members; `is_here`: in this member as well.

    `digest` is the same in two members if the same limits are written in both. `limits` is the number of limits and
    attachments to resource groups. `names` has up to five members.
    """

    digest: str
    limits: int
    is_here: bool
    members: int
    names: list[str]


class ShownVersionSet(TypedDict):
    """A version of Sluice that `members` members run; empty: unknown. `names` has up to five."""

    version: str
    members: int
    names: list[str]


class ShownMember(TypedDict):
    """A member as the coordinator knows it; `has_twin`: another one has the same name.

    `version` is that of Sluice; empty: unknown.
    """

    name: str
    version: str
    incarnation: str
    heard_s_ago: float
    limits: int
    has_twin: bool


class ShownLastChange(TypedDict):
    """The latest change of a policy that was heard; `member` is where it was asked for."""

    policy: str
    version: int
    who: str
    address: str
    member: str
    at: str


class ShownPolicies(TypedDict):
    """The topic by which policies are changed; `position` is the latest message's ledger and entry."""

    topic: str
    state: TopicState
    problem: str
    position: str | None
    policies: int
    messages_received: int
    messages_sent: int
    reconnects: int
    conflicts: int
    refused: dict[str, int]
    last: ShownLastChange | None


class ShownFleet(TypedDict):
    """This member and its fleet; `fleet_limits` is null where another member coordinates.

    `members`: all of them where this member coordinates; elsewhere the first 100 by name, as the coordinator lists them
    once in a lease. Null before the first list.
    `coordinator` is empty while this member follows none. `last_coordinator` is the one that it followed last, which
    answered `answered_s_ago` and reported `members_known`.
    `problem`: why the fleet is not reached; empty if it is.
    `limit_sets`: the sets of limits that are written in members, where these differ, the most frequent first.
    `version_sets`: the versions of Sluice that members run, where these differ, the most frequent first.
    `coordinator_version`: the version of Sluice that the coordinator runs; empty before its first answer.
    """

    fleet: str
    member: str
    version: str
    coordinator_version: str
    incarnation: str
    state: str
    problem: str
    coordinator: str
    epoch: int
    last_coordinator: str
    answered_s_ago: float | None
    members_known: int
    lease_left_s: float
    isolated: bool
    lease_ends: int
    refused: dict[str, int]
    shares: list[ShownShare]
    members: list[ShownMember] | None
    fleet_limits: list[ShownFleetLimit] | None
    limit_sets: list[ShownLimitSet]
    version_sets: list[ShownVersionSet]
    policies: ShownPolicies | None


class FleetRest:
    """Shows the fleet.

    Args:
        fleet: This proxy's part in it; None without one.
        slices: Bounds the work in one turn of the loop.
        policies: The topic by which its policies are changed; None if each member keeps its own.
    """

    def __init__(self, fleet: FleetService | None, slices: Slices, policies: PolicyTopic | None = None) -> None:
        self._fleet = fleet
        self._slices = slices
        self._policies = policies

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/fleet", explaining(self.get))]

    @described({200: ShownFleet}, query=(_LIMIT,), refuses=(404,), is_large=True)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """Return this member's part in its fleet; 404 without `fleet` in the configuration."""
        most = _LIMIT.read(asked(request, (_LIMIT,)))
        if self._fleet is None:
            return refusal(404, "this proxy is in no fleet: its configuration has no section fleet")
        growing = await self._growing(self._fleet, most)
        members = _shown(self._fleet, self._policies)
        if growing["fleet_limits"] is None:
            members["fleet_limits"] = growing.pop("fleet_limits")
        body = json_with(members, **growing)
        return await sent(request, body, {"Content-Type": JSON})

    async def _growing(self, service: FleetService, most: int) -> dict[str, Any]:
        """Return the parts of the answer that grow with the fleet, each encoded in slices of the loop."""
        coordinator = service.coordinator
        of_fleet = None if coordinator is None else _limits(coordinator, service.now(), most)
        shares = await encoded_each(self._slices, map(_share, islice(service.limits.granted(), most)))
        limits = None if of_fleet is None else await encoded_each(self._slices, of_fleet)
        return {"shares": shares, "fleet_limits": limits}


def _shown(service: FleetService, policies: PolicyTopic | None) -> dict[str, Any]:
    """Return the parts of `ShownFleet` whose size is that of the configuration."""
    member, ago = service.member, service.answered_ago_ns()
    return {
        "fleet": service.config.name,
        "member": service.name,
        "version": member.version,
        "coordinator_version": member.coordinator_version,
        "incarnation": f"{member.incarnation:016x}",
        "state": service.state,
        "problem": service.problem,
        "coordinator": service.follows,
        "epoch": member.epoch,
        "last_coordinator": member.coordinator,
        "answered_s_ago": None if ago is None else ago / 1e9,
        "members_known": member.members,
        "lease_left_s": service.lease_left_ns() / 1e9,
        "isolated": member.isolated,
        "lease_ends": service.lease_ends,
        "refused": dict(service.dropped_messages()),
        "members": _members(service),
        "limit_sets": [
            {
                "digest": f"{limit_set.written.digest:016x}",
                "limits": limit_set.written.total,
                "is_here": limit_set.written == service.written(),
                "members": limit_set.members,
                "names": list(limit_set.names),
            }
            for limit_set in member.limit_sets
        ],
        "version_sets": [
            {"version": version_set.version, "members": version_set.members, "names": list(version_set.names)}
            for version_set in member.version_sets
        ],
        "policies": None if policies is None else _policies(policies),
    }


def _policies(topic: PolicyTopic) -> ShownPolicies:
    counts, last = topic.counts, topic.last
    return {
        "topic": topic.topic,
        "state": topic.state,
        "problem": "" if topic.state == "in_step" else topic.problem,
        "position": None if topic.position is None else "{}:{}".format(*topic.position),
        "policies": topic.log.changes,
        "messages_received": counts.messages_in,
        "messages_sent": counts.messages_out,
        "reconnects": counts.reconnects,
        "conflicts": topic.conflicts,
        "refused": dict(topic.dropped_messages()),
        "last": None if last is None else _last(last),
    }


def _last(last: LastChange) -> ShownLastChange:
    by, (at_s, part_ns) = last.change.by, divmod(last.change.at_ns, 10**9)
    return {
        "policy": str(last.key),
        "version": last.change.version,
        "who": by.name,
        "address": by.address,
        "member": last.change.member,
        "at": datetime.fromtimestamp(at_s, UTC).replace(microsecond=part_ns // 1000).isoformat(timespec="milliseconds"),
    }


def _share(limit: MemberLimit) -> ShownShare:
    demand = limit.demand
    return {
        "limiter": limit.key.limiter,
        "unit": limit.key.unit,
        "share": limit.ppm / 1e6,
        "used_per_s": None if demand is None else demand.used / _MILLI,
        "wanted_per_s": None if demand is None else _wanted(demand.wanted),
        "streams": None if demand is None else demand.streams,
        "lower_limit": None if limit.lower is None else _quota(limit.lower),
    }


def _members(service: FleetService) -> list[ShownMember] | None:
    """Return the members as the coordinator has them; elsewhere as it listed them last, once in a lease."""
    now, member, coordinator = service.now(), service.member, service.coordinator
    if coordinator is None and not member.listed_at:
        return None
    since, listed = (
        (0, coordinator.members(now)) if coordinator is not None else (now - member.listed_at, member.roster)
    )
    return [
        {
            "name": status.name,
            "version": status.version,
            "incarnation": f"{status.incarnation:016x}",
            "heard_s_ago": (status.silent_ns + since) / 1e9,
            "limits": status.limits,
            "has_twin": status.has_twin,
        }
        for status in listed
    ]


def _limits(coordinator: Coordinator, now: int, most: int) -> Iterable[ShownFleetLimit]:
    holders = 0
    for limit in islice(coordinator.table.limits(now), most):
        holders += len(limit.holders)
        if holders > MOST_HOLDERS:
            return
        yield {
            "limiter": limit.key.limiter,
            "unit": limit.key.unit,
            "limit": _quota(limit.quota),
            "members_disagree": limit.disagreement,
            "unchanged_s": limit.unchanged / 1e9,
            "holders": [
                {
                    "member": holder.member,
                    "share": holder.ppm / 1e6,
                    "used_per_s": holder.used / _MILLI,
                    "wanted_per_s": _wanted(holder.wanted),
                }
                for holder in limit.holders
            ],
        }


def _wanted(wanted: int) -> float | None:
    return None if wanted == UNBOUNDED else wanted / _MILLI


def _quota(quota: Quota) -> ShownQuota:
    return {"tokens": quota.tokens, "period_s": quota.period_ns / 1e9, "burst": quota.burst}
