"""What happens to fleets, with a real cluster behind them and clients that ask for more than they may have.

Each scene is a row of a table: it plays what its name says, reads what the brokers took, and gives figures that have
their goals. Which of them hold is told by `harness.missed`.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Figure, Goal, Row, Sample
from tests.real.broker_record import WINDOW_S, Entry, Held, Step, rate_in, seconds_until
from tests.real.cluster_proxy import LOOKED_UP_AT, put
from tests.real.fleet_front import NAMES, Front, Load, Record, Traffic
from tests.real.pulsar_cluster import PulsarCluster
from tests.real.relay import Direction, Relay
from tests.real.sluice_process import start_sluice

FIRST_S = 5.0
"""Twenty cycles: so long after an event a little less may pass."""
SETTLED_S = 1.0
LEASE_S = 2.0
FLOOR = 0.05
"""Of its equal part a member keeps so much that hears nothing any more."""
SUBJECT = "fleet"

Play = Callable[[Front, Traffic, float], Sample]
"""Plays a scene with members that run, and the limit of its tenant in messages per second; returns its figures."""

EXCESS = Figure("excess", "most above burst + rate · t + 4 entries, in any interval", "", 1, (Goal("≤", 0),))
RAW = Figure("raw", "the same if no entry was taken later than it was passed", "", 1)
LATE = Figure("late", "longest standstill of machine and brokers", " ms")
FIRST = Figure("first", "least of the limit used in the 5 s after an event", " %", 1, (Goal("≥", 97),))
STEADY = Figure("steady", "least of the limit used after that", " %", 1, (Goal("≥", 99),))
JUDGED = Figure("violated", "violations that `sluice report` finds in all members' logs", "", 0, (Goal("≤", 0),))
KEPT = Figure("kept", "others' shares used meanwhile", " %", 1, (Goal("≥", 97),))


@dataclass(frozen=True)
class Scene:
    """A row: its name is its tenant's, too.

    Attributes:
        name: For the command line.
        load: What is done, for the table.
        limit: Of its tenant.
        figures: What is read beside the bound.
        play: Does it.
        brokers: Where its loads are.
        members: Who runs before it begins.
    """

    name: str
    load: str
    limit: str
    figures: tuple[Figure, ...]
    play: Play
    brokers: tuple[int, ...] = (0, 1)
    members: tuple[str, ...] = NAMES

    def row(self, *more: Figure) -> Row[Play]:
        """Return the row of the table, with more figures than the scene itself finds."""
        return Row(self.name, self.load, (EXCESS, RAW, *more, *self.figures, LATE), self.play, (SUBJECT,))

    def measure(self, front: Front) -> Sample:
        """Play it with a front that has its limit, and as many members as are missing."""
        if self.members:
            front.ensure(*self.members)
        return self.play(front, Traffic(front.cluster, self.name, self.brokers), per_second(self.limit))

    def alone(self, cluster: PulsarCluster, folder: Path) -> Sample:
        """Play it with a front of its own."""
        front = Front(cluster, folder, self.name, {self.name: self.limit})
        try:
            return self.measure(front)
        finally:
            front.close()


def judge(folder: Path, fleets: Collection[str]) -> dict[str, float]:
    """Return how many limits each fleet has violated, as `sluice report` says of all members' logs below a folder."""
    logs = folder / "logs"
    logs.mkdir()
    for log in folder.glob("**/access-log/*.jsonl*"):
        shutil.copy(log, logs)
    command = [sys.executable, "-m", "sluice", "report", "--access-log", str(logs), "--out", str(folder / "report")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    sums = json.loads((folder / "report" / "report.json").read_bytes())["fleets"]["sums"]
    by_fleet = {fleet: [limit["verdict"] for limit in sums if limit["fleet"] == fleet] for fleet in fleets}
    return {fleet: float(verdicts.count("violated")) for fleet, verdicts in by_fleet.items() if verdicts}


def per_second(limit: str) -> float:
    count, _, unit = limit.partition("/")
    return float(count) / {"s": 1, "min": 60}[unit]


# ---- What all scenes have


def _found(held: Held, record: Record) -> dict[str, float]:
    return {
        "excess": held.worst_excess(record.entries, record.lateness),
        "since": held.excess_since(record.began, record.entries),
        "raw": held.worst_excess(record.entries),
        "late": 1000 * record.lateness.worst,
    }


def _used(record: Record, entries: Sequence[Entry], begin: float, seconds: float, rate: float) -> float:
    """Percent of a rate that passed in a time; what standstills cost of it is made good, up to the whole."""
    passed = rate_in(entries, begin, seconds) * seconds
    running = seconds - record.lateness.lost_s(begin, begin + seconds)
    return 100 * max(passed / (rate * seconds), min(1.0, passed / (rate * max(running, 0.001))))


def _loaded(front: Front, traffic: Traffic, names: Sequence[str] = NAMES, pending: int = 300) -> list[Load]:
    """Load these members, and return when the whole limit is shared among them, and all is steady."""
    loads = [traffic.load(front, name, pending) for name in names]
    front.wait_shared(traffic.tenant, names)
    time.sleep(SETTLED_S)
    return loads


def _at_events(record: Record, events: Sequence[float], step_s: float, rate: float) -> dict[str, float]:
    """The least that passed soon after any event, and in what is left of the time to the next one."""
    first_s = min(FIRST_S, step_s)
    figures = {"first": min(_used(record, record.entries, at, first_s, rate) for at in events)}
    if step_s > first_s:
        steady = [_used(record, record.entries, at + first_s, step_s - first_s, rate) for at in events]
        figures["steady"] = min(steady)
    return figures


# ---- Scenes


def _joining(step_s: float, *, starts: bool) -> Play:
    """Streams come to one member after the other; or the members themselves do."""

    def play(front: Front, traffic: Traffic, rate: float) -> Sample:
        joined = []
        with traffic.probing(front):
            _loaded(front, traffic, NAMES[:1])
            for name in NAMES[1:]:
                if starts:
                    front.start(name)
                joined.append(traffic.load(front, name).began)
                time.sleep(step_s)
        record = traffic.record()
        equal = [
            seconds_until(record.of(name), at, 0.9 * rate / (number + 2), 0.25)
            for number, (name, at) in enumerate(zip(NAMES[1:], joined, strict=True))
        ]
        sample = _found(Held.always(rate, len(NAMES)), record)
        return {**sample, **_at_events(record, joined, step_s, rate), "equal": 1000 * max(equal)}

    return play


EQUAL = Figure("equal", "until a newcomer passes 90 % of an equal share", " ms", 0, (Goal("≤", 750),))


def _rotate(front: Front, traffic: Traffic, rate: float) -> Sample:
    step_s, moved = 6.0, []
    with traffic.probing(front):
        (load,) = _loaded(front, traffic, NAMES[:1])
        for name in (*NAMES[1:], NAMES[0]):
            following = traffic.load(front, name)
            traffic.close(load)
            moved.append(following.began)
            load = following
            time.sleep(step_s)
    record = traffic.record()
    return {**_found(Held.always(rate, len(NAMES)), record), **_at_events(record, moved, step_s, rate)}


RECLAIMED = Figure("reclaimed", "until others pass what it had", " s", 2, (Goal("≤", 2.5),))


def _stopping(seconds: float) -> Play:
    def play(front: Front, traffic: Traffic, rate: float) -> Sample:
        with traffic.probing(front):
            _loaded(front, traffic)
            stopped = front.others()[0]
            others = [name for name in NAMES if name != stopped]
            at = front.signal(stopped, signal.SIGSTOP)
            time.sleep(seconds)
            again = front.signal(stopped, signal.SIGCONT)
            time.sleep(FIRST_S + 3)
        record = traffic.record()
        rest, kept = record.of(*others), rate * len(others) / len(NAMES)
        sample = {
            **_found(Held.always(rate, len(NAMES)), record),
            "kept": _used(record, rest, at, min(seconds, LEASE_S), kept),
            **_at_events(record, [again], FIRST_S + 2.5, rate),
        }
        if seconds > LEASE_S:
            sample["reclaimed"] = seconds_until(rest, at, 0.95 * rate)
        if seconds > FIRST_S + LEASE_S:
            sample["without"] = _used(record, rest, at + LEASE_S + 0.5, seconds - LEASE_S - 0.5, rate)
        return sample

    return play


WITHOUT = Figure("without", "of the limit used by the others until it goes on", " %", 1, (Goal("≥", 99),))
SERVED = Figure("served", "until its share is the others', the longest", " s", 2, (Goal("≤", 5),))


def _coordinators(step_s: float) -> Play:
    """Kill the coordinator, and then the one that follows."""

    def play(front: Front, traffic: Traffic, rate: float) -> Sample:
        killed: list[tuple[str, float]] = []
        with traffic.probing(front):
            loads = dict(zip(NAMES, _loaded(front, traffic), strict=True))
            for _ in range(2):
                coordinator = front.coordinator()
                killed.append((coordinator, front.kill(coordinator)))
                traffic.close(loads[coordinator], patience_s=0)
                time.sleep(step_s)
        record = traffic.record()
        left, served, kept, steady = list(NAMES), [], [], []
        for name, at in killed:
            before = len(left)
            left.remove(name)
            rest = record.of(*left)
            served.append(seconds_until(rest, at, 0.95 * rate))
            kept.append(_used(record, rest, at, LEASE_S, rate * len(left) / before))
            again = served[-1] + WINDOW_S  # a little less is passed before that, by what `served` means
            steady.append(_used(record, rest, at + again, step_s - again, rate))
        sample = _found(Held.always(rate, len(NAMES)), record)
        return {**sample, "served": max(served), "kept": min(kept), "steady": min(steady)}

    return play


def _in_turn(front: Front, traffic: Traffic, rate: float) -> Sample:
    """Streams come to one member after the other; then a member is stopped for longer than its lease, and goes on; then
    the coordinator is killed."""
    members, step_s, stopped_s, left_s = NAMES[:3], 2.5, LEASE_S + 1, 6.5
    with traffic.probing(front):
        loads = dict(zip(members, _loaded(front, traffic, members[:1]), strict=False))
        for name in members[1:]:
            loads[name] = traffic.load(front, name)
            time.sleep(step_s)
        stopped = front.others()[0]
        stopped_at = front.signal(stopped, signal.SIGSTOP)
        time.sleep(stopped_s)
        again = front.signal(stopped, signal.SIGCONT)
        time.sleep(step_s)
        coordinator = front.coordinator()
        killed_at = front.kill(coordinator)
        traffic.close(loads[coordinator], patience_s=0)
        time.sleep(left_s)
    record = traffic.record()
    beside = record.of(*[name for name in members if name != stopped])
    left = record.of(*[name for name in members if name != coordinator])
    served = seconds_until(left, killed_at, 0.95 * rate)
    return {
        **_found(Held.always(rate, len(members)), record),
        **_at_events(record, [loads[name].began for name in members[1:]] + [again], step_s, rate),
        "kept": _used(record, beside, stopped_at, LEASE_S, rate * (len(members) - 1) / len(members)),
        "reclaimed": seconds_until(beside, stopped_at, 0.95 * rate),
        "served": served,
        "steady": _used(record, left, killed_at + served + WINDOW_S, left_s - served - WINDOW_S, rate),
    }


GIVEN_UP = Figure("reclaimed", "until others pass what it had", " s", 2, (Goal("≤", 4.5),))
"""A member that hears nothing reports until its lease ends, and its coordinator waits for a lease after that."""
SETTLED = Figure("settled", "all follow one coordinator then", "", 0, (Goal("≥", 1),))
AGAIN = Figure("again", "until the whole limit is used again", " s", 2)


def _coordinator_stopped(front: Front, traffic: Traffic, rate: float) -> Sample:
    """Another one takes over, after its silence; and it goes on in the middle of that one's time."""
    with traffic.probing(front):
        _loaded(front, traffic)
        stopped = front.coordinator()
        others = [name for name in NAMES if name != stopped]
        at = front.signal(stopped, signal.SIGSTOP)
        time.sleep(14)
        front.signal(stopped, signal.SIGCONT)
        time.sleep(8)
    record = traffic.record()
    sample = _found(_cut_off(rate, at, len(NAMES)), record)
    return {**sample, "again": seconds_until(record.of(*others), at, 0.95 * rate)}


def _cut_off(rate: float, at: float, members: int) -> Held:
    """What may pass when so many members of all hear nothing any more: each `floor` of its equal part besides."""
    return Held([Step(0.0, rate), Step(at, rate * (1 + FLOOR * members / len(NAMES)))], len(NAMES))


def _broker_killed(front: Front, traffic: Traffic, rate: float) -> Sample:
    """That of the fleet's topics. Members are refused and keep their equal shares, all of which are the limit."""
    killed = 1 - LOOKED_UP_AT
    for topic in (front.grants, front.reports):
        put(front.cluster, topic, killed)
    with traffic.probing(front):
        _loaded(front, traffic)
        at = time.time()
        front.cluster.brokers[killed].kill()
        time.sleep(20)
    record = traffic.record()
    return {
        **_found(Held.always(rate, len(NAMES)), record),
        "kept": _used(record, record.entries, at, 20, rate),
        "settled": float(front.is_settled(len(NAMES))),
    }


def _unloaded(front: Front, traffic: Traffic, rate: float) -> Sample:
    """The bundles of the fleet's topics go to the other broker, and come back."""
    moved = []
    with traffic.probing(front):
        _loaded(front, traffic)
        for topic in (front.grants, front.reports, front.grants):
            moved.append(time.time())
            front.cluster.unload(topic, to=1 - front.cluster.owner_of(topic))
            time.sleep(max(0.0, moved[-1] + FIRST_S + 3 - time.time()))
    record = traffic.record()
    sample = _found(Held.always(rate, len(NAMES)), record)
    return {**sample, **_at_events(record, moved, FIRST_S + 3, rate)}


def _one_way(direction: Direction, *, of_coordinator: bool) -> Play:
    """Members reach brokers through a relay each, which leads to a Sluice without limits: all goes through it so."""

    def play(front: Front, traffic: Traffic, rate: float) -> Sample:
        brokers = [broker.address for broker in front.cluster.brokers]
        where = front.cluster.brokers[LOOKED_UP_AT].service_url
        plain = start_sluice(front.folder / "plain", where, {"proxy_id": "plain", "allowed_brokers": brokers})
        with contextlib.ExitStack() as relays:
            relays.callback(front.close)
            marks = [topic.encode() for topic in (front.grants, front.reports)]
            between = {name: relays.enter_context(Relay(plain.service_url, *marks)) for name in NAMES}
            for name in NAMES:
                front.start(name, between[name].url)
            front.ensure()
            with traffic.probing(front):
                _loaded(front, traffic)
                cut = front.coordinator() if of_coordinator else front.others()[0]
                others = [name for name in NAMES if name != cut]
                at = time.time()
                between[cut].keep_back(direction)
                time.sleep(14)
                between[cut].let_go()
                let_go = time.time()
                time.sleep(8)
        plain.stop()
        record = traffic.record()
        sample = _found(_cut_off(rate, at, len(NAMES) if of_coordinator else 1), record)
        rest = record.of(*others)
        sample["first"] = _used(record, record.entries, let_go, FIRST_S, rate)
        if of_coordinator:
            return {**sample, "again": seconds_until(rest, at, 0.95 * rate)}
        sample["kept"] = _used(record, rest, at, LEASE_S, rate * len(others) / len(NAMES))
        return {**sample, "reclaimed": seconds_until(rest, at, 0.95 * rate)}

    return play


AWAY_S = 1.2
"""A member that ends by itself stays away for so long. Else it has its share before others are seen to have it."""


def _restart(front: Front, traffic: Traffic, rate: float) -> Sample:
    """One member comes and goes under the same name, by turns killed and told to end. It does not coordinate."""
    left: list[float] = []
    with traffic.probing(front):
        loads = dict(zip(NAMES, _loaded(front, traffic), strict=True))
        began, again = time.time(), front.others()[-1]
        load = loads[again]
        for turn in range(20):
            left.append(front.leave(again) if turn % 2 else front.kill(again))
            traffic.close(load, patience_s=0)
            if turn % 2:
                time.sleep(AWAY_S)
            front.start(again)
            load = traffic.load(front, again)
            time.sleep(1)
        ended = time.time()
        time.sleep(FIRST_S + 3)
    record = traffic.record()
    rest = record.of(*[name for name in NAMES if name != again])
    return {
        **_found(Held.always(rate, len(NAMES)), record),
        "kept": _used(record, rest, began, ended - began, rate * 3 / 4),
        "left": max(seconds_until(rest, at, 0.95 * rate) for at in left[1::2]),
        **_at_events(record, [ended], FIRST_S + 2.5, rate),
    }


LEFT = Figure("left", "until others pass what a member had that ends by itself", " s", 2, (Goal("≤", 0.5),))


def _reconfigure(front: Front, traffic: Traffic, rate: float) -> Sample:
    """All members' files are changed and reloaded, one after the other, twice within 2 s."""
    steps = [Step(0.0, rate)]
    with traffic.probing(front):
        _loaded(front, traffic, pending=1000)
        for limit in (rate / 10, rate * 5):
            for name in NAMES:
                asked = time.time()  # a member may see by itself that its file has changed
                front.write(name, {traffic.tenant: f"{limit:g}/s"})
                front.members[name].send("POST", "/sluice/reload")
            # A lower one holds when the last member has it, a higher one as soon as the last one may have it.
            steps.append(Step(time.time() if limit < rate else asked, limit))
            time.sleep(1.5 if limit < rate else FIRST_S + 3)
    record = traffic.record()
    sample = _found(Held(steps, len(NAMES)), record)
    low, high = steps[1].since, steps[2].since
    return {
        **sample,
        "low": _used(record, record.entries, low, high - low, rate / 10),
        **_at_events(record, [high], FIRST_S + 2.5, rate * 5),
    }


LOW = Figure("low", "of the lowest limit used while it held", " %", 1, (Goal("≥", 97),))


COMPARED_S = 1.5
"""After a reload, at most, until what differs is known to all."""


def _disagreeing(front: Front, traffic: Traffic, rate: float) -> Sample:
    """One member's file has a tenth of the limit, then another one's has none; then the first has the whole again."""

    def reload(name: str, limits: dict[str, str]) -> float:
        alike, asked = front.limits, time.time()
        front.write(name, limits)
        front.members[name].send("POST", "/sluice/reload")
        front.limits = alike
        return asked

    with traffic.probing(front):
        _loaded(front, traffic, pending=1000)
        low = reload(NAMES[1], {traffic.tenant: f"{rate / 10:g}/s"}) + COMPARED_S
        time.sleep(FIRST_S)
        lacking = reload(NAMES[2], {})
        time.sleep(FIRST_S)
        named = [len(front.said(name)["rules"]["differing"]) for name in NAMES]
        whole = reload(NAMES[1], front.limits)
        time.sleep(FIRST_S + 3)
    record = traffic.record()
    return {
        **_found(Held([Step(0.0, rate), Step(low, rate / 10), Step(whole, rate)], len(NAMES)), record),
        "low": _used(record, record.entries, low, whole - low, rate / 10),
        "named": float(min(named)),
        "again": seconds_until(record.entries, whole, 0.95 * rate),
        "lacking": _used(record, record.of(NAMES[2]), lacking, whole - lacking, rate / 10 / len(NAMES)),
        "steady": _used(record, record.entries, whole + FIRST_S, 2.5, rate),
    }


NAMED = Figure("named", "values of the limit that a member names, at least", "", 0, (Goal("≥", 2),))
LACKING = Figure(
    "lacking", "of an equal share passed by the member whose file has no limit", " %", 1, (Goal("≤", 110),)
)


def _slow(seconds: float) -> Play:
    """So little that most cycles pass nothing. Each of four members has a quarter: of 1/min an entry each 4 minutes."""

    def play(front: Front, traffic: Traffic, rate: float) -> Sample:
        with traffic.probing(front):
            for name in NAMES:
                traffic.load(front, name, pending=2)
            time.sleep(2 * LEASE_S + 2)  # by then a new coordinator divides the whole
            began = time.time()
            time.sleep(seconds)
            ended = time.time()
            front.close()  # before its clients, whose farewells would wait behind what is held
        record = traffic.record()
        counted = sum(began <= entry.at < ended for entry in record.entries)
        sample = _found(Held.always(rate, len(NAMES)), record)
        return {**sample, "passed": 100 * counted / (rate * (ended - began))}

    return play


PASSED = Figure("passed", "of the limit used", " %", 1, (Goal("≥", 97),))


# ---- All of them

_ONE_WAY: tuple[tuple[str, str, Direction, str], ...] = (
    ("member", "deaf", "from broker", "a member hears nothing for 14 s"),
    ("member", "mute", "to broker", "a member is not heard for 14 s"),
    ("coordinator", "deaf", "from broker", "the coordinator hears nothing for 14 s"),
    ("coordinator", "mute", "to broker", "the coordinator is not heard for 14 s"),
)

IN_EVERY_RUN = Scene(
    "in-turn",
    "100/s: streams come to members, one is stopped for 3 s, the coordinator is killed",
    "100/s",
    (FIRST, KEPT, RECLAIMED, SERVED, STEADY),
    _in_turn,
    members=NAMES[:3],
)
"""What belongs to `make test`."""

SCENES = (
    Scene(
        "joins",
        "400/s: streams come to the second, third and fourth member",
        "400/s",
        (FIRST, EQUAL),
        _joining(3, starts=False),
    ),
    Scene(
        "stopped-3s",
        "400/s: a member is stopped for 3 s (SIGSTOP), and goes on",
        "400/s",
        (RECLAIMED, KEPT, FIRST, STEADY),
        _stopping(3),
    ),
    Scene(
        "coordinators",
        "400/s: the coordinator is killed (SIGKILL), and 6.5 s later the one that followed",
        "400/s",
        (SERVED, KEPT, STEADY),
        _coordinators(6.5),
    ),
    Scene(
        "starts",
        "1000/s: second, third and fourth member start",
        "1000/s",
        (FIRST, STEADY, EQUAL),
        _joining(7, starts=True),
        members=NAMES[:1],
    ),
    Scene("rotates", "1000/s: the one stream moves from member to member", "1000/s", (FIRST, STEADY), _rotate),
    Scene("stopped-1s", "1000/s: a member is stopped for 1 s", "1000/s", (KEPT, FIRST, STEADY), _stopping(1)),
    Scene(
        "stopped-90s",
        "1000/s: a member is stopped for 90 s",
        "1000/s",
        (RECLAIMED, KEPT, WITHOUT, FIRST, STEADY),
        _stopping(90),
    ),
    Scene(
        "coordinator-stopped",
        "1000/s: the coordinator is stopped for 14 s",
        "1000/s",
        (AGAIN,),
        _coordinator_stopped,
    ),
    Scene(
        "broker-killed",
        "1000/s: the broker of the fleet's topics is killed",
        "1000/s",
        (Figure("kept", "of the limit used in the 20 s after that", " %", 1, (Goal("≥", 97),)), SETTLED),
        _broker_killed,
        brokers=(LOOKED_UP_AT,),
    ),
    Scene("unloaded", "1000/s: the fleet's topics are unloaded", "1000/s", (FIRST, STEADY), _unloaded),
    *(
        Scene(
            f"{role}-{fault}",
            f"1000/s: {text}",
            "1000/s",
            (AGAIN,) if role == "coordinator" else (GIVEN_UP, KEPT, FIRST),
            _one_way(direction, of_coordinator=role == "coordinator"),
            members=(),
        )
        for role, fault, direction, text in _ONE_WAY
    ),
    Scene(
        "restarts",
        "1000/s: a member is restarted 20 times under the same name",
        "1000/s",
        (KEPT, LEFT, FIRST, STEADY),
        _restart,
    ),
    Scene(
        "reconfigured",
        "1000/s, then 100/s for 1.5 s, then 5000/s, by reloading all files",
        "1000/s",
        (LOW, FIRST, STEADY),
        _reconfigure,
    ),
    Scene(
        "disagreeing",
        "1000/s: one member's file has a tenth of it, another one's has no limit",
        "1000/s",
        (
            LOW,
            NAMED,
            LACKING,
            Figure("again", "until the whole limit is used again", " s", 2, (Goal("≤", 2.5),)),
            STEADY,
        ),
        _disagreeing,
    ),
    Scene("three-a-second", "3/s over four members, 40 s", "3/s", (PASSED,), _slow(40)),
    Scene("one-a-minute", "1/min over four members, 8 min", "1/min", (PASSED,), _slow(480)),
)
"""All that there are; each wants a front of its own."""
