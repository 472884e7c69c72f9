"""The coordinator of a fleet: divides each limit among the members that use it."""

from array import array
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fleet.member import FleetSettings
from fleet.messages import MOST_LIMITERS, Grant, Grants, Introduction, MemberReport, Quota, ShareKey, ToldDemand, Unit
from fleet.shares import UNBOUNDED, WHOLE, ShareClaim, fill

MOST_MEMBERS = 1000
"""Members, at most; reports of others are refused."""

MOST_SHARES = 2_000_000
"""Shares of all members, at most; introductions beyond are refused."""

MOST_GRANTED = 50_000
"""Shares in one message to one member, at most; those left over follow in the next."""

MOST_BYTES = 900_000
"""A message is filled up to about so many bytes."""

MOST_VOID = 10_000
"""Sessions that have ended, and are remembered so that a late report of theirs is not taken for a new one's."""

MOST_HISTORY = 8
"""Values of one share that are not acknowledged; of more than so many, the two oldest count as the greater one."""

MOST_WEIGHT = (1 << 16) - 1
"""The greatest weight of a claim."""

SLOT = 18
"""Bits of a member's number for a limiter, beside its place, in the code of a share."""


class MemberStatus(NamedTuple):
    """One member as the coordinator knows it; times are in nanoseconds."""

    name: str
    incarnation: int
    since_heard: int
    limiters: int


class LimitStatus(NamedTuple):
    """One limit and its members' shares.

    Attributes:
        key: What is limited.
        quota: The limit; the lowest one if members have different ones.
        disagreement: They do.
        unchanged: Nanoseconds since a share last changed.
        shares: By the member's name: the share granted, and what it uses and wants, in thousandths per second.
    """

    key: ShareKey
    quota: Quota
    disagreement: bool
    unchanged: int
    shares: list[tuple[str, int, int, int]]


class _Limit:
    """One unit of one limiter, and who has a share of it.

    Attributes:
        pool: What may be divided: the whole, or, soon after a takeover, what was brought.
        holders: Codes of shares: place of the member, and its number for this limiter.
        quotas: Each holder's limit, if they are not all the same.
    """

    __slots__ = ("changed_at", "holders", "name", "pool", "quota", "quotas")

    def __init__(self, name: str, quota: Quota, pool: int, now: int) -> None:
        self.name = name
        self.quota = quota
        self.quotas: dict[int, Quota] | None = None
        self.pool = pool
        self.holders = array("i")
        self.changed_at = now


class _Peer:
    """A member in one of its sessions, and its shares: in columns, as there are many, by the member's numbers.

    Attributes:
        limits: What the number means; None if nothing.
        granted: The share that it shall have.
        ceiling: The most that it may be using: of the acknowledged share and all that were granted since.
        untold: Numbers whose `granted` is in no message yet.
        unseen: Numbers of which not every message was acknowledged: (sequence, share), oldest first; the first one may
            be acknowledged.
        answered_at: When the latest report that has been answered was received: its lease counts from here.
    """

    __slots__ = (
        "answered",
        "answered_at",
        "brings",
        "ceiling",
        "granted",
        "heard",
        "heard_at",
        "incarnation",
        "limits",
        "name",
        "place",
        "seen",
        "sequence",
        "since",
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
        self.heard_at = self.answered_at = now
        self.answered = 0
        self.sequence = self.seen = 0
        self.told_at = now
        self.limits: list[_Limit | None] = []
        self.used = array("f")  # for people to see
        self.wanted = array("q")
        self.weight = array("H")
        self.granted = array("i")
        self.ceiling = array("i")
        self.untold: set[int] = set()
        self.unseen: dict[int, list[tuple[int, int]]] = {}

    def grow(self, size: int) -> None:
        """Have room for numbers below `size`."""
        more = size - len(self.limits)
        self.limits.extend([None] * more)
        for column in (self.used, self.wanted, self.weight, self.granted, self.ceiling):
            column.extend([0] * more)

    def limit(self, id_: int) -> _Limit | None:
        """Return what a number means; None if nothing."""
        return self.limits[id_] if id_ < len(self.limits) else None


class Coordinator:
    """The coordinator's side: reports in, grants out. Work is done for what changed, and for members, never for all.

    **No more than the whole.** A member may be using any share that it was granted since the one it last acknowledged.
    The greatest of them is its *ceiling*. Decreases are granted at once; increases only as far as the ceilings of all
    together stay within the whole, thus when decreases have been acknowledged.

    **Lost members.** What a member had is free when it says that it leaves; when it begins another session, since it
    does so after its lease has ended; and a lease and a hundredth after the last report that was answered came in, as
    its own lease counts from its sending. This last only if the link has confirmed *after that* that there was no other
    coordinator: else another one may have renewed the lease.

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
        refused: Reports, and parts of them, that were not taken, by cause.
    """

    def __init__(self, settings: FleetSettings, name: str, epoch: int, now: int) -> None:
        self.settings = settings
        self.name = name
        self.epoch = epoch
        self.deposed = False
        self.refused: Counter[str] = Counter()
        self._expiry_ns = settings.lease_ns * 101 // 100
        self._whole_at = now + settings.lease_ns * 204 // 100
        self._confirmed_at = now
        self._announce = True
        self._members: dict[int, _Peer] = {}
        self._places: list[_Peer | None] = []
        self._limits: dict[str, _Limit] = {}
        self._shares = 0
        self._short: set[_Limit] = set()  # of which less than the whole is divided, after a takeover
        self._dirty: dict[_Limit, None] = {}
        self._void: dict[int, int] = {}  # by incarnation: the session that has ended
        self._to_void: dict[int, int] = {}  # likewise: the report to answer
        self._quotas: dict[Quota, Quota] = {}

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
        if report.epoch < self.epoch:  # it follows us when it hears of us
            self._announce = True
            return True
        peer = self._peer(report, now)
        if peer is None:
            return report.incarnation in self._to_void
        if report.leaving:
            self._drop(peer)
            return True
        self._learn(peer, report, now)
        return bool(self._dirty) or peer.answered == 0

    def grant(self, now: int) -> list[Grants]:
        """Return what to publish now, each of which fits a message: shares that changed, and answers to all reports."""
        if not self.may_grant(now):
            # Without shares and answers it is only the question whether there is no other: the link confirms it.
            return [] if self.deposed else [self._empty()]
        self._expire(now)
        if self._whole_at <= now and self._short:
            for limit in self._short:
                limit.pool = WHOLE
                self._dirty[limit] = None
            self._short.clear()
        for limit in self._dirty:
            self._divide(limit, now)
        self._dirty.clear()
        return self._messages(now)

    def members(self, now: int) -> list[MemberStatus]:
        """Return the members."""
        return [
            MemberStatus(peer.name, peer.incarnation, now - peer.heard_at, sum(one is not None for one in peer.limits))
            for peer in self._members.values()
        ]

    @property
    def disagreements(self) -> int:
        """The number of limits that members have in different values."""
        return sum([limit.quotas is not None for limit in self._limits.values()])

    def limits(self, now: int) -> Iterator[LimitStatus]:
        """Yield all limits; of a huge fleet these are many."""
        for limit in self._limits.values():
            shares = []
            for code in limit.holders:
                peer, id_ = self._holder(code)
                shares.append((peer.name, peer.granted[id_], int(peer.used[id_]), peer.wanted[id_]))
            yield LimitStatus(_key(limit.name), limit.quota, limit.quotas is not None, now - limit.changed_at, shares)

    def _refuse(self, cause: str) -> bool:
        self.refused[cause] += 1
        return False

    # Members

    def _peer(self, report: MemberReport, now: int) -> _Peer | None:
        """Return the member in the report's session; None if the report is not to be taken."""
        incarnation = report.incarnation
        peer = self._members.get(incarnation)
        if peer is not None and (report.since < peer.since or report.sequence <= peer.heard):
            self._refuse("repeated")
            return None
        if peer is not None and report.since == peer.since:
            return peer
        known = peer is not None or incarnation in self._void
        if peer is not None:
            self._drop(peer)
        if report.since <= self._void.get(incarnation, 0) or report.seen:
            if report.leaving:
                return None
            self._to_void[incarnation] = max(report.sequence, self._to_void.get(incarnation, 0))
            if len(self._to_void) > MOST_MEMBERS:
                del self._to_void[next(iter(self._to_void))]
            self._refuse("session")
            return None
        if len(self._members) >= MOST_MEMBERS:
            self._refuse("members")
            return None
        place = next((place for place, one in enumerate(self._places) if one is None), len(self._places))
        peer = _Peer(report, place, now, brings=not known and now < self._whole_at)
        self._places[place : place + 1] = [peer]
        self._members[incarnation] = peer
        return peer

    def _expire(self, now: int) -> None:
        for peer in list(self._members.values()):
            end = peer.answered_at + self._expiry_ns
            if end <= now and end <= self._confirmed_at:
                self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        """Forget a member: its shares are free."""
        for id_ in range(len(peer.limits)):
            self._remove(peer, id_)
        del self._members[peer.incarnation]
        self._places[peer.place] = None
        self._void.pop(peer.incarnation, None)
        self._void[peer.incarnation] = peer.since
        if len(self._void) > MOST_VOID:
            del self._void[next(iter(self._void))]

    # Limits

    def _learn(self, peer: _Peer, report: MemberReport, now: int) -> None:
        peer.heard, peer.heard_at = report.sequence, now
        if report.seen > peer.sequence:
            self._refuse("seen")
        elif report.seen > peer.seen:
            peer.seen = report.seen
            self._acknowledge(peer, report.seen)
        for id_ in report.gone:
            self._remove(peer, id_)
        for one in report.introductions:
            self._introduce(peer, one, now)
        for told in report.told:
            self._claim(peer, told)

    def _introduce(self, peer: _Peer, one: Introduction, now: int) -> None:
        """Learn what a number means, or another limit of the same."""
        name = f"{one.key.unit} {one.key.limiter}"
        limit = self._limits.get(name)
        known = peer.limit(one.id)
        if known is not None and known is not limit:
            self._remove(peer, one.id)
            known = None
        code = peer.place << SLOT | one.id
        if known is None:
            if self._shares >= MOST_SHARES or one.id > 2 * len(peer.limits) + MOST_LIMITERS // 100:
                self._refuse("limiters")
                return
            if limit is None:
                limit = self._add(name, one.quota, now)
            self._shares += 1
            if one.id >= len(peer.limits):
                peer.grow(one.id + 1)
            peer.limits[one.id] = limit
            peer.granted[one.id] = peer.ceiling[one.id] = one.ppm
            limit.holders.append(code)
            if peer.brings and limit in self._short:
                limit.pool = min(WHOLE, limit.pool + one.ppm)
                if limit.pool == WHOLE:
                    self._short.discard(limit)
        assert limit is not None
        self._agree(limit, code, one.quota)
        self._dirty[limit] = None

    def _add(self, name: str, quota: Quota, now: int) -> _Limit:
        if len(self._quotas) > 1000:
            self._quotas.clear()
        limit = _Limit(name, self._quotas.setdefault(quota, quota), WHOLE if now >= self._whole_at else 0, now)
        self._limits[name] = limit
        if limit.pool == 0:
            self._short.add(limit)
        return limit

    def _agree(self, limit: _Limit, code: int, quota: Quota) -> None:
        """Find the lowest of the limits that the members have configured."""
        if limit.quotas is None:
            if quota == limit.quota:
                return
            limit.quotas = dict.fromkeys(limit.holders, limit.quota)
        limit.quotas[code] = quota
        self._lowest(limit)

    def _lowest(self, limit: _Limit) -> None:
        """Put the lowest limit in force, and tell it to those whose own is another one."""
        assert limit.quotas is not None
        lowest = min(limit.quotas.values(), key=_rate)
        if lowest != limit.quota or any(quota != lowest for quota in limit.quotas.values()):
            for code in limit.holders:
                peer, id_ = self._holder(code)
                peer.untold.add(id_)
        limit.quota = lowest
        if all(quota == lowest for quota in limit.quotas.values()):
            limit.quotas = None

    def _claim(self, peer: _Peer, told: ToldDemand) -> None:
        limit = peer.limit(told.id)
        if limit is None:
            self._refuse("unknown")
            return
        peer.used[told.id], peer.wanted[told.id] = told.used, told.wanted
        peer.weight[told.id] = min(max(1, told.streams), MOST_WEIGHT) if self.settings.weight == "streams" else 1
        self._dirty[limit] = None

    def _remove(self, peer: _Peer, id_: int) -> None:
        """Free a share: the member does not use it any more."""
        limit = peer.limit(id_)
        if limit is None:
            return
        code = peer.place << SLOT | id_
        limit.holders.remove(code)
        peer.limits[id_] = None
        peer.granted[id_] = peer.ceiling[id_] = peer.used[id_] = peer.wanted[id_] = peer.weight[id_] = 0
        peer.untold.discard(id_)
        peer.unseen.pop(id_, None)
        self._shares -= 1
        if not limit.holders:
            del self._limits[limit.name]
            self._dirty.pop(limit, None)
            self._short.discard(limit)
            return
        if limit.quotas is not None:
            del limit.quotas[code]
            self._lowest(limit)
        self._dirty[limit] = None

    def _holder(self, code: int) -> tuple[_Peer, int]:
        peer = self._places[code >> SLOT]
        assert peer is not None
        return peer, code & ((1 << SLOT) - 1)

    def _acknowledge(self, peer: _Peer, seen: int) -> None:
        """Lower the ceilings of what the member has applied."""
        for id_, history in list(peer.unseen.items()):
            while len(history) > 1 and history[1][0] <= seen:
                del history[0]
            if history[0][0] > seen:
                continue
            ceiling = max(peer.granted[id_], *(ppm for _, ppm in history))
            if ceiling < peer.ceiling[id_]:
                peer.ceiling[id_] = ceiling
                limit = peer.limits[id_]
                assert limit is not None
                self._dirty[limit] = None
            if len(history) == 1 and id_ not in peer.untold:
                del peer.unseen[id_]
        if not peer.unseen:
            peer.unseen = {}  # an emptied one keeps the room of all that it held

    def _divide(self, limit: _Limit, now: int) -> None:
        """Grant decreases, and increases as far as nobody may be using what they need."""
        holders = [self._holder(code) for code in limit.holders]
        targets = fill([self._wants(limit, peer, id_) for peer, id_ in holders], limit.pool)
        room, needed = limit.pool, 0
        for (peer, id_), target in zip(holders, targets, strict=True):
            room -= peer.ceiling[id_]
            needed += max(0, target - peer.ceiling[id_])
        room = max(0, room)
        for (peer, id_), target in zip(holders, targets, strict=True):
            ppm, ceiling = target, peer.ceiling[id_]
            if ppm > ceiling and needed > room:
                ppm = ceiling + (target - ceiling) * room // needed
            if ppm != peer.granted[id_]:
                peer.granted[id_] = ppm
                peer.ceiling[id_] = max(ceiling, ppm)
                peer.untold.add(id_)
                limit.changed_at = now

    @staticmethod
    def _wants(limit: _Limit, peer: _Peer, id_: int) -> ShareClaim:
        wanted, quota = peer.wanted[id_], limit.quota
        if wanted != UNBOUNDED:
            wanted = min(WHOLE, -(-wanted * quota.period_ns // (quota.tokens * WHOLE)))
        return ShareClaim(wanted, max(1, peer.weight[id_]))

    # Messages

    def _messages(self, now: int) -> list[Grants]:
        messages: list[Grants] = []
        left = 0
        for grant in self._grants(now):
            size = 40 + 10 * len(grant.shares) + 60 * len(grant.held)
            if left < size:
                messages.append(self._empty())
                left = MOST_BYTES
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
        for peer in self._members.values():
            again = bool(peer.unseen) and peer.told_at + self.settings.cycle_ns <= now
            if peer.untold or again or peer.heard > peer.answered:
                grant = Grant(peer.incarnation, peer.heard)
                peer.answered, peer.answered_at = peer.heard, peer.heard_at
                if peer.untold or again:
                    peer.told_at = now
                    self._tell(peer, grant)
                yield grant

    @staticmethod
    def _tell(peer: _Peer, grant: Grant) -> None:
        """Put into a grant all that is not acknowledged, then what is new: the member's `seen` is then true of all."""
        peer.sequence = grant.sequence = peer.sequence + 1
        told = [id_ for id_ in peer.unseen if id_ not in peer.untold]
        new = sorted(peer.untold)[:MOST_GRANTED]
        peer.untold = peer.untold.difference(new)
        for id_ in new:
            history = peer.unseen.setdefault(id_, [])
            history.append((grant.sequence, peer.granted[id_]))
            if len(history) > MOST_HISTORY:
                history[:2] = [(history[1][0], max(history[0][1], history[1][1]))]
        for id_ in (*told, *new):
            grant.shares.append((id_, peer.granted[id_]))
            limit = peer.limits[id_]
            if limit is not None and limit.quotas is not None:
                grant.held[id_] = limit.quota


def _key(name: str) -> ShareKey:
    unit, _, limiter = name.partition(" ")
    one: Unit = "bytes" if unit == "bytes" else "messages"
    return ShareKey(limiter, one)


def _rate(quota: Quota) -> tuple[float, int, tuple[int, ...]]:
    return quota.tokens / quota.period_ns, quota.burst, quota.peak or ()
