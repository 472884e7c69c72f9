"""The rules of a fleet: the limits that its members would share as they are written, and which of them not all have.

    member ─digest, and lines if asked─▶ coordinator ─the lines that not all have─▶ all members

A rule is a line of text: what it is for, NUL, and its value. Nobody reads it here. While all members tell the same
digest, nothing else is told. Else the coordinator asks one member of each digest for its lines, page by page, and tells
all members the lines that not all have. A member can hold what it lacks as if it had it.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import NamedTuple, Protocol

from fleet.messages import RULE_PAGE, Differing, RulesReport

MOST_RULES = 200_000
"""Rules of one member, and of all whose rules differ together, that a coordinator keeps; others are not compared."""

MOST_DIFFERING = 10_000
"""Rules that not all members have, and that are told them."""

MOST_PATIENCE = 16
"""A member's rules that change all the time count after so many times the patience."""

Line = str
"""A rule."""


class OwnRules(Protocol):
    """The rules that this process has."""

    @property
    def digest(self) -> int:
        """Of all of them, 64 bits: the same in all processes that have the same, whatever their order."""

    @property
    def total(self) -> int:
        """How many they are."""

    def lines(self, first: int, most: int) -> list[Line]:
        """Return those from a place on, in an order that holds as long as the digest does: at most so many bytes."""


def place_of(line: Line) -> str:
    """Return what a rule is for."""
    return line.partition("\0")[0]


class MemberRules:
    """The member's side: tells of its own rules, and knows which are not in all members.

    Args:
        own: Its rules; None: it tells nothing of them, and they are not compared.

    Attributes:
        differing: The rules that not all members have, as last heard, each with the name of a member that has it.
        unnamed: How many there are besides.
        revision: Another one whenever the rules are others, or their number.
    """

    def __init__(self, own: OwnRules | None) -> None:
        self.differing: Mapping[Line, str] = {}
        self.unnamed = 0
        self.revision = 0
        self._own = own
        self._version = 0
        self._total = 0
        self._taken: dict[Line, str] = {}
        self._settled = True
        self._wanted = 0

    @property
    def is_asked(self) -> bool:
        """Whether its rules are asked for, so that a report is worth sending at once."""
        return self._wanted > 0

    def report(self) -> RulesReport | None:
        """Return what is told in the next report."""
        own, wanted = self._own, self._wanted
        self._wanted = 0
        if own is None:
            return None
        lines = own.lines(wanted - 1, RULE_PAGE) if wanted else []
        taken = len(self._taken)
        return RulesReport(own.digest, own.total, self._version, taken, not self._settled, max(0, wanted - 1), lines)

    def ask(self, wants: int) -> None:
        """Take from a grant that the rules are asked for."""
        self._wanted = wants

    def take(self, told: Differing) -> bool:
        """Take what differs, or a part of it; return whether it is worth saying so at once, as more is to come."""
        if self._own is None or told.total > MOST_DIFFERING:
            return False
        if told.version != self._version:
            self._version, self._total, self._taken = told.version, told.total, {}
        known = len(self._taken)
        new = told.first <= known < told.first + len(told.lines)
        if new:
            at = known - told.first
            self._taken.update(zip(told.lines[at:], told.having[at:], strict=True))
        if len(self._taken) == self._total:
            self._complete(told)
        return new

    def _complete(self, told: Differing) -> None:
        self._settled = told.settled
        differing = dict(self._taken) if told.settled else {**self.differing, **self._taken}
        if len(differing) > 2 * MOST_DIFFERING:  # coordinators that replace each other and never settle
            differing = dict(self._taken)
        self.revision += differing.keys() != self.differing.keys() or told.unnamed != self.unnamed
        self.differing, self.unnamed = differing, told.unnamed


class _Told:
    """What a member tells of its rules.

    Attributes:
        name: The member's, for people.
        report: The latest.
        digest, total: Of the rules that count for it: the latest, once they have stayed for a while.
        changed_at: When it first told of the latest.
        since: When it first told of others than those that count.
        compared: The digest whose lines are compared for it: the latest of which all are known; None if none is.
    """

    __slots__ = ("changed_at", "compared", "digest", "name", "report", "since", "total")

    def __init__(self, name: str, report: RulesReport) -> None:
        self.name = name
        self.report = report
        self.digest, self.total = report.digest, report.total
        self.changed_at = self.since = 0
        self.compared: int | None = None

    def count(self) -> None:
        """Let its latest rules count."""
        self.digest, self.total = self.report.digest, self.report.total


class _Set:
    """The rules of all members that tell one digest, as far as they are known.

    Attributes:
        total: How many there are to be.
        by: The member that is asked for them.
        lines: Those that came.
        known: All of them, once they are there.
        is_refused: They are too many.
    """

    __slots__ = ("by", "is_refused", "known", "lines", "total")

    def __init__(self, total: int, by: int, *, is_refused: bool) -> None:
        self.total = total
        self.by = by
        self.lines: list[Line] = []
        self.is_refused = is_refused
        self.known: frozenset[Line] | None = None


class DifferingRule(NamedTuple):
    """A rule that not all members have.

    Attributes:
        line: The rule.
        having: The members that have it.
        lacking: Those that have not, or another one for the same place.
    """

    line: Line
    having: list[str]
    lacking: list[str]


class ComparedRules:
    """The coordinator's side: compares the members' rules.

    Members of which nothing is heard of rules are not compared. What is known of a member's rules holds until its new
    ones are known; so what differs never looks less for a moment, while rules are told. A member whose rules change may
    only be the first one: others have the same change, and are yet to report. So changed rules count when they have
    stayed for `patience_ns`, or all members have them.

    Args:
        patience_ns: So long what a member tells is to stay the same; but it counts after `MOST_PATIENCE` times as long.
    """

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns = patience_ns
        self._members: dict[int, _Told] = {}
        self._lagging: set[int] = set()
        """Those that may have something to be told."""
        self._changing: dict[int, None] = {}
        """Members whose latest rules do not count yet."""
        self._sets: dict[int, _Set] = {}
        self._has_changed = False
        self._lines: list[Line] = []
        self._having: list[str] = []
        self._unnamed = 0
        self._version = 0
        self._is_complete = True
        self._sent = 0, False, 0
        self._sent_at = 0

    @property
    def differing(self) -> Sequence[Line]:
        """The rules that not all members have, as far as they are told."""
        return self._lines

    @property
    def uncompared(self) -> int:
        """Members whose rules are not compared, as they are too many."""
        refused = {digest for digest, one in self._sets.items() if one.is_refused}
        return sum(one.digest in refused for one in self._members.values())

    def hear(self, incarnation: int, name: str, report: RulesReport | None, now: int) -> None:
        """Take what a member's report says of its rules."""
        if report is None:
            self._forget(incarnation)
            return
        told = self._members.get(incarnation)
        if told is None:
            told = self._members[incarnation] = _Told(name, report)
            self._has_changed = True
        elif told.report.digest != report.digest:
            told.changed_at = now
            if incarnation not in self._changing:
                told.since, self._changing[incarnation] = now, None
        told.report = report
        if self._lags(told, settled=True):
            self._lagging.add(incarnation)
        else:
            self._lagging.discard(incarnation)
        found = self._sets.get(report.digest)
        if found is not None and found.known is None and found.by == incarnation and not found.is_refused:
            self._collect(found, report)

    def keep(self, incarnations: AbstractSet[int]) -> None:
        """Forget the members that are not among these."""
        if not self._members.keys() <= incarnations:
            for incarnation in self._members.keys() - incarnations:
                self._forget(incarnation)

    def is_due(self, incarnation: int) -> bool:
        """Return whether a member is to be answered at once: to be asked for its rules, or told of others'."""
        return self._has_changed or self.wants(incarnation) > 0 or self._lags(self._members.get(incarnation))

    def wants(self, incarnation: int) -> int:
        """Return from where on a member's rules are asked for, as `Grant.wants` has it."""
        told = self._members.get(incarnation)
        found = None if told is None or incarnation in self._changing else self._sets.get(told.digest)
        if found is None or found.known is not None or found.by != incarnation or found.is_refused:
            return 0
        return len(found.lines) + 1

    def compare(self, now: int) -> None:
        """Find what differs, if anything has changed: which rules are to be asked for, and which are known to."""
        self._count_changed(now)
        if not self._has_changed:
            return
        self._has_changed = False
        self._look_for_sets()
        for told in self._members.values():
            found = self._sets.get(told.digest)
            if found is None or found.known is not None or found.is_refused:
                told.compared = told.digest
        self._is_complete = all(told.compared == told.digest for told in self._members.values())
        used = {told.compared for told in self._members.values()} | {told.digest for told in self._members.values()}
        unused = self._sets.keys() - used
        for digest in unused:
            del self._sets[digest]
        self._has_changed = bool(unused) and self.uncompared > 0  # there may be room for them now
        self._find()

    def told(self, now: int, again_ns: int, *, is_whole: bool) -> Differing | None:
        """Return what is to be told all members now, a page of it; None: nothing.

        Args:
            now: The time.
            again_ns: A page that was told is told again after so long, if somebody still has not got it.
            is_whole: All members are known; else, soon after a takeover, what differed before still does.
        """
        settled = is_whole and self._is_complete
        lagging = [
            self._members[one].report for one in self._lagging if self._lags(self._members[one], settled=settled)
        ]
        behind = [one.taken if one.version == self._version else 0 for one in lagging]
        if not behind:
            return None
        first = min(behind)
        page = self._version, settled, first
        if page == self._sent and now - self._sent_at < again_ns:
            return None
        self._sent, self._sent_at = page, now
        last, left = first, RULE_PAGE
        while last < len(self._lines) and left > 0:
            left -= len(self._lines[last].encode()) + len(self._having[last].encode()) + 8
            last += 1
        lines, having = self._lines[first:last], self._having[first:last]
        return Differing(self._version, len(self._lines), self._unnamed, settled, first, lines, having)

    def rules(self, most: int) -> list[DifferingRule]:
        """Return the rules that not all members have, with the members."""
        shown = []
        for line in self._lines[:most]:
            having, lacking = list[str](), list[str]()
            for told in self._members.values():
                known = self._known(told)
                if known is not None:
                    (having if line in known else lacking).append(told.name)
            shown.append(DifferingRule(line, having, lacking))
        return shown

    def _forget(self, incarnation: int) -> None:
        if self._members.pop(incarnation, None) is not None:
            self._changing.pop(incarnation, None)
            self._lagging.discard(incarnation)
            self._has_changed = True

    def _count_changed(self, now: int) -> None:
        """Let rules count that have stayed for long enough, or are all members'."""
        if not self._changing:
            return
        all_agree = len({told.report.digest for told in self._members.values()}) == 1
        for incarnation in list(self._changing):
            told = self._members[incarnation]
            has_stayed = now - told.changed_at >= self._patience_ns
            if all_agree or has_stayed or now - told.since >= MOST_PATIENCE * self._patience_ns:
                self._has_changed = self._has_changed or told.digest != told.report.digest
                told.count()
                del self._changing[incarnation]

    def _lags(self, told: _Told | None, *, settled: bool = False) -> bool:
        if told is None:
            return False
        one = told.report
        is_behind = one.version != self._version or one.taken < len(self._lines)
        return is_behind or (settled and one.unsettled)

    def _known(self, told: _Told) -> frozenset[Line] | None:
        found = None if told.compared is None else self._sets.get(told.compared)
        return None if found is None else found.known

    def _collect(self, found: _Set, report: RulesReport) -> None:
        if report.first != len(found.lines) or not report.lines:
            return
        found.lines += report.lines
        if len(found.lines) >= found.total:
            found.known, found.lines = frozenset(found.lines), []
            self._has_changed = True

    def _look_for_sets(self) -> None:
        """Keep a set for each digest, if there are several, and see that somebody is asked for it."""
        tellers: dict[int, dict[int, _Told]] = {}
        for incarnation, told in self._members.items():
            tellers.setdefault(told.digest, {})[incarnation] = told
        self._sets = {digest: one for digest, one in self._sets.items() if len(tellers) > 1 and not one.is_refused}
        if len(tellers) <= 1:
            return
        for digest, of in tellers.items():
            found = self._sets.get(digest)
            first, told = next(iter(of.items()))
            if found is None:
                kept = sum(one.total for one in self._sets.values() if not one.is_refused)
                found = self._sets[digest] = _Set(told.total, first, is_refused=kept + told.total > MOST_RULES)
                if told.total == 0:
                    found.known = frozenset()
            elif found.known is None and found.by not in of:
                found.by, found.lines = first, []

    def _find(self) -> None:
        known = {told.compared: rules for told in self._members.values() if (rules := self._known(told)) is not None}
        sets = list(known.values())
        lines: list[Line] = []
        if len(sets) > 1:
            lines = sorted(frozenset[Line]().union(*sets) - sets[0].intersection(*sets[1:]))
        self._unnamed = max(0, len(lines) - MOST_DIFFERING)
        self._lines = lines[:MOST_DIFFERING]
        names = {told.compared: told.name for told in reversed(list(self._members.values()))}
        self._having = [next(names[one] for one, rules in known.items() if line in rules) for line in self._lines]
        told = chain(self._lines, self._having, [str(self._unnamed)])
        self._version = _version(told) if self._lines else 0
        self._lagging = set(self._members)


def _version(lines: Iterable[str]) -> int:
    of = hashlib.blake2b(digest_size=8)
    for line in lines:
        of.update(line.encode() + b"\n")
    return int.from_bytes(of.digest()) | 2
