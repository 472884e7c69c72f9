"""What members and their coordinator tell each other: plain values, and their bytes (`fleet.proto`).

Both directions are built to be lost, doubled, delayed and reordered. Each report carries all that its coordinator has
not answered yet, each grant all that its member has not acknowledged yet. So the latest message alone says everything,
older ones that come later are ignored, and no loss needs a repair of its own.

Names travel once: a member numbers its limiters and introduces each with its name; both talk of numbers from then on.
They are the member's, as then no answer has to come back before they can be used.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

from google.protobuf.message import DecodeError

from fleet import fleet_pb2 as wire
from fleet.shares import WHOLE

MAJOR, MINOR = 1, 0
"""The version spoken here. Of a later minor one the fields known here are understood; another major one is refused."""

MOST_MESSAGE = 1 << 20
"""Bytes of a message, at most: a fifth of what Pulsar takes. Longer ones are refused unread."""

MOST_LIMITERS = 200_000
"""Limiters of one member, at most: its numbers are below."""

MOST_NAME = {"fleet": 128, "member": 256, "limiter": 4096}
"""Bytes of a name in UTF-8, at most."""

MOST = (1 << 62) - 1
"""Greater numbers are read as this one."""

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
    """One unit of one limiter, by a name that means the same in all members, as `publish topic persistent://t/n/x`."""

    limiter: str
    unit: Unit


class Quota(NamedTuple):
    """A limit as one member's configuration has it: the rate, and that of its peak: tokens, nanoseconds, burst."""

    tokens: int
    period_ns: int
    burst: int
    peak: tuple[int, int, int] | None = None


class Demand(NamedTuple):
    """What one member's limiter does with its share.

    Attributes:
        used: What passes, in thousandths of a token per second.
        wanted: What would pass if the share allowed, likewise; `UNBOUNDED` if streams wait and nobody knows.
        streams: The streams that wait, or pass: the weight of the claim.
        quota: The limit in this member's own configuration.
    """

    used: int
    wanted: int
    streams: int
    quota: Quota


class LimitShare(NamedTuple):
    """What a member may use of a limit: `ppm` millionths of `quota`, or of its own limit if that is None or lower."""

    key: ShareKey
    ppm: int
    quota: Quota | None


class Introduction(NamedTuple):
    """A number's meaning: the limiter, its limit, and the share in force as the report is sent."""

    id: int
    key: ShareKey
    quota: Quota
    ppm: int


class ToldDemand(NamedTuple):
    """The demand of the limiter with this number."""

    id: int
    used: int
    wanted: int
    streams: int


@dataclass(slots=True)
class MemberReport:
    """What a member tells the coordinator.

    Attributes:
        member: Its name for people; empty once the coordinator has answered.
        incarnation: This run of it, a random number: one that restarts is another member.
        sequence: Counts its reports, from 1.
        since: The first report of this *session*. A member begins a new one when it follows another coordinator, and
            when its lease has ended: what it was granted before is void then, and grants to earlier sessions are, too.
        epoch: The coordinator that it follows; 0 if none.
        seen: The sequence of the latest grant applied in this session; it acknowledges this and all earlier ones.
        leaving: All its shares are 0 from now on.
        gone: Numbers of limiters that it has no more.
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
    told: list[ToldDemand] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def encode(self) -> bytes:
        """Return the bytes of this report."""
        message = wire.Message(major=MAJOR, minor=MINOR, fleet=self.fleet)
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
            body.introductions.add(id=id_, limiter=key.limiter, unit=unit, quota=_pack(quota), ppm=ppm)
        body.ids.extend([told.id for told in self.told])
        body.used.extend([told.used for told in self.told])
        body.wanted.extend([told.wanted + 1 for told in self.told])
        body.streams.extend([told.streams for told in self.told])
        body.gone.extend(self.gone)
        return message.SerializeToString()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a report; raise `BadMessage` if it is none, and nothing else."""
        message = _open(data, "report")
        body = message.report
        _check("value", body.incarnation > 0 and body.since > 0, "incarnation and session are above 0")
        _check("value", body.since <= body.sequence, "a session begins before its reports")
        _check("columns", len(body.used) == len(body.wanted) == len(body.streams) == len(body.ids), "unequal columns")
        return cls(
            message.fleet,
            _name("member", body.member),
            body.incarnation,
            body.sequence,
            body.since,
            body.epoch,
            body.seen,
            body.leaving,
            [_introduction(one) for one in body.introductions],
            [
                ToldDemand(_id(id_), min(used, MOST), min(wanted - 1, MOST), min(streams, WHOLE))
                for id_, used, wanted, streams in zip(body.ids, body.used, body.wanted, body.streams, strict=True)
            ],
            [_id(id_) for id_ in body.gone],
        )


@dataclass(slots=True)
class Grant:
    """What the coordinator tells one member.

    Attributes:
        incarnation: The member's.
        answers: The latest report heard. The lease holds from the moment at which that one was sent.
        sequence: Counts the grants of shares in this session, from 1; 0 if this one only answers.
        void: The coordinator knows nothing of the session any more: the member begins a new one.
        shares: Number and millionths.
        held: The limits, by number, that hold here as another member has a lower one.
    """

    incarnation: int
    answers: int
    sequence: int = 0
    void: bool = False
    shares: list[tuple[int, int]] = field(default_factory=list)
    held: dict[int, Quota] = field(default_factory=dict)


@dataclass(slots=True)
class Grants:
    """What the coordinator tells all members, each of which takes its own.

    Attributes:
        coordinator: Its name for people.
        epoch: Of two coordinators the one with the greater epoch is followed.
        members: How many there are.
    """

    fleet: str
    coordinator: str
    epoch: int
    members: int
    grants: list[Grant] = field(default_factory=list)

    def encode(self) -> bytes:
        """Return the bytes of these grants."""
        message = wire.Message(major=MAJOR, minor=MINOR, fleet=self.fleet)
        body = message.grants
        body.coordinator, body.epoch, body.members = self.coordinator, self.epoch, self.members
        body.SetInParent()
        for grant in self.grants:
            one = body.grants.add(incarnation=grant.incarnation, answers=grant.answers, sequence=grant.sequence)
            one.void = grant.void
            one.ids.extend([id_ for id_, _ in grant.shares])
            one.ppm.extend([ppm for _, ppm in grant.shares])
            for id_, quota in grant.held.items():
                one.held.add(id=id_, quota=_pack(quota))
        return message.SerializeToString()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read grants; raise `BadMessage` if these are none, and nothing else."""
        message = _open(data, "grants")
        body = message.grants
        _check("value", body.epoch > 0, "epochs are above 0")
        name = _name("member", body.coordinator)
        return cls(message.fleet, name, body.epoch, body.members, [_grant(one) for one in body.grants])


def _grant(one: wire.Grant) -> Grant:
    _check("columns", len(one.ids) == len(one.ppm), "unequal columns")
    _check("value", all(ppm <= WHOLE for ppm in one.ppm), "no share is more than the whole")
    _check("value", one.sequence > 0 or not one.ids, "shares have a sequence")
    shares = [(_id(id_), ppm) for id_, ppm in zip(one.ids, one.ppm, strict=True)]
    held = {_id(held.id): _unpack(held.quota) for held in one.held}
    return Grant(one.incarnation, one.answers, one.sequence, one.void, shares, held)


def _introduction(one: wire.Introduction) -> Introduction:
    _check("value", one.unit in {wire.MESSAGES, wire.BYTES}, "an unknown unit")
    _check("value", one.ppm <= WHOLE, "no share is more than the whole")
    _check("name", one.limiter != "", "a limiter has a name")
    key = ShareKey(_name("limiter", one.limiter), "bytes" if one.unit == wire.BYTES else "messages")
    return Introduction(_id(one.id), key, _unpack(one.quota), one.ppm)


def _open(data: bytes, kind: str) -> wire.Message:
    if len(data) > MOST_MESSAGE:
        raise BadMessage("oversized", f"{len(data)} bytes, at most {MOST_MESSAGE}")
    try:
        message = wire.Message.FromString(data)
    except DecodeError as error:
        raise BadMessage("malformed", str(error)) from error
    _check("version", message.major == MAJOR, f"major version {message.major}; here {MAJOR} is spoken")
    _check("kind", message.WhichOneof("kind") == kind, f"no {kind}")
    _name("fleet", message.fleet)
    return message


def _pack(quota: Quota) -> wire.Quota:
    tokens, period_ns, burst = quota.peak or (0, 0, 0)
    return wire.Quota(
        tokens=quota.tokens,
        period_ns=quota.period_ns,
        burst=quota.burst,
        peak_tokens=tokens,
        peak_period_ns=period_ns,
        peak_burst=burst,
    )


def _unpack(quota: wire.Quota) -> Quota:
    _check("value", min(quota.tokens, quota.period_ns, quota.burst) > 0, "a rate, its period and its burst are above 0")
    peak = (min(quota.peak_tokens, MOST), min(quota.peak_period_ns, MOST), min(quota.peak_burst, MOST))
    _check("value", peak == (0, 0, 0) or min(peak) > 0, "a peak's rate, period and burst are above 0")
    tokens, period_ns, burst = min(quota.tokens, MOST), min(quota.period_ns, MOST), min(quota.burst, MOST)
    return Quota(tokens, period_ns, burst, peak if peak[0] else None)


def _id(id_: int) -> int:
    _check("value", id_ < MOST_LIMITERS, f"limiter number {id_}, at most {MOST_LIMITERS - 1}")
    return id_


def _name(of: str, name: str) -> str:
    _check("name", len(name.encode()) <= MOST_NAME[of], f"the name of a {of} has at most {MOST_NAME[of]} bytes")
    return name


def _check(cause: str, holds: bool, detail: str) -> None:  # noqa: FBT001
    if not holds:
        raise BadMessage(cause, detail)
