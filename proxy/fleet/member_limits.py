"""The shared limits of a process, between its limiters and its member of the fleet.

    SharedLimits ─measure─▶ demands, for the member's report
    SharedLimits ◀─put_in_force─ shares, which the member was granted or keeps while it is cut off

`SharedLimits` knows limiters and numbers; the core (`fleet`) knows keys and messages. This module translates, keeps the
latest demands, and reports each change of a share in force.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import structlog

from fleet.member import FleetMember, ShareCause
from fleet.messages import Demand, LimitShare, Quota, ShareKey
from limiter.sharing import SharedLimits, UnitKey
from limiter.token_bucket import NANOS_PER_SECOND, Lease
from proxy.config.sections import Fleet
from proxy.observe.operator_log import ThrottledLog

MOST_PUT = 25
"""Shares that one call puts in force, at most: a millisecond of work."""


@dataclass(frozen=True, slots=True)
class MemberLimit:
    """One unit of a shared limit, as this member knows it.

    Args:
        key: The limiter and the unit.
        ppm: The share in force, in millionths of the limit.
        lower: The lower limit of another member, which holds; None if this member's own holds.
        demand: The limiter's latest demand; None if it is not in use.
    """

    key: ShareKey
    ppm: int
    lower: Quota | None
    demand: Demand | None


class MemberLimits:
    """The shared limits of this process, and its member's shares.

    Args:
        config: The section `fleet`.
        member: The member, which knows the shares that it was granted.
        clock: Monotonic nanoseconds.
        wants_now: Called when a report is worth sending at once: see `SharedLimits`.
        on_change: Called with each change of a share in force: the limit, the share before and now, in millionths, and
            the cause.

    Attributes:
        shared: The shared limits, for the registry of this process' limiters.
    """

    def __init__(
        self,
        config: Fleet,
        member: FleetMember,
        clock: Callable[[], int],
        wants_now: Callable[[], None],
        on_change: Callable[[ShareKey, int, int, str], None],
    ) -> None:
        self.shared = SharedLimits(
            Lease(), config.shared_levels, clock=clock, on_urgent=wants_now, on_raise=self._raised
        )
        self._fleet = config.name
        self._member = member
        self._on_change = on_change
        self._warnings = ThrottledLog(clock)

    def granted(self) -> Iterator[MemberLimit]:
        """Yield the shared limits in which this member has a share."""
        for share in self._member.shares():
            yield MemberLimit(share.key, self._in_force(share), share.quota, self._member.demand(share.key))

    def measure(self, now: int) -> tuple[dict[ShareKey, Demand], list[ShareKey]]:
        """Return the demands for some limits, and some limits that are gone, as `SharedLimits.demands` does."""
        demanded, gone = self.shared.demands(now)
        changed = {
            ShareKey(*key): Demand(demand.used, demand.wanted, demand.streams, Quota(*demand.quota))
            for key, demand in demanded.items()
        }
        return changed, [ShareKey(*key) for key in gone]

    def put_in_force(self, now: int) -> int:
        """Put up to `MOST_PUT` shares in force, and renew the lease as far as the member says; return their number."""
        self.shared.renew(self._member.lease_until, now)
        put = 0
        for share, cause in self._member.shares_to_put(MOST_PUT):
            put += 1
            lower, before = share.quota, self.shared.share_in_force(share.key)
            self.shared.assign(share.key, share.ppm, lower, now)
            after = self.shared.share_in_force(share.key)
            if before is not None and after is not None and before != after:
                self._on_change(share.key, before, after, cause)
            if lower is not None:
                self._look_at_lower(share.key, lower)
        self.shared.renew(self._member.lease_until, now)
        return put

    def log_cause(self, cause: ShareCause) -> None:
        """Have a line in the log though no share has changed: the member has just been cut off, or come back."""
        for share in islice(self._member.shares(), 1):
            in_force = self._in_force(share)
            self._on_change(share.key, in_force, in_force, cause)

    def _raised(self, key: UnitKey, before: int, after: int) -> None:
        self._on_change(ShareKey(*key), before, after, "granted")

    def _in_force(self, share: LimitShare) -> int:
        """Return the share in force of a limit, in millionths; the granted one where no limiter is at work."""
        in_force = self.shared.share_in_force(share.key)
        return share.ppm if in_force is None else in_force

    def _look_at_lower(self, key: ShareKey, lower: Quota) -> None:
        """Warn, each ten seconds at most, that another member has a lower limit than this one.

        Limits relative to publish rates may differ: they are lower where less is published.
        """
        demand = self._member.demand(key)
        if self.shared.is_relative(key):
            return
        if demand is not None and demand.quota != lower and (times := self._warnings.due("lower")):
            fields = {"limiter": key.limiter, "unit": key.unit, "own": worded(demand.quota), "in_force": worded(lower)}
            structlog.get_logger().warning(
                "fleet: another member has a lower limit, which holds: give all members the same limits",
                fleet=self._fleet,
                limits=times,
                **fields,
            )


def worded(quota: Quota) -> str:
    """Return a limit as text for people."""
    return f"{quota.tokens * NANOS_PER_SECOND / quota.period_ns:g}/s, burst {quota.burst}"
