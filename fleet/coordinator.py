"""The coordinator of a fleet: takes its members' reports, and grants them shares of their common limits.

`Coordinator.hear` takes a report, `Coordinator.grant` answers it. `ShareTable` divides each limit:

    report ─▶ _session: the member's session, or a new one ─▶ ShareTable.hear
    grants ◀─ _messages ◀─ _grants ◀─ ShareTable.fill ◀─ ShareTable.divide ◀┘
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import TypeVar

from fleet.messages import (
    FULL_MESSAGE,
    GRANT_BYTES,
    HELD_BYTES,
    MOST_BROKERS,
    MOST_LISTED,
    MOST_SET_MEMBERS,
    MOST_SETS,
    SHARE_BYTES,
    Grant,
    Grants,
    LimitSet,
    MemberReport,
    MemberStatus,
    VersionSet,
    WrittenLimits,
)
from fleet.settings import FleetSettings
from fleet.share_table import MemberShares, ShareTable

MOST_MEMBERS = 1000
"""Members of a fleet, at most. Reports of others are dropped."""

MOST_STEPS = 600
"""Shares that one call of `Coordinator.grant` looks at to divide limits, at most, but for those of the last limit."""

MOST_AT_ONCE = 1_500
"""Shares in the grants of one call, at most, but for those of the last member."""

MOST_ENDED = 10_000
"""Ended sessions that are remembered, at most: a late report of one does not begin a new session."""

_Same = TypeVar("_Same")


class _Session:
    """One session of a member.

    Attributes:
        name: The member's name, for people.
        incarnation: The run of the member.
        shares: The member's shares, and those that the next grant must have.
        since: The first report of the session.
        begun_at: When the first report was received.
        heard, heard_at: The latest report, and when it was received.
        answered, answered_at: The latest report that has been answered, and when it was received. The lease counts from
            that time.
        introduces: The latest report has introductions: the next ones wait for an answer.
        written: The limits that are written in the member.
        version: The version of Sluice that the member runs; empty: unknown.
    """

    __slots__ = (
        "answered",
        "answered_at",
        "begun_at",
        "heard",
        "heard_at",
        "incarnation",
        "introduces",
        "name",
        "shares",
        "since",
        "version",
        "written",
    )

    def __init__(self, report: MemberReport, shares: MemberShares, now: int) -> None:
        self.name = report.member
        self.incarnation = report.incarnation
        self.shares = shares
        self.since = report.since
        self.heard = report.sequence
        self.begun_at = self.heard_at = self.answered_at = now
        self.answered = 0
        self.introduces = True
        self.written = report.written
        self.version = report.version


class Coordinator:
    """The coordinator's side: takes reports, and makes grants.

    A call takes time for changed limits and for each member, never for all limits; `grant` for a bounded number of
    them, and `has_more` says whether more are left. `fleet.share_table` explains why the shares of a limit are never
    more than the whole.

    **Lost members.** A member's shares are free in three cases. The member reports that it leaves. The member begins
    another session, which it does only after its lease has ended. Or the member is silent: its shares are free a lease
    and a hundredth after the latest answered report came in. The member's own lease ends earlier, as it counts from the
    sending of that report. In the third case the link must also have confirmed, after that time, that there was no
    other coordinator: another one may have renewed the lease.

    **Takeover.** A new coordinator has no shares. For two leases, until all grants of its predecessor have ended, it
    divides only the shares that members bring in their first reports, as no other member holds these. It answers the
    reports, so shares go on undisturbed. A coordinator grants nothing a lease after the last confirmation, and never
    again once a report has a greater epoch.

    Args:
        settings: Those of the fleet.
        name: For people.
        epoch: Greater than those of all earlier coordinators.
        now: Nanoseconds of a monotonic clock, at or after the moment at which the link made this the only coordinator.
        version: The version of Sluice; empty: unknown.

    Attributes:
        deposed: There is another coordinator.
        table: The limits that members share, and the members' shares.
        limit_sets: The sets of limits that are written in the members, where these differ (`Grants.limit_sets`).
        version_sets: The versions of Sluice that the members run, where these differ (`Grants.version_sets`).
        dropped: Reports, and parts of reports, that were not taken, by cause.
    """

    def __init__(self, settings: FleetSettings, name: str, epoch: int, now: int, version: str = "") -> None:
        self.settings = settings
        self.version = version
        self.name = name
        self.epoch = epoch
        self.deposed = False
        self.limit_sets: tuple[LimitSet, ...] = ()
        self.version_sets: tuple[VersionSet, ...] = ()
        self._is_to_compare = False  # limits or versions of members may have begun or ceased to differ
        self._has_new_members = False
        self._listed_at = now
        self._brokers: dict[str, None] = {}  # those that members have reported since the last grants
        self.dropped: Counter[str] = Counter()
        self._whole_at = now + settings.lease_ns * 204 // 100
        self.table = ShareTable(self._whole_at, self.dropped, by_streams=settings.weight == "streams")
        self._expiry_ns = settings.lease_ns * 101 // 100
        self._confirmed_at = now
        self._granted_at = now
        self._ends_at = now  # when the first share is free if no further report comes
        self._announce = True
        self._sessions: dict[int, _Session] = {}  # by incarnation
        self._ended: dict[int, int] = {}  # by incarnation: the first report of its latest session that has ended
        self._to_void: dict[int, int] = {}  # by incarnation: the report that the next void grant answers
        self._turn = 0  # the session whose shares come first in the next grants
        self._has_granted = self._has_ungranted = False  # the latest `grant` might grant; had no room for some shares

    def may_grant(self, now: int) -> bool:
        """Return whether certainly no other coordinator's members would apply grants of this one."""
        return not self.deposed and now < self._confirmed_at + self.settings.lease_ns

    def confirmed(self, asked: int) -> None:
        """Record that there was no other coordinator at some time after `asked`, when the question was sent."""
        self._confirmed_at = max(self._confirmed_at, asked)

    def hear(self, report: MemberReport, now: int) -> bool:
        """Take a report; return whether `grant` should be called soon, rather than at the end of the cycle."""
        if report.fleet != self.settings.fleet:
            return self._drop("fleet")
        if report.epoch > self.epoch:
            self.deposed = True
            return self._drop("deposed")
        if report.epoch < self.epoch:  # the member will follow this coordinator after its next message
            self._announce = True
            return True
        session = self._session(report, now)
        if session is None:
            return report.incarnation in self._to_void
        if report.leaving:
            self._end_session(session)
            self._answer_by_void(report)
            return True
        session.heard, session.heard_at = report.sequence, now
        session.introduces = bool(report.introductions)
        self.table.hear(session.shares, report, now)
        ends = self._ends_at <= now and (self._granted_at < self._ends_at or self._ends_at <= self._confirmed_at)
        self._is_to_compare |= session.written != report.written
        session.written = report.written
        self._brokers.update(dict.fromkeys(report.brokers[: MOST_BROKERS - len(self._brokers)]))
        return self.table.is_dirty or session.answered == 0 or ends or bool(report.brokers)

    def grant(self, now: int) -> list[Grants]:
        """Return the messages to publish now: shares that changed, and answers to all reports."""
        self._has_granted = self.may_grant(now)
        if not self._has_granted:
            # A message without shares and answers only asks whether there is another coordinator: the link confirms.
            return [] if self.deposed else [self._message([])]
        self._expire(now)
        self.table.divide(now, MOST_STEPS)
        if self._is_to_compare:
            self._compare_members()
        messages = self._messages(now)
        self._granted_at = now
        self._ends_at = min([session.answered_at for session in self._sessions.values()], default=now) + self._expiry_ns
        return messages

    @property
    def has_more(self) -> bool:
        """Whether the latest `grant` has left limits or shares to a next one, which should come soon."""
        return self._has_granted and (self.table.is_dirty or self._has_ungranted)

    def members(self, now: int) -> list[MemberStatus]:
        """Return the status of each member."""
        return self._statuses(self._sessions.values(), now)

    def _statuses(self, sessions: Iterable[_Session], now: int) -> list[MemberStatus]:
        twins = self.names_taken_twice()
        return [
            MemberStatus(
                session.name,
                session.incarnation,
                now - session.heard_at,
                session.shares.total,
                has_twin=session.name in twins,
                version=session.version,
            )
            for session in sessions
        ]

    def _roster(self, now: int) -> Sequence[MemberStatus]:
        """Return the list of members for the next message, once in a lease and when members have come or gone."""
        if now < self._listed_at + self.settings.lease_ns and not self._has_new_members:
            return []
        self._listed_at, self._has_new_members = now, False
        first = nsmallest(MOST_LISTED, self._sessions.values(), key=lambda session: (session.name, session.incarnation))
        return self._statuses(first, now)

    def names_taken_twice(self) -> dict[str, int]:
        """Return the names that several members have, and how many members have each.

        A member counts if it is the latest of its name, or has reported more than a lease after the latest began. A
        member that was killed and started again counts once: its earlier run is silent by then.
        """
        latest: dict[str, int] = {}
        for session in self._sessions.values():
            latest[session.name] = max(session.begun_at, latest.get(session.name, session.begun_at))
        if len(latest) == len(self._sessions):
            return {}
        lease_ns = self.settings.lease_ns
        members = Counter(
            session.name
            for session in self._sessions.values()
            if session.begun_at == latest[session.name] or session.heard_at > latest[session.name] + lease_ns
        )
        return {name: count for name, count in members.items() if count > 1}

    def _drop(self, cause: str) -> bool:
        self.dropped[cause] += 1
        return False

    # Members

    def _session(self, report: MemberReport, now: int) -> _Session | None:
        """Return the session that a report belongs to, made if the report begins one; None if the report is dropped."""
        incarnation = report.incarnation
        session = self._sessions.get(incarnation)
        if session is not None and (report.since < session.since or report.sequence <= session.heard):
            self._drop("repeated")
            return None
        if session is not None and report.since == session.since:
            # Another coordinator made that grant. The member's next session is answered.
            if report.seen > session.shares.sequence:
                self._drop("seen")
                return None
            return session
        had_session = session is not None or incarnation in self._ended
        if session is not None:
            self._end_session(session)
        if report.since <= self._ended.get(incarnation, 0) or report.seen:
            self._answer_by_void(report)
            if not report.leaving:  # a leaving member repeats its report until it has an answer
                self._drop("session")
            return None
        if len(self._sessions) + self.table.leaving >= MOST_MEMBERS:
            self._drop("members")
            return None
        shares = self.table.join(report.member, brings=not had_session and now < self._whole_at)
        session = _Session(report, shares, now)
        self._sessions[incarnation] = session
        self._is_to_compare = self._has_new_members = True
        return session

    def _answer_by_void(self, report: MemberReport) -> None:
        self._to_void[report.incarnation] = max(report.sequence, self._to_void.get(report.incarnation, 0))
        if len(self._to_void) > MOST_MEMBERS:
            del self._to_void[next(iter(self._to_void))]

    def _expire(self, now: int) -> None:
        for session in list(self._sessions.values()):
            end = session.answered_at + self._expiry_ns
            if end <= now and end <= self._confirmed_at:
                self._end_session(session)

    def _end_session(self, session: _Session) -> None:
        """End a member's session, and free its shares for others."""
        self.table.leave(session.shares)
        del self._sessions[session.incarnation]
        self._is_to_compare = self._has_new_members = True
        self._ended.pop(session.incarnation, None)
        self._ended[session.incarnation] = session.since
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def _compare_members(self) -> None:
        self._is_to_compare = False
        by_limits: dict[WrittenLimits, list[str]] = {}
        by_version: dict[str, list[str]] = {}
        for session in self._sessions.values():
            by_limits.setdefault(session.written, []).append(session.name)
            by_version.setdefault(session.version, []).append(session.name)
        self.limit_sets = tuple([LimitSet(*parts) for parts in _differing(by_limits)])
        self.version_sets = tuple([VersionSet(*parts) for parts in _differing(by_version)])

    # Messages

    def _messages(self, now: int) -> list[Grants]:
        messages: list[list[Grant]] = []
        left = 0
        for grant in self._grants(now):
            size = GRANT_BYTES + SHARE_BYTES * len(grant.ids) + HELD_BYTES * len(grant.held)
            if left < size:
                messages.append([])
                left = FULL_MESSAGE
            left -= size
            messages[-1].append(grant)
        if (self._announce or self._brokers) and not messages:
            messages.append([])
        self._announce = False
        brokers = tuple(self._brokers)
        self._brokers.clear()
        roster = self._roster(now) if messages else ()
        return [
            self._message(grants) if number else self._message(grants, brokers, roster)
            for number, grants in enumerate(messages)
        ]

    def _message(self, grants: list[Grant], brokers: Sequence[str] = (), roster: Sequence[MemberStatus] = ()) -> Grants:
        return Grants(
            self.settings.fleet,
            self.name,
            self.epoch,
            len(self._sessions),
            grants,
            limit_sets=self.limit_sets,
            brokers=brokers,
            version=self.version,
            version_sets=self.version_sets,
            roster=roster,
        )

    def _grants(self, now: int) -> Iterator[Grant]:
        for incarnation, sequence in self._to_void.items():
            yield Grant(incarnation, sequence, void=True)
        self._to_void.clear()
        sessions, left, cycle_ns = list(self._sessions.values()), MOST_AT_ONCE, self.settings.cycle_ns
        first, self._has_ungranted = self._turn % max(1, len(sessions)), False
        for number, session in enumerate([*sessions[first:], *sessions[:first]], first + 1):
            shares = session.shares
            may_wait = self.table.is_dirty and now < shares.sent_at + 3 * cycle_ns // 2
            is_due = shares.is_due(now, cycle_ns, may_wait=may_wait)
            self._has_ungranted |= is_due and left <= 0
            if is_due and left > 0:
                session.answered, session.answered_at = session.heard, session.heard_at
                grant = self.table.grant(session.incarnation, session.heard, shares, now)
                left -= len(grant.ids)
                self._turn = number
                yield grant
            elif session.heard > session.answered and (session.introduces or not (may_wait or is_due)):
                session.answered, session.answered_at = session.heard, session.heard_at
                yield Grant(session.incarnation, session.heard)


def _differing(members: Mapping[_Same, list[str]]) -> Iterator[tuple[_Same, int, tuple[str, ...]]]:
    """Yield what members have in common, their number and names, the most frequent first; nothing if all have it."""
    if len(members) > 1:
        for same, names in sorted(members.items(), key=lambda item: len(item[1]), reverse=True)[:MOST_SETS]:
            yield same, len(names), tuple(sorted(names)[:MOST_SET_MEMBERS])
