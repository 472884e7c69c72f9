"""Members, coordinators and a network between them, in one thread and simulated time, with all bounds."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from fleet.coordinator import Coordinator
from fleet.member import FleetMember
from fleet.messages import Demand, Grants, LimitShare, MemberReport, Quota, ShareKey, WrittenLimits
from fleet.settings import FleetSettings
from fleet.shares import UNBOUNDED, WHOLE

MS = 1_000_000
SECOND = 1000 * MS
KEY = ShareKey.of("publish topic persistent://t/n/x", "messages")
RATE = Quota(1000, SECOND, 100)
ALL = 1 << 30
"""More shares than a test has."""


def put_now(member: FleetMember, most: int = ALL) -> list[LimitShare]:
    """Return the shares that the member has to put, as put in force."""
    return [share for share, _ in member.shares_to_put(most)]


@dataclass
class Clock:
    """A monotonic clock: it is ahead by `offset`, and wrong by `drift` millionths."""

    offset: int = 0
    drift: int = 0

    def at(self, now: int) -> int:
        return self.offset + now + now * self.drift // 1_000_000


@dataclass
class Bucket:
    """A limiter's bucket by its definition, in tokens: fluid, except the entry that may leave a debt."""

    ppm: int = 0
    balance: float = 1.0
    earned_at: int = 0
    passed: float = 0.0

    def earn(self, quota: Quota, since: int, until: int, now: int) -> None:
        span = max(0, min(now, until) - max(self.earned_at, since))
        self.earned_at = now
        part = self.ppm / WHOLE
        self.balance = min(self.balance + span * quota.tokens / quota.period_ns * part, quota.burst * part + 1)
        if not since <= now < until:
            self.balance = min(self.balance, 1.0)

    def take(self, tokens: float) -> None:
        """Pass up to `tokens`, a whole entry if the bucket has one token."""
        if self.balance >= 1:
            passing = min(tokens, max(1.0, self.balance))
            self.balance -= passing
            self.passed += passing


class Digest:
    """The limits that are written in a process: their number is also their digest."""

    def __init__(self, written: int) -> None:
        self.written = written

    def __call__(self) -> WrittenLimits:
        return WrittenLimits(self.written, self.written)


@dataclass
class Process:
    """One Sluice: its member, clock, buckets and offered load per limiter (tokens a second; a huge load waits)."""

    member: FleetMember
    clock: Clock
    offered: dict[ShareKey, float] = field(default_factory=dict)
    quotas: dict[ShareKey, Quota] = field(default_factory=dict)
    reported: dict[ShareKey, Demand] = field(default_factory=dict)
    buckets: dict[ShareKey, Bucket] = field(default_factory=dict)
    held: dict[ShareKey, Quota | None] = field(default_factory=dict)
    since: int = 0
    until: int = 0
    stopped: bool = False
    cut: bool = False
    mute: bool = False
    digest: Digest = field(default_factory=lambda: Digest(0))
    next_at: int = 0
    streams: int = 1

    def can_earn(self, key: ShareKey, now: int) -> int:
        local = self.clock.at(now)
        return self.buckets[key].ppm if key in self.buckets and self.since <= local < self.until else 0

    def quota(self, key: ShareKey) -> Quota:
        lower = self.held.get(key)
        own = self.quotas[key]
        return own if lower is None or lower.tokens * own.period_ns > own.tokens * lower.period_ns else lower

    def put(self, most: int, now: int) -> None:
        """Put up to so many shares in force."""
        local = self.clock.at(now)
        self.earn_until(self.member.lease_until, local)
        for share, _ in self.member.shares_to_put(most):
            bucket = self.buckets.get(share.key)
            if bucket is None:
                continue
            bucket.earn(self.quota(share.key), self.since, self.until, local)
            bucket.ppm, self.held[share.key] = share.ppm, share.quota
            bucket.earn(self.quota(share.key), self.since, self.until, local)
        self.earn_until(self.member.lease_until, local)

    def earn_until(self, until: int, local: int) -> None:
        if until != self.until:
            for key, bucket in self.buckets.items():
                bucket.earn(self.quota(key), self.since, self.until, local)
            if local >= self.until:
                self.since = local
            self.until = until

    def demands(self) -> dict[ShareKey, Demand]:
        changed = {}
        for key, offered in self.offered.items():
            quota = self.quota(key)
            share = self.buckets[key].ppm / WHOLE * quota.tokens * SECOND / quota.period_ns
            used = min(offered, share)
            wanted = UNBOUNDED if offered > share else int(offered * 1010)
            demand = Demand(int(used * 1000), wanted, self.streams if offered else 0, self.quotas[key])
            if self.reported.get(key) != demand:
                changed[key] = self.reported[key] = demand
        return changed


class World:
    """Processes, coordinators and the network. Time passes in `run`; messages are encoded and decoded."""

    def __init__(self, seed: int = 0, settings: FleetSettings | None = None) -> None:
        self.random = Random(seed)
        self.settings = settings or FleetSettings("f", isolated="none")
        self.now = 10 * SECOND
        self.processes: list[Process] = []
        self.coordinators: list[tuple[Coordinator, Clock]] = []
        self.leader: Coordinator | None = None
        self.loss = 0.0
        self.grant_loss = 0.0
        self.doubled = 0.0
        self.delay = (1 * MS, 2 * MS)
        self.most_at_once: int | None = None
        self.bytes = 0
        self.names = 0
        self.epoch = 0
        self.allowed = 1.0  # the part of the limit that may pass; above 1 only with isolated members
        self.excess: dict[ShareKey, float] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._granted_at = 0

    # Events

    def join(
        self,
        offered: dict[ShareKey, float] | None = None,
        clock: Clock | None = None,
        written: int = 0,
        version: str = "",
    ) -> Process:
        """Another process, with limits of this digest, and of this version."""
        clock = clock or Clock()
        self.names += 1
        local = clock.at(self.now)
        digest = Digest(written)
        run = self.random.getrandbits(63) | 1
        member = FleetMember(self.settings, f"proxy-{self.names}", run, local, digest, version)
        process = Process(member, clock, next_at=self.now, since=local, until=local, digest=digest)
        self.processes.append(process)
        for key, rate in (offered or {}).items():
            self.offer(process, key, rate)
        return process

    def offer(self, process: Process, key: ShareKey, rate: float, quota: Quota | None = None) -> None:
        process.offered[key] = rate
        process.quotas[key] = quota or process.quotas.get(key, RATE)
        process.buckets.setdefault(key, Bucket(earned_at=process.clock.at(self.now)))
        process.next_at = min(process.next_at, self.now + 25 * MS)

    def elect(self, clock: Clock | None = None) -> Coordinator:
        """Make a new coordinator the elected one; the previous one goes on until a report deposes it."""
        self.epoch += 1 + self.random.randrange(5)
        clock = clock or Clock()
        self.leader = Coordinator(self.settings, f"c{self.epoch}", self.epoch, clock.at(self.now))
        self.coordinators.append((self.leader, clock))
        return self.leader

    def kill_coordinator(self, index: int = -1) -> None:
        killed, _ = self.coordinators.pop(index)
        if killed is self.leader:
            self.leader = None

    def crash(self, process: Process) -> None:
        """End a process without a report: its shares earn nothing."""
        self.processes.remove(process)

    def leave(self, process: Process) -> None:
        report = process.member.leave(process.clock.at(self.now))
        self.processes.remove(process)
        self._send_report(process, report)

    def heal(self) -> None:
        """End all losses and delays, reconnect all members, and elect a coordinator if there is none."""
        self.loss = self.grant_loss = self.doubled = 0.0
        self.delay = (1 * MS, 2 * MS)
        for process in self.processes:
            process.stopped = process.cut = process.mute = False
        if self.leader is None or self.leader.deposed:
            self.elect()

    # Time

    def run(self, span: int, step: int = 5 * MS) -> None:
        end = self.now + span
        while self.now < end:
            self.now += step
            while self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
                self.check()
            for process in list(self.processes):
                if not process.stopped:
                    self._turn(process)
            self._coordinate()
            self._pass(step)
            self.check()

    def _turn(self, process: Process) -> None:
        member, local = process.member, process.clock.at(self.now)
        if local >= process.until:
            member.cut_off(local, refused=False)
        process.put(self._at_once(), self.now)
        if self.now >= process.next_at or (member.urgent and self.now >= process.next_at - 225 * MS):
            process.next_at = self.now + self.settings.cycle_ns
            self._send_report(process, member.report(process.demands(), (), local))

    def _coordinate(self) -> None:
        due = self.now - self._granted_at >= self.settings.cycle_ns
        if due:
            self._granted_at = self.now
        for coordinator, clock in self.coordinators:
            if coordinator is self.leader and due:
                self._later(partial(self._confirm, coordinator, clock, self.now), self.delay)
            if due or getattr(coordinator, "soon", False):
                coordinator.soon = False  # type: ignore[attr-defined]
                for grants in coordinator.grant(clock.at(self.now)):
                    self._send_grants(grants)

    def _confirm(self, coordinator: Coordinator, clock: Clock, asked: int) -> None:
        if coordinator is self.leader:
            asked_at = clock.at(asked)
            self._later(lambda: coordinator.confirmed(asked_at), self.delay)

    def _send_report(self, process: Process, report: MemberReport) -> None:
        data = report.encode()
        self.bytes += len(data)
        if process.cut or process.mute:
            return
        for _ in range(self._copies(self.loss)):
            self._later(lambda: self._hear(data), self.delay)

    def _hear(self, data: bytes) -> None:
        for coordinator, clock in self.coordinators:
            if coordinator.hear(MemberReport.decode(data), clock.at(self.now)):
                coordinator.soon = True  # type: ignore[attr-defined]

    def _send_grants(self, grants: Grants) -> None:
        data = grants.encode()
        self.bytes += len(data)
        for process in self.processes:
            if not process.cut:
                for _ in range(self._copies(self.grant_loss)):
                    self._later(partial(self._take, process, data), self.delay)

    def _take(self, process: Process, data: bytes) -> None:
        if process not in self.processes:
            return
        if process.stopped:  # the message stays in the socket's buffer
            self._later(lambda: self._take(process, data), (50 * MS, 60 * MS))
            return
        process.member.take(Grants.decode(data, process.member.incarnation), process.clock.at(self.now))
        process.put(self._at_once(), self.now)

    def _at_once(self) -> int:
        """The number of shares that a process puts in force in one turn."""
        return ALL if self.most_at_once is None else self.random.randint(0, self.most_at_once)

    def _copies(self, loss: float) -> int:
        if self.random.random() < loss:
            return 0
        return 2 if self.random.random() < self.doubled else 1

    def _later(self, action: Callable[[], None], delay: tuple[int, int]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now + self.random.randint(*delay), self._order, action))

    # Checks

    def check_limit_sets(self) -> None:
        """Compare the sets of limits in each member's latest grants with the limits that are written in the members."""
        names: dict[WrittenLimits, list[str]] = {}
        for process in self.processes:
            names.setdefault(process.digest(), []).append(process.member.name)
        for process in self.processes:
            sets = {limits.written: (limits.members, list(limits.names)) for limits in process.member.limit_sets}
            expected = {written: (len(members), sorted(members)) for written, members in names.items()}
            assert sets == (expected if len(names) > 1 else {}), process.member.name

    def check_version_sets(self) -> None:
        """Compare the versions in each member's latest grants with those of the members."""
        names: dict[str, list[str]] = {}
        for process in self.processes:
            names.setdefault(process.member.version, []).append(process.member.name)
        for process in self.processes:
            sets = {
                version_set.version: (version_set.members, list(version_set.names))
                for version_set in process.member.version_sets
            }
            expected = {version: (len(members), sorted(members)) for version, members in names.items()}
            assert sets == (expected if len(names) > 1 else {}), process.member.name

    def keys(self) -> set[ShareKey]:
        return {key for process in self.processes for key in process.buckets}

    def in_use(self, key: ShareKey) -> int:
        return sum(process.can_earn(key, self.now) for process in self.processes)

    def check(self) -> None:
        for key in self.keys():
            assert self.in_use(key) <= WHOLE * self.allowed, [
                (p.member.name, p.can_earn(key, self.now)) for p in self.processes
            ]

    def _pass(self, step: int) -> None:
        """Pass the tokens that the buckets allow, and check that all together are within one bucket's bound."""
        for key in self.keys():
            passed, own = 0.0, list[Quota]()
            for process in self.processes:
                if key in process.buckets:
                    bucket = process.buckets[key]
                    before = bucket.passed
                    bucket.earn(process.quota(key), process.since, process.until, process.clock.at(self.now))
                    if not process.stopped:
                        bucket.take(process.offered[key] * step / SECOND)
                    passed += bucket.passed - before
                    own.append(process.quota(key))
            highest = max(own, key=lambda quota: quota.tokens / quota.period_ns)
            burst = max(quota.burst for quota in own)
            rate = highest.tokens / highest.period_ns * 1.005 * self.allowed  # clocks may be wrong by half a percent
            self.excess[key] = max(0.0, self.excess.get(key, 0.0) + passed - rate * step)
            assert self.excess[key] <= burst * self.allowed + 2 * self.names + 1, (self.excess[key], burst, self.names)
