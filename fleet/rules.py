"""The rules of a fleet: the limits that its members would share as they are written, and which of them not all have.

    member ─digest, and lines if asked─▶ coordinator ─the lines that not all have─▶ all members

A rule is a line of text: what it is for, NUL, and its value. This module compares lines and does not read them.

    publish tenant acme␀messages=1000/1000000000/100          limiter/policies.py writes and reads lines

While all members tell the same digest, no lines travel. Else the coordinator asks one member of each digest for its
lines, page by page, and tells all members the lines that not all have. Each member can then enforce a limit that it
lacks as if it had it.
"""

import hashlib
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import NamedTuple, Protocol

from fleet.messages import RULE_PAGE, Differing, RulesReport

MOST_RULES = 200_000
"""Rules that a coordinator keeps, of all digests together, at most. It does not compare members whose rules come on
top."""

MOST_RULE_BYTES = 64 << 20
"""Bytes of these, likewise."""

MOST_DIFFERING = 10_000
"""Rules that not all members have and that the coordinator tells them, at most; the others are counted."""

MOST_PATIENCE = 16
"""A member's rules that change all the time count after so many times `patience_ns`. A member that was asked for its
rules, and has told no page of them for so long, is passed over for the next one that tells the same digest."""

MOST_HOLD = 64
"""After a takeover, what differed before still does for so many times `patience_ns`, if rules stay unknown."""

_DIGESTS = 1 << 64
"""The number of digests there are."""

Line = str
"""A rule, as a line of text."""


class OwnRules(Protocol):
    """The rules that this process has: what this module needs of them."""

    @property
    def digest(self) -> int:
        """The digest of all rules, as `digest_of`: the same in all processes that have the same, in whatever order."""

    @property
    def total(self) -> int:
        """The number of rules."""

    def lines(self, first: int, most: int) -> list[Line]:
        """Return rules, in an order that stays the same as long as the digest does.

        Args:
            first: The index of the first one to return.
            most: Bytes of the lines, at most.
        """


def target_of(line: Line) -> str:
    """Return what a rule is for."""
    return line.partition("\0")[0]


def digest_of(lines: Iterable[Line]) -> int:
    """Return the sum of the 64-bit BLAKE2b of each line, modulo 2^64.

    A member that tells a digest is held to it by its lines.
    """
    hashed = [int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest()) for line in lines]
    return sum(hashed) % _DIGESTS


class MemberRules:
    """The member's side: tells the coordinator of its own rules, and knows the rules that not all members have.

    Args:
        own: The member's rules; None: the coordinator is told nothing of them, and does not compare them.

    Attributes:
        differing: The rules that not all members have, as last heard, each with the name of a member that has it.
        unnamed: The number of such rules that the coordinator has counted and not told.
        revision: Another number whenever `differing` or `unnamed` has changed.
        is_compared: The coordinator compares rules.
    """

    def __init__(self, own: OwnRules | None) -> None:
        self.differing: Mapping[Line, str] = {}
        self.unnamed = 0
        self.revision = 0
        self.is_compared = True
        self._own = own
        self._version = 0
        self._total = 0
        self._taken: dict[Line, str] = {}
        self._settled = True
        self._wanted = 0

    @property
    def is_asked(self) -> bool:
        """Whether the coordinator asks for this member's rules, so that a report is worth sending at once."""
        return self._wanted > 0

    def report(self) -> RulesReport | None:
        """Return what the next report tells of this member's rules; None: nothing."""
        own, wanted = self._own, self._wanted
        self._wanted = 0
        if own is None:
            return None
        lines = own.lines(wanted - 1, RULE_PAGE) if wanted else []
        taken = len(self._taken)
        return RulesReport(own.digest, own.total, self._version, taken, not self._settled, max(0, wanted - 1), lines)

    def ask(self, wants: int) -> None:
        """Take from a grant from where on the coordinator asks for this member's rules, as `Grant.wants` has it."""
        self._wanted = wants

    def follow(self, *, compares: bool) -> None:
        """Follow a coordinator; of one that compares nothing nothing differs, as it would never be over."""
        self.is_compared = compares
        if compares:
            return
        self._version, self._total, self._taken, self._settled = 0, 0, {}, True
        self.revision += bool(self.differing) or self.unnamed > 0
        self.differing, self.unnamed = {}, 0

    def take(self, page: Differing) -> bool:
        """Take a page of the rules that not all members have; return whether it is new, and a report worth sending."""
        if self._own is None or page.total > MOST_DIFFERING or page.first + len(page.lines) > page.total:
            return False
        if page.version != self._version:
            self._version, self._total, self._taken = page.version, page.total, {}
        known = len(self._taken)
        new = page.first <= known < page.first + len(page.lines)
        if new:
            at = known - page.first
            self._taken.update(zip(page.lines[at:], page.having[at:], strict=True))
        if len(self._taken) == self._total:
            self._complete(page)
        return new

    def _complete(self, page: Differing) -> None:
        self._settled = page.settled
        differing = dict(self._taken) if page.settled else {**self.differing, **self._taken}
        if len(differing) > 2 * MOST_DIFFERING:  # coordinators replace each other, and none settles
            differing = dict(self._taken)
        self.revision += differing.keys() != self.differing.keys() or page.unnamed != self.unnamed
        self.differing, self.unnamed = differing, page.unnamed


class _ReportedRules:
    """The rules of one member, as far as it has told of them.

    Attributes:
        name: The member's name, for people.
        report: The latest that the member has told.
        digest, total: The digest and the number of the rules that count for the member: those of the latest report that
            has stayed the same for long enough.
        last_changed_at: When the member first told the latest digest.
        first_changed_at: When the member first told another digest than the one that counts.
        compared: The digest whose lines are compared for the member: the latest of which all lines are known; None if
            there is none.
        came_at: When the member was heard first.
    """

    __slots__ = ("came_at", "compared", "digest", "first_changed_at", "last_changed_at", "name", "report", "total")

    def __init__(self, name: str, report: RulesReport, now: int) -> None:
        self.name = name
        self.report = report
        self.digest, self.total = report.digest, report.total
        self.last_changed_at = self.first_changed_at = self.came_at = now
        self.compared: int | None = None

    def count(self) -> None:
        """Let the member's latest rules count."""
        self.digest, self.total = self.report.digest, self.report.total


class _RuleSet:
    """The rules behind one digest, as far as the coordinator knows them.

    Attributes:
        total: The number of rules that the digest is of.
        by: The incarnation of the member that is asked for them.
        asked_at: Since when that member has told no rules, or only few at once.
        lines: The rules that have come, until all have.
        size: The bytes of these.
        digest: The digest of these, as `digest_of`.
        known: All rules, once all have come; else None.
        is_too_large: The rules are too many to be kept (`MOST_RULES`).
        is_late: A member that was asked for the rules has not told them.
    """

    __slots__ = ("asked_at", "by", "digest", "is_late", "is_too_large", "known", "lines", "size", "total")

    def __init__(self, total: int, by: int, now: int, *, is_too_large: bool) -> None:
        self.is_too_large = is_too_large
        self.is_late = False
        self.known: frozenset[Line] | None = None
        self.ask(total, by, now)

    def ask(self, total: int, by: int, now: int) -> None:
        """Begin anew: ask this member for all."""
        self.total, self.by, self.asked_at = total, by, now
        self.lines: list[Line] = []
        self.size = self.digest = 0


class DifferingRule(NamedTuple):
    """A rule that not all members have.

    Attributes:
        line: The rule.
        having: The members that have it.
        lacking: The members that have none for the same target, or another one.
    """

    line: Line
    having: list[str]
    lacking: list[str]


class RuleComparison:
    """The coordinator's side: compares the members' rules.

        report ─hear─▶ digest ─stays for `patience_ns`─▶ counts ─its lines are asked for─▶ known ─compare─▶ `differing`

    A member that tells no digest is not compared. A member is compared by the rules that were known of it before, until
    its new ones are known. So no rule seems to be in all members only because lines are on their way. The first member
    whose rules change may have what the others have as well and are yet to report. So changed rules count when they
    have stayed the same for `patience_ns`, or when all members have them.

    A member that is broken, or lies, changes what is known of its own rules only. Lines that do not make their digest
    are not taken. A member that tells no lines is passed over. One that takes no page keeps no other from the next one.

    Args:
        patience_ns: Nanoseconds for which a member's changed digest has to stay the same to count. A digest that never
            stays counts after `MOST_PATIENCE` times as long.
    """

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns = patience_ns
        self._members: dict[int, _ReportedRules] = {}
        self._lagging: set[int] = set()
        """Members that may lack a page of what differs."""
        self._changing: dict[int, None] = {}
        """Members whose latest rules do not count yet."""
        self._sets: dict[int, _RuleSet] = {}
        self._has_changed = False
        self._lines: list[Line] = []
        self._having: list[str] = []
        self._unnamed = 0
        self._version = 0
        self._pages = {0: 0}
        """Where pages of what is told begin, ascending, and where each ends."""
        self._all_known_at: int | None = None
        """When all members were known: those that the coordinator before had were back."""
        self._is_settled = False
        """All rules of those that were there then are known. Later ones had no part in what differed before."""
        self._sent_as = 0, False
        """The version that was sent last, and whether it was settled."""
        self._sent_at: dict[int, int] = {}
        """When the pages of that were sent the last time."""

    @property
    def differing(self) -> Sequence[Line]:
        """The rules that not all members have, up to `MOST_DIFFERING`."""
        return self._lines

    @property
    def uncompared(self) -> int:
        """The number of members whose rules are not compared: they are too many, or were asked for and not told."""
        left_out = {digest for digest, one in self._sets.items() if one.is_too_large or one.is_late}
        return sum(one.digest in left_out for one in self._members.values())

    def hear(self, incarnation: int, name: str, report: RulesReport | None, now: int) -> None:
        """Take what a member's report says of its rules."""
        if report is None:
            self._forget(incarnation)
            return
        member = self._members.get(incarnation)
        if member is None:
            member = self._members[incarnation] = _ReportedRules(name, report, now)
            self._has_changed = True
        elif member.report.digest != report.digest:
            member.last_changed_at = now
            if incarnation not in self._changing:
                member.first_changed_at, self._changing[incarnation] = now, None
        member.report = report._replace(lines=())
        if self._lags(member, settled=True):
            self._lagging.add(incarnation)
        else:
            self._lagging.discard(incarnation)
        found = self._sets.get(report.digest)
        if found is not None and found.known is None and found.by == incarnation and not found.is_too_large:
            self._collect(found, report, now)

    def keep(self, incarnations: AbstractSet[int]) -> None:
        """Forget the members that are not among these."""
        if not self._members.keys() <= incarnations:
            for incarnation in self._members.keys() - incarnations:
                self._forget(incarnation)

    def is_due(self, incarnation: int) -> bool:
        """Return whether a member is to be answered at once: to ask for its rules, or to tell it what differs."""
        return self._has_changed or self.wants(incarnation) > 0 or self._lags(self._members.get(incarnation))

    def wants(self, incarnation: int) -> int:
        """Return from where on a member's rules are asked for, as `Grant.wants` has it."""
        member = self._members.get(incarnation)
        found = None if member is None or incarnation in self._changing else self._sets.get(member.digest)
        if found is None or found.known is not None or found.by != incarnation or found.is_too_large:
            return 0
        return len(found.lines) + 1

    def compare(self, now: int) -> None:
        """Find the rules that not all members have, if anything has changed, and the digests whose lines to ask for."""
        self._count_changed(now)
        for digest, one in self._sets.items():
            is_asked = one.known is None and not one.is_too_large
            if is_asked and now - one.asked_at > MOST_PATIENCE * self._patience_ns:
                self._pass_over(digest, one, now)
        if not self._has_changed:
            return
        self._has_changed = False
        self._look_for_sets(now)
        for member in self._members.values():
            found = self._sets.get(member.digest)
            if found is None or found.known is not None or found.is_too_large:
                member.compared = member.digest
        used = {member.compared for member in self._members.values()} | {
            member.digest for member in self._members.values()
        }
        unused = self._sets.keys() - used
        for digest in unused:
            del self._sets[digest]
        self._has_changed = bool(unused) and self.uncompared > 0  # there may be room for them now
        self._find()

    def page_due(self, now: int, again_ns: int, *, all_known: bool) -> Differing | None:
        """Return the page of what differs that all members are to be sent now; None: none is due.

        Args:
            now: The time.
            again_ns: Nanoseconds after which a page is sent again, if some member still has not got it.
            all_known: All members are known. Soon after a takeover they are not, and what differed before still does.
        """
        settled = self._settled(now, all_known=all_known)
        lagging = [
            self._members[one].report for one in self._lagging if self._lags(self._members[one], settled=settled)
        ]
        if (self._version, settled) != self._sent_as:
            self._sent_as = self._version, settled
            self._sent_at.clear()
        starts = list(self._pages)
        behind = {starts[bisect(starts, one.taken) - 1] if one.version == self._version else 0 for one in lagging}
        due = [first for first in behind if first not in self._sent_at or now - self._sent_at[first] >= again_ns]
        if not due:
            return None
        first = min(due)
        self._sent_at[first], last = now, self._pages[first]
        lines, having = self._lines[first:last], self._having[first:last]
        return Differing(self._version, len(self._lines), self._unnamed, settled, first, lines, having)

    def differing_rules(self, most: int) -> list[DifferingRule]:
        """Return up to `most` rules that not all members have, each with who has it and who lacks it."""
        shown = []
        for line in self._lines[:most]:
            having, lacking = list[str](), list[str]()
            for member in self._members.values():
                known = self._known(member)
                if known is not None:
                    (having if line in known else lacking).append(member.name)
            shown.append(DifferingRule(line, having, lacking))
        return shown

    def _settled(self, now: int, *, all_known: bool) -> bool:
        """Return whether no others differ than those that are told."""
        if not all_known:
            return False
        if self._all_known_at is None:
            self._all_known_at = now
        if not self._is_settled:
            were_there = [member for member in self._members.values() if member.came_at <= self._all_known_at]
            is_over = now - self._all_known_at > MOST_HOLD * self._patience_ns
            self._is_settled = is_over or all(member.compared is not None for member in were_there)
        return self._is_settled

    def _forget(self, incarnation: int) -> None:
        if self._members.pop(incarnation, None) is not None:
            self._changing.pop(incarnation, None)
            self._lagging.discard(incarnation)
            self._has_changed = True

    def _count_changed(self, now: int) -> None:
        """Let changed rules count that have stayed the same for long enough, or that all members have."""
        if not self._changing:
            return
        all_agree = len({member.report.digest for member in self._members.values()}) == 1
        for incarnation in list(self._changing):
            member = self._members[incarnation]
            has_stayed = now - member.last_changed_at >= self._patience_ns
            if all_agree or has_stayed or now - member.first_changed_at >= MOST_PATIENCE * self._patience_ns:
                self._has_changed = self._has_changed or member.digest != member.report.digest
                member.count()
                del self._changing[incarnation]

    def _lags(self, member: _ReportedRules | None, *, settled: bool = False) -> bool:
        if member is None:
            return False
        one = member.report
        is_behind = one.version != self._version or one.taken < len(self._lines)
        return is_behind or (settled and one.unsettled)

    def _known(self, member: _ReportedRules) -> frozenset[Line] | None:
        found = None if member.compared is None else self._sets.get(member.compared)
        return None if found is None else found.known

    def _collect(self, found: _RuleSet, report: RulesReport, now: int) -> None:
        if report.first != len(found.lines) or not report.lines:
            return
        size = sum([len(line.encode()) for line in report.lines])
        found.lines += report.lines
        found.size += size
        found.digest = (found.digest + digest_of(report.lines)) % _DIGESTS
        if size >= RULE_PAGE // 2:  # a member that tells a line at a time gains no time by it
            found.asked_at = now
        if sum([one.size for one in self._sets.values() if not one.is_too_large]) > MOST_RULE_BYTES:
            found.is_too_large, found.lines = True, []
            self._has_changed = True
        elif len(found.lines) >= found.total:
            if found.digest == report.digest:
                found.known, found.lines, found.is_late = frozenset(found.lines), [], False
                self._has_changed = True
            else:
                self._pass_over(report.digest, found, now)

    def _pass_over(self, digest: int, found: _RuleSet, now: int) -> None:
        """Ask the next member that tells this digest; the same one again, if it is the only one."""
        tellers = [
            one for one, member in self._members.items() if member.digest == digest and member.total <= MOST_RULES
        ]
        if tellers:
            at = tellers.index(found.by) + 1 if found.by in tellers else 0
            by = tellers[at % len(tellers)]
            found.is_late = True
            found.ask(self._members[by].total, by, now)

    def _look_for_sets(self, now: int) -> None:
        """Keep a set for each digest, if there are several, and choose the member that is asked for its lines."""
        tellers: dict[int, dict[int, _ReportedRules]] = {}
        for incarnation, member in self._members.items():
            tellers.setdefault(member.digest, {})[incarnation] = member
        if len(tellers) <= 1:
            self._sets = {}
            return
        self._sets = {digest: one for digest, one in self._sets.items() if not one.is_too_large or one.size}
        for digest, of in tellers.items():
            found = self._sets.get(digest)
            if found is None:
                self._sets[digest] = self._set(of, tellers.keys(), now)
                if digest == 0 and self._sets[digest].total == 0:
                    self._sets[digest].known = frozenset()
            elif found.known is None and found.by not in of:
                first, member = next(iter(of.items()))
                found.ask(member.total, first, now)

    def _set(self, of: Mapping[int, _ReportedRules], digests: AbstractSet[int], now: int) -> _RuleSet:
        """Return a set that is asked for, if there is room; one that is to be replaced by it takes none."""
        kept = {digest: one.total for digest, one in self._sets.items() if not one.is_too_large}
        room = MOST_RULES - sum(total for digest, total in kept.items() if digest in digests)
        room = min(room, 2 * MOST_RULES - sum(kept.values()))
        by = next((one for one, member in of.items() if member.total <= room), None)
        first = next(iter(of)) if by is None else by
        return _RuleSet(of[first].total, first, now, is_too_large=by is None)

    def _find(self) -> None:
        """Find the rules that not all members have, of those whose rules are known; all members lag until told."""
        known = {
            member.compared: rules for member in self._members.values() if (rules := self._known(member)) is not None
        }
        sets = list(known.values())
        lines: list[Line] = []
        if len(sets) > 1:
            lines = sorted(frozenset[Line]().union(*sets) - sets[0].intersection(*sets[1:]))
        self._unnamed = max(0, len(lines) - MOST_DIFFERING)
        self._lines = lines[:MOST_DIFFERING]
        names = {member.compared: member.name for member in reversed(list(self._members.values()))}
        having, differing = dict[Line, str](), frozenset(self._lines)
        for one, rules in reversed(known.items()):
            having.update(dict.fromkeys(rules & differing, names[one]))
        self._having = [having[line] for line in self._lines]
        parts = chain(self._lines, self._having, [str(self._unnamed)])
        self._version = _version(parts) if self._lines else 0
        self._pages = self._paged()
        self._lagging = set(self._members)

    def _paged(self) -> dict[int, int]:
        pages, first, left = dict[int, int](), 0, RULE_PAGE
        for at, (line, having) in enumerate(zip(self._lines, self._having, strict=True)):
            if left <= 0:
                pages[first] = at
                first, left = at, RULE_PAGE
            left -= len(line.encode()) + len(having.encode()) + 8
        pages[first] = pages[len(self._lines)] = len(self._lines)
        return pages


def _version(lines: Iterable[str]) -> int:
    of = hashlib.blake2b(digest_size=8)
    for line in lines:
        of.update(line.encode() + b"\n")
    return int.from_bytes(of.digest()) | 2
