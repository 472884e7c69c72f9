"""A member of a fleet: reports the demands of its limiters, and holds the shares that were granted.

The states of a member:

                    grants of a coordinator arrive: a new session
                 ┌────────────────────────────────────────────────────────────────┐
                 │                                                                ▼
    no coordinator (epoch 0) ◀──lease ended, or no answer for a lease── follows (epoch > 0), has a lease once answered
                 │                                                                ▲
                 └──`cut_off`─▶ isolated: shares without a lease ──an answer──────┘

`_InForce` names the shares that are in force.

A member may have very many limits, so each report and each call concerns a bounded number of them:

    a demand   *pending* ─in a report, as far as it has room─▶ *unanswered*: in each report ─answer─▶ known
    a share    granted, revoked or cut ─▶ *to put* ─`shares_to_put`─▶ in force ─when none is left─▶ acknowledged
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import islice
from typing import Final, Literal, NamedTuple

from fleet.messages import (
    DEMAND_BYTES,
    FULL_REPORT,
    INTRODUCTION_BYTES,
    MOST_GONE,
    MOST_LIMITERS,
    NO_LIMITS,
    Demand,
    Grant,
    Grants,
    Introduction,
    LimitSet,
    LimitShare,
    MemberReport,
    MemberStatus,
    Quota,
    QuotaPool,
    ShareKey,
    VersionSet,
    WrittenLimits,
)
from fleet.settings import FleetSettings
from fleet.shares import MOST_WEIGHT, UNBOUNDED, WHOLE

FOREVER = (1 << 63) - 1
"""The end of the lease of an isolated member, whose shares have no end."""

FLOOR = WHOLE // 20
"""The part of a share that `isolated: floor` leaves, in millionths."""

REFRESH_REPORTS = 8
"""Every n-th report also has the demands that have changed by a tenth at most."""

MOST_SENT = 4096
"""Reports whose sending time is remembered until an answer comes, at most."""

_INTRODUCED = 1
"""Flag of a limiter: the coordinator knows its number, and its limit."""
_GRANTED = 2
"""Flag of a limiter: a coordinator has granted its share. Without this flag other members may hold any share."""
_OF_NO_SESSION: Final = bytes([flags & _GRANTED for flags in range(256)])
"""The flags of a limiter after the begin of a session, by those before."""

ShareCause = Literal["granted", "rejoined", "lease ended", "isolated"]
"""Why a share changes: `granted`, or so after an isolation, `rejoined`; revoked, `lease ended`; or cut, `isolated`."""


class _InForce(Enum):
    """Which shares are in force."""

    NOTHING = auto()
    """None: there was no lease yet, or another coordinator's session has begun, or the member leaves."""
    LEASE = auto()
    """Those that were granted, until the lease ends."""
    LAPSED = auto()
    """None, as the lease has ended; the last shares are kept for `cut_off`."""
    ISOLATED = auto()
    """The parts of the last shares that `isolated` leaves, without an end."""


class _Limits:
    """The limits that this member would share: one unit of one limiter each. In columns, as there may be many.

    Reports and grants name a limit by its number, which is its index in the columns. The states of a number:

        free ─add─▶ means a limit ─forget─▶ means it until the coordinator has answered that it is gone ─let_go─▶ free

    Attributes:
        ids: The number of each limit.
        keys: The limit of each number; None if the number is free.
        quotas: The value of the limit that was reported last, or will be reported next.
        used, wanted, streams: The demand that was reported last.
        latest: By number, the present demand, where it differs from the reported one or none was reported.
        ppm: The share in force, in millionths; after the end of the lease the last one.
        held: By number, the limit's value in force where members have different ones: the lowest.
        introduced_by: The first report of the session that has introduced the number; 0 if none has. In a grant that
            answers an earlier report, the number means another limit.
        flags: `_INTRODUCED` and `_GRANTED`, or 0.
        free: The numbers that are free.
    """

    __slots__ = (
        "flags",
        "free",
        "held",
        "ids",
        "introduced_by",
        "keys",
        "latest",
        "ppm",
        "quotas",
        "streams",
        "used",
        "wanted",
    )

    def __init__(self) -> None:
        self.ids: dict[ShareKey, int] = {}
        self.keys: list[ShareKey | None] = []
        self.quotas: list[Quota] = []
        self.used = array("q")
        self.wanted = array("q")
        self.streams = array("H")
        self.latest: dict[int, Demand] = {}
        self.ppm = array("i")
        self.held: dict[int, Quota] = {}
        self.introduced_by = array("q")
        self.flags = bytearray()
        self.free: list[int] = []

    def begin_session(self) -> None:
        """Count all limits as unknown to the coordinator."""
        self.flags = self.flags.translate(_OF_NO_SESSION)
        self.introduced_by = array("q", bytes(8 * len(self.keys)))

    def add(self, key: ShareKey, demand: Demand) -> int:
        """Give a number to a limit that has none, and return the number."""
        if self.free:
            id_ = self.free.pop()
            self.keys[id_], self.quotas[id_] = key, demand.quota
            self.ppm[id_] = self.introduced_by[id_] = self.flags[id_] = 0
        else:
            id_ = len(self.keys)
            self.keys.append(key)
            self.quotas.append(demand.quota)
            self.flags.append(0)
            for column in (self.used, self.wanted, self.streams, self.ppm, self.introduced_by):
                column.append(0)
        self.ids[key] = id_
        self.latest[id_] = demand
        return id_

    def forget(self, id_: int, key: ShareKey) -> None:
        """Forget a limit. Its number keeps its meaning until `let_go`, when the coordinator has answered."""
        del self.ids[key]
        self.ppm[id_] = 0
        self.take_latest(id_)
        self.held.pop(id_, None)

    def let_go(self, id_: int) -> None:
        """Free a number: it may mean another limit from now on."""
        self.keys[id_] = None
        self.free.append(id_)

    def reported(self, id_: int) -> Demand:
        """Return the demand for a limit that was reported last."""
        return Demand(self.used[id_], self.wanted[id_], self.streams[id_], self.quotas[id_])

    def mark_reported(self, id_: int) -> None:
        """Count the latest demand for a limit as reported."""
        latest = self.take_latest(id_)
        if latest is not None:
            self.used[id_], self.wanted[id_], self.streams[id_], self.quotas[id_] = latest

    def take_latest(self, id_: int) -> Demand | None:
        """Remove and return the demand for a limit that was not reported yet; None if there is none."""
        latest = self.latest.pop(id_, None)
        if latest is not None and not self.latest:
            self.latest = {}  # an emptied dict keeps its memory
        return latest

    def share(self, id_: int) -> LimitShare:
        """Return the share of a limit in force."""
        key = self.keys[id_]
        assert key is not None
        return LimitShare(key, self.ppm[id_], self.held.get(id_))


class _Demands(NamedTuple):
    """The demands of a report; see `MemberReport`.

    Args:
        ids: The numbers of the limits.
        introductions: Those that the coordinator does not know.
        gone: Numbers of limits that are gone.
    """

    ids: list[int]
    introductions: list[Introduction]
    gone: list[int]


_NO_DEMANDS = _Demands([], [], [])


class FleetMember:
    """The member's side: makes reports of demands, and shares of grants.

    The caller puts shares in force as soon as it can (`shares_to_put`), and lets its buckets earn until `lease_until`.
    A renewed lease makes that later only when no share is left to put: none of before may earn by it. All times are
    nanoseconds of this process' monotonic clock, which may be fast or slow by half a percent.

    A lease ends `lease_ns` after *the sending* of the latest report that was answered. The coordinator counts from the
    moment at which it received that report, which is later. So it never gives away a share that is still in use,
    however late its answer arrives:

        member       sends ────────────────── lease_ns ───────────────▶ lease ends
        coordinator        └▶ receives ─────────────── lease_ns · 1.01 ───────────────▶ the share is free

    After the end of the lease all shares are void, and the member follows no coordinator. When grants of a coordinator
    arrive, the member follows it in a new session, and introduces all its limits.

    Args:
        settings: Those of the fleet.
        name: The member's name, for people.
        incarnation: A random number of this run, above 0.
        now: The time.
        written: Returns the limits that are written in this process.
        version: The version of Sluice; empty: unknown.

    Attributes:
        limit_sets: The sets of limits that are written in members, where these differ, by the latest grants.
        version_sets: The versions of Sluice that members run, where these differ, by the latest grants.
        coordinator_version: That of the coordinator that was followed last; empty: none was.
        roster, listed_at: The latest list of members, and when it came; 0 before the first.
        lease_until: Until when buckets may earn: the end of the lease, `FOREVER` while isolated, or an earlier time
            while shares are left to put. It becomes earlier when an isolated member reaches the coordinator again.
        epoch: The coordinator that is followed; 0 if none.
        epoch_heard: The greatest epoch in any grants. A process that becomes coordinator takes a greater one.
        coordinator: The name of the coordinator that was followed last; empty before the first.
        members: The number of members, by the latest grants.
        answered_at: When a report was last answered.
        has_left: The coordinator has answered the report of leaving, by a void grant.
        voids: The number of this member's latest sessions that a void grant has ended before any answer.
        urgent: The next report must be sent at once: a new session, shares to acknowledge, demands that found no room
            in the previous one and have room now.
        dropped: Messages, and parts of messages, that were not taken, by cause.
    """

    def __init__(
        self,
        settings: FleetSettings,
        name: str,
        incarnation: int,
        now: int,
        written: Callable[[], WrittenLimits] = lambda: NO_LIMITS,
        version: str = "",
    ) -> None:
        self.settings = settings
        self.limit_sets: tuple[LimitSet, ...] = ()
        self.version_sets: tuple[VersionSet, ...] = ()
        self.coordinator_version = ""
        self.version = version
        self.roster: Sequence[MemberStatus] = ()
        self.listed_at = 0
        self._written = written
        self.name = name
        self.incarnation = incarnation
        self.lease_until = now
        self.epoch = 0
        self.epoch_heard = self.voids = 0
        self.coordinator = ""
        self.members = 0
        self.answered_at = now
        self.has_left = False
        self.urgent = True
        self.dropped: Counter[str] = Counter()
        self._limits = _Limits()
        self._quotas = QuotaPool()
        self._pending: dict[int, None] = {}  # numbers whose demand is in no report yet, the oldest first
        self._unanswered: dict[int, int] = {}  # demands without an answer, by number: the first report with it, or 0
        self._gone: dict[int, int] = {}  # limits that are gone, by number: the first report of that, or 0
        self._drifted: set[int] = set()  # numbers whose demand has changed too little to be reported at once
        self._reports = 0  # except those that go on with the one before
        self._sent: dict[
            int, tuple[int, bool]
        ] = {}  # by report: when it was sent, and whether it has all unanswered demands
        self._unknown: set[int] = set()  # numbers with a share that the coordinator of this session does not know yet
        self._to_put: dict[int, ShareCause] = {}  # numbers whose shares the caller must put in force
        self._lease_ends = now  # as `lease_until`, when no share is left to put
        self._sequence = 0
        self._since = 1
        self._taken = self._seen = 0  # the latest grant of this session; the latest whose shares are in force
        self._answered = 0
        self._followed_at = now
        self._force = _InForce.NOTHING
        self._is_whole = self._has_room = True  # the latest report had room for all demands; or has been answered
        self._leaving = 0  # the report of leaving
        self._part: Literal["fair", "floor", "none"] = "none"
        self._equal_part = 0  # while isolated: the share of a limit for which no coordinator has granted one

    def report(
        self,
        changed: Mapping[ShareKey, Demand],
        gone: Iterable[ShareKey],
        now: int,
        brokers: Sequence[str] = (),
    ) -> MemberReport:
        """Return the report to send now, once a cycle or when something is urgent.

        Args:
            changed: As for `note`.
            gone: As for `note`.
            now: The time of sending.
            brokers: Brokers that lookup answers have named, for the other members.
        """
        self._end_lease(now)
        self.note(changed, gone)
        if self._is_whole:
            self._reports += 1
            if self._reports % REFRESH_REPORTS == 0:
                for id_ in self._drifted:
                    self._must_report(id_)
                self._drifted.clear()
        self._sequence += 1
        # A coordinator would believe the shares in an introduction, which may be lower than those still in force.
        has_demands = self.epoch != 0 and not self._to_put
        demands = self._demands(self._sequence) if has_demands else _NO_DEMANDS
        self.urgent = False
        if len(self._sent) == MOST_SENT:
            del self._sent[next(iter(self._sent))]
        self._sent[self._sequence] = now, has_demands
        limits, ids = self._limits, demands.ids
        return MemberReport(
            self.settings.fleet,
            "" if self._seen else self.name,
            self.incarnation,
            self._sequence,
            self._since,
            self.epoch,
            self._seen,
            introductions=demands.introductions,
            ids=ids,
            used=[limits.used[id_] for id_ in ids],
            wanted=[limits.wanted[id_] for id_ in ids],
            streams=[limits.streams[id_] for id_ in ids],
            gone=demands.gone,
            written=self._written(),
            brokers=brokers,
            version="" if self._seen else self.version,
        )

    def note(self, changed: Mapping[ShareKey, Demand], gone: Iterable[ShareKey]) -> None:
        """Take demands for the next reports.

        Args:
            changed: The demands that may have changed since the last call. The next reports have those that differ by
                more than a tenth from the reported ones; each `REFRESH_REPORTS`-th report has all others.
            gone: Limits that this process has no more, unless `changed` has them.
        """
        for key in gone:
            self._forget(key)
        for key, demand in changed.items():
            self._note(key, demand)

    @property
    def has_more(self) -> bool:
        """Whether the next report has demands that no report has had."""
        return self.epoch != 0 and bool(self._pending) and self._has_room

    def take(self, grants: Grants, now: int) -> None:
        """Take the grants for this member. `shares_to_put` has the shares."""
        self._end_lease(now)
        if grants.fleet != self.settings.fleet:
            self.dropped["fleet"] += 1
            return
        ended = max(self.answered_at, self._lease_ends)
        if self.isolated:  # that is FOREVER
            ended = max(self.answered_at, self._followed_at) + self.settings.lease_ns
        if self.epoch == 0 and now > ended + 2 * self.settings.lease_ns:
            self.epoch_heard = 0  # a wrong clock made that epoch too great; no member has shares of that time
        if grants.epoch < self.epoch_heard:
            self.dropped["epoch"] += 1
            return
        if grants.epoch != self.epoch:
            self._follow(grants.epoch, now)
        self.coordinator, self.members = grants.coordinator, grants.members
        for grant in grants.grants:
            if grant.incarnation == self.incarnation:
                self._take_grant(grant, now)
        self.limit_sets, self.version_sets = grants.limit_sets, grants.version_sets
        self.coordinator_version = grants.version
        if grants.roster:
            self.roster, self.listed_at = grants.roster, now

    def shares_to_put(self, most: int) -> Iterator[tuple[LimitShare, ShareCause]]:
        """Yield up to `most` shares to put in force. Each counts as in force when the next one is asked for."""
        for id_, cause in list(islice(self._to_put.items(), most)):
            yield self._limits.share(id_), cause
            del self._to_put[id_]
        self._renew()

    @property
    def has_to_put(self) -> bool:
        """Whether shares are left to put in force."""
        return bool(self._to_put)

    def cut_off(self, now: int, *, refused: bool) -> None:
        """Have shares in force without a lease, where the lease has ended or none came for a lease's time.

        Each share is the `isolated` part of the lesser of the last share and an equal part. For a limit without a
        granted share, it is the `isolated` part of an equal part. If the number of members is unknown, `fair` is no
        more than `floor`. An isolated member has such shares of limits that are added, too.

        Args:
            now: The time.
            refused: Connections to the broker that carries the messages are refused at once, and do not time out.
        """
        self._end_lease(now)
        if self.isolated:
            return
        unanswered = now - max(self._followed_at, self.answered_at) >= self.settings.lease_ns
        if self._force is _InForce.LEASE or (self._force is _InForce.NOTHING and not unanswered):
            return
        kind = self.settings.isolated
        if kind == "auto":
            kind = "fair" if refused else "floor"
        members = self.members or self.settings.expected
        self._part = "floor" if kind == "fair" and not members else kind
        part = {"fair": WHOLE, "floor": FLOOR, "none": 0}[self._part]
        self._equal_part = WHOLE // max(1, members) * part // WHOLE
        limits = self._limits
        most, ppm, flags = self._equal_part, limits.ppm, limits.flags
        for id_ in limits.ids.values():
            last = ppm[id_] * part // WHOLE if flags[id_] & _GRANTED else WHOLE
            ppm[id_] = min(most, last)
        self._to_put = dict.fromkeys(limits.ids.values(), "isolated")
        self._force, self._lease_ends = _InForce.ISOLATED, FOREVER
        self._renew()

    def reincarnate(self, incarnation: int) -> None:
        """Go on as another member: forged reports in the name of this one may hold for ever.

        Args:
            incarnation: Another random number, above 0.
        """
        self.incarnation, self.voids = incarnation, 0

    def leave(self, now: int) -> MemberReport:
        """Return the last report. All shares are void: the caller has put them to 0 before it sends the report."""
        report = self.report({}, (), now)
        self._leaving = report.sequence
        for id_ in self._limits.ids.values():
            self._limits.ppm[id_] = 0
        self._to_put.clear()
        self.lease_until = self._lease_ends = min(self.lease_until, now)
        self.urgent = False
        self._force = _InForce.NOTHING
        self._since = self._sequence + 1  # so a grant that is on its way is dropped
        self._seen = self._taken = 0
        return replace(report, leaving=True, introductions=[], gone=[], ids=(), used=(), wanted=(), streams=())

    @property
    def isolated(self) -> bool:
        """Whether shares are in force without a lease, as `cut_off` returned them."""
        return self._force is _InForce.ISOLATED

    @property
    def part(self) -> Literal["", "fair", "floor", "none"]:
        """The part of shares that this member keeps while isolated, by `FleetSettings.isolated`; else empty."""
        return self._part if self.isolated else ""

    @property
    def most_isolated(self) -> int:
        """The greatest share of a limit that this member has while isolated, in millionths; else 0."""
        return self._equal_part if self.isolated else 0

    @property
    def total(self) -> int:
        """The number of shared limits: units of limiters that have a share in force, or had one."""
        return len(self._limits.ids)

    def demand(self, key: ShareKey) -> Demand | None:
        """Return the latest demand for a limit; None if this process has no such limit."""
        id_ = self._limits.ids.get(key)
        return None if id_ is None else self._limits.latest.get(id_) or self._limits.reported(id_)

    def shares(self) -> Iterator[LimitShare]:
        """Yield the shares in force, or the last ones; limits that are added or removed during this are left out."""
        for key, id_ in list(self._limits.ids.items()):
            if self._limits.ids.get(key) == id_:
                yield self._limits.share(id_)

    def _end_lease(self, now: int) -> None:
        if self._force is _InForce.LEASE and now >= self._lease_ends:
            self._force = _InForce.LAPSED
            self.epoch = 0
            self._begin_session()
        unanswered = now - max(self._followed_at, self.answered_at) >= self.settings.lease_ns
        if self.epoch and unanswered and self._force is not _InForce.LEASE:
            self.epoch = 0  # the coordinator has gone as well: the next one gets the introductions
            self._begin_session()

    def _follow(self, epoch: int, now: int) -> None:
        """Begin a session with another coordinator. Shares whose lease has ended are 0 from now on."""
        if self._force is _InForce.LAPSED:
            self._force = _InForce.NOTHING
            self._revoke_shares()
        self.epoch = self.epoch_heard = epoch
        self._followed_at = now
        self._begin_session()

    def _revoke_shares(self) -> None:
        """Put all shares to 0."""
        lost = [id_ for id_ in self._limits.ids.values() if self._limits.ppm[id_]]
        for id_ in lost:
            self._limits.ppm[id_] = 0
            self._to_put[id_] = "lease ended"

    def _renew(self) -> None:
        """Acknowledge grants, and let buckets earn by the present lease, if no share is left to put in force."""
        if not self._to_put:
            self._to_put = {}  # an emptied dict keeps its memory
            self.urgent = self.urgent or self._seen != self._taken
            self._seen, self.lease_until = self._taken, self._lease_ends

    def _begin_session(self) -> None:
        self._since = self._sequence + 1
        self._seen = self._taken = 0
        limits = self._limits
        limits.begin_session()
        self._unknown = {id_ for id_ in limits.ids.values() if limits.ppm[id_]}
        self._pending = dict.fromkeys(limits.ids.values())
        self._unanswered = {}
        self._has_room = True
        for id_ in self._gone:
            limits.let_go(id_)
        self._gone.clear()
        self._drifted.clear()
        self.urgent = True

    def _note(self, key: ShareKey, demand: Demand) -> None:
        limits = self._limits
        quota, streams = self._quotas.shared(demand.quota), min(demand.streams, MOST_WEIGHT)
        if quota is not demand.quota or streams != demand.streams:
            demand = demand._replace(quota=quota, streams=streams)
        id_ = limits.ids.get(key)
        if id_ is None:
            self._add(key, demand)
            return
        reported = limits.reported(id_)
        if self.isolated and demand.quota != (limits.latest.get(id_) or reported).quota:
            self._to_put[id_] = "isolated"  # no coordinator will confirm the new value
        if demand == reported:
            limits.take_latest(id_)
            self._drifted.discard(id_)
            return
        limits.latest[id_] = demand
        if demand.quota != reported.quota:
            if limits.flags[id_] & _INTRODUCED:  # an introduction is longer than a demand, and may find no room
                limits.flags[id_] &= ~_INTRODUCED
                self._unanswered.pop(id_, None)
            self._must_report(id_)
        elif _differ(demand, reported):
            self._must_report(id_)
        elif id_ not in self._pending and id_ not in self._unanswered:
            self._drifted.add(id_)

    def _must_report(self, id_: int) -> None:
        if id_ in self._unanswered:
            self._unanswered[id_] = 0
        else:
            self._pending[id_] = None

    def _add(self, key: ShareKey, demand: Demand) -> None:
        limits = self._limits
        if not limits.free and len(limits.keys) == MOST_LIMITERS:
            self.dropped["limiters"] += 1
            return
        id_ = limits.add(key, demand)
        self._pending[id_] = None
        if self.isolated:
            limits.ppm[id_] = self._equal_part
            self._to_put[id_] = "isolated"
            self._unknown.add(id_)

    def _forget(self, key: ShareKey) -> None:
        id_ = self._limits.ids.get(key)
        if id_ is not None:
            self._limits.forget(id_, key)
            self._unknown.discard(id_)
            self._to_put.pop(id_, None)
            self._gone[id_] = 0
            self._pending.pop(id_, None)
            self._unanswered.pop(id_, None)
            self._drifted.discard(id_)

    def _demands(self, sequence: int) -> "_Demands":
        """Return all demands without an answer, and pending ones as far as they have room, for the report `sequence`.

        Each report has what earlier ones had and has no answer, so that an answer to this one is an answer to those.
        """
        gone = list(islice(self._gone, MOST_GONE))
        for id_ in gone:
            self._gone[id_] = self._gone[id_] or sequence
        limits, left = self._limits, FULL_REPORT - sum(map(self._size, self._unanswered))
        # A member has one number for a limit: one that was made again is introduced when its number before is gone.
        late, is_late = {limits.keys[id_] for id_ in islice(self._gone, MOST_GONE, None)}, False
        for id_ in self._pending:
            if late and limits.keys[id_] in late:
                is_late = True
                continue
            left -= self._size(id_)
            if left < 0:
                break
            self._unanswered[id_] = 0
        self._is_whole = self._has_room = left >= 0 and not is_late
        introductions = list[Introduction]()
        for id_, report in self._unanswered.items():
            self._pending.pop(id_, None)
            if report == 0:
                self._unanswered[id_] = sequence
                limits.mark_reported(id_)
            if not limits.flags[id_] & _INTRODUCED:
                key = limits.keys[id_]
                assert key is not None
                limits.introduced_by[id_] = limits.introduced_by[id_] or sequence
                introductions.append(Introduction(id_, key, limits.quotas[id_], limits.ppm[id_]))
        if not self._pending:
            self._pending = {}  # an emptied dict keeps its memory
        return _Demands(sorted(self._unanswered), introductions, gone)

    def _size(self, id_: int) -> int:
        """Return the bytes of a demand in a report, at most."""
        key = self._limits.keys[id_]
        if self._limits.flags[id_] & _INTRODUCED or key is None:
            return DEMAND_BYTES
        return INTRODUCTION_BYTES + len(key.wire_name.encode())

    def _take_grant(self, grant: Grant, now: int) -> None:
        if grant.void and grant.answers == self._leaving:
            self.has_left = True
            return
        if not self._since <= grant.answers <= self._sequence:
            self.dropped["session"] += 1
            return
        if grant.void:
            self.voids += 1
            if not self.isolated:
                self._revoke_shares()
                self.lease_until = min(self.lease_until, now)  # others may have these shares by now
                self._renew()
            self._begin_session()
            return
        cause: ShareCause = "rejoined" if self.isolated else "granted"
        if grant.answers > self._answered:
            self._answer(grant.answers, now)
        if grant.sequence and not self.isolated:  # an isolated member has no lease for which a granted share would hold
            if grant.sequence <= self._taken:
                self.dropped["repeated"] += 1
            elif not self._to_put:  # else a later grant repeats them: to put them all again might have no end
                self._taken = grant.sequence
                self._apply(grant, cause)
        self._renew()

    def _answer(self, answers: int, now: int) -> None:
        """Take the answer to a report: the coordinator knows its demands, and the lease runs from its sending on."""
        self._answered, self.answered_at, self.voids = answers, now, 0
        sent = self._sent.get(answers)
        while self._sent and (first := next(iter(self._sent))) <= answers:
            del self._sent[first]
        if sent is None:
            return
        sent_at, has_demands = sent
        if has_demands:
            self._take_as_known(answers)
        until = sent_at + self.settings.lease_ns
        if until > now and not self._unknown:
            self._lease_ends, self._force = until, _InForce.LEASE
            self.lease_until = min(self.lease_until, until)

    def _take_as_known(self, answers: int) -> None:
        limits, unanswered = self._limits, self._unanswered
        for id_, report in list(unanswered.items()):
            if 0 < limits.introduced_by[id_] <= answers:
                self._unknown.discard(id_)
            if 0 < report <= answers:
                del unanswered[id_]
                limits.flags[id_] |= _INTRODUCED
            elif report == 0 and limits.flags[id_] & _INTRODUCED:  # it has changed again: others have their turn
                del unanswered[id_]
                self._pending[id_] = None
        if not unanswered:
            self._unanswered = {}  # an emptied dict keeps its memory
        if not self._unknown:
            self._unknown = set()
        for id_ in [id_ for id_ in islice(self._gone, MOST_GONE) if 0 < self._gone[id_] <= answers]:
            del self._gone[id_]
            limits.let_go(id_)
        self._has_room = True
        self.urgent = self.urgent or bool(self._pending) or bool(self._gone)

    def _apply(self, grant: Grant, cause: ShareCause) -> None:
        limits, numbers = self._limits, len(self._limits.keys)
        for id_, ppm in zip(grant.ids, grant.ppm, strict=True):
            if id_ >= numbers or limits.keys[id_] is None or not 0 < limits.introduced_by[id_] <= grant.answers:
                self.dropped["unknown"] += 1
            elif id_ not in self._gone:
                limits.ppm[id_] = ppm
                limits.flags[id_] |= _GRANTED
                if id_ in grant.held:
                    limits.held[id_] = grant.held[id_]
                elif limits.held:
                    limits.held.pop(id_, None)
                self._to_put[id_] = cause


def _differ(demand: Demand, other: Demand) -> bool:
    """Return whether two demands differ by more than a tenth in any figure."""
    if (demand.wanted == UNBOUNDED) != (other.wanted == UNBOUNDED):
        return True
    return any(10 * abs(mine - theirs) > max(mine, theirs) for mine, theirs in zip(demand[:3], other[:3], strict=True))
