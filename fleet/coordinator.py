"""The coordinator of a fleet: divides each limit among the members that use it.

A report changes what is known of its member (`Coordinator.hear`). A grant answers it (`Coordinator.grant`):

    report ─▶ _session ─▶ _learn: introductions, demand, acknowledged grants ─▶ the limits that these concern are dirty
    grants ◀─ _messages ◀─ _tell ◀─ _divide: each dirty limit anew ◀────────────────────────────────┘
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterator
from math import ceil, inf
from sys import getsizeof
from typing import NamedTuple, TypeVar

from fleet.member import FleetSettings
from fleet.messages import (
    FULL_MESSAGE,
    GRANT_BYTES,
    HELD_BYTES,
    MOST_LIMITERS,
    SHARE_BYTES,
    Grant,
    Grants,
    Introduction,
    MemberReport,
    Quota,
    QuotaPool,
    ShareKey,
    Unit,
)
from fleet.rules import ComparedRules
from fleet.shares import UNBOUNDED, WHOLE, fill, is_enough, rounded

MOST_MEMBERS = 1000
"""Members of a fleet, at most. The coordinator refuses reports of others."""

MOST_SHARES = 2_000_000
"""Shares that the coordinator keeps of all members together, at most. It refuses introductions beyond."""

MOST_NAMES = 256 << 20
"""Bytes of the names of all limits, at most. The coordinator refuses introductions of others."""

MOST_GRANTED = 50_000
"""Shares that are granted to one member and not acknowledged, at most. No grant has more. Others follow when the member
has acknowledged some."""

MOST_VOID = 10_000
"""Ended sessions that are remembered, at most: a late report of one is not taken for the first of a new session."""

MOST_UNSEEN = 16
"""Grants with new shares that one member has not acknowledged, at most. Until it does, the coordinator only repeats
what they say."""

RULE_CYCLES = 2
"""Changed rules of a member count when they have stayed the same for so many cycles. A change that all members get at
the same time is in the reports of all of them by then."""

MOST_WEIGHT = (1 << 16) - 1
"""The greatest weight of a claim."""

_SLOT = 18
"""Bits of a share's *code* that hold the member's number for the limit; the bits above hold the place of its session.

    code = │ place of the session in `Coordinator._places` │ the member's number for the limit: 18 bits │
"""
_NUMBER = (1 << _SLOT) - 1
_NONE = -1
"""Stands for a limit's number or a share's code where there is none."""
_GONE = -2
"""Marks an entry of the table of names whose limit was removed. A search goes on behind such an entry."""
_LEAST_TABLE = 64
"""Entries of the table of names, at least. Their number is a power of 2."""

_Number = TypeVar("_Number", int, float)


class MemberStatus(NamedTuple):
    """One member as the coordinator knows it; times are in nanoseconds."""

    name: str
    incarnation: int
    since_heard: int
    limiters: int


class Disagreement(NamedTuple):
    """Members have different values of one limit.

    Attributes:
        member: The name of the member that told its value last.
        key: What is limited.
        own: That member's value.
        in_force: The value that holds for all.
    """

    member: str
    key: ShareKey
    own: Quota
    in_force: Quota


class LimitStatus(NamedTuple):
    """One limit and its members' shares.

    Attributes:
        key: What is limited.
        quota: The limit; the lowest one if members have different ones.
        disagreement: Members have different limits.
        unchanged: Nanoseconds since a share last changed.
        shares: Of each member that has a share: its name, the share granted in millionths, and what it uses and wants,
            both in thousandths of a token per second.
    """

    key: ShareKey
    quota: Quota
    disagreement: bool
    unchanged: int
    shares: list[tuple[str, int, int, int]]


class _Limits:
    """The limits of which some member has a share. A *limit* is here one unit of one limiter.

    The coordinator numbers limits. What it knows of them is in columns by these numbers, as there may be many. From a
    limit a chain of codes leads through the sessions of all members that have a share of it:

        name ─table─▶ limit's number ─first─▶ code ─▶ a session, and a number of its member
                            ▲                              │ next
                            └──── _Session.limits ──── code ─▶ another session … ─▶ `_NONE`

    The table finds a limit's number by its name (open addressing). A dict would take 77 bytes for each limit besides
    the name: a fifth of all that is kept of a limit.

    Attributes:
        table: Limits' numbers, by the hash of their names; `_NONE` and `_GONE` where there is none.
        filled: Entries of the table that are not `_NONE`.
        names: The limit's name: unit, space, limiter. Empty where the number is free.
        names_size: The bytes that all names take.
        quotas: The limit; the lowest one if members have different ones.
        different: The limits of which members have different values: of each, every holder's value, by the code of its
            share.
        pools: What may be divided, in millionths of the limit: all of it, or, soon after a takeover, the shares that
            members brought.
        first: The code of one share of the limit. The codes of the others follow by `_Session.next`.
        changed_at: When a share of the limit last changed.
        dirty: 1 where the limit is to be divided anew.
        to_divide: The numbers of dirty limits, and of some that were removed since.
        free: Numbers that mean no limit.
    """

    __slots__ = (
        "changed_at",
        "different",
        "dirty",
        "filled",
        "first",
        "free",
        "names",
        "names_size",
        "pools",
        "quotas",
        "table",
        "to_divide",
    )

    def __init__(self) -> None:
        self.table = array("i", [_NONE]) * _LEAST_TABLE
        self.filled = 0
        self.names: list[str] = []
        self.names_size = 0
        self.quotas: list[Quota] = []
        self.different: dict[int, dict[int, Quota]] = {}
        self.pools = array("i")
        self.first = array("i")
        self.changed_at = array("q")
        self.dirty = bytearray()
        self.to_divide = array("i")
        self.free = array("i")

    def add(self, name: str, quota: Quota, pool: int, now: int) -> int:
        """Give a number to a limit of which no member has a share yet, and return the number."""
        if self.free:
            limit = self.free.pop()
        else:
            limit = len(self.names)
            self.names.append("")
            self.quotas.append(quota)
            self.dirty.append(0)
            for column in (self.pools, self.first, self.changed_at):
                column.append(0)
        self.names[limit], self.quotas[limit] = name, quota
        self.names_size += getsizeof(name)
        self.pools[limit], self.first[limit], self.changed_at[limit] = pool, _NONE, now
        if 2 * self.filled >= len(self.table):
            self._make_table()
        else:
            self._enter(limit)
        return limit

    def number(self, name: str) -> int:
        """Return the number of a limit; `_NONE` if no member has a share of it."""
        return self.table[self._place(name)]

    def _place(self, name: str) -> int:
        """Return the place of a name in the table; of a name that is not there, the place where it would be."""
        table, names, most = self.table, self.names, len(self.table) - 1
        place = hash(name) & most
        while (limit := table[place]) != _NONE and (limit == _GONE or names[limit] != name):
            place = place + 1 & most
        return place

    def _enter(self, limit: int) -> None:
        self.table[self._place(self.names[limit])] = limit
        self.filled += 1

    def _make_table(self) -> None:
        """Make the table anew, of a size of which limits fill at most a quarter."""
        size, limits = _LEAST_TABLE, len(self.names) - len(self.free)
        while size < 4 * limits:
            size *= 2
        self.table, self.filled = array("i", [_NONE]) * size, 0
        for limit, name in enumerate(self.names):
            if name:
                self._enter(limit)

    def remove(self, limit: int) -> None:
        """Free the number of a limit of which no member has a share any more."""
        self.table[self._place(self.names[limit])] = _GONE
        self.names_size -= getsizeof(self.names[limit])
        self.names[limit] = ""
        self.free.append(limit)

    def mark(self, limit: int) -> None:
        """Mark a limit as dirty: the next `grant` divides it anew."""
        if not self.dirty[limit]:
            self.dirty[limit] = 1
            self.to_divide.append(limit)

    def take_dirty(self) -> "array[int]":
        """Return the numbers of the dirty limits, which are dirty no more."""
        limits, self.to_divide = self.to_divide, array("i")
        for limit in limits:
            self.dirty[limit] = 0
        return limits


class _Session:
    """One session of a member, and the member's shares, in columns by the member's numbers, as they may be many.

    Attributes:
        since, heard, heard_at: The first report of the session; the latest one, and when that was received.
        begun_at: When the first report of the session was received.
        answered, answered_at: The latest report that has been answered, and when it was received. The lease counts from
            that time.
        place: The session's place in the codes of its shares.
        brings: The member introduces limits with shares that the coordinator before has granted. These may be divided
            anew.
        sequence, told_at: The latest grant with shares, and when it was sent.
        seen: The latest grant that the member has acknowledged.
        limits: What the member's number means: a number in `_Limits`, or `_NONE`.
        holds: A bit for each number in `_Limits`: whether the member has a share of that limit. A member has one share
            of a limit at most. Else it could make the chain of a limit's shares, which is searched, as long as it
            likes.
        next: The code of the next share of the same limit.
        used, wanted: The demand that was told last, in thousandths of a token per second.
        weight: The weight of the claim that was told last; 0 before.
        granted: The share that the member shall have, in millionths.
        ceiling: The greatest share that the member may be using: of the acknowledged one, and all granted since.
        untold: 1 where `granted` is in no grant yet. `to_tell` are so many.
        unseen: Grants that are not acknowledged: their sequence, and the shares that were new in them, in columns.
        removed: Numbers that mean another limiter, or none, since the grant of this sequence.
    """

    __slots__ = (
        "answered",
        "answered_at",
        "begun_at",
        "brings",
        "ceiling",
        "granted",
        "heard",
        "heard_at",
        "holds",
        "incarnation",
        "limits",
        "name",
        "next",
        "place",
        "removed",
        "seen",
        "sequence",
        "since",
        "to_tell",
        "told_at",
        "unseen",
        "untold",
        "used",
        "wanted",
        "weight",
    )

    def __init__(self, report: MemberReport, place: int, now: int, *, brings: bool) -> None:
        self.name = report.member
        self.incarnation = report.incarnation
        self.since = report.since
        self.place = place
        self.brings = brings
        self.heard = report.sequence
        self.begun_at = self.heard_at = self.answered_at = now
        self.answered = 0
        self.sequence = self.seen = 0
        self.told_at = now
        self.limits = array("i")
        self.holds = bytearray()
        self.next = array("i")
        self.used = array("f")  # shown to people, and not divided by
        self.wanted = array("f")
        self.weight = array("H")
        self.granted = array("i")
        self.ceiling = array("i")
        self.untold = bytearray()
        self.to_tell = 0
        self.unseen: deque[tuple[int, array[int], array[int]]] = deque()
        self.removed: dict[int, int] = {}

    def code(self, id_: int) -> int:
        """Return the code of the share of the limit that has this number of the member's."""
        return self.place << _SLOT | id_

    def grow(self, size: int) -> None:
        """Make the columns long enough for numbers below `size`."""
        more = size - len(self.limits)
        self.untold.extend(bytes(more))
        self.limits = _longer(self.limits, more, b"\xff")
        self.next = _longer(self.next, more)
        self.used = _longer(self.used, more)
        self.wanted = _longer(self.wanted, more)
        self.weight = _longer(self.weight, more)
        self.granted = _longer(self.granted, more)
        self.ceiling = _longer(self.ceiling, more)

    def limit(self, id_: int) -> int:
        """Return the limit that a number of the member's means, by its number in `_Limits`; `_NONE` if none."""
        return self.limits[id_] if id_ < len(self.limits) else _NONE

    def has(self, limit: int) -> bool:
        """Return whether the member has a share of this limit."""
        return limit >> 3 < len(self.holds) and bool(self.holds[limit >> 3] & 1 << (limit & 7))

    def begin(self, id_: int, limit: int, following: int, ppm: int) -> None:
        """Let a number mean a limit.

        Args:
            id_: The member's number, which means nothing yet.
            limit: The limit's number in `_Limits`.
            following: The code of the share that follows in the limit's chain; `_NONE` if none.
            ppm: The share in force in the member, in millionths.
        """
        self.limits[id_], self.next[id_] = limit, following
        if limit >> 3 >= len(self.holds):
            self.holds.extend(bytes((limit >> 3) + 1 - len(self.holds)))
        self.holds[limit >> 3] |= 1 << (limit & 7)
        self.granted[id_] = self.ceiling[id_] = ppm

    def end(self, id_: int) -> None:
        """Let a number mean nothing. The caller has taken its share out of the limit's chain."""
        limit, self.limits[id_] = self.limits[id_], _NONE
        self.holds[limit >> 3] &= ~(1 << (limit & 7))
        self.granted[id_] = self.ceiling[id_] = self.weight[id_] = 0
        self.used[id_] = self.wanted[id_] = 0
        self.to_tell -= self.untold[id_]
        self.untold[id_] = 0
        if self.unseen:
            self.removed[id_] = self.sequence

    def tell(self, id_: int) -> None:
        """Put a share into the next grant."""
        self.to_tell += 1 - self.untold[id_]
        self.untold[id_] = 1

    def told(self) -> dict[int, int]:
        """Return the shares that grants without acknowledgement have told, by number: of each the latest one."""
        last: dict[int, int] = {}
        for sequence, ids, ppm in self.unseen:
            last.update(self._valid(sequence, ids, ppm))
        return last

    def _valid(self, sequence: int, ids: "array[int]", ppm: "array[int]") -> Iterator[tuple[int, int]]:
        pairs = zip(ids, ppm, strict=True)
        if not self.removed:
            return pairs
        return ((id_, one) for id_, one in pairs if self.removed.get(id_, 0) < sequence)

    def room(self) -> int:
        """Return how many shares that are in no grant yet may be put into the next one."""
        if not self.to_tell or len(self.unseen) >= MOST_UNSEEN:
            return 0
        return max(0, MOST_GRANTED - sum([len(ids) for _, ids, _ in self.unseen]))

    def take_untold(self, most: int) -> "array[int]":
        """Return the numbers of up to `most` shares that are in no grant yet, ascending; they are in one now."""
        ids: list[int] = []
        at = self.untold.find(1) if most else _NONE
        while at != _NONE and len(ids) < most:
            ids.append(at)
            self.untold[at] = 0
            at = self.untold.find(1, at + 1)
        self.to_tell -= len(ids)
        return array("H" if len(self.limits) <= 1 << 16 else "i", ids)

    def acknowledge(self, seen: int) -> list[int]:
        """Take all grants up to this one as applied in the member; return the numbers whose ceiling is lower now."""
        applied: dict[int, int] = {}
        while self.unseen and self.unseen[0][0] <= seen:
            applied.update(self._valid(*self.unseen.popleft()))
        later: dict[int, int] = {}
        for message in self.unseen:
            for id_, ppm in self._valid(*message):
                later[id_] = max(ppm, later.get(id_, 0))
        if not self.unseen:
            self.removed = {}
        lowered: list[int] = []
        granted, ceilings = self.granted, self.ceiling
        for id_, ppm in applied.items():
            ceiling = max(ppm, granted[id_], later.get(id_, 0)) if later else max(ppm, granted[id_])
            if ceiling < ceilings[id_]:
                ceilings[id_] = ceiling
                lowered.append(id_)
        return lowered


class Coordinator:
    """The coordinator's side: takes reports, and makes grants.

    A call takes time for what has changed and for each member, never for all limits.

    **No more than the whole.** A member may be using any share that it was granted since the one it last acknowledged.
    The greatest of them is its *ceiling*. Decreases are granted at once; increases only as far as the ceilings of all
    together stay within the whole, thus when decreases have been acknowledged:

        time ─────────────────────────────────────────────────────────────▶
        A   granted 600,000 ─┬─ granted 400,000, ceiling 600,000 ─┬─ acknowledged: ceiling 400,000
        B   granted 400,000 ─┴─ wants more, stays at 400,000 ─────┴─ granted 600,000

    **Lost members.** What a member had is free in three cases. It says that it leaves. It begins another session, which
    it does only after its lease has ended. Or it is silent: its share is free a lease and a hundredth after the latest
    answered report came in. The member's own lease ends earlier, as it counts from the sending of that report. In this
    case the link must also have confirmed, after that time, that there was no other coordinator: else another one may
    have renewed the lease.

    **Takeover.** A new coordinator knows nothing. For two leases, until all that its predecessor granted has ended, it
    divides of each limit only what members bring in their first reports: what they hold is nobody else's. It answers
    them, so shares go on undisturbed. A coordinator grants nothing a lease after the last confirmation, and never again
    when it has heard of a greater epoch.

    Args:
        settings: Those of the fleet.
        name: For people.
        epoch: Greater than that of all coordinators before.
        now: Nanoseconds of a monotonic clock, at or after the moment at which the link made this the only coordinator.

    Attributes:
        deposed: There is another coordinator.
        rules: The members' rules, and which of them not all members have.
        refused: Reports, and parts of them, that were not taken, by cause.
    """

    def __init__(self, settings: FleetSettings, name: str, epoch: int, now: int) -> None:
        self.settings = settings
        self.name = name
        self.epoch = epoch
        self.deposed = False
        self.rules = ComparedRules(RULE_CYCLES * settings.cycle_ns)
        self.refused: Counter[str] = Counter()
        self._expiry_ns = settings.lease_ns * 101 // 100
        self._whole_at = now + settings.lease_ns * 204 // 100
        self._confirmed_at = now
        self._granted_at = now
        self._ends_at = now  # when the first share is free if no member is heard any more
        self._announce = True
        self._members: dict[int, _Session] = {}  # by incarnation
        self._places: list[_Session | None] = []
        self._limits = _Limits()
        self._shares = 0  # how many all members have together
        self._short: set[int] = set()  # limits of which less than the whole is divided, after a takeover
        self._void: dict[int, int] = {}  # by incarnation: the first report of its latest session that has ended
        self._to_void: dict[int, int] = {}  # by incarnation: the report that is to be answered by a void grant
        self._quotas = QuotaPool()
        self._disagreement: Disagreement | None = None

    def may_grant(self, now: int) -> bool:
        """Return whether there is certainly no other coordinator whose members take grants of this one for theirs."""
        return not self.deposed and now < self._confirmed_at + self.settings.lease_ns

    def confirmed(self, asked: int) -> None:
        """Record that there was no other coordinator at some time after `asked`, when the question was sent."""
        self._confirmed_at = max(self._confirmed_at, asked)

    def hear(self, report: MemberReport, now: int) -> bool:
        """Take a report; return whether `grant` should be called soon, rather than at the end of the cycle."""
        if report.fleet != self.settings.fleet:
            return self._refuse("fleet")
        if report.epoch > self.epoch:
            self.deposed = True
            return self._refuse("deposed")
        if report.epoch < self.epoch:  # the member follows this coordinator when it hears of it
            self._announce = True
            return True
        session = self._session(report, now)
        if session is None:
            return report.incarnation in self._to_void
        if report.leaving:
            self._drop(session)
            self._answer_by_void(report)
            return True
        self._learn(session, report, now)
        ends = self._ends_at <= now and (self._granted_at < self._ends_at or self._ends_at <= self._confirmed_at)
        self.rules.hear(session.incarnation, session.name, report.rules, now)
        is_due = bool(self._limits.to_divide) or session.answered == 0 or ends
        return is_due or self.rules.is_due(session.incarnation)

    def grant(self, now: int) -> list[Grants]:
        """Return what to publish now, each of which fits a message: shares that changed, and answers to all reports."""
        if not self.may_grant(now):
            # A message without shares and answers only asks whether there is another coordinator: the link confirms it.
            return [] if self.deposed else [self._empty()]
        self._expire(now)
        if self._whole_at <= now and self._short:
            for limit in self._short:
                self._limits.pools[limit] = WHOLE
                self._limits.mark(limit)
            self._short.clear()
        for limit in self._limits.take_dirty():
            self._divide(limit, now)
        self.rules.keep(self._members.keys())
        self.rules.compare(now)
        messages = self._messages(now)
        differing = self.rules.told(now, self.settings.cycle_ns, is_whole=self._whole_at <= now)
        if differing is not None:
            messages.append(self._empty())
            messages[-1].differing = differing
        self._granted_at = now
        self._ends_at = min([session.answered_at for session in self._members.values()], default=now) + self._expiry_ns
        return messages

    def members(self, now: int) -> list[MemberStatus]:
        """Return what is known of each member."""
        return [
            MemberStatus(
                session.name,
                session.incarnation,
                now - session.heard_at,
                len(session.limits) - session.limits.count(_NONE),
            )
            for session in self._members.values()
        ]

    def names_taken_twice(self) -> dict[str, int]:
        """Return the names that several members have, and how many members have each.

        A member counts if it is the latest of its name, or was heard more than a lease after that one had come. One
        that was killed and started again counts once: its earlier run is silent by then.
        """
        came: dict[str, int] = {}
        for session in self._members.values():
            came[session.name] = max(session.begun_at, came.get(session.name, session.begun_at))
        if len(came) == len(self._members):
            return {}
        lease_ns = self.settings.lease_ns
        there = Counter(
            session.name
            for session in self._members.values()
            if session.begun_at == came[session.name] or session.heard_at > came[session.name] + lease_ns
        )
        return {name: times for name, times in there.items() if times > 1}

    def take_disagreement(self) -> Disagreement | None:
        """Return the latest disagreement that a report showed since the last call; None if none did."""
        found, self._disagreement = self._disagreement, None
        return found

    @property
    def disagreements(self) -> int:
        """The number of limits of which members have different values."""
        return len(self._limits.different)

    def limits(self, now: int) -> Iterator[LimitStatus]:
        """Yield all limits; at most `MOST_SHARES`."""
        of = self._limits
        for limit, name in enumerate(of.names):
            if not name:
                continue
            shares = []
            for session, id_ in self._holders(limit):
                shares.append((session.name, session.granted[id_], int(session.used[id_]), int(session.wanted[id_])))
            yield LimitStatus(_key(name), of.quotas[limit], limit in of.different, now - of.changed_at[limit], shares)

    def _refuse(self, cause: str) -> bool:
        self.refused[cause] += 1
        return False

    # Members

    def _session(self, report: MemberReport, now: int) -> _Session | None:
        """Return the session that a report belongs to, made if the report begins one; None: it is not to be taken."""
        incarnation = report.incarnation
        session = self._members.get(incarnation)
        if session is not None and (report.since < session.since or report.sequence <= session.heard):
            self._refuse("repeated")
            return None
        if session is not None and report.since == session.since:
            if report.seen > session.sequence:  # another one granted that: the member is answered in its next session
                self._refuse("seen")
                return None
            return session
        known = session is not None or incarnation in self._void
        if session is not None:
            self._drop(session)
        if report.since <= self._void.get(incarnation, 0) or report.seen:
            self._answer_by_void(report)
            if not report.leaving:  # else the member says again that it leaves, as it has had no answer
                self._refuse("session")
            return None
        if len(self._members) >= MOST_MEMBERS:
            self._refuse("members")
            return None
        place = next((place for place, one in enumerate(self._places) if one is None), len(self._places))
        session = _Session(report, place, now, brings=not known and now < self._whole_at)
        self._places[place : place + 1] = [session]
        self._members[incarnation] = session
        return session

    def _answer_by_void(self, report: MemberReport) -> None:
        self._to_void[report.incarnation] = max(report.sequence, self._to_void.get(report.incarnation, 0))
        if len(self._to_void) > MOST_MEMBERS:
            del self._to_void[next(iter(self._to_void))]

    def _expire(self, now: int) -> None:
        for session in list(self._members.values()):
            end = session.answered_at + self._expiry_ns
            if end <= now and end <= self._confirmed_at:
                self._drop(session)

    def _drop(self, session: _Session) -> None:
        """Forget a member's session: its shares are free for others."""
        session.unseen.clear()
        for id_ in range(len(session.limits)):
            self._remove(session, id_)
        del self._members[session.incarnation]
        self._places[session.place] = None
        self._void.pop(session.incarnation, None)
        self._void[session.incarnation] = session.since
        if len(self._void) > MOST_VOID:
            del self._void[next(iter(self._void))]

    # Limits

    def _learn(self, session: _Session, report: MemberReport, now: int) -> None:
        session.heard, session.heard_at = report.sequence, now
        if report.seen > session.seen:
            session.seen = report.seen
            for id_ in session.acknowledge(report.seen):
                self._limits.mark(session.limits[id_])
        for id_ in report.gone:
            self._remove(session, id_)
        if report.introductions:
            room = 2 * (len(session.limits) + len(report.introductions)) + MOST_LIMITERS // 100
            session.grow(max(len(session.limits), min(room, 1 + max([one.id for one in report.introductions]))))
        for one in report.introductions:
            self._introduce(session, one, now)
        self._claim(session, report)

    def _introduce(self, session: _Session, one: Introduction, now: int) -> None:
        """Learn what a number of a member's means, or that the member's limit is another one now."""
        name = f"{one.key.unit} {one.key.limiter}"
        limit = self._limits.number(name)
        known = session.limit(one.id)
        if known not in (_NONE, limit):
            self._remove(session, one.id)
            known = _NONE
        code = session.code(one.id)
        if known == _NONE:
            is_full = self._shares >= MOST_SHARES or (limit == _NONE and self._limits.names_size > MOST_NAMES)
            if is_full or one.id >= len(session.limits):
                self._refuse("limiters")
                return
            if limit == _NONE:
                limit = self._add(name, one.quota, now)
            elif session.has(limit):
                self._refuse("doubled")
                return
            self._shares += 1
            session.begin(one.id, limit, self._limits.first[limit], one.ppm)
            self._limits.first[limit] = code
            if session.brings and limit in self._short:
                self._limits.pools[limit] = pool = min(WHOLE, self._limits.pools[limit] + one.ppm)
                if pool == WHOLE:
                    self._short.discard(limit)
        self._agree(limit, code, one.quota)
        self._limits.mark(limit)

    def _add(self, name: str, quota: Quota, now: int) -> int:
        is_whole = now >= self._whole_at
        limit = self._limits.add(name, self._quotas.one(quota), WHOLE if is_whole else 0, now)
        if not is_whole:
            self._short.add(limit)
        return limit

    def _agree(self, limit: int, code: int, quota: Quota) -> None:
        """Take one member's value of a limit, and put the lowest of all members' values in force."""
        of = self._limits
        if limit not in of.different:
            if quota == of.quotas[limit]:
                return
            of.different[limit] = {holder.code(id_): of.quotas[limit] for holder, id_ in self._holders(limit)}
        of.different[limit][code] = self._quotas.one(quota)
        self._lowest(limit)
        if limit in of.different:
            session = self._places[code >> _SLOT]
            assert session is not None
            self._disagreement = Disagreement(session.name, _key(of.names[limit]), quota, of.quotas[limit])

    def _lowest(self, limit: int) -> None:
        """Put the lowest of members' values in force, and tell it all holders if values differ, or it has changed."""
        quotas = self._limits.different[limit].values()
        lowest = min(quotas, key=_rate)
        is_same = all(quota == lowest for quota in quotas)
        if lowest != self._limits.quotas[limit] or not is_same:
            for session, id_ in self._holders(limit):
                session.tell(id_)
        self._limits.quotas[limit] = lowest
        if is_same:
            del self._limits.different[limit]

    def _claim(self, session: _Session, report: MemberReport) -> None:
        """Learn what a member uses and wants of the limiters whose demand is in its report."""
        limits, by_streams, mark = session.limits, self.settings.weight == "streams", self._limits.mark
        dirty = self._limits.dirty
        used, wanted, weight = session.used, session.wanted, session.weight
        for id_, uses, wants, streams in zip(report.ids, report.used, report.wanted, report.streams, strict=True):
            limit = limits[id_] if id_ < len(limits) else _NONE
            if limit == _NONE:
                self._refuse("unknown")
                continue
            used[id_], wanted[id_] = uses, wants
            weight[id_] = min(streams, MOST_WEIGHT) if by_streams and streams else 1
            if not dirty[limit]:
                mark(limit)

    def _remove(self, session: _Session, id_: int) -> None:
        """Free a share: the member has given it up, or has gone."""
        limit, limits = session.limit(id_), self._limits
        if limit == _NONE:
            return
        code = session.code(id_)
        if limits.first[limit] == code:
            limits.first[limit] = session.next[id_]
        else:
            before, number = next(one for one in self._holders(limit) if one[0].next[one[1]] == code)
            before.next[number] = session.next[id_]
        session.end(id_)
        self._shares -= 1
        if limit in limits.different:
            del limits.different[limit][code]
            if limits.different[limit]:
                self._lowest(limit)
            else:
                del limits.different[limit]
        if limits.first[limit] == _NONE:
            limits.remove(limit)
            self._short.discard(limit)
        else:
            limits.mark(limit)

    def _holders(self, limit: int) -> Iterator[tuple[_Session, int]]:
        """Yield each session that has a share of a limit, and its member's number for the limit."""
        code = self._limits.first[limit]
        while code != _NONE:
            session, id_ = self._places[code >> _SLOT], code & _NUMBER
            assert session is not None
            yield session, id_
            code = session.next[id_]

    def _divide(self, limit: int, now: int) -> None:
        """Divide a limit among its holders: decreases at once, increases as far as the ceilings leave room.

        Where the room is less than all increases need, each gets the same part of what it needs.
        """
        quota, pool = self._limits.quotas[limit], self._limits.pools[limit]
        scale = quota.period_ns / (quota.tokens * WHOLE)
        holders, granted, ceilings, weights, wanted = [], [], [], [], []
        code = self._limits.first[limit]
        while code != _NONE:
            session, id_ = self._places[code >> _SLOT], code & _NUMBER
            assert session is not None
            holders.append((session, id_))
            granted.append(session.granted[id_])
            ceilings.append(session.ceiling[id_])
            weights.append(session.weight[id_] or 1)
            rate = session.wanted[id_] * scale
            wanted.append(UNBOUNDED if rate < 0 else WHOLE if rate >= WHOLE else ceil(rate))
            code = session.next[id_]
        targets = fill(wanted, weights, pool)
        if sum(granted) <= pool and is_enough(granted, targets, wanted):
            return
        room = max(0, pool - sum(ceilings))
        needed = sum([target - ceiling for target, ceiling in zip(targets, ceilings, strict=True) if target > ceiling])
        for (session, id_), before, target, ceiling in zip(holders, granted, targets, ceilings, strict=True):
            ppm = target
            if ppm > ceiling and needed > room:
                ppm = ceiling + (target - ceiling) * room // needed
            ppm = rounded(ppm)
            if ppm != before:
                session.granted[id_] = ppm
                if ppm > ceiling:
                    session.ceiling[id_] = ppm
                if not session.untold[id_]:
                    session.tell(id_)
                self._limits.changed_at[limit] = now

    # Messages

    def _messages(self, now: int) -> list[Grants]:
        messages: list[Grants] = []
        left = 0
        for grant in self._grants(now):
            size = GRANT_BYTES + SHARE_BYTES * len(grant.ids) + HELD_BYTES * len(grant.held)
            if left < size:
                messages.append(self._empty())
                left = FULL_MESSAGE
            left -= size
            messages[-1].grants.append(grant)
        if self._announce and not messages:
            messages.append(self._empty())
        self._announce = False
        return messages

    def _empty(self) -> Grants:
        return Grants(self.settings.fleet, self.name, self.epoch, len(self._members))

    def _grants(self, now: int) -> Iterator[Grant]:
        for incarnation, sequence in self._to_void.items():
            yield Grant(incarnation, sequence, void=True)
        self._to_void.clear()
        for session in self._members.values():
            again = bool(session.unseen) and session.told_at + self.settings.cycle_ns <= now
            tells = again or session.room() > 0
            if tells or session.heard > session.answered:
                grant = Grant(session.incarnation, session.heard, wants=self.rules.wants(session.incarnation))
                session.answered, session.answered_at = session.heard, session.heard_at
                if tells:
                    session.told_at = now
                    self._tell(session, grant)
                yield grant

    def _tell(self, session: _Session, grant: Grant) -> None:
        """Put into a grant the shares that are not acknowledged, and new ones. So its acknowledgement is one of all."""
        session.sequence = grant.sequence = session.sequence + 1
        last = session.told()
        new = session.take_untold(session.room())
        shares = array("i", [session.granted[id_] for id_ in new])
        if new:
            session.unseen.append((grant.sequence, new, shares))
        grant.ids, grant.ppm = new, shares
        if last:
            last.update(zip(new, shares, strict=True))
            grant.ids = array("i", sorted(last))
            grant.ppm = array("i", [last[id_] for id_ in grant.ids])
        if different := self._limits.different:
            quotas = self._limits.quotas
            grant.held = {id_: quotas[session.limits[id_]] for id_ in grant.ids if session.limits[id_] in different}


def _longer(column: "array[_Number]", more: int, byte: bytes = b"\0") -> "array[_Number]":
    """Return a column that is longer by `more` values, all of whose bytes are `byte`.

    One that at most doubles is extended in place, and has room for more; one that grows further is made anew, exact.
    """
    values = column[:0]
    values.frombytes(byte * (more * column.itemsize))
    if more > len(column):
        return column + values
    column.extend(values)
    return column


def _key(name: str) -> ShareKey:
    unit, _, limiter = name.partition(" ")
    one: Unit = "bytes" if unit == "bytes" else "messages"
    return ShareKey(limiter, one)


def _rate(quota: Quota) -> tuple[float, float, float, float]:
    """Return what orders limits: the rate, the burst, and both of the peak, which is lower than none."""
    tokens, period_ns, burst = quota.peak or (inf, 1, inf)
    return quota.tokens / quota.period_ns, quota.burst, tokens / period_ns, burst
