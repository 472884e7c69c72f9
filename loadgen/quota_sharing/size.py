"""The cost of a large fleet: the bytes, the processor time and the memory of a coordinator and of a member, measured.

The coordinator is alone in a process of its own, whose memory is read from the kernel; members are in this one. Reports
and grants are encoded and decoded as always.
"""

import gc
import multiprocessing
import random
import resource
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from fleet.coordinator import Coordinator
from fleet.member import FOREVER, FleetMember
from fleet.messages import Demand, Grants, MemberReport, Quota, ShareKey
from fleet.settings import FleetSettings
from fleet.shares import UNBOUNDED
from limiter.limiter import Limiter, Scope
from limiter.sharing import Demanded, SharedLimits, UnitKey
from limiter.token_bucket import Lease, Limit, rate
from loadgen.quota_sharing.schemes import SECOND

SETTINGS = FleetSettings("large", isolated="none")
QUOTA = Quota(1000, SECOND, 1000)
NAME_BYTES = 80
"""Of a namespace, as PIP-82 assumes."""


@dataclass(frozen=True)
class FleetScale:
    """The size of a fleet: each namespace is used in `holders` of the members.

    Attributes:
        members: Proxies.
        namespaces: Of each of them.
        holders: Members of each namespace; divides `members`.
    """

    members: int = 100
    namespaces: int = 5000
    holders: int = 5

    @property
    def names(self) -> int:
        """The number of different namespaces."""
        return self.members * self.namespaces // self.holders


@dataclass(frozen=True)
class CycleCost:
    """The cost of one cycle, on average.

    Attributes:
        reports: Bytes that all members publish.
        grants: Bytes that the coordinator publishes, and each member reads.
        coordinator_s: Processor seconds of the coordinator: it decodes all reports, divides, and encodes grants.
        member_s: Those of one member: it encodes its report, reads all grants and takes its own.
    """

    reports: float
    grants: float
    coordinator_s: float
    member_s: float

    @property
    def published(self) -> float:
        """Bytes published by all."""
        return self.reports + self.grants


@dataclass(frozen=True)
class FleetCost:
    """The cost of a fleet.

    Attributes:
        idle: A cycle in which nothing changes.
        few: A cycle in which 1 % of all demands change, each by itself: this concerns about five times as many limits.
        all: A cycle in which all do.
        coordinator_bytes: By how much its process has grown after all that, as the kernel counts it.
        member_bytes: What a member keeps for its limits, besides what a proxy without a fleet has, too.
    """

    idle: CycleCost
    few: CycleCost
    all: CycleCost
    coordinator_bytes: int
    member_bytes: int


class _Fleet:
    """All members, and the pipe to their coordinator."""

    def __init__(self, scale: FleetScale, pipe: Connection) -> None:
        self.scale = scale
        self._pipe = pipe
        self.now = SECOND
        self._random = random.Random(1)  # noqa: S311 - a simulation is to be repeated
        stride = scale.members // scale.holders
        self.keys = [key_of(number) for number in range(scale.names)]
        self.members = [FleetMember(SETTINGS, f"m{n}", n + 1, self.now) for n in range(scale.members)]
        self.members_keys: list[list[ShareKey]] = [[] for _ in self.members]
        for number, key in enumerate(self.keys):
            for holder in range(scale.holders):
                self.members_keys[(number + holder * stride) % scale.members].append(key)

    def introduce(self) -> None:
        """Tell of all limits, and wait until all is granted: for two leases a coordinator is new."""
        self.cycle(self.demands(1))
        self.rest(20)

    def rest(self, cycles: int) -> list[CycleCost]:
        """Let nothing change for so many cycles."""
        return [self.cycle([{} for _ in self.members]) for _ in range(cycles)]

    def ask(self, question: str) -> int:
        """Ask the coordinator's process."""
        self._pipe.send(question)
        answer: int = self._pipe.recv()
        return answer

    def cycle(self, changed: Sequence[dict[ShareKey, Demand]]) -> CycleCost:
        """Let each member report and the coordinator answer once."""
        self.now += SETTINGS.cycle_ns
        began = time.process_time()
        reports = [
            member.report(some, (), self.now).encode() for member, some in zip(self.members, changed, strict=True)
        ]
        member_s = (time.process_time() - began) / len(self.members)
        self._pipe.send((self.now, len(reports)))
        for data in reports:  # they come one by one
            self._pipe.send_bytes(data)
        grants, coordinator_s = self._pipe.recv()
        began = time.process_time()
        for data in grants:  # each member reads the message of all
            for member in self.members:
                member.take(Grants.decode(data, member.incarnation), self.now)
        member_s += (time.process_time() - began) / len(self.members)
        return CycleCost(sum(map(len, reports)), sum(map(len, grants)), coordinator_s, member_s)

    def demands(self, part: float) -> list[dict[ShareKey, Demand]]:
        """Return other demands of so many of all limits: between half and twice an equal part, or no end of it."""
        chance = self._random
        return [
            {key: self._demand() for key in keys if part == 1 or chance.random() < part} for keys in self.members_keys
        ]

    def _demand(self) -> Demand:
        used = self._random.randrange(100_000, 400_000)
        return Demand(used, UNBOUNDED if used % 2 else used * 101 // 100, 1 + used % 4, QUOTA)


def key_of(number: int) -> ShareKey:
    """Return the limit of a namespace whose name has 80 bytes."""
    return ShareKey.of(
        f"publish namespace tenant-{number // 100:05}/".ljust(NAME_BYTES + 10, "n") + f"{number:08}", "messages"
    )


def _coordinate(pipe: Connection) -> None:
    coordinator = Coordinator(SETTINGS, "c", 1, SECOND)
    before = _resident()
    while (message := pipe.recv()) is not None:
        if message == "grown":
            pipe.send(_resident() - before)
            continue
        now, reports = message
        coordinator.confirmed(now)
        spent = 0.0
        for _ in range(reports):
            data = pipe.recv_bytes()
            began = time.process_time()
            coordinator.hear(MemberReport.decode(data), now)
            spent += time.process_time() - began
        began = time.process_time()
        grants = [one.encode() for one in coordinator.grant(now)]
        pipe.send((grants, spent + time.process_time() - began))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def member_bytes(limits: int) -> int:
    """Measure what a member keeps for so many limits when all of them have shares, besides the limiters themselves.

    A proxy without a fleet has the limiters, too, and the names of what they are for.
    """
    now = SECOND
    shared = SharedLimits(Lease(0, FOREVER), clock=lambda: now)
    limit = Limit(messages=rate(1000))
    limiters = []
    for number in range(limits):
        scope = Scope("publish", "namespace", key_of(number).name, "", "")
        limiters.append(Limiter(scope, limit, "", now, shared.lease))
        limiters[-1].charge(1, 100, now)  # what its use costs is not the fleet's
    tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        member, coordinator = FleetMember(SETTINGS, "m", 1, now), Coordinator(SETTINGS, "c", 1, now)
        for limiter in limiters:
            shared.made(limiter, now)
            limiter.charge(1, 100, now)
        for _ in range(80):
            now += SETTINGS.cycle_ns
            coordinator.confirmed(now)
            demanded, gone = shared.demands(now)
            coordinator.hear(member.report(_told(demanded), [ShareKey(*key) for key in gone], now), now)
            for grants in coordinator.grant(now):
                for share in member.take(Grants.decode(grants.encode(), member.incarnation), now):
                    shared.assign(share.key, share.ppm, share.quota, now)
        assert all(limiter.shares[0] > 0 for limiter in limiters), "all limits are granted shares of"
        assert member.total == limits, "all limits are granted shares of"
        del coordinator, demanded, gone, grants, limiter, share
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - begin
    finally:
        tracemalloc.stop()


def _told(demanded: Mapping[UnitKey, Demanded]) -> dict[ShareKey, Demand]:
    return {ShareKey(*key): Demand(*demand[:3], Quota(*demand.quota)) for key, demand in demanded.items()}


@contextmanager
def _running(scale: FleetScale) -> Iterator[_Fleet]:
    """Start a coordinator's process, and end it."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_coordinate, args=(there,))
    child.start()
    there.close()  # it is the child's: when that has failed, nobody waits for it
    try:
        yield _Fleet(scale, here)
        here.send(None)
        child.join()
    finally:
        child.kill()


def measure(scale: FleetScale, told: Callable[[str], None] = lambda _text: None) -> FleetCost:
    """Run a fleet until it is at rest; then change nothing, 1 % of the demands, and all of them.

    Args:
        scale: How large it is.
        told: Called with what goes on.
    """
    with _running(scale) as fleet:
        told(f"{scale.members} members introduce {scale.namespaces} limits each")
        fleet.introduce()
        told("nothing changes; 1 % of the demands; all")
        idle = _mean(fleet.rest(4))
        few = _mean([fleet.cycle(fleet.demands(0.01)) for _ in range(8)])
        whole = _mean([fleet.cycle(fleet.demands(1)) for _ in range(3)])
        fleet.rest(8)
        return FleetCost(idle, few, whole, fleet.ask("grown"), member_bytes(scale.namespaces))


def _mean(costs: Sequence[CycleCost]) -> CycleCost:
    def mean(of: Callable[[CycleCost], float]) -> float:
        return sum(map(of, costs)) / len(costs)

    return CycleCost(
        mean(lambda cost: cost.reports),
        mean(lambda cost: cost.grants),
        mean(lambda cost: cost.coordinator_s),
        mean(lambda cost: cost.member_s),
    )
