"""The messages of members and their coordinator: plain values, and their bytes (`fleet.proto`).

    member                                                                          coordinator
      ── report 7: introduces number 0 as `publish tenant acme`, and its demand ──▶
      ◀─ grant: answers 7, sequence 1: number 0 has 400,000 millionths ────────────
      ── report 8: has seen 1; number 0 wants more ────────────────────────────────▶
      ◀─ grant: answers 8, sequence 2: number 0 has 600,000 millionths ────────────

Messages of both directions may be lost, doubled, delayed and reordered. Each report carries all that its coordinator
has not answered yet, each grant all that its member has not acknowledged yet. So the latest message alone is complete,
older ones that come later are ignored, and no loss needs a repair of its own.

Names of limits travel once. A member numbers its limits and introduces each with its name. Both sides use the number
from then on. The numbers are the member's own, so it can use them before an answer has come back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from math import inf
from sys import intern
from typing import Literal, NamedTuple, Self

from google.protobuf.message import DecodeError

from fleet import fleet_pb2 as wire
from fleet.shares import GRAIN, UNBOUNDED, WHOLE

VERSION = 1
"""The version of the messages. Messages of another version are dropped."""

MOST_MESSAGE = 1 << 20
"""Bytes of a message, at most: a fifth of what Pulsar takes. Longer messages are dropped unread."""

FULL_MESSAGE = 900_000
"""Grants are filled up to about this number of bytes; the rest follows in the next ones."""

FULL_REPORT = 32_000
"""Bytes of demands in a report, at most: 800 demands, or 180 introductions with names of 80 bytes. Both sides take a
few milliseconds for so many. The rest follows when these are answered."""
MOST_GONE = 50
"""Numbers of limits that are gone in a report, at most. The coordinator searches the chain of each."""

DEMAND_BYTES, INTRODUCTION_BYTES = 40, 100
"""Bytes in a report, at most, of a demand, and of a demand with its introduction without the name."""

GRANT_BYTES, SHARE_BYTES, HELD_BYTES = 40, 10, 60
"""Bytes of a grant, at most, and in it of each share, and of each limit that not all members have alike.
A new field needs greater ones."""

MOST_LIMITERS = 200_000
"""Limits (units of limiters) of one member, at most. Its numbers for them are smaller than this."""

MOST_SETS, MOST_SET_MEMBERS = 5, 5
"""Different sets of limits, and versions of Sluice, that grants name, and members of each, at most."""

MOST_VERSION = 64
"""Characters of a version of Sluice, at most; the rest of a longer one is not read."""

MOST_LISTED = 100
"""Members in a list of members (`Grants.roster`), at most: at most 60 KiB of a message."""

MOST_BROKERS = 100
"""Brokers that one message names, at most."""

MOST_NAME = {"fleet": 128, "member": 256, "limiter": 4096, "broker": 300}
"""Bytes of a name in UTF-8, at most."""

MOST_QUOTAS = 1000
"""Quotas in a `QuotaPool`, at most."""

MOST_EPOCH = (1 << 63) - 1
"""The greatest epoch; messages with others are dropped."""

MOST = (1 << 62) - 1
"""The greatest number; a greater one in a message is read as this."""

_GRAINS = WHOLE // GRAIN

Unit = Literal["messages", "bytes"]


class BadMessage(Exception):
    """Bytes that are no message of this protocol.

    Attributes:
        cause: Why, as a label of metrics: `oversized`, `malformed`, `version`, `kind`, `columns`, `name`, `value`.
    """

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause


class ShareKey(NamedTuple):
    """One limit: a unit of a limiter, whose name is the same in all members, as `publish topic persistent://t/n/x`.

    Attributes:
        kind: The first two words of the limiter's name, as `publish topic`; empty if it has only one or two words.
        name: The rest. The member has this string already, so a key takes no memory for a longer one.
        unit: The unit that the limit counts.
    """

    kind: str
    name: str
    unit: Unit

    @classmethod
    def of(cls, limiter: str, unit: Unit) -> "ShareKey":
        """Return the key of a unit of a limiter by that limiter's whole name."""
        end = limiter.find(" ", limiter.find(" ") + 1)
        return cls(intern(limiter[:end]), limiter[end + 1 :], unit) if end > 0 else cls("", limiter, unit)

    @property
    def limiter(self) -> str:
        """The limiter's whole name."""
        return f"{self.kind} {self.name}" if self.kind else self.name

    @property
    def wire_name(self) -> str:
        """The limiter's name in messages; a name that is too long is cut, and ends with a digest of the whole."""
        name = self.limiter.encode()
        if len(name) <= MOST_NAME["limiter"]:
            return self.limiter
        digest = f"…{sha256(name).hexdigest()}"
        return name[: MOST_NAME["limiter"] - len(digest.encode())].decode(errors="ignore") + digest


class Quota(NamedTuple):
    """A limit as one member's configuration has it: tokens, nanoseconds and burst, and those of its peak."""

    tokens: int
    period_ns: int
    burst: int
    peak: tuple[int, int, int] | None = None

    def order(self) -> tuple[float, float, float, float]:
        """Return a key that sorts the lowest quota first: by rate, burst, and those of the peak. No peak comes last."""
        tokens, period_ns, burst = self.peak or (inf, 1, inf)
        return self.tokens / self.period_ns, self.burst, tokens / period_ns, burst


class QuotaPool:
    """Keeps one object for each quota, as most limits are alike. A pool of too many quotas is cleared."""

    def __init__(self) -> None:
        self._quotas: dict[Quota, Quota] = {}

    def shared(self, quota: Quota) -> Quota:
        """Return the pool's object that is equal to `quota`."""
        if len(self._quotas) > MOST_QUOTAS:
            self._quotas.clear()
        return self._quotas.setdefault(quota, quota)


class Demand(NamedTuple):
    """One member's demand for one limit.

    Attributes:
        used: The rate that passes, in thousandths of a token per second.
        wanted: The rate that would pass if the share allowed, in the same unit, and never less than `used`; `UNBOUNDED`
            if streams wait nearly all the time, so that the rate is unknown.
        streams: The number of streams that wait, or waited not long ago, at least 1 if `wanted` is not 0: the weight of
            the claim.
        quota: The limit in this member's own configuration.
    """

    used: int
    wanted: int
    streams: int
    quota: Quota


class LimitShare(NamedTuple):
    """A member's share of a limit: `ppm` millionths of `quota`, or of its own limit if that is None or lower."""

    key: ShareKey
    ppm: int
    quota: Quota | None


class Introduction(NamedTuple):
    """A number's meaning: the limiter, its limit, and the share in force as the report is sent."""

    id: int
    key: ShareKey
    quota: Quota
    ppm: int


class WrittenLimits(NamedTuple):
    """The limits that are written in a member, as far as it shares them.

    Attributes:
        digest: Equal in all members in which the same limits are written (`limiter.policies.LimitTally`).
        total: The number of limits.
    """

    digest: int
    total: int


NO_LIMITS = WrittenLimits(0, 0)


class LimitSet(NamedTuple):
    """The limits that are written alike in some members.

    Attributes:
        written: The limits.
        members: The number of members.
        names: The members' names, at most `MOST_SET_MEMBERS`.
    """

    written: WrittenLimits
    members: int
    names: tuple[str, ...]


class VersionSet(NamedTuple):
    """A version of Sluice that some members run.

    Attributes:
        version: The version; empty: unknown.
        members: The number of members.
        names: The members' names, at most `MOST_SET_MEMBERS`.
    """

    version: str
    members: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemberReport:
    """A member's report to the coordinator.

    Attributes:
        fleet: The fleet's name.
        member: The member's name, for people; empty once it has applied a grant in this session.
        incarnation: This run of the member, a random number: a member that restarts is a new member.
        sequence: The number of this report; the member's first report has 1.
        since: The first report of this *session*. A member begins a new session when it follows another coordinator,
            and when its lease has ended: all earlier grants are void then.
        epoch: The epoch of the coordinator that the member follows; 0 if none.
        seen: The sequence of the latest grant applied in this session; it acknowledges this and all earlier ones.
        leaving: All shares of the member are 0 from now on.
        introductions: Numbers that the coordinator does not know yet, or whose limit has changed.
        ids: The numbers of the limits whose demand is reported, ascending. `used`, `wanted` and `streams`, as in
            `Demand`, are columns in the same order, as there may be many.
        gone: Numbers of limits that the member has removed.
        written: The limits that are written in the member.
        brokers: Brokers, as `host:port`, that lookup answers have named to the member; at most `MOST_BROKERS`.
        version: The version of Sluice that the member runs; empty like `member`, and where it is unknown.
    """

    fleet: str
    member: str
    incarnation: int
    sequence: int
    since: int
    epoch: int
    seen: int = 0
    leaving: bool = False
    introductions: list[Introduction] = field(default_factory=list)
    ids: Sequence[int] = field(default_factory=list)
    used: Sequence[int] = field(default_factory=list)
    wanted: Sequence[int] = field(default_factory=list)
    streams: Sequence[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    written: WrittenLimits = NO_LIMITS
    brokers: Sequence[str] = ()
    version: str = ""

    @property
    def units(self) -> int:
        """The work that this report is, in introductions, which take as long as ten demands."""
        return len(self.introductions) + len(self.gone) + len(self.ids) // 10

    def encode(self) -> bytes:
        """Return the bytes of this report."""
        message = wire.Message(version=VERSION, fleet=self.fleet)
        body = message.report
        body.member, body.incarnation, body.sequence, body.since = (
            self.member,
            self.incarnation,
            self.sequence,
            self.since,
        )
        body.epoch, body.seen, body.leaving = self.epoch, self.seen, self.leaving
        body.SetInParent()
        for id_, key, quota, ppm in self.introductions:
            unit = wire.BYTES if key.unit == "bytes" else wire.MESSAGES
            body.introductions.add(id=id_, limiter=key.wire_name, unit=unit, quota=_pack(quota), ppm=ppm)
        body.ids.extend(_steps(self.ids))
        body.used.extend(self.used)
        pairs = zip(self.wanted, self.used, strict=True)
        body.wanted.extend([0 if wanted == UNBOUNDED else max(0, wanted - used) + 1 for wanted, used in pairs])
        body.streams.extend(self.streams)
        body.gone.extend(self.gone)
        body.written.digest, body.written.total = self.written
        body.brokers.extend(self.brokers)
        body.sluice_version = self.version
        return message.SerializeToString()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a report; raise `BadMessage` if the bytes are none, and nothing else."""
        message = _open(data, "report")
        body = message.report
        _check("value", body.incarnation > 0 and body.since > 0, "incarnation and session are above 0")
        _check("value", body.epoch <= MOST_EPOCH, f"epochs are at most {MOST_EPOCH}")
        _check("value", body.since <= body.sequence, "a session begins before its reports")
        _check("columns", len(body.used) == len(body.wanted) == len(body.streams) == len(body.ids), "unequal columns")
        used = _least(body.used, MOST)
        return cls(
            message.fleet,
            _name("member", body.member),
            body.incarnation,
            body.sequence,
            body.since,
            body.epoch,
            body.seen,
            body.leaving,
            [_introduction(introduction) for introduction in body.introductions],
            _numbers(body.ids),
            used,
            [
                UNBOUNDED if more == 0 else min(least + more - 1, MOST)
                for least, more in zip(used, body.wanted, strict=True)
            ],
            _least(body.streams, WHOLE),
            [_id(id_) for id_ in body.gone],
            WrittenLimits(body.written.digest, body.written.total),
            _brokers(body.brokers),
            body.sluice_version[:MOST_VERSION],
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """The coordinator's answer to one member.

    Attributes:
        incarnation: The member's.
        answers: The latest report that was received. The lease counts from the moment at which it was sent.
        sequence: Counts the grants of shares in this session, from 1; 0 if this one only answers.
        void: The session has ended for the coordinator: the member begins a new one.
        ids: The numbers of the limits with a share in this grant, ascending.
        ppm: The shares, in the same order, in millionths.
        held: By number, the value in force of each limit that members have with different values: the lowest.
    """

    incarnation: int
    answers: int
    sequence: int = 0
    void: bool = False
    ids: Sequence[int] = field(default_factory=list)
    ppm: Sequence[int] = field(default_factory=list)
    held: dict[int, Quota] = field(default_factory=dict)


class MemberStatus(NamedTuple):
    """One member as the coordinator knows it.

    Attributes:
        name: The member's name, for people.
        incarnation: The run of the member.
        silent_ns: Nanoseconds since a report of the member was last heard.
        limits: The number of the member's shares.
        has_twin: Another member has the same name.
        version: The version of Sluice that the member runs; empty: unknown.
    """

    name: str
    incarnation: int
    silent_ns: int
    limits: int
    has_twin: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True)
class Grants:
    """The coordinator's message to all members. Each member takes its own grant.

    Attributes:
        fleet: The fleet's name.
        coordinator: The coordinator's name, for people.
        epoch: Distinguishes coordinators: members follow the one with the greater epoch.
        members: The number of members.
        grants: A grant for each member that is answered.
        sent_at: When the grants were sent, nanoseconds since 1970 by the coordinator's wall clock; 0 if unknown. The
            process that sends them sets it, as the core has no wall clock.
        limit_sets: The sets of limits that are written in members, where these differ, the most frequent first; at most
            `MOST_SETS`. Empty while all members have the same.
        brokers: Brokers that members have reported; at most `MOST_BROKERS`.
        version: The version of Sluice that the coordinator runs; empty: unknown.
        version_sets: The versions that members run, where these differ, the most frequent first; at most `MOST_SETS`.
            Empty while all members run the same.
        roster: The members, for people, at most `MOST_LISTED`; empty in most messages.
    """

    fleet: str
    coordinator: str
    epoch: int
    members: int
    grants: list[Grant] = field(default_factory=list)
    sent_at: int = 0
    limit_sets: tuple[LimitSet, ...] = ()
    brokers: Sequence[str] = ()
    version: str = ""
    version_sets: tuple[VersionSet, ...] = ()
    roster: Sequence[MemberStatus] = ()

    def encode(self) -> bytes:
        """Return the bytes of the grants."""
        message = wire.Message(version=VERSION, fleet=self.fleet)
        body = message.grants
        body.coordinator, body.epoch, body.members = self.coordinator, self.epoch, self.members
        body.sent_at = self.sent_at
        body.SetInParent()
        for grant in self.grants:
            packed = body.grants.add(incarnation=grant.incarnation, answers=grant.answers, sequence=grant.sequence)
            packed.void = grant.void
            packed.ids.extend(_steps(grant.ids))
            packed.shares.extend([ppm + _GRAINS + 1 if ppm % GRAIN else ppm // GRAIN for ppm in grant.ppm])
            for id_, quota in grant.held.items():
                packed.held.add(id=id_, quota=_pack(quota))
        for limit_set in self.limit_sets:
            packed_set = body.limit_sets.add(members=limit_set.members, names=limit_set.names)
            packed_set.written.digest, packed_set.written.total = limit_set.written
        body.brokers.extend(self.brokers)
        body.sluice_version = self.version
        for version, members, names in self.version_sets:
            body.version_sets.add(version=version, members=members, names=names)
        for member in self.roster:
            body.roster.add(
                name=member.name,
                incarnation=member.incarnation,
                silent_ns=member.silent_ns,
                limits=member.limits,
                has_twin=member.has_twin,
                sluice_version=member.version,
            )
        return message.SerializeToString()

    @classmethod
    def decode(cls, data: bytes, incarnation: int = 0) -> Self:
        """Read grants; raise `BadMessage` if the bytes are none, and nothing else.

        Args:
            data: The message.
            incarnation: The member whose grants are read, as most are of other members; 0: those of all.
        """
        message = _open(data, "grants")
        body = message.grants
        _check("value", 0 < body.epoch <= MOST_EPOCH, f"epochs are above 0, and at most {MOST_EPOCH}")
        name = _name("member", body.coordinator)
        grants = [_grant(grant) for grant in body.grants if incarnation in (0, grant.incarnation)]
        limit_sets = tuple([_limit_set(limit_set) for limit_set in body.limit_sets[:MOST_SETS]])
        return cls(
            message.fleet,
            name,
            body.epoch,
            body.members,
            grants,
            body.sent_at,
            limit_sets,
            _brokers(body.brokers),
            body.sluice_version[:MOST_VERSION],
            tuple([_version_set(version_set) for version_set in body.version_sets[:MOST_SETS]]),
            tuple([_status(member) for member in body.roster[:MOST_LISTED]]),
        )


def _grant(packed: wire.Grant) -> Grant:
    _check("columns", len(packed.ids) == len(packed.shares), "unequal columns")
    _check("value", packed.sequence > 0 or not packed.ids, "shares have a sequence")
    ppm = [share * GRAIN if share <= _GRAINS else share - _GRAINS - 1 for share in packed.shares]
    _check("value", max(ppm, default=0) <= WHOLE, "no share is more than the whole")
    held = {_id(held.id): _unpack(held.quota) for held in packed.held}
    return Grant(packed.incarnation, packed.answers, packed.sequence, packed.void, _numbers(packed.ids), ppm, held)


def _brokers(names: Sequence[str]) -> Sequence[str]:
    return tuple([_name("broker", name) for name in names[:MOST_BROKERS]])


def _status(packed: wire.MemberStatus) -> MemberStatus:
    name = _name("member", packed.name)
    version = packed.sluice_version[:MOST_VERSION]
    return MemberStatus(name, packed.incarnation, min(packed.silent_ns, MOST), packed.limits, packed.has_twin, version)


def _limit_set(packed: wire.LimitSet) -> LimitSet:
    written = WrittenLimits(packed.written.digest, packed.written.total)
    return LimitSet(written, packed.members, _members(packed.names))


def _version_set(packed: wire.VersionSet) -> VersionSet:
    return VersionSet(packed.version[:MOST_VERSION], packed.members, _members(packed.names))


def _members(names: Sequence[str]) -> tuple[str, ...]:
    return tuple([_name("member", name) for name in names[:MOST_SET_MEMBERS]])


def _introduction(packed: wire.Introduction) -> Introduction:
    _check("value", packed.unit in {wire.MESSAGES, wire.BYTES}, "an unknown unit")
    _check("value", packed.ppm <= WHOLE, "no share is more than the whole")
    _check("name", packed.limiter != "", "a limiter has a name")
    key = ShareKey.of(_name("limiter", packed.limiter), "bytes" if packed.unit == wire.BYTES else "messages")
    return Introduction(_id(packed.id), key, _unpack(packed.quota), packed.ppm)


def _open(data: bytes, kind: str) -> wire.Message:
    if len(data) > MOST_MESSAGE:
        raise BadMessage("oversized", f"{len(data)} bytes, at most {MOST_MESSAGE}")
    try:
        message = wire.Message.FromString(data)
    except DecodeError as error:
        raise BadMessage("malformed", str(error)) from error
    _check(
        "version",
        message.version == VERSION,
        f"version {message.version}, not {VERSION}: run one version in all members",
    )
    _check("kind", message.WhichOneof("kind") == kind, f"no {kind}")
    _name("fleet", message.fleet)
    return message


def _pack(quota: Quota) -> wire.Quota:
    peak = quota.peak or (0, 0, 0)
    numbers = [min(number, MOST) for number in (quota.tokens, quota.period_ns, quota.burst, *peak)]
    tokens, period_ns, burst, peak_tokens, peak_period_ns, peak_burst = numbers
    return wire.Quota(
        tokens=tokens,
        period_ns=period_ns,
        burst=burst,
        peak_tokens=peak_tokens,
        peak_period_ns=peak_period_ns,
        peak_burst=peak_burst,
    )


def _unpack(quota: wire.Quota) -> Quota:
    _check("value", min(quota.tokens, quota.period_ns, quota.burst) > 0, "a rate, its period and its burst are above 0")
    peak = (min(quota.peak_tokens, MOST), min(quota.peak_period_ns, MOST), min(quota.peak_burst, MOST))
    _check("value", peak == (0, 0, 0) or min(peak) > 0, "a peak's rate, period and burst are above 0")
    tokens, period_ns, burst = min(quota.tokens, MOST), min(quota.period_ns, MOST), min(quota.burst, MOST)
    return Quota(tokens, period_ns, burst, peak if peak[0] else None)


def _steps(ids: Sequence[int]) -> list[int]:
    """Return the difference of each number to the previous one: small differences take a byte."""
    return [id_ - before for id_, before in zip(ids, (0, *ids), strict=False)]


def _numbers(steps: Iterable[int]) -> list[int]:
    ids = list(accumulate(steps))
    _id(ids[-1] if ids else 0)
    return ids


def _least(values: Iterable[int], most: int) -> list[int]:
    read = list(values)
    return read if max(read, default=0) <= most else [min(value, most) for value in read]


def _id(id_: int) -> int:
    _check("value", id_ < MOST_LIMITERS, f"limiter number {id_}, at most {MOST_LIMITERS - 1}")
    return id_


def _name(kind: str, name: str) -> str:
    _check("name", len(name.encode()) <= MOST_NAME[kind], f"the name of a {kind} has at most {MOST_NAME[kind]} bytes")
    return name


def _check(cause: str, holds: bool, detail: str) -> None:  # noqa: FBT001
    if not holds:
        raise BadMessage(cause, detail)
