"""The limits that a process shares with others, as they are written: counted, told as lines, and read from lines.

A line is called a *rule*. It has a place, which says what the value is for, NUL, and the value:

    publish tenant acme␀messages=1000/1000000000/100 mode=reject        tokens/nanoseconds/burst
    attached namespace acme/shop␀group                                  an attachment to a resource group

A line says the same in all processes. What is not set is not in a line: so a later version may know more parts of a
limit, and older ones still agree with it where these are not set.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, product
from typing import Any, Final, NamedTuple, cast, get_args

from limiter.levels import About, Setting
from limiter.policies import Change, Policies, Value, lowest
from limiter.token_bucket import DIRECTIONS, NOTHING_PUBLISHED, Limit, Mode, Rate

ORIGIN: Final = "fleet"
"""The origin of a value that other processes have and this one has not."""
MOST_NAME: Final = 4096
"""Bytes of a name, at most. A limit that is written for a longer name is not shared."""
MOST_NUMBER: Final = (1 << 63) - 1
"""The greatest number of a rate, as in configurations. Other processes may tell greater ones."""
MANY_CHANGES: Final = 100
"""When more rules than these change at once, all streams are put within their limiters anew."""
_ATTACHED: Final = "attached"
_RATES: Final = {"messages": "messages", "peak_messages": "peak_messages", "bytes": "size", "peak_bytes": "peak_size"}
"""The word of each rate in a line, and its name in a `Limit`."""
_WHOLE: Final = 1 << 64
Place = tuple[About, Setting, str]
_Attachment = tuple[Setting, str, str]
"""The attachment of a tenant or namespace to a resource group: which of the two, its name, and the group."""


class Held(NamedTuple):
    """What of other processes holds here. It is another object when that changes.

    Attributes:
        values: Limits, by what they are written for.
        attachments: Attachments to resource groups.
    """

    values: Mapping[Place, Value]
    attachments: Mapping[_Attachment, None]


class RuleTally:
    """The number and the digest of the rules of some levels, kept while rules change.

    Args:
        levels: Levels whose limits are shared.

    Attributes:
        digest: 64 bits: the sum of a hash of each rule. It is the same for the same rules, in whatever order they came.
        total: The number of rules.
    """

    __slots__ = ("_levels", "digest", "total")

    def __init__(self, levels: frozenset[str], digest: int = 0, total: int = 0) -> None:
        self._levels = levels
        self.digest = digest
        self.total = total

    def counts(self, about: About, setting: Setting, name: str, value: Value | None) -> bool:
        """Return whether a value counts as a rule: it limits a rate at one of the levels, for a name not too long."""
        is_of_level = about in DIRECTIONS and self.shares(setting)
        return is_of_level and value is not None and bool(value.limit) and len(name.encode()) <= MOST_NAME

    def counts_attachment(self, name: str, group: str) -> bool:
        """Return whether an attachment to a resource group is a rule."""
        return self.counts_groups and len(name.encode()) + len(group.encode()) <= MOST_NAME

    def shares(self, setting: Setting) -> bool:
        """Return whether values of a setting are of one of the levels."""
        return setting.level.word in self._levels

    @property
    def counts_groups(self) -> bool:
        """Whether attachments to resource groups count as rules."""
        return self.shares(Setting.RESOURCE_GROUP)

    def replaced(self, about: About, setting: Setting, name: str, before: Value | None, after: Value | None) -> None:
        """Count that the value at a place was replaced; None: no value was or is there."""
        if before is not None and self.counts(about, setting, name, before):
            self._count(line_of(about, setting, name, before.limit), -1)
        if after is not None and self.counts(about, setting, name, after):
            self._count(line_of(about, setting, name, after.limit), 1)

    def attached(self, member: Setting, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Count that the attachments of tenants or of namespaces to resource groups, by name, were replaced."""
        if self.counts_groups:
            for times, attachments in ((-1, before.items() - after.items()), (1, after.items() - before.items())):
                for name, group in attachments:
                    if self.counts_attachment(name, group):
                        self._count(_attachment(member, name, group), times)

    def clear(self) -> None:
        """Count no rules any more."""
        self.digest = self.total = 0

    def copy(self) -> "RuleTally":
        """Return a copy, which counts on its own."""
        return RuleTally(self._levels, self.digest, self.total)

    def _count(self, line: str, times: int) -> None:
        one = int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest())
        self.digest = (self.digest + times * one) % _WHOLE
        self.total += times


class SharedRules:
    """The rules of this process, told to other processes; and the rules of those that are to hold in this one, too.

    Args:
        policies: The limits that are written in this process. They are counted from now on, so there may be none yet.
        levels: Levels whose limits are shared.
        change: Called when rules of other processes begin or cease to hold in this one: with the changes, and with what
            puts them in force.
    """

    def __init__(
        self,
        policies: Policies,
        levels: frozenset[str],
        change: Callable[[list[Change], Callable[[], None]], None] = lambda _changes, put: put(),
    ) -> None:
        self._change = change
        self._policies = policies
        policies.tally = RuleTally(levels)
        self._listed: list[Place | _Attachment] = []
        self._listed_digest = 0
        self._others: dict[Place, Value] = {}
        self._groups: dict[_Attachment, None] = {}

    @property
    def digest(self) -> int:
        """The digest of this process' rules: the same in all processes that have the same rules."""
        return self._tally.digest

    @property
    def total(self) -> int:
        """The number of this process' rules."""
        return self._tally.total

    @property
    def _tally(self) -> RuleTally:
        return cast("RuleTally", self._policies.tally)  # set when this object was made

    def lines(self, first: int, most: int) -> list[str]:
        """Return rules, in an order that stays the same as long as the digest does.

        One rule at least is returned, whatever its size, unless there are no more.

        Args:
            first: The place of the first one to return; the first of all has 0.
            most: Bytes of the lines, at most.
        """
        if self._listed_digest != self.digest or not self._listed:
            self._listed, self._listed_digest = self._all(), self.digest
        lines: list[str] = []
        for one in islice(self._listed, first, None):
            line = self._line(one)
            most -= len(line.encode())
            if most < 0 and lines:
                break
            lines.append(line)
        if first + len(lines) >= len(self._listed):
            self._listed = []
        return lines

    @property
    def held(self) -> Held:
        """What of other processes holds here now."""
        return Held(self._others, self._groups)

    def shares(self, place: str) -> bool:
        """Return whether what is written for a place is shared here, so that other processes' rules can hold."""
        try:
            found = _place(place)
        except ValueError:
            return False
        return self._tally.counts_groups if found is None else self._tally.shares(found[1])

    def here(self, place: str) -> str:
        """Return the value that is written in this process for the place of a line, shared or not; empty for none."""
        try:
            found = _place(place)
        except ValueError:
            return ""
        if found is None:
            _, member, name = place.split(" ", 2)
            return self._attached(Setting(member)).get(name, "")
        about, setting, name = found
        value = self._policies.put_under(about, setting).get(name)
        return "" if value is None else written(value.limit)

    def adopt(self, lines: Iterable[str]) -> None:
        """Let rules of other processes hold where this one has no limit at their level, or a higher one.

        Of several values for one place the lowest holds. A rule does not hold if it cannot be read, if its limit only
        observes, or if this process does not share its level.
        """
        others: dict[Place, Value] = {}
        groups: dict[_Attachment, None] = {}
        for line in lines:
            place, _, value = line.partition("\0")
            try:
                self._take(place, value, others, groups)
            except ValueError:
                continue
        changed = [place for place, value in others.items() if self._others.get(place) != value]
        changed += [place for place in self._others if place not in others]
        changes = [Change(*place) for place in changed]
        for member, name, _ in groups.keys() ^ self._groups.keys():
            changes += [Change(about, member, name) for about in DIRECTIONS]
        if not changes:
            return
        if len(changes) > MANY_CHANGES:
            changes = [Change(about, Setting.PROXY, "") for about in DIRECTIONS]
        policies = _policies_of(others, groups) if others or groups else None

        def put() -> None:
            self._others, self._groups, self._policies.others = others, groups, policies

        self._change(changes, put)

    def _take(self, place: str, value: str, others: dict[Place, Value], groups: dict[_Attachment, None]) -> None:
        found = _place(place)
        if found is None:
            _, member, name = place.split(" ", 2)
            if self._tally.counts_attachment(name, value):
                groups[Setting(member), name, value] = None
            return
        limit = _limit(value)
        taken = Value(limit, ORIGIN)
        if limit.mode != "observe" and self._tally.counts(*found, taken):
            known = others.get(found)
            others[found] = taken if known is None else Value(lowest(known.limit, limit), ORIGIN)

    def _attached(self, member: Setting) -> Mapping[str, str]:
        policies = self._policies
        return policies.groups_of_tenants if member is Setting.TENANT else policies.groups_of_namespaces

    def _all(self) -> list[Place | _Attachment]:
        found: list[Place | _Attachment] = []
        for about, setting in product(DIRECTIONS, Setting):
            values = self._policies.put_under(about, setting).items()
            found += [
                (about, setting, name) for name, value in values if self._tally.counts(about, setting, name, value)
            ]
        for member in _MEMBERS:
            attached = self._attached(member).items()
            found += [(member, name, group) for name, group in attached if self._tally.counts_attachment(name, group)]
        return found

    def _line(self, one: Place | _Attachment) -> str:
        if isinstance(one[0], Setting):
            return _attachment(*cast("_Attachment", one))
        about, setting, name = cast("Place", one)
        return line_of(about, setting, name, self._policies.put_under(about, setting)[name].limit)


_MEMBERS: Final = (Setting.TENANT, Setting.NAMESPACE)


def _policies_of(others: Mapping[Place, Value], groups: Iterable[_Attachment]) -> Policies:
    policies = Policies()
    for place, value in others.items():
        policies.put(*place, value)
    of = {member: {name: group for one, name, group in groups if one is member} for member in _MEMBERS}
    policies.attach(of[Setting.TENANT], of[Setting.NAMESPACE])
    return policies


def line_of(about: About, setting: Setting, name: str, limit: Limit) -> str:
    """Return a limit as a line."""
    return f"{about} {setting} {name}\0{written(limit)}"


def written(limit: Limit) -> str:
    """Return a limit as the value of a line."""
    parts = [
        f"{word}={one.tokens}/{one.period_ns}/{one.burst}"
        for word, name in _RATES.items()
        if (one := getattr(limit, name)) is not None
    ]
    parts += [f"mode={limit.mode}"] if limit.mode != "enforce" else []
    return " ".join(parts + (["relative"] if limit.published is not None else []))


def described(value: str) -> str:
    """Return the value of a line as people read it: `messages 1000/s, burst 100`; one that cannot be read as it is."""
    try:
        limit = _limit(value)
    except ValueError:
        return value
    rates = [
        f"{word.replace('_', ' ')} {one.per_second:.12g}/s, burst {one.burst}"
        for word, name in _RATES.items()
        if (one := getattr(limit, name)) is not None
    ]
    others = [word for word, is_so in ((limit.mode, limit.mode != "enforce"), ("relative", limit.published)) if is_so]
    return "; ".join([*rates, *map(str, others)])


def _attachment(member: Setting, name: str, group: str) -> str:
    return f"{_ATTACHED} {member} {name}\0{group}"


def _place(place: str) -> Place | None:
    """Read the place of a line; None: the line is an attachment.

    Raises:
        ValueError: If the place is none that this version knows.
    """
    about, setting, name = place.split(" ", 2)
    if about == _ATTACHED:
        if setting not in _MEMBERS:
            raise ValueError(f"{place!r} is attached to nothing")
        return None
    if about not in DIRECTIONS:
        raise ValueError(f"{place!r} is no limit")
    return about, Setting(setting), name


def _limit(value: str) -> Limit:
    """Read the value of a line.

    Raises:
        ValueError: If this version cannot read it.
    """
    found: dict[str, Any] = {}
    for part in value.split(" "):
        word, _, what = part.partition("=")
        if word in _RATES:
            tokens, period_ns, burst = map(int, what.split("/"))
            if max(tokens, period_ns, burst) > MOST_NUMBER:
                raise ValueError(f"{word} of more than {MOST_NUMBER}")
            found[_RATES[word]] = Rate(tokens, period_ns, burst)
        elif word == "mode" and what in get_args(Mode):
            found["mode"] = what
        elif part == "relative":
            found["published"] = NOTHING_PUBLISHED
        else:
            raise ValueError(f"{value!r} is no limit that is known here")
    return Limit(**found)
