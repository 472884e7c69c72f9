"""A proxy's part in its fleet: once a cycle it reports what its limiters want, and puts the granted shares in force.

    limiters ─demands─▶ FleetMember ─reports─▶ link ─▶ Coordinator, in one of the members
    limiters ◀─shares── FleetMember ◀─grants── link ◀─────┘

The core (`fleet`) decides, in values. `limiter.sharing` measures and enforces. A link carries bytes. This module has
the clock, the timers and the counts. Its timers call these functions:

    once a cycle ──────────────────────────────────────────▶ _turn ─▶ _report, _look_at_lease; if it coordinates, _grant
    a limiter is used or waited on, or the member is urgent ─▶ wants_now ─ 25 ms after the last report ─▶ _report
    a report had to tell a mixture ────────────────────────▶ _look_again ─▶ _report
    a report came that is worth an answer at once ─────────▶ _grant_soon ─ 5 ms after the last grants ─▶ _grant

A fleet at rest wakes the process once a cycle, for a report that says that the member lives.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

import structlog

from fleet.coordinator import Coordinator
from fleet.member import FOREVER, FleetMember, FleetSettings
from fleet.messages import MOST_EPOCH, BadMessage, Demand, Grants, LimitShare, MemberReport, Quota, ShareKey, Unit
from fleet.rules import DifferingRule, MemberRules, target_of
from fleet.share_table import Disagreement
from limiter.policies import SharedRules, described
from limiter.sharing import LOOK_AGAIN_NS, Demanded, SharedLimits
from limiter.token_bucket import NANOS_PER_SECOND, Lease
from proxy.config.model import Config
from proxy.config.sections import Fleet
from proxy.files import token_in
from proxy.fleet.link import Callbacks, FleetLink, LinkState
from proxy.fleet.peer_link import FleetPeers, PeerLink
from proxy.fleet.pulsar_connection import Auth
from proxy.fleet.topic_link import Membership, TopicLink
from proxy.identity.evidence import token_credentials
from proxy.observe.log_lines import CUT_OFF, ShareChange
from proxy.observe.operator_log import ThrottledLog
from proxy.session.engine import Engine
from proxy.tls.certificates import PeerCertificates

LEAST_BETWEEN_REPORTS_S: Final = 0.025
"""Seconds between two reports, at least, but for those that a cycle or `LOOK_AGAIN_NS` is due for."""
LEAST_BETWEEN_GRANTS_S: Final = 0.005
"""Seconds between two grants, at least, but for those of a cycle."""
_PAUSE_PARTS: Final = 2
"""After grants that took long to make there are no others for so many times as long, a cycle at most. Else, while
all limits change, a limit would be divided anew after each report, though once for all reports of a cycle is enough."""
MOST_REPORTS: Final = 64
"""Reports whose sending time is remembered until they are answered, at most."""
_WINDOW_NS: Final = 30 * NANOS_PER_SECOND
"""Nanoseconds of grants whose bounds `CoordinatorClock` takes together."""
_DAY_NS: Final = 24 * 3600 * NANOS_PER_SECOND
"""A coordinator's wall clock that differs by more is not measured."""
LEAVING_REPORTS: Final = 3
"""Reports by which a member says that it leaves, at most: until one is answered. Were all lost, its share would be
missing for a lease."""
LEAVING_S: Final = 0.15
"""Seconds for which the answer to each of these reports is waited for."""
ALONE_LEASES: Final = 4
"""After so many lease times without a coordinator since the start, twice what an election takes, the operator's log
warns."""
TOLD_LEASES: Final = 2
"""The operator's log warns of limits that not all members have when members have disagreed for so many lease times."""
MOST_SAID: Final = 5
"""Rules that one line of the operator's log names, and members of each, at most."""
_NOT_SHARED: Final = "not shared here"
MOST_VOIDS: Final = 3
"""A member goes on under another incarnation, as after a restart, when a void grant has ended so many of its sessions
in a row without an answer: then others have written in its name what may hold for ever."""
FleetLinkMaker = Callable[[Callbacks], FleetLink]


@dataclass(frozen=True, slots=True)
class MemberLimit:
    """One unit of a shared limit, as this member knows it.

    Args:
        key: The limiter and the unit.
        ppm: The share in force, in millionths of the limit.
        held: The limit of another member that holds as it is lower; None if this member's own holds.
        demand: What the limiter wanted last; None before its first report.
    """

    key: ShareKey
    ppm: int
    held: Quota | None
    demand: Demand | None


@dataclass(frozen=True, slots=True)
class MemberRule:
    """A limit as it is written in some members and not in all.

    Args:
        target: What the limit is for, as `publish tenant acme`.
        value: The limit, as people read it.
        here: The limit that is written for the same target in this member, as people read it, and whether it is not
            shared, so that no other member's holds; empty for none.
        is_here: This member has the very limit.
        having: Members that have the limit: all of them where this member coordinates, else one.
        lacking: Members that have none for the target, or another one; empty where this member does not coordinate.
    """

    target: str
    value: str
    here: str
    is_here: bool
    having: list[str]
    lacking: list[str]


class FleetRules:
    """The limits as they are written in the members of a fleet.

    Limits that this member lacks hold in it, too (`SharedRules.adopt`), and the operator's log tells of them.

    Args:
        settings: Those of the fleet.
        heard: What this member has heard of the rules that not all members have.
        own: This member's rules; None: no member is told of them, and no others are looked at.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, settings: FleetSettings, heard: MemberRules, own: SharedRules | None, clock: Callable[[], int]
    ) -> None:
        self._fleet = settings.fleet
        self._heard = heard
        self._own = own
        self._clock = clock
        self._patience_ns = TOLD_LEASES * settings.lease_ns
        self._revision = self._told_revision = 0
        self._disagreed_at: int | None = None
        """When members began to disagree; None while they agree."""
        self._warnings = ThrottledLog(clock)

    @property
    def own(self) -> int:
        """The number of limits that this member would share."""
        return 0 if self._own is None else self._own.total

    @property
    def disagreed(self) -> int:
        """The number of limits that not all members have, or not all alike."""
        return len({target_of(line) for line in self._heard.differing}) + self._heard.unnamed

    def differing(self, coordinator: Coordinator | None, most: int) -> Iterator[MemberRule]:
        """Yield up to `most` rules that not all members have; the coordinator, if given, knows who has each."""
        if self._own is None:
            return
        found = [] if coordinator is None else coordinator.comparison.differing_rules(most)
        for line, having, lacking in found or self._named(most):
            target, _, value = line.partition("\0")
            here = self._own.here(target)
            if is_shared := self._own.shares(target):
                said = described(here)
            else:
                said = f"{described(here)}; {_NOT_SHARED}" if here else _NOT_SHARED
            yield MemberRule(target, described(value), said, is_shared and here == value, having, lacking)

    def _named(self, most: int) -> list[DifferingRule]:
        return [DifferingRule(line, [having], []) for line, having in islice(self._heard.differing.items(), most)]

    def look(self) -> None:
        """Let limits of others hold here, too. Log what differs if it lasts: reloads of members take their time."""
        if self._own is None:
            return
        if self._revision != self._heard.revision:
            self._revision = self._heard.revision
            self._own.adopt(self._heard.differing)
        if self._revision != self._told_revision:
            self._tell(self._clock())

    def _tell(self, now: int) -> None:
        log = structlog.get_logger()
        if not self._heard.differing:
            if self._told_revision and self._heard.is_compared:
                log.info("fleet: all members have the same limits now", fleet=self._fleet)
            elif self._told_revision:
                log.warning(
                    "fleet: limits are not compared any more, and each member has its own: the coordinator is of a "
                    "version that does not compare them",
                    fleet=self._fleet,
                )
            self._disagreed_at, self._told_revision = None, 0
            return
        self._disagreed_at = now if self._disagreed_at is None else self._disagreed_at
        if now - self._disagreed_at >= self._patience_ns and self._warnings.due("rules"):
            self._told_revision = self._revision
            log.warning(
                "fleet: members do not have the same limits, and what one lacks holds in it, too: give all members the "
                "same limits",
                fleet=self._fleet,
                limits=self.disagreed,
                first=[_told(rule) for rule in self.differing(None, MOST_SAID)],
            )


class CoordinatorClock:
    """Measures how far the coordinator's wall clock is ahead of this process': so logs of members can be compared.

    Grants say when they were sent, by the coordinator's clock. That was after this process had sent the report that
    they answer, and before it heard them; both by its own clock. So

        this process     reported ─────────────────────────▶ heard
        coordinator                 ─────▶ sent ──────

        sent - heard ≤ ahead ≤ sent - reported

    Of the grants of the last 30 to 60 s (`_WINDOW_NS`) the greatest lower bound and the least upper one count. Where
    they exclude each other, a clock was stepped, and the measurement begins anew.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._reported: dict[int, int] = {}
        self._window_at = 0
        self._bounds: tuple[int, int] | None = None
        self._before: tuple[int, int] | None = None

    @property
    def ahead_ns(self) -> tuple[int, int] | None:
        """Nanoseconds by which the coordinator's clock is ahead, and by how many that may be wrong; None: not known."""
        bounds = self._bounds
        if bounds is None:
            return None
        both = bounds if self._before is None else _common(bounds, self._before) or bounds
        return (both[0] + both[1]) // 2, -((both[0] - both[1]) // 2)

    def reported(self, sequence: int, wall: int) -> None:
        """Note the wall-clock time at which a report is sent."""
        if len(self._reported) == MOST_REPORTS:
            del self._reported[next(iter(self._reported))]
        self._reported[sequence] = wall

    def heard(self, epoch: int, answers: int, sent: int, wall: int) -> None:
        """Take a grant that answers a report of this process.

        Args:
            epoch: The coordinator's.
            answers: The sequence of the report.
            sent: When the grant was sent, by the coordinator's wall clock.
            wall: Now, by the wall clock of this process.
        """
        if epoch != self._epoch:
            self._epoch, self._bounds, self._before = epoch, None, None
        reported = self._reported.get(answers)
        if reported is None or not reported <= wall or abs(sent - wall) > _DAY_NS:
            return
        bounds = sent - wall, sent - reported
        if self._bounds is None or not self._window_at <= wall < self._window_at + _WINDOW_NS:
            is_next = self._window_at <= wall < self._window_at + 2 * _WINDOW_NS
            self._before, self._window_at = self._bounds if is_next else None, wall
            self._bounds = bounds
        else:
            self._bounds = _common(self._bounds, bounds) or bounds
        if self._before is not None and _common(self._bounds, self._before) is None:
            self._before = None


def _common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    both = max(one[0], other[0]), min(one[1], other[1])
    return both if both[0] <= both[1] else None


class FleetService:
    """Takes part in a fleet, from `start` to `stop`.

    Args:
        config: The section `fleet`.
        name: The name of this member: its proxy_id.
        clock: Monotonic nanoseconds.
        wall: Nanoseconds since 1970. Epochs are made of it, so that of two coordinators the later one has the greater.
        on_share: Called with each change of a share of this member.
        rules: The limits as they are written in this process; None: no member is told of them.

    Attributes:
        shared: The shared limits of this process, for the registry of its limiters.
        member: This member.
        coordinator: The core's coordinator, while this member coordinates; else None.
        link: The link to the other members; None before `start`.
        dropped: Messages that this object did not take, by cause; `dropped_messages` has those of the core, too.
        lease_ends: How often the lease has ended without an answer.
        demands: The demand that was measured last, for each limit in use.
        rules: The limits as they are written, in this member and in others.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        config: Fleet,
        name: str,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
        on_share: Callable[[ShareChange], None] = lambda _change: None,
        rules: SharedRules | None = None,
    ) -> None:
        self.config = config
        self._settings = FleetSettings(
            config.name,
            round(config.cycle * NANOS_PER_SECOND),
            round(config.lease * NANOS_PER_SECOND),
            config.isolated,
            config.weight,
            len(config.peers),
        )
        self.shared = SharedLimits(
            Lease(), config.shared_levels, clock=clock, wants_now=self.wants_now, on_raise=self._raised
        )
        self._clock, self._wall = clock, wall
        self._coordinator_clock = CoordinatorClock()
        self.name = name
        self.member = FleetMember(self._settings, name, secrets.randbits(63) | 1, clock(), rules)
        self.rules = FleetRules(self._settings, self.member.rules, rules, clock)
        self.coordinator: Coordinator | None = None
        self.link: FleetLink | None = None
        self.dropped: Counter[str] = Counter()
        self.lease_ends = 0
        self.demands: dict[ShareKey, Demand] = {}
        self._cycle: asyncio.TimerHandle | None = None
        self._sooner: asyncio.TimerHandle | None = None
        """The timer of a report before the end of the cycle, as something is urgent."""
        self._again: asyncio.TimerHandle | None = None
        """The timer of a report that corrects one that had to tell a mixture (`SharedLimits.turned`)."""
        self._granting: asyncio.TimerHandle | None = None
        self._reported_at = self._granted_at = self._deposed_at = 0
        self._between_s = LEAST_BETWEEN_GRANTS_S
        self._is_running = self._had_lease = self._is_cut_off = False
        self._tells_alone_at = clock() + ALONE_LEASES * self._settings.lease_ns
        self._left: asyncio.Event | None = None
        """While this member leaves: set when the coordinator has answered that."""
        self._on_share = on_share
        self._disagreements = ThrottledLog(clock)
        self._kept = 0, 0
        """The session, by its first report, and the latest grant in it that was acknowledged: all workers keep to
        it."""

    async def start(self, make_link: FleetLinkMaker) -> None:
        """Begin to take part. Return before any other member is reached."""
        self.link = make_link(Callbacks(self._heard, self._granted, self._lead, self._unlead, self._confirmed))
        await self.link.start()
        self._is_running = True
        self._turn()

    async def stop(self) -> None:
        """Leave: the shares of this member are free for the others at once.

        That takes up to half a second (`LEAVING_S`, `LEAVING_REPORTS`) if the coordinator that was followed is silent.
        """
        self._is_running = False
        for timer in (self._cycle, self._sooner, self._granting, self._again):
            if timer is not None:
                timer.cancel()
        if self.link is None:
            return
        now = self._clock()
        self.shared.lease.end(now)
        last = self.member.leave(now)
        if self.coordinator is not None:  # others get its share before they need another coordinator
            self._report_by(last)
            self.coordinator.hear(last, now)
            self._grant()
        else:
            await self._leave(last)
        await self.link.stop()

    async def _leave(self, last: MemberReport) -> None:
        """Send the last report until the coordinator answers. A member that follows none has no share to give up."""
        self._left = asyncio.Event()
        for _ in range(LEAVING_REPORTS if last.epoch else 1):
            self._report_by(last)
            if last.epoch:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._left.wait(), LEAVING_S)
                    return

    @property
    def state(self) -> LinkState:
        """Whether the fleet is reached, and whether this member coordinates.

        A member that can send reports and follows no coordinator is `connecting`.
        """
        state = "connecting" if self.link is None else self.link.state
        return "connecting" if state == "following" and not self.member.epoch else state

    @property
    def follows(self) -> str:
        """The coordinator that this member follows; empty if it follows none."""
        return self.member.coordinator if self.member.epoch else ""

    def answered_ago_ns(self) -> int | None:
        """Return the nanoseconds since a coordinator last answered; None: none has yet."""
        return self._clock() - self.member.answered_at if self.member.coordinator else None

    @property
    def problem(self) -> str:
        """Why the fleet is not reached, as far as is known; empty if it is."""
        return "" if self.link is None else self.link.problem

    def now(self) -> int:
        """Return the time by the clock of leases."""
        return self._clock()

    def dropped_messages(self) -> Counter[str]:
        """Return how many messages, and parts of them, were not taken, by cause."""
        more = Counter[str]() if self.coordinator is None else self.coordinator.dropped
        return self.dropped + self.member.dropped + more

    def lease_left_ns(self) -> int:
        """Return the nanoseconds until the lease ends if nobody answers; 0 after its end, and while isolated."""
        return 0 if self.member.isolated else max(0, self.member.lease_until - self._clock())

    def limits(self) -> Iterable[MemberLimit]:
        """Yield the shared limits of which this member holds a share."""
        for key, share in self.member.shares().items():
            yield MemberLimit(key, self._in_force(share), share.quota, self.demands.get(key))

    def _in_force(self, share: LimitShare) -> int:
        """Return the share in force of a limit, in millionths; the granted one where no limiter is at work."""
        in_force = self.shared.share_in_force(share.key.limiter, share.key.unit)
        return share.ppm if in_force is None else in_force

    # ---- a cycle

    def wants_now(self) -> None:
        """Report soon: a limiter is used anew, or a stream begins to wait for its share."""
        if self._is_running and self._sooner is None:
            passed_s = (self._clock() - self._reported_at) / NANOS_PER_SECOND
            delay = max(0.0, LEAST_BETWEEN_REPORTS_S - passed_s)
            self._sooner = asyncio.get_running_loop().call_later(delay, self._report)

    def _turn(self) -> None:
        self._cycle = asyncio.get_running_loop().call_later(self._settings.cycle_ns / NANOS_PER_SECOND, self._turn)
        self._report()
        now = self._clock()
        self._look_at_lease(now)
        if self.coordinator is not None:
            self._look_at_names(self.coordinator)
            self._grant()

    def _report(self) -> None:
        if self._sooner is not None:
            self._sooner.cancel()
            self._sooner = None
        now = self._reported_at = self._clock()
        demanded, gone = self.shared.demands(now)
        changed = {_key(key): _demand(demand) for key, demand in demanded.items()}
        self.demands.update(changed)
        left = [_key(key) for key in gone]
        for key in left:
            self.demands.pop(key, None)
        report = self.member.report(changed, left, now)
        self._acknowledge(report, now)
        self._report_by(report)
        self._go_on()
        if self.shared.turned and self._again is None and self._is_running:
            self._again = asyncio.get_running_loop().call_later(LOOK_AGAIN_NS / NANOS_PER_SECOND, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._report()

    def _acknowledge(self, report: MemberReport, now: int) -> None:
        """Let a report acknowledge no new grant as long as workers may still use what that took away."""
        since, seen = self._kept
        if since != report.since:
            seen = 0
        if not self.shared.exceeds_shares(now):
            seen = report.seen
        elif seen != report.seen:
            self.wants_now()
        report.seen, self._kept = seen, (report.since, seen)

    def _report_by(self, report: MemberReport) -> None:
        if self.link is not None:
            self._coordinator_clock.reported(report.sequence, self._wall())
            self.link.report(report.encode())

    def _look_at_lease(self, now: int) -> None:
        refused = self.link is not None and self.link.refused
        if self._had_lease and now >= self.member.lease_until:
            self._had_lease = False
            self.lease_ends += 1
            said = {"coordinator": self.member.coordinator, "refused": refused, "problem": self.problem}
            structlog.get_logger().warning("fleet: cut off from the coordinator", fleet=self.config.name, **said)
        if self._tells_alone_at <= now:
            self._tells_alone_at = FOREVER
            if not self.member.coordinator:
                structlog.get_logger().warning(
                    "fleet: no coordinator since the start, and isolated shares hold: see that the other members run, "
                    "are reached, and have the same fleet",
                    fleet=self.config.name,
                    refused=refused,
                    problem=self.problem,
                )
        isolated = self.member.cut_off(now, refused=refused)
        if self.member.isolated:
            is_turn, self._is_cut_off = not self._is_cut_off, True
            self._put_in_force(isolated, now, CUT_OFF, is_turn=is_turn)

    # ---- from the link

    def _granted(self, message: bytes) -> None:
        now = self._clock()
        try:
            grants = Grants.decode(message, self.member.incarnation)
        except BadMessage as error:
            self.dropped[error.cause] += 1
            return
        if self._left is not None:
            self.member.take(grants, now)
            if self.member.has_left:
                self._left.set()
            return
        self._look_at_clock(grants)
        self._look_at_lease(now)  # the lease may have ended while this process stood still
        before = self.member.epoch
        shares = self.member.take(grants, now)
        if self.member.voids >= MOST_VOIDS:
            self.member.begin_anew(secrets.randbits(63) | 1)
        is_void = any(one.void for one in grants.grants)
        is_back = self._is_cut_off and not self.member.isolated
        self._is_cut_off = self._is_cut_off and not is_back
        cause = "rejoined" if is_back else "lease ended" if is_void else "granted"
        self._put_in_force(shares, now, cause, is_turn=is_back)
        self.rules.look()
        if now < self.member.lease_until and not self.member.isolated:
            self._had_lease = True
        if self.member.epoch != before:
            said = {"coordinator": self.member.coordinator, "members": self.member.members}
            structlog.get_logger().info("fleet: follows a coordinator", fleet=self.config.name, **said)
        self._go_on()

    def _look_at_clock(self, grants: Grants) -> None:
        for own in grants.grants if grants.sent_at else ():
            self._coordinator_clock.heard(grants.epoch, own.answers, grants.sent_at, self._wall())

    def _put_in_force(self, shares: list[LimitShare], now: int, cause: str, *, is_turn: bool) -> None:
        """Put shares in force, and then renew their lease: no earlier share may earn by the renewed one.

        Args:
            shares: The shares.
            now: The time.
            cause: Why shares change, for the lines of the access log.
            is_turn: The member was cut off, or has come back: the log has a line even if no share in force changes.
        """
        for share in shares:
            held, before = share.quota, self.shared.share_in_force(share.key.limiter, share.key.unit)
            self.shared.assign(share.key.limiter, share.key.unit, share.ppm, held, now)
            after = self.shared.share_in_force(share.key.limiter, share.key.unit)
            if before is not None and after is not None and before != after:
                self._tell_share(share.key, before, after, cause)
                is_turn = False
            if held is not None:
                self._look_at_held(share.key, held)
        self.shared.renew(self.member.lease_until, now)
        if is_turn:
            for share in islice(self.member.shares().values(), 1):
                after = self._in_force(share)
                self._tell_share(share.key, after, after, cause)

    def _raised(self, limiter: str, unit: Unit, before: int, after: int) -> None:
        self._tell_share(ShareKey(limiter, unit), before, after, "granted")

    def _tell_share(self, key: ShareKey, before: int, after: int, cause: str) -> None:
        member = self.member
        known = (member.epoch, member.coordinator, member.members)
        ahead = None
        if member.epoch:
            ahead = (0, 0) if self.coordinator is not None else self._coordinator_clock.ahead_ns
        self._on_share(ShareChange(self.config.name, key.limiter, key.unit, before, after, *known, cause, ahead))

    def _look_at_held(self, key: ShareKey, held: Quota) -> None:
        """Warn, each ten seconds at most, of a limit of which another member has a lower value than this one.

        It warns of no limit that is relative to publish rates: that is lower where less is published, and no file is
            wrong.
        """
        demand = self.demands.get(key)
        if self.shared.is_relative(key.limiter):
            return
        if demand is not None and demand.quota != held and (times := self._disagreements.due("held")):
            said = {"limiter": key.limiter, "unit": key.unit, "own": _worded(demand.quota), "in_force": _worded(held)}
            structlog.get_logger().warning(
                "fleet: another member has a lower limit, which holds: give all members the same limits",
                fleet=self.config.name,
                limits=times,
                **said,
            )

    def _go_on(self) -> None:
        if self.member.urgent:
            self.wants_now()

    def _heard(self, message: bytes) -> None:
        coordinator = self.coordinator
        if coordinator is None:
            return
        try:
            report = MemberReport.decode(message)
        except BadMessage as error:
            self.dropped[error.cause] += 1
            return
        if coordinator.hear(report, self._clock()):
            self._grant_soon()
        if coordinator.deposed:
            self._deposed_at = self._clock()
        if (found := coordinator.table.take_disagreement()) is not None:
            self._look_at_disagreement(found)

    def _look_at_names(self, coordinator: Coordinator) -> None:
        """Warn, each ten seconds at most for a name, that several members have it."""
        for name, members in coordinator.names_taken_twice().items():
            if self._disagreements.due("name", name):
                structlog.get_logger().warning(
                    "fleet: several members have one name, and nobody can tell them apart in logs: give each of them a "
                    "proxy_id of its own",
                    fleet=self.config.name,
                    member=name,
                    members=members,
                )

    def _look_at_disagreement(self, found: Disagreement) -> None:
        """Warn, each ten seconds at most, that members have different limits; of no relative ones."""
        key = found.key
        if self.shared.is_relative(key.limiter):
            return
        if times := self._disagreements.due("disagreed"):
            has, in_force = _worded(found.own), _worded(found.in_force)
            said = {"limiter": key.limiter, "unit": key.unit, "has": has, "in_force": in_force}
            structlog.get_logger().warning(
                "fleet: members have different limits, and the lowest holds: give all members the same limits",
                fleet=self.config.name,
                member=found.member,
                reports=times,
                **said,
            )

    def _lead(self) -> None:
        epoch, heard = self._wall() // 1_000_000 << 20 | secrets.randbits(20), self.member.epoch_heard
        if heard < MOST_EPOCH:  # else no epoch is greater: members forget it two leases after their own has ended
            epoch = max(epoch, heard + 1)
        self.coordinator = Coordinator(self._settings, self.name, epoch, self._clock())
        structlog.get_logger().info("fleet: coordinates from now on", fleet=self.config.name, epoch=epoch)
        self._grant_soon()

    def _unlead(self) -> None:
        if self.coordinator is not None:
            structlog.get_logger().info("fleet: does not coordinate any more", fleet=self.config.name)
        self.coordinator = None

    def _confirmed(self, asked: int) -> None:
        if self.coordinator is None:
            return
        self.coordinator.confirmed(asked)
        if self.coordinator.deposed and asked > self._deposed_at:
            self._lead()  # the greater epoch was forged, or its coordinator has ended

    def _grant_soon(self) -> None:
        if self._is_running and self._granting is None:
            passed_s = (self._clock() - self._granted_at) / NANOS_PER_SECOND
            delay = max(0.0, self._between_s - passed_s)
            self._granting = asyncio.get_running_loop().call_later(delay, self._grant)

    def _grant(self) -> None:
        if self._granting is not None:
            self._granting.cancel()
            self._granting = None
        if self.coordinator is None or self.link is None:
            return
        now = self._granted_at = self._clock()
        for grants in self.coordinator.grant(now):
            grants.sent_at = self._wall()
            self.link.grant(grants.encode())
        took_s = (self._clock() - now) / NANOS_PER_SECOND
        self._between_s = min(max(LEAST_BETWEEN_GRANTS_S, (1 + _PAUSE_PARTS) * took_s), self.config.cycle)


def _told(rule: MemberRule) -> str:
    here = "" if rule.is_here else f"; here: {rule.here or 'nothing'}"
    return f"{rule.target}: {rule.value} in {', '.join(rule.having[:MOST_SAID])}{here}"


def _worded(quota: Quota) -> str:
    return f"{quota.tokens * NANOS_PER_SECOND / quota.period_ns:g}/s, burst {quota.burst}"


def _key(key: tuple[str, Unit]) -> ShareKey:
    return ShareKey(*key)


def _demand(demanded: Demanded) -> Demand:
    return Demand(demanded.used, demanded.wanted, demanded.streams, Quota(*demanded.quota))


def link_of(config: Config, engine: Engine, tls: PeerCertificates | None) -> FleetLinkMaker:
    """Return a function that makes the link of a proxy with a section `fleet`: by its peers, or else by topics.

    Args:
        config: The configuration.
        engine: Dials brokers, and has Sluice's own credentials for them.
        tls: The TLS contexts between peers that are in force; None without TLS between peers.

    Raises:
        ConfigError: If a file that the section names cannot be used.
    """
    fleet = config.fleet
    assert fleet is not None, "the caller has looked"
    if fleet.peers:
        assert fleet.listen is not None, "the configuration has looked"
        peers = FleetPeers(fleet.name, fleet.peers, fleet.own, fleet.listen, fleet.lease, tls)
        return lambda callbacks: PeerLink(peers, callbacks)
    membership = Membership(fleet.namespace, fleet.name, config.proxy_id, fleet.lease)
    auth = own_auth(fleet, engine)
    return lambda callbacks: TopicLink(config.broker, engine.dialer, membership, callbacks, auth)


def own_auth(fleet: Fleet | None, engine: Engine) -> Auth | None:
    """Return the credentials that Sluice's own connections show brokers; None: none.

    Raises:
        ConfigError: If `fleet.token_file` cannot be used.
    """
    file, verifier = None if fleet is None else fleet.token_file, engine.identity
    if file is not None:
        return token_credentials(file, "fleet.token_file").method, lambda: token_in(file).encode()
    return None if verifier is None else (verifier.own.method, lambda: verifier.own.data)
