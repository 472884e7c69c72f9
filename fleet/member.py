"""A member of a fleet: reports what its limiters want, and holds the shares that it was granted."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from fleet.messages import (
    MOST_LIMITERS,
    MOST_NAME,
    Demand,
    Grant,
    Grants,
    Introduction,
    LimitShare,
    MemberReport,
    Quota,
    ShareKey,
    ToldDemand,
)
from fleet.shares import UNBOUNDED, WHOLE

FOREVER = (1 << 63) - 1
"""The end of a lease that has none: that of a member that is cut off."""

FLOOR = WHOLE // 20
"""What `isolated: floor` leaves of a share."""

REFRESH_CYCLES = 8
"""Small changes of demand are told each so many cycles."""

MOST_BYTES = 900_000
"""A report is filled up to about so many bytes; the rest follows in the next ones."""

MOST_SENT = 4096
"""Reports whose sending time is remembered until an answer comes."""


@dataclass(frozen=True)
class FleetSettings:
    """What all members of a fleet have in common, by their configuration.

    Attributes:
        fleet: The fleet's name.
        cycle_ns: Between two reports, and between two grants, when nothing urgent is to be told.
        lease_ns: So long after the sending of a report that was answered a member may use its shares.
        isolated: What a member may use while it cannot reach a coordinator: of the lesser of its last share and an
            equal part, all (`fair`), a twentieth (`floor`) or nothing (`none`). `auto` is `fair` where connections are
            refused, since then others are, too; and `floor` where nothing is heard.
        weight: What counts where a limit is scarce: the waiting `streams` of a member, or one for each `proxy`.
        expected: The members that there should be, if that is known beforehand; else 0.
    """

    fleet: str
    cycle_ns: int = 250_000_000
    lease_ns: int = 2_000_000_000
    isolated: Literal["auto", "fair", "floor", "none"] = "auto"
    weight: Literal["streams", "proxy"] = "streams"
    expected: int = 0


class _Held:
    """One unit of one limiter, as this member knows it.

    Attributes:
        ppm: The share in force; after the lease's end the last one.
        held: The lower limit that another member has.
        latest: The demand now.
        told: The demand last put into a report.
        since: The first report in which it has its number. Grants that answer earlier ones are not of this limiter.
        introduced: The coordinator knows the number, and the limit of `latest`.
        is_granted: A coordinator has granted `ppm`, or an earlier share; else it says nothing.
    """

    __slots__ = ("held", "id", "introduced", "is_granted", "key", "latest", "ppm", "since", "told")

    def __init__(self, id_: int, key: ShareKey, demand: Demand) -> None:
        self.id = id_
        self.key = key
        self.latest = self.told = demand
        self.ppm = 0
        self.held: Quota | None = None
        self.since = 0
        self.introduced = False
        self.is_granted = False


class FleetMember:
    """The member's side: demands in, reports out; grants in, shares out.

    The caller puts shares in force as soon as it is given them, and only then renews the lease of its buckets with
    `lease_until`. Time is that of this process' monotonic clock. A rate that is wrong by half a percent is allowed for.

    A lease ends `lease_ns` after *the sending* of the latest report that was answered: the coordinator counts from the
    moment at which it received that report, which is later, so it never gives a share away that is still in use,
    however late its answer arrives. After the end of the lease all shares are void. The member follows nobody then,
    until it hears of a coordinator, and introduces itself anew, in a new session.

    Args:
        settings: Those of the fleet.
        name: For people.
        incarnation: A random number of this run, above 0.
        now: Nanoseconds of a monotonic clock, as everywhere below.

    Attributes:
        lease_until: When the lease ends, ended, or `FOREVER` while isolated. It is put *back* when the coordinator is
            reached again.
        epoch: The coordinator that is followed; 0 if none.
        epoch_heard: The greatest epoch heard of. A process that becomes coordinator takes a greater one.
        coordinator: Its name.
        members: How many the fleet had when last heard.
        answered_at: When a report was last answered.
        isolated: Isolated shares are in force.
        urgent: Something is to be told at once: a new session, shares to acknowledge, the rest of a long report.
        refused: Messages, and parts of them, that were not taken, by cause.
    """

    def __init__(self, settings: FleetSettings, name: str, incarnation: int, now: int) -> None:
        self.settings = settings
        self.name = name
        self.incarnation = incarnation
        self.lease_until = now
        self.epoch = 0
        self.epoch_heard = 0
        self.coordinator = ""
        self.members = 0
        self.answered_at = now
        self.isolated = False
        self.urgent = True
        self.refused: Counter[str] = Counter()
        self._held: dict[ShareKey, _Held] = {}
        self._by_id: list[_Held | None] = []
        self._free: list[int] = []
        self._pending: dict[int, int] = {}  # by number: the report that told it last, 0 if none did
        self._gone: dict[int, int] = {}  # likewise
        self._drifted: set[int] = set()  # changed too little to be told at once
        self._sent: dict[int, tuple[int, bool]] = {}  # by sequence: when, and whether all shares in force were known
        self._sequence = 0
        self._since = 1
        self._seen = 0
        self._answered = 0
        self._cycles = 0
        self._followed_at = now
        self._leased = False
        self._void = False  # the lease has ended, and `ppm` are the last shares
        self._alone = 0  # while isolated: the share of a limit that none was granted of
        self._unshared: dict[_Held, None] = {}  # while isolated: whose shares are not in force yet

    def report(self, changed: Mapping[ShareKey, Demand], gone: Iterable[ShareKey], now: int) -> MemberReport:
        """Return the report to send now, once a cycle or when something is urgent.

        Args:
            changed: The demands that may have changed since the last call. Those that differ by more than a tenth are
                told now, others each eighth time.
            gone: Limiters that this process has no more.
            now: The time of sending.
        """
        self._end_lease(now)
        for key in gone:
            self._forget(key)
        for key, demand in changed.items():
            self._note(key, demand)
        self._cycles += 1
        if self._cycles % REFRESH_CYCLES == 0:
            for id_ in self._drifted:
                self._pending[id_] = 0
            self._drifted.clear()
        self._sequence += 1
        report = MemberReport(
            self.settings.fleet,
            "" if self._seen else self.name,
            self.incarnation,
            self._sequence,
            self._since,
            self.epoch,
            self._seen,
        )
        complete = self.epoch != 0 and self._fill(report)
        self.urgent = self.epoch != 0 and not complete
        if len(self._sent) == MOST_SENT:
            del self._sent[next(iter(self._sent))]
        self._sent[self._sequence] = now, complete
        return report

    def take(self, grants: Grants, now: int) -> list[LimitShare]:
        """Take what concerns this member; return the shares that are to be put in force now."""
        self._end_lease(now)
        if grants.fleet != self.settings.fleet:
            self.refused["fleet"] += 1
            return []
        if self.epoch == 0 and now > max(self.answered_at, self.lease_until) + 2 * self.settings.lease_ns:
            self.epoch_heard = 0  # a clock that was wrong made it; nobody has shares of that time
        if grants.epoch < self.epoch_heard:
            self.refused["epoch"] += 1
            return []
        shares: list[LimitShare] = []
        if grants.epoch != self.epoch:
            shares = self._void_shares()
            self.epoch = self.epoch_heard = grants.epoch
            self._followed_at = now
            self._begin_session()
        self.coordinator, self.members = grants.coordinator, grants.members
        for grant in grants.grants:
            if grant.incarnation == self.incarnation:
                shares += self._take_one(grant, now)
        return shares

    def cut_off(self, now: int, *, refused: bool) -> list[LimitShare]:
        """Return the shares to put in force without a lease, if it has ended, or none came for so long.

        Each is the `isolated` part of the lesser of the last share and an equal part; of a limit that no coordinator
        has granted a share of yet, of an equal part. Where nobody knows how many members there are, `fair` is no more
        than `floor` is. Once isolated, a member is given the shares of limiters that came since the last call.

        Args:
            now: The time.
            refused: Connections are refused at once, rather than nothing being heard.
        """
        self._end_lease(now)
        if not self.isolated:
            unanswered = now - max(self._followed_at, self.answered_at) >= self.settings.lease_ns
            if not self._void and (self._leased or not unanswered):
                return []
            kind = self.settings.isolated
            if kind == "auto":
                kind = "fair" if refused else "floor"
            known = self.members or self.settings.expected
            part = {"fair": WHOLE if known else FLOOR, "floor": FLOOR, "none": 0}[kind]
            self._alone = WHOLE // max(1, known) * part // WHOLE
            for held in self._held.values():
                held.ppm = min(held.ppm * part // WHOLE, self._alone) if held.is_granted else self._alone
            self._unshared = dict.fromkeys(self._held.values())
            self._void, self._leased, self.isolated, self.lease_until = False, True, True, FOREVER
        unshared, self._unshared = self._unshared, {}
        return [LimitShare(held.key, held.ppm, held.held) for held in unshared]

    def leave(self, now: int) -> MemberReport:
        """Return the last report. All shares are void: the caller has put them to 0 before it sends this."""
        report = self.report({}, (), now)
        report.leaving = True
        report.introductions, report.told, report.gone = [], [], []
        for held in self._held.values():
            held.ppm = 0
        self.lease_until, self.isolated, self.urgent = min(self.lease_until, now), False, False
        self._leased = self._void = False
        self._since = self._sequence + 1  # no grant that is under way is taken any more
        self._seen = 0
        return report

    @property
    def limits(self) -> int:
        """The number of units of limits that have a share in force, or had."""
        return len(self._held)

    def shares(self) -> dict[ShareKey, LimitShare]:
        """Return the shares in force, or the last ones."""
        return {key: LimitShare(key, held.ppm, held.held) for key, held in self._held.items()}

    def _end_lease(self, now: int) -> None:
        if self._leased and now >= self.lease_until:
            self._leased = False
            self._void = True
            self.epoch = 0
            self._begin_session()
        unanswered = now - max(self._followed_at, self.answered_at) >= self.settings.lease_ns
        if self.epoch and unanswered and (self.isolated or not self._leased):
            self.epoch = 0  # the coordinator has gone, too: introductions are for one that is heard of
            self._begin_session()

    def _void_shares(self) -> list[LimitShare]:
        """Put the shares to 0 for which there is no lease any more."""
        if not self._void:
            return []
        self._void = False
        lost = [held for held in self._held.values() if held.ppm]
        for held in lost:
            held.ppm = 0
        return [LimitShare(held.key, 0, held.held) for held in lost]

    def _begin_session(self) -> None:
        self._since = self._sequence + 1
        self._seen = 0
        self._pending = {held.id: 0 for held in self._held.values()}
        for held in self._held.values():
            held.introduced = False
            held.since = 0
        self._free += self._gone
        for id_ in self._gone:
            self._by_id[id_] = None
        self._gone.clear()
        self._drifted.clear()
        self.urgent = True

    def _note(self, key: ShareKey, demand: Demand) -> None:
        held = self._held.get(key)
        if held is None:
            if (not self._free and len(self._by_id) == MOST_LIMITERS) or len(key.limiter.encode()) > MOST_NAME[
                "limiter"
            ]:
                self.refused["limiters"] += 1
                return
            if self._free:
                held = _Held(self._free.pop(), key, demand)
                self._by_id[held.id] = held
            else:
                held = _Held(len(self._by_id), key, demand)
                self._by_id.append(held)
            self._held[key] = held
            self._pending[held.id] = 0
            if self.isolated:
                held.ppm = self._alone
                self._unshared[held] = None
            return
        held.latest = demand
        if demand.quota != held.told.quota:
            held.introduced = False
            self._pending[held.id] = 0
        elif _differ(demand, held.told):
            self._pending[held.id] = 0
        elif demand != held.told and held.id not in self._pending:
            self._drifted.add(held.id)

    def _forget(self, key: ShareKey) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            held.ppm = 0
            self._unshared.pop(held, None)
            self._gone[held.id] = 0
            self._pending.pop(held.id, None)
            self._drifted.discard(held.id)

    def _fill(self, report: MemberReport) -> bool:
        """Put into a report all that is not answered, as far as it fits; return whether all of it did.

        What an earlier report has told comes first, so that an answer to this one is an answer to those.
        """
        report.gone = list(self._gone)
        for id_ in report.gone:
            self._gone[id_] = self._gone[id_] or report.sequence
        left = MOST_BYTES - 4 * len(report.gone)
        for id_ in sorted(self._pending, key=lambda id_: self._pending[id_] == 0):
            held = self._one(id_)
            left -= 30 if held.introduced else 100 + len(held.key.limiter.encode())
            if left < 0:
                return False
            if self._pending[id_] == 0:
                self._pending[id_] = report.sequence
                held.told = held.latest
            demand = held.told
            if not held.introduced:
                held.since = held.since or report.sequence
                report.introductions.append(Introduction(id_, held.key, demand.quota, held.ppm))
            report.told.append(ToldDemand(id_, demand.used, demand.wanted, demand.streams))
        return True

    def _one(self, id_: int) -> _Held:
        held = self._by_id[id_]
        assert held is not None
        return held

    def _take_one(self, grant: Grant, now: int) -> list[LimitShare]:
        if not self._since <= grant.answers <= self._sequence:
            self.refused["session"] += 1
            return []
        if grant.void:
            self._void = not self.isolated
            shares = self._void_shares()
            self._begin_session()
            return shares
        if grant.answers > self._answered:
            self._answer(grant.answers, now)
        if grant.sequence == 0 or self.isolated:  # what is granted holds for a lease that ends
            return []
        if grant.sequence <= self._seen:
            self.refused["repeated"] += 1
            return []
        self._seen = grant.sequence
        self.urgent = True
        return self._apply(grant)

    def _answer(self, answers: int, now: int) -> None:
        """Take the answer to a report: what it told is known, and the lease is renewed from its sending on."""
        self._answered, self.answered_at = answers, now
        sent = self._sent.get(answers)
        for sequence in [sequence for sequence in self._sent if sequence <= answers]:
            del self._sent[sequence]
        for id_ in [id_ for id_, told in self._pending.items() if 0 < told <= answers]:
            del self._pending[id_]
            held = self._one(id_)
            held.introduced = True
        for id_ in [id_ for id_, told in self._gone.items() if 0 < told <= answers]:
            del self._gone[id_]
            self._by_id[id_] = None
            self._free.append(id_)
        if sent is not None and sent[1]:
            until = sent[0] + self.settings.lease_ns
            if until > now:
                self.lease_until = until
                self._leased, self.isolated = True, False

    def _apply(self, grant: Grant) -> list[LimitShare]:
        shares: list[LimitShare] = []
        for id_, ppm in grant.shares:
            held = self._by_id[id_] if id_ < len(self._by_id) else None
            if held is None or not 0 < held.since <= grant.answers:
                self.refused["unknown"] += 1
            elif id_ not in self._gone:
                held.ppm, held.held, held.is_granted = ppm, grant.held.get(id_), True
                shares.append(LimitShare(held.key, ppm, held.held))
        return shares


def _differ(one: Demand, other: Demand) -> bool:
    """Return whether two demands differ by more than a tenth in anything."""
    if (one.wanted == UNBOUNDED) != (other.wanted == UNBOUNDED):
        return True
    return any(10 * abs(mine - theirs) > max(mine, theirs) for mine, theirs in zip(one[:3], other[:3], strict=True))
