"""The share table of a coordinator: each limit that members share, its members' shares, and its division.

`ShareTable` has the limits, `MemberShares` the shares of one member in one session:

    report ─▶ hear: acknowledged grants, introductions, demand ─▶ the limits that these concern are dirty
                                                                       │ divide: each dirty limit
    grant  ◀─ fill: shares that are in no grant yet, or in one that is not acknowledged ◀┘

**No more than the whole.** A member may be using any share that it was granted since the one it last acknowledged. The
greatest is its *ceiling*. Decreases are granted at once; increases only as far as the ceilings of all members together
stay within the whole, thus when decreases have been acknowledged:

    time ─────────────────────────────────────────────────────────────▶
    A   granted 600,000 ─┬─ granted 400,000, ceiling 600,000 ─┬─ acknowledged: ceiling 400,000
    B   granted 400,000 ─┴─ wants more, stays at 400,000 ─────┴─ granted 600,000
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple, TypeVar

from fleet.messages import MOST_LIMITERS, Grant, Introduction, MemberReport, Quota, QuotaPool, ShareKey, Unit
from fleet.name_table import NO_NUMBER, NameTable
from fleet.shares import MOST_WEIGHT, UNBOUNDED, WHOLE, fill, is_enough, rounded

MOST_SHARES = 2_000_000
"""Shares of all members together, at most. Introductions beyond are dropped."""

MOST_NAMES = 256 << 20
"""Bytes of the names of all limits, at most. Introductions of others are dropped."""

MOST_GRANTED = 500
"""Shares that are granted to one member and not acknowledged, at most. Others follow when the member has acknowledged
some. Each grant has all of these, and each process takes some milliseconds for so many."""

MOST_UNSEEN = 16
"""Grants with new shares that one member has not acknowledged, at most. Until it does, further grants only repeat the
shares of earlier ones."""

_NUMBER_BITS = 18
"""Bits of a share's *code* that hold the member's number for the limit; the bits above hold the member's index.

    code = │ index in `ShareTable._members` │ the member's number for the limit: 18 bits │
"""
_NUMBER = (1 << _NUMBER_BITS) - 1
_NO_CODE = -1
"""The code at the end of a limit's chain."""

_Number = TypeVar("_Number", int, float)


class Disagreement(NamedTuple):
    """Members have different values of one limit.

    Attributes:
        member: The name of the member that reported its value last.
        key: The limit.
        own: That member's value.
        in_force: The value that holds for all.
    """

    member: str
    key: ShareKey
    own: Quota
    in_force: Quota


class HolderStatus(NamedTuple):
    """One member's share of a limit.

    Attributes:
        member: The member's name.
        ppm: The share granted, in millionths.
        used: The rate that the member uses, in thousandths of a token per second.
        wanted: The rate that it wants, in the same unit; or `UNBOUNDED`.
    """

    member: str
    ppm: int
    used: int
    wanted: int


class LimitStatus(NamedTuple):
    """One limit and its members' shares.

    Attributes:
        key: The limit.
        quota: Its value; the lowest one if members have different ones.
        disagreement: Members have different values.
        unchanged: Nanoseconds since a share last changed.
        holders: The members that have a share.
    """

    key: ShareKey
    quota: Quota
    disagreement: bool
    unchanged: int
    holders: list[HolderStatus]


class MemberShares:
    """The shares of one member in one session, in columns by the member's numbers, as there may be many.

    A granted share passes these states. Until it is acknowledged, each grant repeats it, so that the acknowledgement of
    a grant is that of all earlier ones:

        divided: *unsent* ─next_shares─▶ in a grant: *unseen* ─acknowledge─▶ the member's ceiling is this share

    Attributes:
        name: The member's name, for people.
        index: The member's index in `ShareTable._members`.
        brings: The member introduces limits with shares that the previous coordinator has granted. These may be
            divided.
        sequence, sent_at: The latest grant with shares, and when it was made.
        seen: The latest grant that the member has acknowledged.
        limits: By the member's number, the limit's number in `ShareTable`, or `NO_NUMBER`.
        holds: A bit for each limit's number: whether the member has a share of that limit. A member has one share of a
            limit at most. Else it could make the chain of a limit's shares, which is searched, of any length.
        next: The code of the next share of the same limit.
        used, wanted: The latest demand, in thousandths of a token per second.
        weight: The weight of the latest claim; 0 before the first.
        granted: The share that the member shall have, in millionths.
        ceiling: The greatest share that the member may be using: of the acknowledged one, and all granted since.
        unsent: 1 where `granted` is in no grant yet; `unsent_count` is the number of ones, and `unsent_from` where the
            next grant begins to look for them.
        unseen: Grants that are not acknowledged: the sequence, and the numbers and values of their new shares.
        removed: Numbers that mean another limit, or none, since the grant of this sequence.
    """

    __slots__ = (
        "brings",
        "ceiling",
        "granted",
        "holds",
        "index",
        "limits",
        "name",
        "next",
        "removed",
        "seen",
        "sent_at",
        "sequence",
        "unseen",
        "unsent",
        "unsent_count",
        "unsent_from",
        "used",
        "wanted",
        "weight",
    )

    def __init__(self, name: str, index: int, *, brings: bool) -> None:
        self.name = name
        self.index = index
        self.brings = brings
        self.sequence = self.seen = self.sent_at = 0
        self.limits = array("i")
        self.holds = bytearray()
        self.next = array("i")
        self.used = array("f")  # shown to people, and not divided by
        self.wanted = array("f")
        self.weight = array("H")
        self.granted = array("i")
        self.ceiling = array("i")
        self.unsent = bytearray()
        self.unsent_count = self.unsent_from = 0
        self.unseen: deque[tuple[int, array[int], array[int]]] = deque()
        self.removed: dict[int, int] = {}

    @property
    def total(self) -> int:
        """The number of shares."""
        return len(self.limits) - self.limits.count(NO_NUMBER)

    # Numbers

    def code(self, id_: int) -> int:
        """Return the code of a share, by the member's number for its limit."""
        return self.index << _NUMBER_BITS | id_

    def limit(self, id_: int) -> int:
        """Return the limit's number in `ShareTable`, by the member's number; `NO_NUMBER` if that means none."""
        return self.limits[id_] if id_ < len(self.limits) else NO_NUMBER

    def has(self, limit: int) -> bool:
        """Return whether the member has a share of this limit."""
        return limit >> 3 < len(self.holds) and bool(self.holds[limit >> 3] & 1 << (limit & 7))

    def grow(self, introductions: Sequence[Introduction]) -> None:
        """Make the columns long enough for the introduced numbers, except for a number far above all others."""
        length = len(self.limits)
        room = 2 * (length + len(introductions)) + MOST_LIMITERS // 100
        more = max(length, min(room, 1 + max([introduction.id for introduction in introductions]))) - length
        self.unsent.extend(bytes(more))
        self.limits = _longer(self.limits, more, b"\xff")
        self.next = _longer(self.next, more)
        self.used = _longer(self.used, more)
        self.wanted = _longer(self.wanted, more)
        self.weight = _longer(self.weight, more)
        self.granted = _longer(self.granted, more)
        self.ceiling = _longer(self.ceiling, more)

    def begin(self, id_: int, limit: int, following: int, ppm: int) -> None:
        """Assign a number to a limit.

        Args:
            id_: The member's number, which means no limit yet.
            limit: The limit's number in `ShareTable`.
            following: The code of the share that follows in the limit's chain; `_NO_CODE` if none.
            ppm: The share in force in the member, in millionths.
        """
        self.limits[id_], self.next[id_] = limit, following
        if limit >> 3 >= len(self.holds):
            self.holds.extend(bytes((limit >> 3) + 1 - len(self.holds)))
        self.holds[limit >> 3] |= 1 << (limit & 7)
        self.granted[id_] = self.ceiling[id_] = ppm

    def end(self, id_: int) -> None:
        """Free a number. The caller has taken its share out of the limit's chain."""
        limit, self.limits[id_] = self.limits[id_], NO_NUMBER
        self.holds[limit >> 3] &= ~(1 << (limit & 7))
        self.granted[id_] = self.ceiling[id_] = self.weight[id_] = 0
        self.used[id_] = self.wanted[id_] = 0
        self.unsent_count -= self.unsent[id_]
        self.unsent[id_] = 0
        if self.unseen:
            self.removed[id_] = self.sequence

    # Grants

    def is_due(self, now: int, again_ns: int, *, may_wait: bool) -> bool:
        """Return whether the next grant has shares: new ones, or ones that were last sent `again_ns` ago or before.

        Args:
            now: The time.
            again_ns: When shares without an acknowledgement are sent again.
            may_wait: New ones wait for others that follow soon: else each grant would repeat those of the one before.
        """
        return (bool(self.unseen) and self.sent_at + again_ns <= now) or (not may_wait and self._room() > 0)

    def mark_unsent(self, id_: int) -> None:
        """Mark a share for the next grant."""
        self.unsent_count += 1 - self.unsent[id_]
        self.unsent[id_] = 1

    def next_shares(self, now: int) -> "tuple[array[int], array[int]]":
        """Return the ascending numbers and the shares of the next grant: new ones, and all without an acknowledgement.

        Its acknowledgement is that of all.
        """
        self.sent_at = now
        self.sequence += 1
        latest: dict[int, int] = {}
        for unseen in self.unseen:
            latest.update(self._valid(*unseen))
        new = self._take_unsent(self._room())
        shares = array("i", [self.granted[id_] for id_ in new])
        if new:
            self.unseen.append((self.sequence, new, shares))
        if not latest:
            return new, shares
        latest.update(zip(new, shares, strict=True))
        ids = array("i", sorted(latest))
        return ids, array("i", [latest[id_] for id_ in ids])

    def acknowledge(self, seen: int) -> list[int]:
        """Take all grants up to this one as applied in the member; return the numbers whose ceiling is lower now."""
        if seen <= self.seen:
            return []
        self.seen = seen
        applied: dict[int, int] = {}
        while self.unseen and self.unseen[0][0] <= seen:
            applied.update(self._valid(*self.unseen.popleft()))
        later: dict[int, int] = {}
        for unseen in self.unseen:
            for id_, ppm in self._valid(*unseen):
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

    def _valid(self, sequence: int, ids: "array[int]", ppm: "array[int]") -> Iterator[tuple[int, int]]:
        pairs = zip(ids, ppm, strict=True)
        if not self.removed:
            return pairs
        return ((id_, share) for id_, share in pairs if self.removed.get(id_, 0) < sequence)

    def _room(self) -> int:
        """Return the number of new shares that the next grant may have."""
        if not self.unsent_count or len(self.unseen) >= MOST_UNSEEN:
            return 0
        return max(0, MOST_GRANTED - sum([len(ids) for _, ids, _ in self.unseen]))

    def _take_unsent(self, most: int) -> "array[int]":
        """Return the numbers of up to `most` shares that are in no grant yet, ascending, and unmark them.

        Each call goes on behind the last one's, so that no number waits for those that change with each grant.
        """
        ids: list[int] = []
        begin, end = self.unsent_from, len(self.unsent)
        for first, last in ((begin, end), (0, begin)):
            at = self.unsent.find(1, first, last)
            while at >= 0 and len(ids) < most:
                ids.append(at)
                self.unsent[at] = 0
                self.unsent_from = at + 1
                at = self.unsent.find(1, at + 1, last)
        self.unsent_count -= len(ids)
        return array("H" if len(self.limits) <= 1 << 16 else "i", sorted(ids))


class ShareTable:
    """The limits that members share. A *limit* is here one unit of one limiter.

    Limits are in columns by their numbers, as there may be many. From a limit a chain of codes leads through the shares
    of all its members:

        name ─NameTable─▶ limit's number ─_first─▶ code ─▶ a member's `MemberShares`, and a number of the member
                                 ▲                                 │ next
                                 └──── MemberShares.limits ──── code ─▶ another member … ─▶ `_NO_CODE`

    Until `whole_at`, only the shares that members bring are divided, as no other member holds these.

    Each call except `limits` takes time for changed limits, never for all, and `divide` for a bounded number of shares:
    a *step* is a share that is looked at.

    Args:
        whole_at: When all grants of earlier coordinators have ended.
        dropped: Counts the parts of reports that are not taken, by cause.
        by_streams: A member's claim has the weight of its waiting streams, and not 1.
    """

    def __init__(self, whole_at: int, dropped: Counter[str], *, by_streams: bool) -> None:
        self._whole_at = whole_at
        self._dropped = dropped
        self._by_streams = by_streams
        self._members: list[MemberShares | None] = []
        self._total = 0  # shares of all members together
        self._names = NameTable()  # by number: the limit's unit, space, limiter
        self._quotas: list[Quota] = []  # the limit; the lowest one if members have different ones
        self._different: dict[int, dict[int, Quota]] = {}
        """For each limit that members have with different values: these values, by the codes of the shares."""
        self._divisible = array("i")
        """The divisible part, in millionths of the limit: the whole, or, soon after a takeover, the shares that members
        brought."""
        self._short: set[int] = set()  # limits whose divisible part is less than the whole
        self._first = array("i")  # the code of one share; those of the others follow by `MemberShares.next`
        self._changed_at = array("q")  # when a share of the limit last changed
        self._is_dirty = bytearray()  # 1 where the limit must be divided
        self._dirty = array("i")  # the numbers of dirty limits, and of some that were removed since
        self._divided = 0  # how many of these, from the first on, are not dirty any more
        self._leaving: deque[tuple[MemberShares, int]] = deque()
        """Members whose session has ended: their shares from this number on are to be freed."""
        self._quota_pool = QuotaPool()
        self._disagreement: Disagreement | None = None

    @property
    def is_dirty(self) -> bool:
        """Whether `divide` has something to do."""
        return len(self._dirty) > self._divided or bool(self._leaving)

    @property
    def leaving(self) -> int:
        """The number of members whose session has ended, and whose shares `divide` still has to free."""
        return len(self._leaving)

    @property
    def disagreements(self) -> int:
        """The number of limits that members have with different values."""
        return len(self._different)

    def take_disagreement(self) -> Disagreement | None:
        """Return the latest disagreement that a report showed since the last call; None if none did."""
        disagreement, self._disagreement = self._disagreement, None
        return disagreement

    def limits(self, now: int) -> Iterator[LimitStatus]:
        """Yield all limits; at most `MOST_SHARES`."""
        for limit, name in self._names:
            holders = [
                HolderStatus(member.name, member.granted[id_], int(member.used[id_]), int(member.wanted[id_]))
                for member, id_ in self._holders(limit)
            ]
            unchanged = now - self._changed_at[limit]
            yield LimitStatus(_key(name), self._quotas[limit], limit in self._different, unchanged, holders)

    # Members

    def join(self, name: str, *, brings: bool) -> MemberShares:
        """Return the shares of a member whose session begins: none yet.

        Args:
            name: The member's name, for people.
            brings: The member introduces limits with shares that the previous coordinator has granted.
        """
        index = next((index for index, member in enumerate(self._members) if member is None), len(self._members))
        member = MemberShares(name, index, brings=brings)
        self._members[index : index + 1] = [member]
        return member

    def leave(self, member: MemberShares) -> None:
        """Have `divide` free all shares of a member whose session has ended."""
        member.unseen.clear()
        self._leaving.append((member, 0))

    def hear(self, member: MemberShares, report: MemberReport, now: int) -> None:
        """Take the acknowledgement, introductions and demands of a report, and mark their limits as dirty."""
        for id_ in member.acknowledge(report.seen):
            self._mark(member.limits[id_])
        for id_ in report.gone:
            self._remove(member, id_)
        if report.introductions:
            member.grow(report.introductions)
        for introduction in report.introductions:
            self._introduce(member, introduction, now)
        self._claim(member, report)

    def grant(self, incarnation: int, answers: int, member: MemberShares, now: int) -> Grant:
        """Return a grant of the member's shares that it lacks, and the limits that not all members have alike."""
        ids, ppm = member.next_shares(now)
        held: dict[int, Quota] = {}
        if different := self._different:
            limits = member.limits
            held = {id_: self._quotas[limits[id_]] for id_ in ids if limits[id_] in different}
        return Grant(incarnation, answers, member.sequence, ids=ids, ppm=ppm, held=held)

    def _introduce(self, member: MemberShares, introduction: Introduction, now: int) -> None:
        """Assign the member's number to a limit, or take the member's new value of the limit."""
        id_, key, quota, ppm = introduction
        name = f"{key.unit} {key.limiter}"
        limit = self._names.number(name)
        assigned = member.limit(id_)
        if assigned not in (NO_NUMBER, limit):
            self._remove(member, id_)
            assigned = NO_NUMBER
        code = member.code(id_)
        if assigned == NO_NUMBER:
            is_full = self._total >= MOST_SHARES or (limit == NO_NUMBER and self._names.size > MOST_NAMES)
            if is_full or id_ >= len(member.limits):
                self._dropped["limiters"] += 1
                return
            if limit == NO_NUMBER:
                limit = self._add(name, quota, now)
            elif member.has(limit):
                self._dropped["doubled"] += 1
                return
            self._total += 1
            member.begin(id_, limit, self._first[limit], ppm)
            self._first[limit] = code
            if member.brings and limit in self._short:
                self._divisible[limit] = pool = min(WHOLE, self._divisible[limit] + ppm)
                if pool == WHOLE:
                    self._short.discard(limit)
        self._agree(limit, code, quota)
        self._mark(limit)

    def _claim(self, member: MemberShares, report: MemberReport) -> None:
        """Take the demands of a report."""
        limits, by_streams, mark = member.limits, self._by_streams, self._mark
        dirty = self._is_dirty
        used, wanted, weight = member.used, member.wanted, member.weight
        for id_, uses, wants, streams in zip(report.ids, report.used, report.wanted, report.streams, strict=True):
            limit = limits[id_] if id_ < len(limits) else NO_NUMBER
            if limit == NO_NUMBER:
                self._dropped["unknown"] += 1
                continue
            used[id_], wanted[id_] = uses, wants
            weight[id_] = min(streams, MOST_WEIGHT) if by_streams and streams else 1
            if not dirty[limit]:
                mark(limit)

    def _remove(self, member: MemberShares, id_: int) -> int:
        """Free a share: the member has given up the limit, or its session has ended. Return the steps that it took."""
        limit, steps = member.limit(id_), 1
        if limit == NO_NUMBER:
            return steps
        code = member.code(id_)
        if self._first[limit] == code:
            self._first[limit] = member.next[id_]
        else:
            for holder, number in self._holders(limit):  # pragma: no branch - the chain has the code
                steps += 1
                if holder.next[number] == code:
                    holder.next[number] = member.next[id_]
                    break
        member.end(id_)
        self._total -= 1
        if limit in self._different:
            del self._different[limit][code]
            if self._different[limit]:
                self._put_lowest_in_force(limit)
            else:
                del self._different[limit]
        if self._first[limit] == _NO_CODE:
            self._names.remove(limit)
            self._short.discard(limit)
        else:
            self._mark(limit)
        return steps

    # Limits

    def _add(self, name: str, quota: Quota, now: int) -> int:
        """Add a limit that no member shares yet, and return its number."""
        limit = self._names.add(name)
        if limit == len(self._quotas):
            self._quotas.append(quota)
            self._is_dirty.append(0)
            for column in (self._divisible, self._first, self._changed_at):
                column.append(0)
        self._quotas[limit] = self._quota_pool.shared(quota)
        self._first[limit], self._changed_at[limit] = _NO_CODE, now
        if now >= self._whole_at:
            self._divisible[limit] = WHOLE
        else:
            self._divisible[limit] = 0
            self._short.add(limit)
        return limit

    def _mark(self, limit: int) -> None:
        """Mark a limit as dirty."""
        if not self._is_dirty[limit]:
            self._is_dirty[limit] = 1
            self._dirty.append(limit)

    def _holders(self, limit: int) -> Iterator[tuple[MemberShares, int]]:
        """Yield each member that has a share of a limit, and its number for the limit."""
        code = self._first[limit]
        while code != _NO_CODE:
            member, id_ = self._members[code >> _NUMBER_BITS], code & _NUMBER
            assert member is not None
            yield member, id_
            code = member.next[id_]

    def _agree(self, limit: int, code: int, quota: Quota) -> None:
        """Take one member's value of a limit, and put the lowest of all members' values in force."""
        if limit not in self._different:
            if quota == self._quotas[limit]:
                return
            self._different[limit] = {holder.code(id_): self._quotas[limit] for holder, id_ in self._holders(limit)}
        self._different[limit][code] = self._quota_pool.shared(quota)
        self._put_lowest_in_force(limit)
        if limit in self._different:
            member = self._members[code >> _NUMBER_BITS]
            assert member is not None
            self._disagreement = Disagreement(member.name, _key(self._names[limit]), quota, self._quotas[limit])

    def _put_lowest_in_force(self, limit: int) -> None:
        """Put the lowest of members' values in force; holders get it if values differ or it has changed."""
        quotas = self._different[limit].values()
        lowest = min(quotas, key=Quota.order)
        is_same = all(quota == lowest for quota in quotas)
        if lowest != self._quotas[limit] or not is_same:
            for member, id_ in self._holders(limit):
                member.mark_unsent(id_)
        self._quotas[limit] = lowest
        if is_same:
            del self._different[limit]

    def divide(self, now: int, most_steps: int) -> None:
        """Free the shares of members that leave, and divide dirty limits; from `whole_at` on the whole of each.

        It ends after `most_steps` or a little more. `is_dirty` says whether something is left.
        """
        steps = self._free(most_steps)
        while self._short and self._whole_at <= now and steps < most_steps:
            limit = self._short.pop()
            self._divisible[limit] = WHOLE
            self._mark(limit)
            steps += 1
        while self._divided < len(self._dirty) and steps < most_steps:
            limit = self._dirty[self._divided]
            self._divided += 1
            self._is_dirty[limit] = 0
            steps += self._divide(limit, now)
        if 2 * self._divided >= len(self._dirty):
            del self._dirty[: self._divided]
            self._divided = 0

    def _free(self, most_steps: int) -> int:
        """Free shares of members that leave; return the steps that it took."""
        steps = 0
        while self._leaving and steps < most_steps:
            member, id_ = self._leaving.popleft()
            while id_ < len(member.limits) and steps < most_steps:
                steps += self._remove(member, id_)
                id_ += 1
            if id_ < len(member.limits):
                self._leaving.appendleft((member, id_))
            else:
                self._members[member.index] = None
        return steps

    def _divide(self, limit: int, now: int) -> int:
        """Divide a limit among its holders: decreases at once, increases as far as the ceilings leave room.

        If the room is less than all increases together, each gets the same part of its increase. Return the steps that
        it took.
        """
        quota, pool = self._quotas[limit], self._divisible[limit]
        scale = quota.period_ns / (quota.tokens * WHOLE)
        holders, granted, ceilings, weights, wanted = [], [], [], [], []
        code, members = self._first[limit], self._members
        while code != _NO_CODE:
            member, id_ = members[code >> _NUMBER_BITS], code & _NUMBER
            assert member is not None
            holders.append((member, id_))
            granted.append(member.granted[id_])
            ceilings.append(member.ceiling[id_])
            weights.append(member.weight[id_] or 1)
            rate = member.wanted[id_] * scale
            wanted.append(UNBOUNDED if rate < 0 else WHOLE if rate >= WHOLE else ceil(rate))
            code = member.next[id_]
        targets = fill(wanted, weights, pool)
        if sum(granted) <= pool and is_enough(granted, targets, wanted):
            return 1 + len(holders)
        room = max(0, pool - sum(ceilings))
        needed = sum([target - ceiling for target, ceiling in zip(targets, ceilings, strict=True) if target > ceiling])
        for (member, id_), before, target, ceiling in zip(holders, granted, targets, ceilings, strict=True):
            ppm = target
            if ppm > ceiling and needed > room:
                ppm = ceiling + (target - ceiling) * room // needed
            ppm = rounded(ppm)
            if ppm != before:
                member.granted[id_] = ppm
                if ppm > ceiling:
                    member.ceiling[id_] = ppm
                if not member.unsent[id_]:
                    member.mark_unsent(id_)
                self._changed_at[limit] = now
        return 1 + len(holders)


def _longer(column: "array[_Number]", more: int, byte: bytes = b"\0") -> "array[_Number]":
    """Return a column that is longer by `more` values, all of whose bytes are `byte`.

    A column that at most doubles is extended in place, and has room for more. A column that grows further is copied,
    and has no room for more.
    """
    values = column[:0]
    values.frombytes(byte * (more * column.itemsize))
    if more > len(column):
        return column + values
    column.extend(values)
    return column


def _key(name: str) -> ShareKey:
    word, _, limiter = name.partition(" ")
    unit: Unit = "bytes" if word == "bytes" else "messages"
    return ShareKey.of(limiter, unit)
