"""The limits that apply to a stream: values by setting, and Pulsar's precedence topic > namespace > broker.

Members of a fleet compare the limits that are written in them by a digest (`LimitTally`). It counts each value of the
levels that members share as a line of text: its target, NUL, and its value:

    publish tenant acme␀messages=1000/1000000000/100 mode=reject        tokens/nanoseconds/burst
    attached namespace acme/shop␀group                                  an attachment to a resource group
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, overload

from limiter.levels import (
    ANYBODY,
    LEVELS,
    NAMESPACE,
    About,
    Client,
    Level,
    Naming,
    Setting,
    StreamIdentity,
    Topic,
)
from limiter.limiter import Scope
from limiter.names import NamedValues, fits
from limiter.token_bucket import DIRECTIONS, Direction, Limit, Rate

_RATES: Final = {"messages": "messages", "peak_messages": "peak_messages", "bytes": "size", "peak_bytes": "peak_size"}
"""The word of each rate in a line, and its name in a `Limit`."""
_DIGESTS: Final = 1 << 64
PolicyTarget = tuple[About, Setting, str]
"""The target of a value: its subject, its setting, and the setting's name."""


@dataclass(frozen=True, slots=True)
class Value:
    """A limit and where it was written: `file`, `dynamic`, `global`, `rest`, or `tenant`.

    Args:
        limit: The limit.
        origin: Its layer.
        plan: The plan of the file that gives the limit; empty if the limit is of the name itself.
    """

    limit: Limit
    origin: str
    plan: str = ""

    @property
    def shown_origin(self) -> str:
        """The origin for people, with the plan: `file plan gold`."""
        return f"{self.origin} plan {self.plan}" if self.plan else self.origin


class InForce(NamedTuple):
    """A limit that applies: its scope, its value, and its source for people (`namespace rest`)."""

    scope: Scope
    limit: Limit
    source: str


Matches = Callable[[str], Iterable[tuple[str, Value]]]
"""Returns the names that are for a stream's own name, with their values; see `NamedValues.matches`."""


class Written(NamedTuple):
    """A level at which something is written.

    Args:
        level: The level.
        settings: The level's settings that hold a value: the look-up, a stream's name there, the source's name, and
            that of values by a pattern.
    """

    level: Level
    settings: tuple[tuple[Matches, Naming, str, str], ...]


class LimitTally:
    """The number and the digest of the limits that are written at some levels, with attachments to resource groups.

    Args:
        levels: Levels whose limits are shared.

    Attributes:
        digest: The sum of the 64-bit BLAKE2b of each line, modulo 2^64. The order of changes does not matter.
        total: The number of lines.
    """

    __slots__ = ("_levels", "digest", "total")

    def __init__(self, levels: frozenset[str], digest: int = 0, total: int = 0) -> None:
        self._levels = levels
        self.digest = digest
        self.total = total

    def replaced(self, about: About, setting: Setting, name: str, before: Value | None, after: Value | None) -> None:
        """Count that the value of a target was replaced; None: no value. A subscribe rate does not count."""
        if about in DIRECTIONS and setting.level.word in self._levels:
            for value, times in ((before, -1), (after, 1)):
                if value is not None and value.limit:
                    self._count(f"{about} {setting} {name}\0{_written(value.limit)}", times)

    def attached(self, member: Setting, name: str, before: str | None, after: str | None) -> None:
        """Count that a tenant or namespace is attached to another resource group; None: to none."""
        if Setting.RESOURCE_GROUP.level.word in self._levels:
            for group, times in ((before, -1), (after, 1)):
                if group is not None:
                    self._count(f"attached {member} {name}\0{group}", times)

    def clear(self) -> None:
        """Count from nothing."""
        self.digest = self.total = 0

    def copy(self) -> "LimitTally":
        """Return a copy, which counts on its own."""
        return LimitTally(self._levels, self.digest, self.total)

    def _count(self, line: str, times: int) -> None:
        digest = int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest())
        self.digest = (self.digest + times * digest) % _DIGESTS
        self.total += times


@dataclass(slots=True)
class Policies:
    """The configured values, and the resource group that each tenant or namespace is attached to.

    Attributes:
        tally: Counts the values, from the first one on; None without a fleet.
        tenants: Values that tenants set for themselves; None if no tenant did. At each level the stricter of both holds
            (`within`), so that no tenant gets more than the operator's values alone would give.
    """

    groups_of_namespaces: dict[str, str] = field(default_factory=dict)
    """Resource group by `tenant/namespace`."""
    groups_of_tenants: dict[str, str] = field(default_factory=dict)
    """Resource group by tenant, for namespaces without one of their own."""
    _members: dict[str, int] = field(default_factory=dict)
    """The number of tenants and namespaces that are attached to each resource group."""
    _values: dict[About, dict[Setting, NamedValues[Value]]] = field(default_factory=dict)
    _levels: dict[About, tuple[Written, ...]] = field(default_factory=dict)
    """All levels at which something is written, outermost first."""
    tally: LimitTally | None = None
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
            ValueError: If the name has not the setting's form, as an address or a network that is not one.
        """
        values = self._values.setdefault(about, {})
        if self.tally is not None:
            self.tally.replaced(about, setting, name, self.get(about, setting, name), value)
        settings = len(values)
        if value is not None:
            named = values.get(setting) or setting.record.names()
            named.put(name, value)
            values[setting] = named
        elif setting in values:
            values[setting].take_back(name)
            if not values[setting].by_name:
                del values[setting]
        if len(values) != settings:
            self._levels[about] = tuple(self._written(about))

    def get(self, about: About, setting: Setting, name: str) -> Value | None:
        """Return the value that is set for this very name."""
        return self.by_name(about, setting).get(name)

    def attach(self, member: Setting, name: str, group: str | None) -> bool:
        """Attach a tenant or a namespace to a resource group, and return whether it was attached to another one.

        Args:
            member: `TENANT` or `NAMESPACE`.
            name: The name of the tenant or namespace.
            group: The name of the group; None: to none.
        """
        groups = self.groups_of_tenants if member is Setting.TENANT else self.groups_of_namespaces
        before = groups.get(name)
        if before == group:
            return False
        if self.tally is not None:
            self.tally.attached(member, name, before, group)
        if before is not None:
            self._members[before] -= 1
            if not self._members[before]:
                del self._members[before]
        if group is None:
            del groups[name]
        else:
            groups[name] = group
            self._members[group] = self._members.get(group, 0) + 1
        return True

    def has_members(self, group: str) -> bool:
        """Return whether a tenant or a namespace is attached to a resource group."""
        return group in self._members

    def clear(self) -> None:
        """Take everything back: values and attachments."""
        if self.tally is not None:
            self.tally.clear()
        self.groups_of_namespaces.clear()
        self.groups_of_tenants.clear()
        self._members.clear()
        self._values.clear()
        self._levels.clear()
        if self.tenants is not None:
            self.tenants.clear()

    def copy(self) -> "Policies":
        """Return an independent copy."""
        values = {
            about: {setting: named.copy() for setting, named in settings.items()}
            for about, settings in self._values.items()
        }
        members = dict(self._members)
        other = Policies(dict(self.groups_of_namespaces), dict(self.groups_of_tenants), members, values)
        other._levels = {about: tuple(other._written(about)) for about in values}
        other.tally = None if self.tally is None else self.tally.copy()
        other.tenants = None if self.tenants is None else self.tenants.copy()
        return other

    def exchange(self, other: "Policies") -> None:
        """Swap contents with another object in one step."""
        for name in self.__slots__:
            own, others = getattr(self, name), getattr(other, name)
            setattr(self, name, others)
            setattr(other, name, own)

    def by_name(self, about: About, setting: Setting) -> Mapping[str, Value]:
        """Return the values of one setting, by name."""
        named = self._values.get(about, {}).get(setting)
        return {} if named is None else named.by_name

    def names_for(self, about: About, setting: Setting, own: str) -> Iterator[str]:
        """Yield the names of a setting with a value that are for a stream's own name there, the narrowest first."""
        named = self._values.get(about, {}).get(setting)
        if named is not None:
            yield from (name for name, _ in named.matches(own))

    def in_force(self, direction: Direction, topic: Topic, client: Client = ANYBODY) -> tuple[InForce, ...]:
        """Return the limits of one topic (or one partition) for one client's stream, outermost first."""
        if self.tenants is None and not self._levels.get(direction):
            return ()
        identity = StreamIdentity(topic, client, self.group_of(topic))
        in_force = self._at_levels(direction, identity)
        if self.tenants is not None:
            in_force = _all_within(in_force, self.tenants._at_levels(direction, identity))  # noqa: SLF001 - of the same class
        return tuple(in_force)

    def _at_levels(self, direction: Direction, identity: StreamIdentity) -> list[InForce]:
        is_system = identity.topic.is_system
        levels = [written for written in self._levels.get(direction, ()) if written.level.is_of_system is is_system]
        return [entry for written in levels if (entry := _at_level(written, direction, identity)) is not None]

    def in_force_at(self, level: Level, direction: Direction, topic: Topic, client: Client) -> InForce | None:
        """Return the limit of `in_force` that is of `level`; None without one."""
        if level.is_of_system is not topic.is_system:
            return None
        identity = StreamIdentity(topic, client, self.group_of(topic))
        entry = self._at(level, direction, identity)
        if self.tenants is not None:
            entry = within(entry, self.tenants._at(level, direction, identity))  # noqa: SLF001 - of the same class
        return entry

    def of_operator_at(self, level: Level, direction: Direction, topic: Topic, client: Client) -> InForce | None:
        """Return the limit of one level by the operator's values alone; None without one."""
        if level.is_of_system is not topic.is_system:
            return None
        return self._at(level, direction, StreamIdentity(topic, client, self.group_of(topic)))

    def _at(self, level: Level, direction: Direction, identity: StreamIdentity) -> InForce | None:
        levels = self._levels.get(direction, ())
        return next((_at_level(written, direction, identity) for written in levels if written.level is level), None)

    @property
    def limits_subscribes(self) -> bool:
        """True if there is any subscribe rate."""
        return bool(self._values.get("subscribe") or (self.tenants and self.tenants.limits_subscribes))

    def subscribe_rate(self, topic: Topic) -> tuple[Rate, str] | None:
        """Return the subscribe rate of each consumer of a topic, and its source for people (`namespace rest`).

        The narrowest setting with a value decides, as with Pulsar.
        """
        if topic.is_system or not self.limits_subscribes:
            return None
        operators = self._subscribe_rate(topic)
        tenants = None if self.tenants is None else self.tenants._subscribe_rate(topic)  # noqa: SLF001 - of the same class
        if operators is None or tenants is None:
            return operators or tenants
        rate = stricter_rate(operators[0], tenants[0])
        return rate, operators[1] if rate == operators[0] else tenants[1]

    def _subscribe_rate(self, topic: Topic) -> tuple[Rate, str] | None:
        identity = StreamIdentity(topic, ANYBODY, "")
        values = self._values.get("subscribe", {})
        for setting, naming, source in SUBSCRIBE_LOOKUPS:
            own = naming(identity)
            for name, value in values[setting].matches(own) if setting in values else ():
                if value.limit.messages:
                    word = source if name == own else setting.record.pattern_source
                    return value.limit.messages, f"{word} {value.shown_origin}"
        return None

    def group_of(self, topic: Topic) -> str:
        """The resource group that the topic's namespace is attached to, or else its tenant; empty for none."""
        group = ""
        if self.groups_of_namespaces or self.groups_of_tenants:
            group = self.groups_of_namespaces.get(topic.namespace_name) or self.groups_of_tenants.get(topic.tenant, "")
        return group

    def _written(self, about: About) -> Iterator[Written]:
        values = self._values[about]
        for level in LEVELS:
            settings = tuple(
                (values[setting].matches, naming, source, setting.record.pattern_source)
                for setting, naming, source in level.lookups
                if setting in values
            )
            if settings:
                yield Written(level, settings)


def _at_level(written: Written, direction: Direction, identity: StreamIdentity) -> InForce | None:
    """Return the narrowest value of a level; one that limits nothing counts as not set, as with Pulsar."""
    level = written.level
    if not level.exists(identity):
        return None
    for matches, naming, source, pattern_source in written.settings:
        own = naming(identity)
        for name, value in matches(own):
            if value.limit:
                of_stream = identity._replace(matched=name) if level.is_by_match else identity
                word = source if name == own else pattern_source
                return InForce(_scope(level, direction, of_stream), value.limit, f"{word} {value.shown_origin}")
    return None


def _all_within(operators: list[InForce], tenants: list[InForce]) -> list[InForce]:
    """Return the stricter of the operator's and the tenant's limits at each level, outermost first."""
    by_level = {entry.scope.level: entry for entry in operators}
    for entry in tenants:
        stricter_entry = within(by_level.get(entry.scope.level), entry)
        assert stricter_entry is not None, "`entry` is not None"
        by_level[entry.scope.level] = stricter_entry
    return [by_level[level.word] for level in LEVELS if level.word in by_level]


def within(operators: InForce | None, tenants: InForce | None) -> InForce | None:
    """Return the stricter of the operator's and the tenant's limit at one level.

    Args:
        operators: The limit by the operator's values.
        tenants: The limit by the tenant's own values.
    """
    if operators is None or tenants is None:
        return operators or tenants
    limit = stricter(operators.limit, tenants.limit)
    return operators if limit == operators.limit else tenants._replace(limit=limit)


def stricter(limit: Limit, own: Limit) -> Limit:
    """Return the stricter of an operator's limit and a tenant's own, figure by figure: no more passes than by either.

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
def stricter_rate(rate: Rate, other: Rate) -> Rate: ...
@overload
def stricter_rate(rate: Rate | None, other: Rate | None) -> Rate | None: ...
def stricter_rate(rate: Rate | None, other: Rate | None) -> Rate | None:
    """Return the lower of two rates, with the smaller of both bursts; None limits nothing."""
    if rate is None or other is None:
        return rate or other
    return rate.within(other)


def _scope(level: Level, direction: Direction, identity: StreamIdentity) -> Scope:
    """Return the scope of a level's limit on one stream."""
    tenant = identity.topic.tenant if level.within else ""
    namespace = identity.topic.namespace if level.within == "namespace" else ""
    return Scope(direction, level.word, level.name(identity), tenant, namespace)


SUBSCRIBE_LOOKUPS = tuple(
    lookup for level in LEVELS for lookup in level.lookups if "subscribe" in lookup[0].record.abouts
)
"""The settings that may have a subscribe rate, the narrowest first."""


@dataclass(frozen=True, slots=True)
class Change:
    """A value that has been replaced.

    Args:
        about: The subject of the value.
        setting: The setting of the value.
        name: The name that the setting has.
        only_tunes: Whether the value limited before, still does, and in the same way: holding, or only observing. Then
            no stream gets or loses a limit, as each stream of this value had it before, or a narrower one.
    """

    about: About
    setting: Setting
    name: str
    only_tunes: bool = False

    def may_tune(self, scope: Scope) -> bool:
        """Return whether a limiter's value can come from here; its name is compared where that is cheap."""
        if scope.level != self.setting.level.word or scope.direction != self.about:
            return False
        record = self.setting.record
        if record.named == (NAMESPACE,) and scope.namespace:
            own = f"{scope.tenant}/{scope.namespace}"
            return own == self.name or (record.is_pattern(self.name) and fits(self.name, own))
        return True


def change_of(target: PolicyTarget, before: Value | None, after: Value | None) -> Change | None:
    """Return the change of the value for a target, or None if the value is the same."""
    if before == after:
        return None
    if not before or not after or not before.limit or not after.limit:
        return Change(*target)
    return Change(*target, only_tunes=(before.limit.mode == "observe") == (after.limit.mode == "observe"))


def _written(limit: Limit) -> str:
    """Return a limit as the value of a line."""
    parts = [
        f"{word}={rate.tokens}/{rate.period_ns}/{rate.burst}"
        for word, name in _RATES.items()
        if (rate := getattr(limit, name)) is not None
    ]
    parts += [f"mode={limit.mode}"] if limit.mode != "enforce" else []
    return " ".join(parts + (["relative"] if limit.published is not None else []))
