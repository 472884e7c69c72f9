"""`GET /sluice/fleet?limit=…`: this member's part in its fleet, its shares, and all shares where it coordinates."""

from collections.abc import Iterable
from itertools import islice
from typing import TypedDict

from aiohttp import web

from fleet.coordinator import Coordinator
from fleet.messages import Quota
from fleet.shares import UNBOUNDED
from proxy.admin.handlers import Number, asked, described, explaining
from proxy.admin.refusals import refusal
from proxy.fleet.service import FleetService, MemberLimit

_MILLI = 1000
_LIMIT = Number(name="limit", meaning="Most limits that are listed, of each kind", default=1000, most=100_000)


class ShownQuota(TypedDict):
    """A limit: tokens in a period, and the burst."""

    tokens: int
    period_s: float
    burst: int


class ShownShare(TypedDict):
    """One unit of a limit in this member; rates are per second, `wanted_per_s` is null where it cannot be told."""

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
    """One unit of a limit in the whole fleet; `unchanged_s`: for how long no share of it has changed."""

    limiter: str
    unit: str
    limit: ShownQuota
    members_disagree: bool
    unchanged_s: float
    holders: list[ShownHolder]


class ShownMember(TypedDict):
    """A member as the coordinator knows it."""

    name: str
    incarnation: str
    heard_s_ago: float
    limits: int


class ShownFleet(TypedDict):
    """This member and its fleet; `members` and `fleet_limits` are null where another member coordinates."""

    fleet: str
    member: str
    incarnation: str
    state: str
    coordinator: str
    epoch: int
    members_known: int
    lease_left_s: float
    isolated: bool
    lease_ends: int
    refused: dict[str, int]
    shares: list[ShownShare]
    members: list[ShownMember] | None
    fleet_limits: list[ShownFleetLimit] | None


class FleetRest:
    """Shows the fleet.

    Args:
        fleet: This proxy's part in it; None without one.
    """

    def __init__(self, fleet: FleetService | None) -> None:
        self._fleet = fleet

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/fleet", explaining(self.get))]

    @described({200: ShownFleet}, query=(_LIMIT,), refuses=(404,))
    async def get(self, request: web.Request) -> web.Response:
        """Return this member's part in its fleet; 404 without `fleet` in the configuration."""
        most = _LIMIT.read(asked(request, (_LIMIT,)))
        if self._fleet is None:
            return refusal(404, "this proxy is in no fleet: its configuration has no section fleet")
        return web.json_response(_shown(self._fleet, most))


def _shown(service: FleetService, most: int) -> ShownFleet:
    member, coordinator = service.member, service.coordinator
    return {
        "fleet": service.config.name,
        "member": service.name,
        "incarnation": f"{member.incarnation:016x}",
        "state": service.state,
        "coordinator": member.coordinator,
        "epoch": member.epoch,
        "members_known": member.members,
        "lease_left_s": service.lease_left_ns() / 1e9,
        "isolated": member.isolated,
        "lease_ends": service.lease_ends,
        "refused": dict(service.refused_messages()),
        "shares": [_share(one) for one in islice(service.limits(), most)],
        "members": None if coordinator is None else _members(coordinator, service.now()),
        "fleet_limits": None if coordinator is None else list(_limits(coordinator, service.now(), most)),
    }


def _share(one: MemberLimit) -> ShownShare:
    demand = one.demand
    return {
        "limiter": one.key.limiter,
        "unit": one.key.unit,
        "share": one.ppm / 1e6,
        "used_per_s": None if demand is None else demand.used / _MILLI,
        "wanted_per_s": None if demand is None else _wanted(demand.wanted),
        "streams": None if demand is None else demand.streams,
        "lower_limit": None if one.held is None else _quota(one.held),
    }


def _members(coordinator: Coordinator, now: int) -> list[ShownMember]:
    return [
        {
            "name": one.name,
            "incarnation": f"{one.incarnation:016x}",
            "heard_s_ago": one.since_heard / 1e9,
            "limits": one.limiters,
        }
        for one in coordinator.members(now)
    ]


def _limits(coordinator: Coordinator, now: int, most: int) -> Iterable[ShownFleetLimit]:
    for one in islice(coordinator.limits(now), most):
        yield {
            "limiter": one.key.limiter,
            "unit": one.key.unit,
            "limit": _quota(one.quota),
            "members_disagree": one.disagreement,
            "unchanged_s": one.unchanged / 1e9,
            "holders": [
                {"member": name, "share": ppm / 1e6, "used_per_s": used / _MILLI, "wanted_per_s": _wanted(wanted)}
                for name, ppm, used, wanted in one.shares
            ],
        }


def _wanted(wanted: int) -> float | None:
    return None if wanted == UNBOUNDED else wanted / _MILLI


def _quota(quota: Quota) -> ShownQuota:
    return {"tokens": quota.tokens, "period_s": quota.period_ns / 1e9, "burst": quota.burst}
