"""Events that befall a shared limit, and how well each scheme stands them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loadgen.quota_sharing.schemes import MS, SCHEMES, SECOND, SharedLoad, SharingScheme

Rates = list[float | None]
FAIR = 200
"""Messages per second of an equal part: the limit is so many for each member."""


@dataclass(frozen=True)
class OfferedParts:
    """The load offered to each member, in equal parts of the limit; None: the member is not there.

    Attributes:
        first: The first half, rounded down.
        middle: The one between, if there is one.
        second: The second half.
        last: The last one, if it differs.
    """

    first: float
    middle: float
    second: float
    last: float | Literal["as others"] | None = "as others"

    def over(self, members: int) -> Rates:
        """Return it for so many members."""
        half = members // 2
        parts: Rates = [*[self.first] * half, *[self.middle] * (members % 2), *[self.second] * half]
        return parts if self.last == "as others" else [*parts[:-1], self.last]


@dataclass(frozen=True)
class OfferedSlope:
    """An offered load that changes evenly from one part of the limit to another."""

    least: float
    most: float

    def over(self, members: int) -> Rates:
        """Return it for so many members."""
        return [self.least + (self.most - self.least) * place / (members - 1) for place in range(members)]


def _all(part: float) -> OfferedParts:
    return OfferedParts(part, part, part)


def _last(part: float | None, others: float) -> OfferedParts:
    return OfferedParts(others, others, others, part)


@dataclass(frozen=True)
class SharingEvent:
    """A change, and the load before and after it.

    Attributes:
        name: What happens.
        before: What members are offered before it.
        after: The same from the event on.
        quota: The limit before and after, in parts of the usual one.
        ends: How members that are not there any more have gone.
        wakes_ns: So long after the killing of whoever decides the last member is offered something; else None.
    """

    name: str
    before: OfferedParts | OfferedSlope
    after: OfferedParts | OfferedSlope
    quota: tuple[float, float] = (1, 1)
    ends: Literal["leaves", "is killed", "decides and is killed"] = "leaves"
    wakes_ns: int | None = None


EVENTS = (
    SharingEvent("a member joins", _last(None, 2), _all(2)),
    SharingEvent("an idle one wakes", _last(0, 2), _all(2)),
    SharingEvent("a surge of one", _all(0.75), _last(4, 0.75)),
    SharingEvent("a fall of one", _last(4, 2), _last(0.25, 2)),
    SharingEvent("halves swap", OfferedParts(4, 1.2, 0.25), OfferedParts(0.25, 1.2, 4)),
    SharingEvent("uneven, then all want alike", OfferedSlope(0.2, 1.8), _all(2)),
    SharingEvent("one leaves", _all(2), _last(None, 2)),
    SharingEvent("one is killed", _all(2), _last(None, 2), ends="is killed"),
    SharingEvent("limit to a tenth", _all(2), _all(2), quota=(1, 0.1)),
    SharingEvent("limit from a tenth to 5 times", _all(8), _all(8), quota=(0.1, 5)),
)
TAKEOVER = SharingEvent(
    "coordinator killed, one wakes",
    _last(0, 2),
    _all(2),
    ends="decides and is killed",
    wakes_ns=SECOND,
)
CONVERGING = EVENTS[:6]
"""Those whose goal is in cycles."""


@dataclass(frozen=True)
class SharingTrace:
    """The amounts that passed, step by step, from the event on.

    Attributes:
        cycle_ns: The scheme's.
        step_ns: Of the simulation.
        ideal: The max-min fair rate of each member from the event on.
        quota: The limit from the event on.
        rates: Per step, what passed each member, per second.
        disturbed: The largest part of its rate that a member lost by the killing of whoever decides.
    """

    cycle_ns: int
    step_ns: int
    ideal: list[float]
    quota: float
    rates: list[list[float]]
    disturbed: float = 0.0

    def settled_ns(self, within: float) -> int | None:
        """Return when all rates were within so much of their ideal, and stayed so for 8 cycles; None if never."""
        since = 0
        for step, rates in enumerate(self.rates):
            if any(abs(rate - ideal) > within * ideal + 1e-6 for rate, ideal in zip(rates, self.ideal, strict=True)):
                since = step + 1
            elif (step - since) * self.step_ns >= 8 * self.cycle_ns:
                return since * self.step_ns
        return None

    def cycles(self, within: float) -> float | None:
        """Return the same in cycles, begun ones counted."""
        settled = self.settled_ns(within)
        return None if settled is None else -(-settled // self.cycle_ns)

    @property
    def above(self) -> float:
        """The worst sum above the limit, in parts of it."""
        return max(0.0, max(sum(rates) for rates in self.rates) / self.quota - 1)

    def use(self, cycles: int) -> float:
        """Return what passed of what could, in the first so many cycles; or, if negative, in the last ones."""
        steps = cycles * self.cycle_ns // self.step_ns
        some = self.rates[:steps] if steps > 0 else self.rates[steps:]
        return sum(map(sum, some)) / len(some) / sum(self.ideal)

    @property
    def jain(self) -> float:
        """Jain's index of what each member got of its ideal, in the last cycle."""
        steps = self.rates[-self.cycle_ns // self.step_ns :]
        got = [sum(column) / len(steps) for column in zip(*steps, strict=True)]
        return jain([rate / ideal for rate, ideal in zip(got, self.ideal, strict=True) if ideal])


def jain(values: Sequence[float]) -> float:
    """Return Jain's index: 1 if all are alike, 1/n if one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def ideal(demands: Sequence[float | None], quota: float) -> list[float]:
    """Return the max-min fair rates, by the definition: raise all alike; who has what it wants stays there."""
    left, rates = quota, [0.0] * len(demands)
    order = sorted((demand or 0.0, place) for place, demand in enumerate(demands))
    for done, (demand, place) in enumerate(order):
        rates[place] = min(demand, left / (len(order) - done))
        left -= rates[place]
    return rates


@dataclass(frozen=True)
class TrialSetting:
    """The surroundings in which an event is tried.

    Attributes:
        members: How many there are at most.
        loss: The part of reports that is lost.
        seed: Of delays, losses and the moments at which cycles begin.
        cycles: Before the event, and after it.
        steps: In a cycle.
        streams: Of each member.
    """

    members: int
    loss: float = 0.0
    seed: int = 0
    cycles: tuple[int, int] = (40, 60)
    steps: int = 50
    streams: Sequence[int] = ()


def run(name: str, event: SharingEvent, setting: TrialSetting) -> SharingTrace:
    """Let an event happen under one of `SCHEMES`."""
    members = setting.members
    scheme = SCHEMES[name](members, _chance(f"{name} {event.name} {setting.seed}"), setting.loss)
    step = scheme.cycle_ns // setting.steps
    quotas = [round(FAIR * members * part) for part in event.quota]
    load = SharedLoad(_offered(event.before.over(members)), quotas[0], setting.streams or [1] * members)
    happens = setting.cycles[0] * scheme.cycle_ns
    steady: list[float] = []
    for now in range(0, happens, step):
        steady = load.flow(scheme.step(now, load), step)
    after = _offered(event.after.over(members))
    wakes = happens
    if event.wakes_ns is None:
        for place, (before, then) in enumerate(zip(load.offered, after, strict=True)):
            if before is not None and then is None:
                scheme.end(place, happens, leaves=event.ends == "leaves")
        load.offered = after
    else:
        wakes += event.wakes_ns
        killed = _kill(scheme, happens)
        after[killed] = load.offered[killed] = None
    load.quota = quotas[1]
    rates, lost = [], 0.0
    for now in range(happens, happens + setting.cycles[1] * scheme.cycle_ns, step):
        if now >= wakes:
            load.offered = after
        rates.append(load.flow(scheme.step(now, load), step))
        if event.wakes_ns is not None and now < wakes:
            kept = [then / before for before, then in zip(steady, rates[-1], strict=True) if before]
            lost = max(lost, 1 - sorted(kept)[1])  # the first one is the killed one's
    return SharingTrace(scheme.cycle_ns, step, ideal(after, quotas[1]), quotas[1], rates, lost)


def _chance(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a simulation is to be repeated


def _kill(scheme: SharingScheme, now: int) -> int:
    killed = scheme.kill_leader(now)
    if killed is None:
        killed = 0
        scheme.end(killed, now, leaves=False)
    return killed


def _offered(parts: Rates) -> Rates:
    return [None if part is None else part * FAIR for part in parts]


@dataclass(frozen=True)
class SharingOutcome:
    """The worst of several seeds.

    Attributes:
        settled: Cycles until all are within 10 % and within 5 %; None: never.
        settled_s: Seconds until all are within 10 %.
        above: The worst sum above the limit, in parts of it.
        used: Of what could pass, the part that did: in the first 20 cycles, and in the last 20.
        jain: Over the members.
        disturbed: See `SharingTrace`.
    """

    settled: tuple[float | None, float | None]
    settled_s: float | None
    above: float
    used: tuple[float, float]
    jain: float
    disturbed: float


def worst(traces: Sequence[SharingTrace]) -> SharingOutcome:
    """Return the worst of each figure."""

    def most(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return max(known) if len(known) == len(values) else None

    settled = most([trace.settled_ns(0.1) for trace in traces])
    return SharingOutcome(
        (most([trace.cycles(0.1) for trace in traces]), most([trace.cycles(0.05) for trace in traces])),
        None if settled is None else settled / SECOND,
        max(trace.above for trace in traces),
        (min(trace.use(20) for trace in traces), min(trace.use(-20) for trace in traces)),
        min(trace.jain for trace in traces),
        max(trace.disturbed for trace in traces),
    )


def tried(name: str, event: SharingEvent, setting: TrialSetting, seeds: int) -> SharingOutcome:
    """Let an event happen so often, by other seeds; return the worst of it."""
    return worst([run(name, event, TrialSetting(**{**setting.__dict__, "seed": seed})) for seed in range(seeds)])


def streams_jain(name: str, members: int, loss: float = 0.0) -> float:
    """Return Jain's index over all streams of members that have 1, 2, 3, … of them, all of which want more."""
    streams = [1 + place % 5 for place in range(members)]
    steady = SharingEvent("streams", _all(2.0 * 5), _all(2.0 * 5))
    trace = run(name, steady, TrialSetting(members, loss, streams=streams, cycles=(40, 20)))
    last = trace.rates[-1]
    return jain([rate / own for rate, own in zip(last, streams, strict=True) for _ in range(own)])


def whole_messages(name: str, rate: int, members: int, seconds: int, seed: int = 0) -> int:
    """Count the messages that pass in so many seconds where a low limit is shared and each member wants all of it.

    Each member has a bucket of whole messages: it earns its share, has room for its part of a second's burst and for
    one message, and begins with one.
    """
    scheme = SCHEMES[name](members, _chance(f"{name} {seed}"), 0.0)
    load = SharedLoad([10.0 * rate] * members, rate, [1] * members)
    step = 10 * MS
    begins = 40 * scheme.cycle_ns
    balances, passed = [1.0] * members, 0
    for now in range(0, begins, scheme.cycle_ns // 50):
        load.flow(scheme.step(now, load), scheme.cycle_ns // 50)
    for now in range(begins, begins + seconds * SECOND, step):
        allowed = scheme.step(now, load)
        for place, share in enumerate(allowed):
            balances[place] = min(balances[place] + share * step / SECOND, share + 1)
            if balances[place] >= 1:
                balances[place] -= 1
                passed += 1
        load.flow(allowed, step)
    return passed
