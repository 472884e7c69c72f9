"""A proxy's part in its fleet: once a cycle it reports its limiters' demands, and puts the granted shares in force.

    limiters ─demands─▶ FleetMember ─reports─▶ link ─▶ Coordinator, in one of the members
    limiters ◀─shares── FleetMember ◀─grants── link ◀─────┘

The core (`fleet`) decides, in values, and a link carries bytes. `FleetService` has the link, the timers and the lease.
Its parts have modules of their own:

    member_limits      the limiters: demands are measured, shares are put in force, their changes are reported
    leadership         the coordinator, while it is this member: reports are heard, grants are made
    coordinator_clock  how far the coordinator's clock is ahead

Timers call these functions:

    once a cycle ──────────────────────────────────────────▶ _turn ─▶ _report, _look_at_lease, Leadership.turn
    a limiter is used or waited on, or the member is urgent ─▶ wants_now ─ 25 ms after the last report ─▶ _report
    a report mixed two demands of a limiter ───────────────▶ _look_again ─▶ _report

A member may have very many limits. What takes time for each of them concerns a few of them in each call, and the calls
are made in slices: reports that came, grants that came, this member's own part, and the coordinator's, by turns.

A fleet at rest wakes the process once a cycle, for a report that says that the member lives.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal, NamedTuple

import structlog

from fleet.coordinator import Coordinator
from fleet.member import FleetMember, ShareCause
from fleet.messages import (
    MOST_BROKERS,
    NO_LIMITS,
    BadMessage,
    Demand,
    Grants,
    LimitSet,
    MemberReport,
    ShareKey,
    WrittenLimits,
)
from fleet.settings import FleetSettings
from limiter.sharing import LOOK_AGAIN_NS
from limiter.token_bucket import NANOS_PER_SECOND
from proxy.brokers.targets import SiblingBrokers
from proxy.config.sections import Fleet
from proxy.degraded import Degraded
from proxy.fleet.coordinator_clock import CoordinatorClock
from proxy.fleet.leadership import Leadership
from proxy.fleet.link import Callbacks, FleetLink, LinkState
from proxy.fleet.member_limits import MemberLimits
from proxy.fleet.spaced_call import SpacedCall
from proxy.observe.log_lines import ShareChange
from proxy.slices import InTurn, OneInTurn

LEAST_BETWEEN_REPORTS_S: Final = 0.025
"""Seconds between two reports, at least; those of a cycle, or due to `LOOK_AGAIN_NS`, come in any case."""
BETWEEN_PARTS_S: Final = 0.002
"""Seconds between two reports, at least, where the first had no room for all demands and has been answered."""
LEAVING_REPORTS: Final = 3
"""Reports with which a member leaves, at most: until one is answered. If all were lost, its share would be unused for a
lease."""
LEAVING_S: Final = 0.15
"""Seconds for which a leaving member waits for the answer to each report."""
LOST_FOR_NS: Final = 60 * NANOS_PER_SECOND
"""Nanoseconds after the last lost message for which a member is degraded."""
CLOCK_OFF_NS: Final = NANOS_PER_SECOND
"""Nanoseconds by which the clocks of members may differ: beyond that their logs cannot be compared."""
DIFFERING_LEASES: Final = 2
"""Leases after which members with different limits are degraded: reloads of all members take their time."""
MOST_UNREAD: Final = 8 << 20
"""Bytes of reports, and of grants, that have come and wait for their turn. Further ones are dropped, and counted as
`slow`: later ones repeat what they say."""
_MESSAGE_BYTES: Final = 400
"""Bytes of memory for a message that waits, besides its own."""
_MEASURING: Final = 5
"""Units of work of a look at limiters of which none has a demand to report yet."""
_BYTES_OF_A_UNIT: Final = 400
"""Bytes of grants that are taken in a unit of work."""
MOST_NAMED: Final = 5
"""Names of members in a text for people, at most."""
MOST_VOIDS: Final = 3
"""Sessions in a row that a void grant has ended without an answer; then the member goes on under another incarnation,
as after a restart: other writers have sent messages in its name that may hold for ever."""

ShareState = Literal["none", "granted", "isolated"]


class SharesInForce(NamedTuple):
    """Which shares of the fleet's limits are in force in a member.

    Attributes:
        state: `none` before the first answer, `granted` by a coordinator, or `isolated` while cut off.
        part: The part that a cut-off member keeps: fair, floor or none; else empty.
        since_ns: The time since which they are in force, nanoseconds since 1970.
        why: The state as text for people.
    """

    state: ShareState
    part: str
    since_ns: int
    why: str


class FleetService:
    """Takes part in a fleet, from `start` to `stop`.

    Args:
        config: The section `fleet`.
        name: The name of this member: its proxy_id.
        in_turn: Makes the calls for the fleet, in slices.
        clock: Monotonic nanoseconds.
        wall: Nanoseconds since 1970.
        on_share: Called with each change of a share of this member.
        written: Returns the limits that are written in this process.
        members: The number of members, if that is known beforehand; else 0.
        version: The version of Sluice, for the other members; empty: unknown.

    Attributes:
        config: The section `fleet`.
        name: The name of this member.
        member: This member, in the core.
        written: Returns the limits that are written in this process.
        limits: The shared limits of this process, and its shares.
        shared: The shared limits, for the registry of its limiters.
        leadership: This process' part as the coordinator.
        brokers: The brokers that members report to each other.
        link: The link to the other members; None before `start`.
        lease_ends: How often the lease has ended without an answer.
    """

    def __init__(  # noqa: PLR0913 - what its Args say
        self,
        config: Fleet,
        name: str,
        in_turn: InTurn,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
        on_share: Callable[[ShareChange], None] = lambda _change: None,
        written: Callable[[], WrittenLimits] = lambda: NO_LIMITS,
        *,
        members: int = 0,
        version: str = "",
    ) -> None:
        self.config = config
        self._in_turn = in_turn
        self._unread = Counter[str]()
        """Bytes of reports, and of grants, that wait for their turn."""
        self.name = name
        settings = FleetSettings(
            config.name,
            round(config.cycle * NANOS_PER_SECOND),
            round(config.lease * NANOS_PER_SECOND),
            config.isolated,
            config.weight,
            members,
        )
        self.written = written
        self.member = FleetMember(settings, name, secrets.randbits(63) | 1, clock(), written, version)
        self.limits = MemberLimits(config, self.member, clock, self.wants_now, self._tell_share)
        self.shared = self.limits.shared
        self.leadership = Leadership(
            settings, self.member, in_turn, self._send_grants, self.shared.is_relative, clock, wall
        )
        self.brokers = SiblingBrokers(self.wants_now)
        self.link: FleetLink | None = None
        self.lease_ends = 0
        self._clock, self._wall = clock, wall
        self._coordinator_clock = CoordinatorClock()
        self._on_share = on_share
        self._dropped: Counter[str] = Counter()
        self._cycle_s = settings.cycle_ns / NANOS_PER_SECOND
        self._differing_ns = DIFFERING_LEASES * settings.lease_ns
        self._cycle: asyncio.TimerHandle | None = None
        self._reports = SpacedCall(OneInTurn(in_turn, self._report, "own").ask, clock)
        self._measuring = OneInTurn(in_turn, self._measure, "own")
        self._putting = OneInTurn(in_turn, self._put, "own")
        self._again: asyncio.TimerHandle | None = None
        """The timer of a report after a mixed one (`SharedLimits.is_mixed`)."""
        self._is_running = self._had_lease = self._is_cut_off = False
        self._unlogged_cause: ShareCause | None = None
        """The cause for which the log has no line yet: this member was cut off, or has come back."""
        self._differs_since: int | None = None
        """The time since which members have different limits; None while they have the same."""
        self._shares_state: ShareState = "none"
        self._shares_since = wall()
        self._lost_messages, self._lost_at = 0, -LOST_FOR_NS
        """The number of lost messages at the last look, and the time at which some were last lost."""
        self._left: asyncio.Event | None = None
        """While this member leaves: set when the coordinator has answered its last report."""

    async def start(self, make_link: Callable[[Callbacks], FleetLink]) -> None:
        """Begin to take part. Return before any other member is reached."""
        lead = self.leadership
        heard, granted = partial(self._came, "reports", lead.heard), partial(self._came, "grants", self._granted)
        self.link = make_link(Callbacks(heard, granted, lead.lead, lead.unlead, lead.confirmed))
        await self.link.start()
        self._is_running = True
        self._turn()

    async def stop(self) -> None:
        """Leave: the shares of this member are free for the others at once.

        That takes up to half a second (`LEAVING_S`, `LEAVING_REPORTS`) if the coordinator that was followed is silent.
        """
        self._is_running = False
        self._reports.stop()
        for timer in (self._cycle, self._again):
            if timer is not None:
                timer.cancel()
        if self.link is None:
            return
        now = self._clock()
        self.shared.lease.end(now)
        last, coordinates = self.member.leave(now), self.coordinator is not None
        if coordinates:  # others get its share before they need another coordinator
            self._send_report(last)
        await self.leadership.stop(last)
        if not coordinates:
            await self._leave(last)
        await self.link.stop()

    async def _leave(self, last: MemberReport) -> None:
        """Send the last report until the coordinator answers. A member that follows none has no share to give up."""
        self._left = asyncio.Event()
        for _ in range(LEAVING_REPORTS if last.epoch else 1):
            self._send_report(last)
            if last.epoch:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._left.wait(), LEAVING_S)
                    return

    # ---- the state

    @property
    def state(self) -> LinkState:
        """Whether the fleet is reached, and whether this member coordinates.

        A member that can send reports and follows no coordinator is `connecting`.
        """
        state = "connecting" if self.link is None else self.link.state
        return "connecting" if state == "following" and not self.member.epoch else state

    @property
    def coordinator(self) -> Coordinator | None:
        """The core's coordinator, while this member coordinates; else None."""
        return self.leadership.coordinator

    @property
    def follows(self) -> str:
        """The coordinator that this member follows; empty if it follows none."""
        return self.member.coordinator if self.member.epoch else ""

    def answered_ago_ns(self) -> int | None:
        """Return the nanoseconds since a coordinator last answered; None: none has yet."""
        return self._clock() - self.member.answered_at if self.member.coordinator else None

    @property
    def problem(self) -> str:
        """Why the fleet is not reached, if known; empty if it is reached."""
        return "" if self.link is None else self.link.problem

    def now(self) -> int:
        """Return the time by the clock of leases."""
        return self._clock()

    def dropped_messages(self) -> Counter[str]:
        """Return the number of messages, or parts of messages, that were not taken, by cause."""
        return self._dropped + self.member.dropped + self.leadership.dropped_messages()

    def lease_left_ns(self) -> int:
        """Return the nanoseconds until the lease ends without an answer; 0 after its end, and while isolated."""
        return 0 if self.member.isolated else max(0, self.member.lease_until - self._clock())

    def shares_in_force(self) -> SharesInForce:
        """Return which shares are in force in this member, since when, and why."""
        member = self.member
        most = f"{member.most_isolated / 10_000:g} %" if member.part != "none" else "nothing"
        words = {
            "granted": f"as {member.coordinator} has granted them",
            "isolated": f"cut off: at most {most} of each shared limit (fleet.isolated: {member.part})",
            "none": "no coordinator has answered yet",
        }[self._shares_state]
        return SharesInForce(self._shares_state, member.part, self._shares_since, words)

    def degraded(self) -> Iterator[Degraded]:
        """Yield the degraded states of this member."""
        if self.member.isolated:
            yield self._cut_off()
        if self._differs_since is not None and self._clock() - self._differs_since >= self._differing_ns:
            sets = "; ".join(map(described_set, self.member.limit_sets))
            yield Degraded(
                "fleet_limits_differ",
                f"members have different limits: {sets}. The lowest value of a limit holds in the members that have it",
                "give all members the same limits: sluice export at one member, sluice diff at the others",
            )
        if self.coordinator is not None and (twins := self.coordinator.names_taken_twice()):
            yield Degraded(
                "fleet_names_taken_twice",
                f"several members have one name: {', '.join(sorted(twins)[:MOST_NAMED])}",
                "give each member a proxy_id of its own",
            )
        yield from self._clock_off()
        yield from self._losing()

    def _cut_off(self) -> Degraded:
        link, fleet = self.link, self.config.name
        why = "" if link is None else link.problem.removesuffix(f"; {link.remedy}")
        remedy = "" if link is None else link.remedy
        problem = f"{self.shares_in_force().why}: {why or 'no coordinator is heard'}"
        if self.member.coordinator:
            text = f"fleet {fleet}: {problem}; {self.member.coordinator} coordinated last"
            return Degraded(
                "fleet_cut_off", text, remedy or "see that the other members run, and that brokers are reached"
            )
        remedy = remedy or "see that brokers are reached, and that the other members run and have the same fleet"
        return Degraded("fleet_not_formed", f"fleet {fleet} has not formed since the start; {problem}", remedy)

    def _clock_off(self) -> Iterator[Degraded]:
        if not self.member.epoch or self.coordinator is not None:
            return
        ahead, off = self._coordinator_clock.ahead_ns, ""
        if self._coordinator_clock.is_far:
            off = "more than a day off"
        elif ahead is not None and abs(ahead[0]) - ahead[1] > CLOCK_OFF_NS:
            off = f"{abs(ahead[0]) / NANOS_PER_SECOND:.1f} s {'behind' if ahead[0] > 0 else 'ahead'}"
        if off:
            yield Degraded(
                "fleet_clock",
                f"the clock is {off}, compared with that of {self.member.coordinator}: times in the logs of members "
                "cannot be compared",
                "have the hosts of all members keep time by NTP",
            )

    def _losing(self) -> Iterator[Degraded]:
        counts, now = (Counter[str]() if self.link is None else self.link.counts.dropped), self._clock()
        lost = {cause: counts[cause] for cause in ("slow", "oversized", "refused") if counts[cause]}
        if sum(lost.values()) > self._lost_messages:
            self._lost_messages, self._lost_at = sum(lost.values()), now
        if now - self._lost_at < LOST_FOR_NS:
            causes = ", ".join(f"{cause} {times}" for cause, times in lost.items())
            yield Degraded(
                "fleet_messages_lost",
                f"reports or grants are lost, so shares come late: {causes} since the start",
                "see that brokers keep up and let the fleet's topics take what members send; docs/metrics.md has the "
                "causes (sluice_fleet_messages_dropped_total)",
            )

    # ---- a cycle

    def wants_now(self) -> None:
        """Report soon: a limiter is used again, or a stream begins to wait for its share."""
        if self._is_running:
            self._reports.soon(LEAST_BETWEEN_REPORTS_S)

    def _turn(self) -> None:
        self._cycle = asyncio.get_running_loop().call_later(self._cycle_s, self._turn)
        self._reports.now()
        self._in_turn(self._look_at_lease, "own")
        self.leadership.turn()

    def _look_at_state(self) -> None:
        """Note the time at which the state of shares changes."""
        state: ShareState = "none"
        if self.member.isolated:
            state = "isolated"
        elif self._clock() < self.member.lease_until:
            state = "granted"
        if state != self._shares_state:
            self._shares_state, self._shares_since = state, self._wall()

    def _report(self) -> int:
        """Measure some limiters, those first that were at rest, and report; the others follow."""
        if not self._is_running:
            return 1
        now = self._clock()
        brokers = self.brokers.take_named(MOST_BROKERS) if self.member.epoch else ()
        return self._report_on(*self.limits.measure(now), now, brokers)

    def _report_on(
        self, changed: dict[ShareKey, Demand], gone: list[ShareKey], now: int, brokers: Sequence[str] = ()
    ) -> int:
        """Send a report; return the units of work that it was."""
        report = self.member.report(changed, gone, now, brokers)
        self._send_report(report)
        put = self._put() if self._is_cut_off else 0  # new limits, and those with another value, get their part at once
        self._go_on()
        return put + _MEASURING + 2 * len(changed) + len(gone) + report.units

    def _go_on(self) -> None:
        """Go on with the round of measuring; report soon if that is urgent."""
        if self.shared.has_more:
            self._measuring.ask()
        elif self._is_running:
            if self.shared.is_mixed and self._again is None:
                self._again = asyncio.get_running_loop().call_later(LOOK_AGAIN_NS / NANOS_PER_SECOND, self._look_again)
            if self.member.has_more:
                self._reports.soon(BETWEEN_PARTS_S)
        if self.member.urgent:
            self.wants_now()

    def _measure(self) -> int:
        """Measure some more limiters; report when the round is over."""
        if not self._is_running:
            return 1
        now = self._clock()
        changed, gone = self.limits.measure(now)
        self.member.note(changed, gone)
        if not self.shared.has_more and self.member.has_more:
            return 2 * len(changed) + self._report_on({}, [], now)
        self._go_on()
        return _MEASURING + 2 * len(changed) + len(gone)

    def _look_again(self) -> None:
        self._again = None
        self._reports.now()

    def _look_at_lease(self) -> int:
        """Note the end of a lease, and put shares in force that are left; return the units of work that it was."""
        if not self._is_running:
            return 1
        now = self._clock()
        if self._had_lease and now >= self.member.lease_until and not self.member.has_to_put:
            self._had_lease = False
            self.lease_ends += 1
        self.member.cut_off(now, refused=self.link is not None and self.link.refused)
        if self.member.isolated and not self._is_cut_off:
            self._is_cut_off, self._unlogged_cause = True, "isolated"
        units = self._put() if self.member.has_to_put or self._unlogged_cause is not None else 1
        self._look_at_state()
        return units

    def _put(self) -> int:
        """Put some shares in force; the others follow. Return the units of work that it was."""
        if not self._is_running:
            return 1
        put = self.limits.put_in_force(self._clock())
        if self.member.has_to_put:
            self._putting.ask()
        elif self._unlogged_cause is not None:
            self.limits.log_cause(self._unlogged_cause)
            self._unlogged_cause = None
        self._look_at_state()
        self._go_on()
        return 1 + 2 * put

    # ---- to the link, and from it

    def _send_report(self, report: MemberReport) -> None:
        if self.link is not None:
            self._coordinator_clock.reported(report.sequence, self._wall())
            self.link.report(report.encode())

    def _send_grants(self, message: bytes) -> None:
        if self.link is not None:
            self.link.grant(message)

    def _came(self, kind: Literal["reports", "grants"], take: Callable[[bytes], int], message: bytes) -> None:
        """Take a message in its turn."""
        size = len(message) + _MESSAGE_BYTES
        if self._unread[kind] + size > MOST_UNREAD:
            if self.link is not None:
                self.link.counts.dropped["slow"] += 1
            return
        self._unread[kind] += size

        def read() -> int:
            self._unread[kind] -= size
            return take(message)

        self._in_turn(read, kind)

    def _granted(self, message: bytes) -> int:
        """Take grants; return the units of work that they were."""
        if not self._is_running and self._left is None:
            return 1
        try:
            grants = Grants.decode(message, self.member.incarnation)
        except BadMessage as error:
            self._dropped[error.cause] += 1
            return 1
        units = 1 + len(message) // _BYTES_OF_A_UNIT
        if self._left is None:
            return units + self._take(grants)
        self.member.take(grants, self._clock())
        if self.member.has_left:
            self._left.set()
        return units

    def _take(self, grants: Grants) -> int:
        """Take grants, and put shares in force; return the units of work that it was."""
        self._look_at_clock(grants)
        self._look_at_lease()  # the lease may have ended while this process stood still
        now, before = self._clock(), self.member.epoch
        self.member.take(grants, now)
        if grants.epoch == self.member.epoch:
            self.brokers.hear(grants.brokers)
        if self.member.voids >= MOST_VOIDS:
            self.member.reincarnate(secrets.randbits(63) | 1)
        if self._is_cut_off and not self.member.isolated:
            self._is_cut_off, self._unlogged_cause = False, "rejoined"
        if not self.member.limit_sets:
            self._differs_since = None
        elif self._differs_since is None:
            self._differs_since = now
        units = self._put()
        if now < self.member.lease_until and not self.member.isolated:
            self._had_lease = True
        if self.member.epoch != before:
            fields = {"coordinator": self.member.coordinator, "members": self.member.members}
            structlog.get_logger().info("fleet: follows a coordinator", fleet=self.config.name, **fields)
        return units

    def _look_at_clock(self, grants: Grants) -> None:
        for own in grants.grants if grants.sent_at else ():
            self._coordinator_clock.heard(grants.epoch, own.answers, grants.sent_at, self._wall())

    def _tell_share(self, key: ShareKey, before: int, after: int, cause: str) -> None:
        if cause == self._unlogged_cause:
            self._unlogged_cause = None
        member = self.member
        followed = (member.epoch, member.coordinator, member.members)
        ahead = None
        if member.epoch:
            ahead = (0, 0) if self.coordinator is not None else self._coordinator_clock.ahead_ns
        self._on_share(ShareChange(self.config.name, key.limiter, key.unit, before, after, *followed, cause, ahead))


def described_set(limits: LimitSet) -> str:
    """Return a set of limits for people: `12 limits (digest 0f3a92c1) in a, b and 3 more`."""
    unnamed = limits.members - len(limits.names)
    more = f" and {unnamed} more" if unnamed else ""
    written = limits.written
    return f"{written.total} limits (digest {written.digest >> 32:08x}) in {', '.join(limits.names)}{more}"
