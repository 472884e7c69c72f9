"""Three ways to share one limit, stepped through the same time, load, delays and losses.

`LeaseScheme` is the product itself: `fleet`'s members and coordinator, whose messages are encoded, delayed, lost and
decoded; there is no copy of a rule of theirs here. Only what surrounds them in a proxy is modelled: timers
(of `proxy/fleet`) and how demand is measured (`limiter/sharing.py`). `PulsarFormula` and `ProposalText` are
models of class files and of a text. Traffic is a fluid.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from fleet.coordinator import Coordinator
from fleet.member import FleetMember
from fleet.messages import Demand, Grants, MemberReport, Quota, ShareKey
from fleet.settings import FleetSettings
from fleet.shares import UNBOUNDED, WHOLE

MS = 1_000_000
SECOND = 1000 * MS
DELAY_NS = (2 * MS, 20 * MS)
"""The least and the longest way of a message, in all schemes."""

KEY = ShareKey.of("publish tenant acme", "messages")


@dataclass
class SharedLoad:
    """The load of all members' clients, and the amounts that have passed.

    Attributes:
        offered: Messages per second; None: the member is not there.
        quota: The limit, messages per second.
        streams: The streams of each member.
        passed: Messages that have passed each member since the beginning.
        throttled_ns: For how long more was offered at each member than passed.
    """

    offered: list[float | None]
    quota: int
    streams: Sequence[int]
    passed: list[float] = field(default_factory=list)
    throttled_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.passed = [0.0] * len(self.offered)
        self.throttled_ns = [0] * len(self.offered)

    def flow(self, allowed: Sequence[float], span_ns: int) -> list[float]:
        """Let pass what is offered and allowed, for so long; return the rates that passed."""
        rates = []
        for place, offered in enumerate(self.offered):
            rate = min(offered or 0.0, allowed[place])
            rates.append(rate)
            self.passed[place] += rate * span_ns / SECOND
            if offered is not None and offered > rate:
                self.throttled_ns[place] += span_ns
        return rates


class SharingScheme(Protocol):
    """A way to share a limit.

    Attributes:
        cycle_ns: The time between two reports of a member.
    """

    cycle_ns: int

    def step(self, now: int, load: SharedLoad) -> Sequence[float]:
        """Return what each member may pass per second from now until the next step."""

    def end(self, place: int, now: int, *, leaves: bool) -> None:
        """A member is not there any more: it `leaves`, or is killed."""

    def kill_leader(self, now: int) -> int | None:
        """End the process that decides for all; return its place, or None if there is no such process."""


class _Mesh:
    """Members that hear each other's usage, each with its own loss, and calculate their share once a cycle.

    Each does so at its own moment. This is what the two models have in common.
    """

    cycle_ns = SECOND // 4

    def __init__(self, members: int, chance: random.Random, loss: float) -> None:
        self._random, self._loss = chance, loss
        self._heard: list[dict[int, float]] = [{} for _ in range(members)]
        self._told: dict[int, float] = {}
        self._silent: dict[int, int] = {}
        self._before = [0.0] * members
        self._quota = 0
        self._due: list[int | None] = [None] * members
        self.limits = [0.0] * members
        self._wire = _Wire(chance)

    def step(self, now: int, load: SharedLoad) -> Sequence[float]:
        """Deliver what has arrived; report and calculate where a cycle has ended."""
        self._wire.deliver(now)
        self._changed(load)
        for place, offered in enumerate(load.offered):
            due = self._due[place]
            if offered is None:
                continue
            if due is None:
                self._before[place] = load.passed[place]
                self._due[place] = now + self._random.randint(1, self.cycle_ns)
                self.limits[place] = self._first_limit(place, load.quota)
            elif now >= due:
                self._due[place] = due + self.cycle_ns
                mine = (load.passed[place] - self._before[place]) * SECOND / self.cycle_ns
                self._before[place] = load.passed[place]
                self._report(place, mine)
                self.limits[place] = self._calculate(place, mine, load.quota)
        return self.limits

    def end(self, place: int, now: int, *, leaves: bool) -> None:
        """Take a member away; nobody is told."""
        del now, leaves
        self._due[place] = None

    def kill_leader(self, now: int) -> int | None:
        """Nobody decides for all."""
        del now
        return None

    def _publish(self, place: int, rate: float) -> None:
        self._told[place], self._silent[place] = rate, 0
        for other, heard in enumerate(self._heard):
            if other != place and self._random.random() >= self._loss:
                self._wire.send(self._due[place] or 0, partial(_put, heard, place, rate), (place, other))

    def _changed(self, load: SharedLoad) -> None:
        """Put another value of the limit itself in force."""

    def _first_limit(self, place: int, quota: int) -> float:
        raise NotImplementedError

    def _report(self, place: int, mine: float) -> None:
        raise NotImplementedError

    def _calculate(self, place: int, mine: float, quota: int) -> float:
        raise NotImplementedError


class PulsarFormula(_Mesh):
    """Pulsar 4.0.8, with its transport of usage switched on and its cycle of 60 s.

    Source: `ResourceQuotaCalculatorImpl`, `ResourceGroup`, `ResourceGroupService` of pulsar-broker-4.0.8.jar. A usage
    is told when it has changed by more than 5 % and is not zero, and in the fifth round of silence. Nothing clears what
    a broker said last. A changed limit is given to each broker whole until its next calculation. In Pulsar's favour
    usage is always that of the whole last cycle; a broker that counts and calculates at different moments has less.
    """

    cycle_ns = 60 * SECOND
    TOLERATED = 0.05
    ROUNDS = 5

    @staticmethod
    def share(quota: int, mine: float, total: float) -> float:
        """Return `computeLocalQuota`: mine + (quota - total) · mine / total, at least 1, as a whole number."""
        return float(quota) if total == 0 else float(int(max(mine + (quota - total) * mine / total, 1.0) + 1e-6))

    def _changed(self, load: SharedLoad) -> None:
        if load.quota != self._quota:
            self._quota = load.quota
            self.limits = [float(load.quota)] * len(self.limits)

    def _first_limit(self, place: int, quota: int) -> float:
        del place
        return float(quota)

    def _report(self, place: int, mine: float) -> None:
        before = self._told.get(place, 0.0)
        differs = mine > 0 and abs(mine - before) > self.TOLERATED * before
        self._silent[place] = self._silent.get(place, 0) + 1
        if differs or self._silent[place] >= self.ROUNDS:
            self._publish(place, mine)

    def _calculate(self, place: int, mine: float, quota: int) -> float:
        return self.share(quota, mine, mine + sum(self._heard[place].values()))


class ProposalText(_Mesh):
    """PIP-82's text, in the cycles of Sluice.

    Usage is told when it has changed by more than 10 %, and each eighth cycle. What remains is split in proportion to
    usage; a sum above the quota lowers all by the same part. Who is held back by its limit while nothing remains steals
    half the distance to its counterpart: the lowest of the most dominant, the second lowest of the second. A usage of 0
    is removed from the maps. The text leaves the rest open; the model is kind: a broker without usage may begin with
    quota / (those that use it + 1), another quota scales all limits at once, and that a broker has gone is known two
    seconds later, as after Sluice's lease (a ZooKeeper session ends after 30 s in Pulsar unless configured otherwise).
    """

    TOLERATED = 0.1
    ROUNDS = 8
    KNOWN_NS = 2 * SECOND
    HELD_BACK = 0.95
    """Whose usage is so much of its limit, is held back by it."""

    def __init__(self, members: int, chance: random.Random, loss: float = 0.0) -> None:
        super().__init__(members, chance, loss)
        self._members = members

    @classmethod
    def share(cls, quota: float, place: int, usage: Mapping[int, float], limit: float) -> float:
        """Return the next limit of the member at `place`, by the map that it has of all usage, its own in it."""
        mine, total = usage[place], sum(usage.values())
        if total < quota * 0.999:
            return mine * quota / total
        ranked = sorted(usage, key=lambda each: (usage[each], each))
        rank = ranked.index(place)
        dominant = usage[ranked[-1 - rank]]
        if mine >= cls.HELD_BACK * limit and rank < len(ranked) // 2:
            mine += (dominant - mine) / 2
        return mine * quota / total

    def end(self, place: int, now: int, *, leaves: bool) -> None:
        """Tell a last usage of 0, or let the registration of the dead end."""
        super().end(place, now, leaves=leaves)
        self._told.pop(place, None)
        for other, heard in enumerate(self._heard):
            if leaves and other != place and self._random.random() >= self._loss:
                self._wire.send(now, partial(_put, heard, place, 0.0), (place, other))
            self._wire.send(now + self.KNOWN_NS, partial(_put, heard, place, 0.0))

    def _changed(self, load: SharedLoad) -> None:
        if load.quota != self._quota:
            if self._quota:
                self.limits = [limit * load.quota / self._quota for limit in self.limits]
            self._quota = load.quota

    def _first_limit(self, place: int, quota: int) -> float:
        known = len(self._heard[place]) or self._members - 1
        return quota / (known + 1)

    def _report(self, place: int, mine: float) -> None:
        before = self._told.get(place, 0.0)
        self._silent[place] = self._silent.get(place, 0) + 1
        if abs(mine - before) > self.TOLERATED * before or (mine > 0 and self._silent[place] >= self.ROUNDS):
            self._publish(place, mine)

    def _calculate(self, place: int, mine: float, quota: int) -> float:
        if mine == 0:
            return quota / (len(self._heard[place]) + 1)
        return self.share(quota, place, {**self._heard[place], place: mine}, self.limits[place])


def _put(heard: dict[int, float], place: int, rate: float) -> None:
    if rate > 0:
        heard[place] = rate
    else:
        heard.pop(place, None)


class _Wire:
    """Messages under way. Those of one `line` keep their order, others may overtake each other."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._under_way: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._lines: dict[tuple[int, int], int] = {}
        self.now = 0

    def send(self, now: int, arrive: Callable[[], None], line: tuple[int, int] | None = None) -> None:
        at = now + self._random.randint(*DELAY_NS)
        if line is not None:
            at = self._lines[line] = max(at, self._lines.get(line, 0))
        heappush(self._under_way, (at, next(self._order), arrive))

    def deliver(self, now: int) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            self.now, _, arrive = heappop(self._under_way)
            arrive()
        self.now = now


class _Proxy:
    """A Sluice: its member of the fleet, its timer, and what it counts."""

    LEAST_SPAN_NS = 100 * MS
    LEAST_BETWEEN_NS = 25 * MS
    ALWAYS = 0.95
    LOOK_AGAIN_NS = 105 * MS
    LEAST_TURN = 8

    def __init__(self, member: FleetMember, now: int, due: int, load: SharedLoad, place: int) -> None:
        self.member = member
        self.share = 0
        self.due = due
        self._place = place
        self._reported_at = now - self.LEAST_BETWEEN_NS
        self._counted = now, load.passed[place], load.throttled_ns[place]
        self._is_at_rest = True
        self._calm = True
        self._used = self._waited = 0.0
        self._again_at: int | None = None

    def wants_to_report(self, now: int, load: SharedLoad) -> bool:
        """Return whether a report is due: each cycle, and soon after something is used anew, or first waited on."""
        if now >= self.due or (self._again_at is not None and now >= self._again_at):
            return True
        urgent = self.member.urgent or (self._calm and load.throttled_ns[self._place] > self._counted[2])
        urgent = urgent or (self._is_at_rest and (load.offered[self._place] or 0) > 0)
        return urgent and now >= self._reported_at + self.LEAST_BETWEEN_NS

    def report(self, now: int, load: SharedLoad, quota: Quota, cycle_ns: int) -> MemberReport:
        """Measure what the limiter wants, and report it."""
        if now >= self.due:
            self.due += cycle_ns
        self._reported_at = now
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
        demand = self._demand(now, load, quota)
        return self.member.report({} if demand is None else {KEY: demand}, (), now)

    def _demand(self, now: int, load: SharedLoad, quota: Quota) -> Demand | None:
        place = self._place
        at, passed, throttled_ns = self._counted
        is_first = self._is_at_rest and (load.offered[place] or 0) > 0
        span = now - at
        if is_first:
            # What was offered is seen with the first message: it waits or passes.
            self._is_at_rest, self._calm = False, load.throttled_ns[place] == throttled_ns
            self._counted = now, load.passed[place], load.throttled_ns[place]
            wanted = UNBOUNDED if not self._calm or self.share == 0 else int((load.offered[place] or 0) * 1010)
            return Demand(0, wanted, load.streams[place], quota)
        if self._is_at_rest or span < self.LEAST_SPAN_NS:
            return None
        used = (load.passed[place] - passed) * SECOND / span
        waited = min(1.0, (load.throttled_ns[place] - throttled_ns) / span)
        self._counted = now, load.passed[place], load.throttled_ns[place]
        turns = 0 < waited < self.ALWAYS and not 0 < self._waited < self.ALWAYS
        turns = turns and (load.offered[place] or 0) * span >= self.LEAST_TURN * SECOND
        self._calm = waited == 0
        self._waited = waited
        self._is_at_rest = used == 0 and waited == 0
        if (turns or 2 * used < self._used) and not self._again_at:
            self._again_at = now + self.LOOK_AGAIN_NS
        self._used = used
        wanted = UNBOUNDED if waited >= self.ALWAYS else int(used / (1 - waited) * 1010)
        return Demand(int(used * 1000), wanted, load.streams[place] if wanted else 0, quota)


class LeaseScheme:
    """Sluice's way: rate leases from a coordinator, by the core of the fleet itself.

    Args:
        members: How many there may be.
        chance: Chooses delays, losses and the moments at which cycles begin.
        loss: The part of reports that is lost.
        grant_loss: The part of grants that is lost, at each member.
    """

    cycle_ns = SECOND // 4
    LEAST_BETWEEN_GRANTS_NS = 5 * MS
    ELECTION_NS = 100 * MS

    def __init__(self, members: int, chance: random.Random, loss: float = 0.0, grant_loss: float = 0.0) -> None:
        self._random, self._loss, self._grant_loss = chance, loss, grant_loss
        self._settings = FleetSettings("simulated", self.cycle_ns, 2 * SECOND, "floor")
        self._proxies: dict[int, _Proxy] = {}
        self._wire = _Wire(chance)
        self._size = members
        self._coordinator: Coordinator | None = None
        self._leader = 0
        self._elect_at = 0
        self._epoch = 0
        self._granted_at = 0
        self._soon = False
        self.published = 0

    def step(self, now: int, load: SharedLoad) -> Sequence[float]:
        """Deliver what has arrived; report and grant what is due."""
        quota = Quota(load.quota, SECOND, load.quota)
        for place, offered in enumerate(load.offered):
            if offered is not None and place not in self._proxies:
                self._join(place, now, load)
        self._wire.deliver(now)
        self._lead(now)
        for place, proxy in self._proxies.items():
            if now >= proxy.member.lease_until:
                self._put(proxy, proxy.member.cut_off(now, refused=False))
            if proxy.wants_to_report(now, load):
                self._send(place, proxy.report(now, load, quota, self.cycle_ns), now)
        self._grant(now)
        return [self._allowed(place, now, load.quota) for place in range(self._size)]

    def end(self, place: int, now: int, *, leaves: bool) -> None:
        """Take a member away."""
        proxy = self._proxies.pop(place)
        if leaves:
            self._send(place, proxy.member.leave(now), now)

    def kill_leader(self, now: int) -> int | None:
        """End the coordinator and the member in its process; the next one in line has the topic when this is seen."""
        killed = self._leader
        del self._proxies[killed]
        self._coordinator = None
        self._elect_at = now + self.ELECTION_NS
        return killed

    def _join(self, place: int, now: int, load: SharedLoad) -> None:
        member = FleetMember(self._settings, f"proxy-{place}", self._random.getrandbits(62) | 1, now)
        due = now + (self._random.randrange(self.cycle_ns) if now == 0 else 0)
        self._proxies[place] = _Proxy(member, now, due, load, place)

    def _lead(self, now: int) -> None:
        if self._coordinator is None and now >= self._elect_at:
            self._epoch += 1
            self._leader = min(self._proxies)
            self._coordinator = Coordinator(self._settings, f"proxy-{self._leader}", self._epoch, now)
            self._granted_at, self._soon = 0, True

    def _send(self, place: int, report: MemberReport, now: int) -> None:
        data = report.encode()
        self.published += len(data)
        if place == self._leader or self._random.random() >= self._loss:
            self._wire.send(now, partial(self._hear, data))

    def _hear(self, data: bytes) -> None:
        if self._coordinator is not None and self._coordinator.hear(MemberReport.decode(data), self._wire.now):
            self._soon = True

    def _grant(self, now: int) -> None:
        coordinator = self._coordinator
        if coordinator is None:
            return
        since = now - self._granted_at
        if since >= self.cycle_ns or (self._soon and since >= self.LEAST_BETWEEN_GRANTS_NS):
            self._granted_at, self._soon = now, False
            for grants in coordinator.grant(now):
                data = grants.encode()
                self.published += len(data)
                # Its receipt says that there was no other coordinator.
                self._wire.send(now + self._random.randint(*DELAY_NS), partial(coordinator.confirmed, now))
                read = Grants.decode(data)
                for place in self._proxies:
                    if place == self._leader or self._random.random() >= self._grant_loss:
                        self._wire.send(now, partial(self._take, place, read))

    def _take(self, place: int, grants: Grants) -> None:
        proxy = self._proxies.get(place)
        if proxy is not None:
            self._put(proxy, proxy.member.take(grants, self._wire.now))

    @staticmethod
    def _put(proxy: _Proxy, shares: Sequence[tuple[ShareKey, int, Quota | None]]) -> None:
        for _, ppm, _ in shares:
            proxy.share = ppm

    def _allowed(self, place: int, now: int, quota: int) -> float:
        proxy = self._proxies.get(place)
        if proxy is None or now >= proxy.member.lease_until:
            return 0.0
        held = proxy.member.shares().get(KEY)
        limit = quota if held is None or held.quota is None else min(quota, held.quota.tokens)
        return proxy.share * limit / WHOLE


SCHEMES: Mapping[str, Callable[[int, random.Random, float], SharingScheme]] = {
    "Pulsar's formula": PulsarFormula,
    "PIP-82's text": ProposalText,
    "Sluice": LeaseScheme,
}
"""Makers of the schemes, by name: of the number of members, chance and loss."""
