"""A proxy's part in its fleet: once a cycle it reports what its limiters want, and puts the granted shares in force.

    limiters ─demands─▶ FleetMember ─reports─▶ link ─▶ Coordinator, in one of the members
    limiters ◀─shares── FleetMember ◀─grants── link ◀─────┘

The core (`fleet`) decides, in values; `limiter.sharing` measures and enforces; a link carries bytes. This module has
the clock, the timers and the counts. A fleet at rest wakes the process once a cycle, for the heartbeat.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from fleet.coordinator import Coordinator
from fleet.member import FleetMember, FleetSettings
from fleet.messages import BadMessage, Demand, Grants, LimitShare, MemberReport, Quota, ShareKey, Unit
from limiter.rates import NANOS_PER_SECOND
from limiter.sharing import Demanded, SharedLimits
from limiter.token_bucket import Lease
from proxy.config.model import Config
from proxy.config.sections import Fleet
from proxy.files import token_in
from proxy.fleet.link import Callbacks, FleetLink, LinkState
from proxy.fleet.peer_link import FleetPeers, PeerLink
from proxy.fleet.topic_link import Auth, Membership, TopicLink
from proxy.identity.evidence import token_credentials
from proxy.session.engine import Engine
from proxy.tls.certificates import peer_contexts

LEAST_BETWEEN_REPORTS_S: Final = 0.025
LEAST_BETWEEN_GRANTS_S: Final = 0.005
FleetLinkMaker = Callable[[Callbacks], FleetLink]


@dataclass(frozen=True, slots=True)
class MemberLimit:
    """One unit of a shared limit, as this member knows it.

    Args:
        key: Limiter and unit.
        ppm: The share in force, millionths of the limit.
        held: The lower limit that holds because another member has it; None if this member's own holds.
        demand: What the limiter wanted last; None before its first report.
    """

    key: ShareKey
    ppm: int
    held: Quota | None
    demand: Demand | None


class FleetService:
    """Takes part in a fleet, from `start` to `stop`.

    Args:
        config: The section `fleet`.
        name: The name of this member: its proxy_id.
        clock: Monotonic nanoseconds.
        wall: Nanoseconds since 1970; of two coordinators the later one has the greater epoch.

    Attributes:
        shared: The shared limits of this process, for the registry of its limiters.
        member: This member.
        coordinator: The coordinator, while this member is that; else None.
        link: The link; None before `start`.
        refused: Messages that were not taken, by cause.
        lease_ends: How often the lease has ended without an answer.
        demands: What each limiter that is in use wanted last.
    """

    def __init__(
        self,
        config: Fleet,
        name: str,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
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
        self.shared = SharedLimits(Lease(), config.shared_levels, clock=clock, wants_now=self.wants_now)
        self._clock, self._wall = clock, wall
        self.name = name
        self.member = FleetMember(self._settings, name, secrets.randbits(63) | 1, clock())
        self.coordinator: Coordinator | None = None
        self.link: FleetLink | None = None
        self.refused: Counter[str] = Counter()
        self.lease_ends = 0
        self.demands: dict[ShareKey, Demand] = {}
        self._cycle: asyncio.TimerHandle | None = None
        self._sooner: asyncio.TimerHandle | None = None
        self._granting: asyncio.TimerHandle | None = None
        self._reported_at = self._granted_at = 0
        self._is_running = False
        self._had_lease = False

    async def start(self, make_link: FleetLinkMaker) -> None:
        """Begin to take part; returns before anybody is reached."""
        self.link = make_link(Callbacks(self._heard, self._granted, self._lead, self._unlead, self._confirmed))
        await self.link.start()
        self._is_running = True
        self._turn()

    async def stop(self) -> None:
        """Leave: the shares of this member are free for the others at once."""
        self._is_running = False
        for timer in (self._cycle, self._sooner, self._granting):
            if timer is not None:
                timer.cancel()
        if self.link is None:
            return
        now = self._clock()
        self.shared.lease.end(now)
        last = self.member.leave(now)
        self._report_by(last)
        if self.coordinator is not None:  # what was this member's is the others' before they need another coordinator
            self.coordinator.hear(last, now)
            self._grant()
        await self.link.stop()

    @property
    def state(self) -> LinkState:
        """Whether the fleet is reached, and whether this member coordinates."""
        return "connecting" if self.link is None else self.link.state

    def now(self) -> int:
        """Return the time by the clock of leases."""
        return self._clock()

    def refused_messages(self) -> Counter[str]:
        """Return how many messages, and parts of them, were not taken, by cause."""
        more = Counter[str]() if self.coordinator is None else self.coordinator.refused
        return self.refused + self.member.refused + more

    def lease_left_ns(self) -> int:
        """Return the nanoseconds until the shares end if nobody answers; 0 behind the end or while isolated."""
        return 0 if self.member.isolated else max(0, self.member.lease_until - self._clock())

    def limits(self) -> Iterable[MemberLimit]:
        """Yield the shared limits of which this member holds a share."""
        for key, share in self.member.shares().items():
            yield MemberLimit(key, share.ppm, share.quota, self.demands.get(key))

    # ---- a cycle

    def wants_now(self) -> None:
        """Report soon: a limiter is used anew, or somebody begins to wait for its share."""
        if self._is_running and self._sooner is None:
            since_s = (self._clock() - self._reported_at) / NANOS_PER_SECOND
            delay = max(0.0, LEAST_BETWEEN_REPORTS_S - since_s)
            self._sooner = asyncio.get_running_loop().call_later(delay, self._report)

    def _turn(self) -> None:
        self._cycle = asyncio.get_running_loop().call_later(self._settings.cycle_ns / NANOS_PER_SECOND, self._turn)
        self._report()
        now = self._clock()
        self._look_at_lease(now)
        if self.coordinator is not None:
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
        self._report_by(self.member.report(changed, left, now))
        self._go_on()

    def _report_by(self, report: MemberReport) -> None:
        if self.link is not None:
            self.link.report(report.encode())

    def _look_at_lease(self, now: int) -> None:
        refused = self.link is not None and self.link.refused
        if self._had_lease and now >= self.member.lease_until:
            self._had_lease = False
            self.lease_ends += 1
            said = {"coordinator": self.member.coordinator, "refused": refused}
            structlog.get_logger().warning("fleet: cut off from the coordinator", fleet=self.config.name, **said)
        isolated = self.member.cut_off(now, refused=refused)
        if self.member.isolated:
            self._put_in_force(isolated, now)

    # ---- from the link

    def _granted(self, message: bytes) -> None:
        now = self._clock()
        try:
            grants = Grants.decode(message)
        except BadMessage as error:
            self.refused[error.cause] += 1
            return
        self._look_at_lease(now)  # shares whose lease has ended while this process stood still
        before = self.member.epoch
        self._put_in_force(self.member.take(grants, now), now)
        if now < self.member.lease_until and not self.member.isolated:
            self._had_lease = True
        if self.member.epoch != before:
            said = {"coordinator": self.member.coordinator, "members": self.member.members}
            structlog.get_logger().info("fleet: follows a coordinator", fleet=self.config.name, **said)
        self._go_on()

    def _put_in_force(self, shares: list[LimitShare], now: int) -> None:
        """Shares first: none may earn by a lease that is not its own."""
        for share in shares:
            held = share.quota
            quota = None if held is None else (held.tokens, held.period_ns, held.burst, held.peak)
            self.shared.assign(share.key.limiter, share.key.unit, share.ppm, quota, now)
        self.shared.renew(self.member.lease_until, now)

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
            self.refused[error.cause] += 1
            return
        if coordinator.hear(report, self._clock()):
            self._grant_soon()

    def _lead(self) -> None:
        epoch = max(self._wall() // 1_000_000 << 20 | secrets.randbits(20), self.member.epoch_heard + 1)
        self.coordinator = Coordinator(self._settings, self.name, epoch, self._clock())
        structlog.get_logger().info("fleet: coordinates from now on", fleet=self.config.name, epoch=epoch)
        self._grant_soon()

    def _unlead(self) -> None:
        if self.coordinator is not None:
            structlog.get_logger().info("fleet: does not coordinate any more", fleet=self.config.name)
        self.coordinator = None

    def _confirmed(self, asked: int) -> None:
        if self.coordinator is not None:
            self.coordinator.confirmed(asked)

    def _grant_soon(self) -> None:
        if self._is_running and self._granting is None:
            since_s = (self._clock() - self._granted_at) / NANOS_PER_SECOND
            delay = max(0.0, LEAST_BETWEEN_GRANTS_S - since_s)
            self._granting = asyncio.get_running_loop().call_later(delay, self._grant)

    def _grant(self) -> None:
        if self._granting is not None:
            self._granting.cancel()
            self._granting = None
        if self.coordinator is None or self.link is None:
            return
        now = self._granted_at = self._clock()
        for grants in self.coordinator.grant(now):
            self.link.grant(grants.encode())


def _key(key: tuple[str, Unit]) -> ShareKey:
    return ShareKey(*key)


def _demand(demanded: Demanded) -> Demand:
    return Demand(demanded.used, demanded.wanted, demanded.streams, Quota(*demanded.quota))


def link_of(config: Config, engine: Engine) -> FleetLinkMaker:
    """Return what makes the link of a proxy with a section `fleet`: by peers if it names some, else by topics.

    Raises:
        ConfigError: If a file that it names cannot be used.
    """
    fleet = config.fleet
    assert fleet is not None, "the caller has looked"
    if fleet.peers:
        assert fleet.listen is not None, "the configuration has looked"
        server = client = None
        if fleet.tls is not None:
            server, client = peer_contexts(fleet.tls)
        peers = FleetPeers(fleet.name, fleet.peers, fleet.own, fleet.listen, fleet.lease, server, client)
        return lambda callbacks: PeerLink(peers, callbacks)
    membership = Membership(fleet.namespace, fleet.name, config.proxy_id, fleet.lease)
    auth = _auth(fleet, engine)
    return lambda callbacks: TopicLink(config.broker, engine.dialer, membership, callbacks, auth)


def _auth(fleet: Fleet, engine: Engine) -> Auth | None:
    file, verifier = fleet.token_file, engine.identity
    if file is not None:
        return token_credentials(file, "fleet.token_file").method, lambda: token_in(file).encode()
    return None if verifier is None else (verifier.own.method, lambda: verifier.own.data)
