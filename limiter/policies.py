"""The limits that apply to a stream: values by setting, and Pulsar's precedence topic > namespace > broker.

Of the values of the levels that processes share, each is a *rule*: a line of text, by which processes compare what is
written in them, and tell each other what the others lack (`SharedRules`). A rule has a target, which says what the
value is for; then NUL, and the value:

    publish tenant acme␀messages=1000/1000000000/100 mode=reject        tokens/nanoseconds/burst
    attached namespace acme/shop␀group                                  an attachment to a resource group

A line says the same in all processes. What is not set is not in a line: so a later version may know more parts of a
limit, and older ones still agree with it where these are not set.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any, Final, NamedTuple, cast, get_args, overload

from limiter.levels import (
    ANYBODY,
    LEVELS,
    About,
    Client,
    Level,
    NameForm,
    Naming,
    Networks,
    Setting,
    StreamIdentity,
    Topic,
)
from limiter.limiter import Scope
from limiter.token_bucket import DIRECTIONS, NOTHING_PUBLISHED, Direction, Limit, Mode, Rate

TENANT_ORIGIN: Final = "tenant"
"""The origin of a value that a tenant set for itself."""
FLEET_ORIGIN: Final = "fleet"
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
_DIGESTS: Final = 1 << 64
Target = tuple[About, Setting, str]
"""What a value is for: its subject, its setting, and the setting's name. A line has the three as words."""
_Attachment = tuple[Setting, str, str]
"""The attachment of a tenant or namespace to a resource group: which of the two, its name, and the group."""


@dataclass(frozen=True, slots=True)
class Value:
    """A limit and where it was written: `file`, `dynamic`, `global`, `rest`, or `tenant`."""

    limit: Limit
    origin: str


class InForce(NamedTuple):
    """A limit that applies: its scope, its value, and its source for people (`namespace rest`)."""

    scope: Scope
    limit: Limit
    source: str


Find = Callable[[str], Value | None]
"""Finds the value that is written for a name."""


class Written(NamedTuple):
    """A level at which something is written.

    Args:
        level: The level.
        settings: The level's, as far as they hold a value: how to find one, its name there, and the source's name.
    """

    level: Level
    settings: tuple[tuple[Find, Naming, str], ...]


class HeldRules(NamedTuple):
    """The rules of other processes that hold here. It is another object when these change.

    Attributes:
        values: Limits, by what they are written for.
        attachments: Attachments to resource groups.
    """

    values: Mapping[Target, Value]
    attachments: Mapping[_Attachment, None]


PutRules = Callable[[], tuple[HeldRules, HeldRules]]
"""Puts rules of other processes in force; returns those that held before, and those that hold now."""


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
        """Count that the value for a target was replaced; None: no value was or is there."""
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
        self.digest = (self.digest + times * one) % _DIGESTS
        self.total += times


@dataclass(slots=True)
class Policies:
    """The configured values, and the resource group that each tenant or namespace is attached to.

    Attributes:
        tally: Counts what is written as rules, from the first value on; None: nobody is told of them.
        others: Rules of a fleet's other members: they hold where nothing is written here at a level, and where they are
            lower than what is written here for the same.
        tenants: Values that tenants set for themselves. At each level the stricter of both holds (`within`), so that
            no tenant gets more than the operator's values alone would give. None: there are none.
    """

    groups_of_namespaces: dict[str, str] = field(default_factory=dict)
    """Resource group by `tenant/namespace`."""
    groups_of_tenants: dict[str, str] = field(default_factory=dict)
    """Resource group by tenant, for namespaces without one of their own."""
    _values: dict[About, dict[Setting, dict[str, Value]]] = field(default_factory=dict)
    _networks: dict[tuple[About, Setting], Networks[Value]] = field(default_factory=dict)
    """The values that limit something, of settings whose names are networks."""
    _levels: dict[About, tuple[Written, ...]] = field(default_factory=dict)
    """All levels at which something is written, outermost first."""
    tally: RuleTally | None = None
    others: "Policies | None" = None
    tenants: "Policies | None" = None

    def put_tenants(self, about: About, setting: Setting, name: str, value: Value | None) -> None:
        """Set a value of a tenant for itself; None takes it back."""
        tenants = self.tenants or Policies()
        tenants.put(about, setting, name, value)
        self.tenants = None if tenants.is_empty else tenants

    @property
    def is_empty(self) -> bool:
        """True if no value is set."""
        return not any(self._values.values())

    def put(self, about: About, setting: Setting, name: str, value: Value | None) -> None:
        """Set a value; None takes it back.

        Raises:
            ValueError: If an address or a network is not one.
        """
        if setting.record.form == "network":  # what limits nothing must not hide the wider network's value
            networks = self._networks.setdefault((about, setting), Networks())
            networks.put(name, value if value and value.limit else None)
        values = self._values.setdefault(about, {})
        if self.tally is not None:
            self.tally.replaced(about, setting, name, values.get(setting, {}).get(name), value)
        known = len(values)
        if value is not None:
            values.setdefault(setting, {})[name] = value
        elif setting in values:
            values[setting].pop(name, None)
            if not values[setting]:
                del values[setting]
        if len(values) != known:
            self._levels[about] = tuple(self._written(about))

    def get(self, about: About, setting: Setting, name: str) -> Value | None:
        """Return the value of a name; of an address, the value of its narrowest network."""
        if setting.record.form == "network":
            networks = self._networks.get((about, setting))
            return networks.find(name) if networks else None
        return self.put_under(about, setting).get(name)

    def attach(self, of_tenants: dict[str, str], of_namespaces: dict[str, str]) -> None:
        """Say which resource group each tenant and namespace is attached to that is."""
        if self.tally is not None:
            self.tally.attached(Setting.TENANT, self.groups_of_tenants, of_tenants)
            self.tally.attached(Setting.NAMESPACE, self.groups_of_namespaces, of_namespaces)
        self.groups_of_tenants, self.groups_of_namespaces = of_tenants, of_namespaces

    def clear(self) -> None:
        """Take everything back: values and attachments."""
        if self.tally is not None:
            self.tally.clear()
        self.groups_of_namespaces.clear()
        self.groups_of_tenants.clear()
        self._values.clear()
        self._networks.clear()
        self._levels.clear()
        if self.tenants is not None:
            self.tenants.clear()

    def copy(self) -> "Policies":
        """Return a copy, to be changed aside."""
        values = {about: {setting: dict(named) for setting, named in of.items()} for about, of in self._values.items()}
        networks = {key: networks.copy() for key, networks in self._networks.items()}
        other = Policies(dict(self.groups_of_namespaces), dict(self.groups_of_tenants), values, networks)
        other._levels = {about: tuple(other._written(about)) for about in values}
        other.tally = None if self.tally is None else self.tally.copy()
        other.tenants = None if self.tenants is None else self.tenants.copy()
        return other

    def exchange(self, other: "Policies") -> None:
        """Swap contents with another object in one step, whatever there is; `others` stays."""
        for name in self.__slots__:
            if name == "others":
                continue
            mine, its = getattr(self, name), getattr(other, name)
            setattr(self, name, its)
            setattr(other, name, mine)

    def put_under(self, about: About, setting: Setting) -> Mapping[str, Value]:
        """Return the values of one setting, by name."""
        return self._values.get(about, {}).get(setting, {})

    def in_force(self, direction: Direction, topic: Topic, client: Client = ANYBODY) -> tuple[InForce, ...]:
        """The limits of one topic (one partition of a partitioned one) for one client's stream, outermost first."""
        if self.others is not None:
            found = [self.in_force_at(level, direction, topic, client) for level in LEVELS]
            return tuple([entry for entry in found if entry is not None])
        if self.tenants is None and not self._levels.get(direction):
            return ()
        whose = StreamIdentity(topic, client, self.group_of(topic))
        in_force = self._at_levels(direction, whose)
        if self.tenants is not None:
            in_force = _all_within(in_force, self.tenants._at_levels(direction, whose))  # noqa: SLF001 - of the same class
        return tuple(in_force)

    def _at_levels(self, direction: Direction, whose: StreamIdentity) -> list[InForce]:
        is_system = whose.topic.is_system
        levels = [one for one in self._levels.get(direction, ()) if one.level.is_of_system is is_system]
        return [entry for one in levels if (entry := _at_level(one, direction, whose)) is not None]

    def in_force_at(self, level: Level, direction: Direction, topic: Topic, client: Client) -> InForce | None:
        """The one of these limits that is of `level`, if there is one."""
        if level.is_of_system is not topic.is_system:
            return None
        whose = StreamIdentity(topic, client, self.group_of(topic))
        found = self._at(level, direction, whose)
        if self.others is not None:
            found = _completed(found, self.others._at(level, direction, whose))  # noqa: SLF001 - of the same class
        if self.tenants is not None:
            found = within(found, self.tenants._at(level, direction, whose))  # noqa: SLF001 - of the same class
        return found

    def _at(self, level: Level, direction: Direction, whose: StreamIdentity) -> InForce | None:
        levels = self._levels.get(direction, ())
        return next((_at_level(written, direction, whose) for written in levels if written.level is level), None)

    @property
    def limits_subscribes(self) -> bool:
        """True if there is any subscribe rate."""
        return any(self._values.get("subscribe", {}).values()) or bool(self.tenants and self.tenants.limits_subscribes)

    def subscribe_rate(self, topic: Topic) -> tuple[Rate, str] | None:
        """Return the rate of subscribing of each consumer of a topic, and its source for people (`namespace rest`).

        The narrowest value that is there holds, as with Pulsar.
        """
        if topic.is_system or not self.limits_subscribes:
            return None
        found = self._subscribe_rate(topic)
        theirs = None if self.tenants is None else self.tenants._subscribe_rate(topic)  # noqa: SLF001 - of the same class
        if found is None or theirs is None:
            return found or theirs
        rate = stricter_rate(found[0], theirs[0])
        return rate, found[1] if rate == found[0] else theirs[1]

    def _subscribe_rate(self, topic: Topic) -> tuple[Rate, str] | None:
        whose = StreamIdentity(topic, ANYBODY, "")
        for setting, naming, source in SUBSCRIBE_LOOKUPS:
            value = self.get("subscribe", setting, naming(whose))
            if value and value.limit.messages:
                return value.limit.messages, f"{source} {value.origin}"
        return None

    def group_of(self, topic: Topic) -> str:
        """The resource group that the topic's namespace is attached to, or else its tenant; empty for none."""
        group = ""
        if self.groups_of_namespaces or self.groups_of_tenants:
            group = self.groups_of_namespaces.get(topic.namespace_name) or self.groups_of_tenants.get(topic.tenant, "")
        return group if group or self.others is None else self.others.group_of(topic)

    def _written(self, about: About) -> Iterator[Written]:
        finds: dict[Setting, Find] = {setting: values.get for setting, values in self._values[about].items()}
        networks = [(setting, found) for (of, setting), found in self._networks.items() if of == about]
        finds |= {setting: found.find for setting, found in networks if setting in finds}
        for level in LEVELS:
            settings = tuple(
                (finds[setting], naming, source) for setting, naming, source in level.lookups if setting in finds
            )
            if settings:
                yield Written(level, settings)


def _at_level(written: Written, direction: Direction, whose: StreamIdentity) -> InForce | None:
    """The narrowest value that is there; one that limits nothing counts as not set, as with Pulsar."""
    level = written.level
    if not level.exists(whose):
        return None
    for find, naming, source in written.settings:
        value = find(naming(whose))
        if value is not None and value.limit:
            return InForce(_scope(level, direction, whose), value.limit, f"{source} {value.origin}")
    return None


def _all_within(found: list[InForce], theirs: list[InForce]) -> list[InForce]:
    """Return what holds of each level's limit and a tenant's own at the same level, outermost first."""
    by_level = {entry.scope.level: entry for entry in found}
    for entry in theirs:
        both = within(by_level.get(entry.scope.level), entry)
        assert both is not None, "one of the two is there"
        by_level[entry.scope.level] = both
    return [by_level[level.word] for level in LEVELS if level.word in by_level]


def within(found: InForce | None, own: InForce | None) -> InForce | None:
    """Return what holds where a tenant has set a limit of its own at a level.

    Args:
        found: The limit that the operator's values give.
        own: The tenant's.
    """
    if found is None or own is None:
        return found or own
    limit = stricter(found.limit, own.limit)
    return found if limit == found.limit else own._replace(limit=limit)


def stricter(limit: Limit, own: Limit) -> Limit:
    """Return the stricter of an operator's limit and a tenant's, figure by figure: no more passes than either lets.

    A limit that holds messages or refuses them is stricter than one that observes. The mode is the operator's, unless
    that observes.
    """
    if not own or own.mode == "observe":
        return limit or own
    if not limit or limit.mode == "observe":
        return own
    is_relative = limit.published is not None and own.published is not None
    return Limit(
        stricter_rate(limit.messages, own.messages),
        stricter_rate(limit.size, own.size),
        stricter_rate(limit.peak_messages, own.peak_messages),
        stricter_rate(limit.peak_size, own.peak_size),
        limit.mode,
        limit.published if is_relative else None,
    )


@overload
def stricter_rate(one: Rate, other: Rate) -> Rate: ...
@overload
def stricter_rate(one: Rate | None, other: Rate | None) -> Rate | None: ...
def stricter_rate(one: Rate | None, other: Rate | None) -> Rate | None:
    """Return the lower of two rates, with the smaller of both bursts; one that is not there limits nothing."""
    if one is None or other is None:
        return one or other
    lower = other if other.tokens * one.period_ns < one.tokens * other.period_ns else one
    return lower if lower.burst <= min(one.burst, other.burst) else replace(lower, burst=min(one.burst, other.burst))


def _completed(own: InForce | None, other: InForce | None) -> InForce | None:
    if own is None or other is None:
        return own or other
    is_same_target = own.source.rpartition(" ")[0] == other.source.rpartition(" ")[0]
    limit = completed(own.limit, other.limit, is_same_target=is_same_target)
    if limit is other.limit or (is_same_target and limit != own.limit):
        return own._replace(limit=limit, source=other.source)
    return own._replace(limit=limit)


def completed(own: Limit, other: Limit, *, is_same_target: bool) -> Limit:
    """Return what holds where a fleet's other members have a limit, too.

    Of a unit that is not limited here, theirs holds; where it is written for the same, the lower of both. One that only
    observes limits nothing. A limit relative to publish rates, and one that is not, are not mixed.
    """
    if own.mode == "observe":
        return other
    if (own.published is None) != (other.published is None):
        return own
    return lowest(own, other, with_lower=is_same_target and own.published is None)


def lowest(one: Limit, other: Limit, *, with_lower: bool = True) -> Limit:
    """Return a limit with the rates of another one, unit by unit: where it has none, and those that are lower.

    Args:
        one: The limit.
        other: The other one.
        with_lower: Else only where it has none.
    """
    for rate, peak in (("messages", "peak_messages"), ("size", "peak_size")):
        mine, its = getattr(one, rate), getattr(other, rate)
        my_peak, its_peak = getattr(one, peak), getattr(other, peak)
        if its is not None and (mine is None or (with_lower and _is_lower(its, mine, its_peak, my_peak))):
            one = replace(one, **{rate: its, peak: its_peak})
    return one


def _is_lower(one: Rate, other: Rate, peak: Rate | None = None, other_peak: Rate | None = None) -> bool:
    """Return whether a rate is lower than another one, or, of equal ones, its burst, or then its peak."""
    mine, its = one.tokens * other.period_ns, other.tokens * one.period_ns
    if (mine, one.burst) != (its, other.burst):
        return (mine, one.burst) < (its, other.burst)
    return peak is not None and (other_peak is None or _is_lower(peak, other_peak))


def _scope(level: Level, direction: Direction, whose: StreamIdentity) -> Scope:
    """Return the scope of a level's limit on one stream."""
    tenant = whose.topic.tenant if level.within else ""
    namespace = whose.topic.namespace if level.within == "namespace" else ""
    return Scope(direction, level.word, level.name(whose), tenant, namespace)


SUBSCRIBE_LOOKUPS = tuple(
    lookup for level in LEVELS for lookup in level.lookups if "subscribe" in lookup[0].record.abouts
)
"""Lookups of the places at which a subscribe rate may be, the narrowest first."""
OF_TOPIC: frozenset[NameForm] = frozenset({"topic", "subscription"})
"""Forms of names that say which topic they are of."""


@dataclass(frozen=True, slots=True)
class Change:
    """A value that has been replaced.

    Args:
        about: The subject of the value.
        setting: The setting of the value.
        name: The name that the setting has.
        only_tunes: Whether it limited before, still does, and in the same way: holding, or only observing. Then no
            limit appears or goes by it, as whoever it holds for was limited by it before, or by something narrower.
    """

    about: About
    setting: Setting
    name: str
    only_tunes: bool = False

    def may_tune(self, scope: Scope) -> bool:
        """Return whether a limiter's value can come from here; its name is looked at as far as that is cheap."""
        if scope.level != self.setting.level.word or scope.direction != self.about:
            return False
        if self.setting.record.form == "namespace" and scope.namespace:
            return f"{scope.tenant}/{scope.namespace}" == self.name
        return True

    def topics(self) -> list[str]:
        """Names one of which is the topic's, if it is set for one; both names around an @ may hold another."""
        form = self.setting.record.form
        if form != "subscription":
            return [self.name] if form == "topic" else []
        return [self.name[at + 1 :] for at, letter in enumerate(self.name) if letter == "@"]


def change_of(target: Target, before: Value | None, after: Value | None) -> Change | None:
    """Return the change of the value for a target, or None if the value is the same."""
    if before == after:
        return None
    if not before or not after or not before.limit or not after.limit:
        return Change(*target)
    return Change(*target, only_tunes=(before.limit.mode == "observe") == (after.limit.mode == "observe"))


class SharedRules:
    """The rules of this process, told to other processes; and the rules of those that are to hold in this one, too.

    Args:
        policies: The limits that are written in this process. They have a tally, which says whose limits are shared.
        change: Called when rules of other processes begin or cease to hold in this one: with the changes, and with a
            function that puts them in force.
    """

    def __init__(
        self,
        policies: Policies,
        change: Callable[[list[Change], PutRules], object] = lambda _changes, put: put(),
    ) -> None:
        self._change = change
        self._policies = policies
        self._listed: list[Target | _Attachment] = []
        self._listed_digest = 0
        self._held = HeldRules({}, {})

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
        tally = self._policies.tally
        assert tally is not None
        return tally

    def lines(self, first: int, most: int) -> list[str]:
        """Return rules, in an order that stays the same as long as the digest does.

        One rule at least is returned, whatever its size, unless there are no more.

        Args:
            first: The index of the first one to return; the first of all has 0.
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

    def shares(self, target: str) -> bool:
        """Return whether what is written for a target is shared here, so that other processes' rules can hold."""
        try:
            found = _read_target(target)
        except ValueError:
            return False
        return self._tally.counts_groups if found is None else self._tally.shares(found[1])

    def here(self, target: str) -> str:
        """Return the value that is written in this process for a target of a line, shared or not; empty for none."""
        try:
            found = _read_target(target)
        except ValueError:
            return ""
        if found is None:
            _, member, name = target.split(" ", 2)
            return self._attached(Setting(member)).get(name, "")
        about, setting, name = found
        value = self._policies.put_under(about, setting).get(name)
        return "" if value is None else written(value.limit)

    def adopt(self, lines: Iterable[str]) -> None:
        """Let rules of other processes hold where this one has no limit at their level, or a higher one.

        Of several values for one target the lowest holds. A rule does not hold if it cannot be read, if its limit only
        observes, or if this process does not share its level.
        """
        others: dict[Target, Value] = {}
        groups: dict[_Attachment, None] = {}
        for line in lines:
            target, _, value = line.partition("\0")
            try:
                self._take(target, value, others, groups)
            except ValueError:
                continue
        before = self._held
        changed = [target for target, value in others.items() if before.values.get(target) != value]
        changed += [target for target in before.values if target not in others]
        changes = [Change(*target) for target in changed]
        for member, name, _ in groups.keys() ^ before.attachments.keys():
            changes += [Change(about, member, name) for about in DIRECTIONS]
        if not changes:
            return
        if len(changes) > MANY_CHANGES:
            changes = [Change(about, Setting.PROXY, "") for about in DIRECTIONS]
        policies = _policies_of(others, groups) if others or groups else None

        def put() -> tuple[HeldRules, HeldRules]:
            self._held, self._policies.others = HeldRules(others, groups), policies
            return before, self._held

        self._change(changes, put)

    def _take(self, target: str, value: str, others: dict[Target, Value], groups: dict[_Attachment, None]) -> None:
        found = _read_target(target)
        if found is None:
            _, member, name = target.split(" ", 2)
            if self._tally.counts_attachment(name, value):
                groups[Setting(member), name, value] = None
            return
        limit = _read_limit(value)
        taken = Value(limit, FLEET_ORIGIN)
        if limit.mode != "observe" and self._tally.counts(*found, taken):
            known = others.get(found)
            others[found] = taken if known is None else Value(lowest(known.limit, limit), FLEET_ORIGIN)

    def _attached(self, member: Setting) -> Mapping[str, str]:
        policies = self._policies
        return policies.groups_of_tenants if member is Setting.TENANT else policies.groups_of_namespaces

    def _all(self) -> list[Target | _Attachment]:
        found: list[Target | _Attachment] = []
        for about, setting in product(DIRECTIONS, Setting):
            values = self._policies.put_under(about, setting).items()
            found += [
                (about, setting, name) for name, value in values if self._tally.counts(about, setting, name, value)
            ]
        for member in _MEMBERS:
            attached = self._attached(member).items()
            found += [(member, name, group) for name, group in attached if self._tally.counts_attachment(name, group)]
        return found

    def _line(self, one: Target | _Attachment) -> str:
        if isinstance(one[0], Setting):
            return _attachment(*cast("_Attachment", one))
        about, setting, name = cast("Target", one)
        return line_of(about, setting, name, self._policies.put_under(about, setting)[name].limit)


_MEMBERS: Final = (Setting.TENANT, Setting.NAMESPACE)


def _policies_of(others: Mapping[Target, Value], groups: Iterable[_Attachment]) -> Policies:
    policies = Policies()
    for target, value in others.items():
        policies.put(*target, value)
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
        limit = _read_limit(value)
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


def _read_target(target: str) -> Target | None:
    """Read the target of a line; None: it is that of an attachment.

    Raises:
        ValueError: If the target is none that this version knows.
    """
    about, setting, name = target.split(" ", 2)
    if about == _ATTACHED:
        if setting not in _MEMBERS:
            raise ValueError(f"{target!r} is attached to nothing")
        return None
    if about not in DIRECTIONS:
        raise ValueError(f"{target!r} is no limit")
    return about, Setting(setting), name


def _read_limit(value: str) -> Limit:
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
