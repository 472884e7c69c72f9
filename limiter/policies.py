"""The limits that apply to a stream: values by setting, and Pulsar's precedence topic > namespace > broker.

Members of a fleet compare the limits that are written in them by a digest (`LimitTally`). It counts each value of the
levels that members share as a line of text: its target, NUL, and its value:

    publish tenant acme␀messages=1000/1000000000/100 mode=reject        tokens/nanoseconds/burst
    attached namespace acme/shop␀group                                  an attachment to a resource group
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, overload

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
from limiter.token_bucket import DIRECTIONS, Direction, Limit, Rate

TENANT_ORIGIN: Final = "tenant"
"""The origin of a value that a tenant set for itself."""
_RATES: Final = {"messages": "messages", "peak_messages": "peak_messages", "bytes": "size", "peak_bytes": "peak_size"}
"""The word of each rate in a line, and its name in a `Limit`."""
_DIGESTS: Final = 1 << 64
Target = tuple[About, Setting, str]
"""The target of a value: its subject, its setting, and the setting's name."""


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
        """Count that the value of a target was replaced; None stands for no value. A subscribe rate does not count."""
        if about in DIRECTIONS and setting.level.word in self._levels:
            for value, times in ((before, -1), (after, 1)):
                if value is not None and value.limit:
                    self._count(f"{about} {setting} {name}\0{_written(value.limit)}", times)

    def attached(self, member: Setting, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Count that the attachments of tenants or of namespaces to resource groups, by name, were replaced."""
        if Setting.RESOURCE_GROUP.level.word in self._levels:
            for attachments, times in ((before.items() - after.items(), -1), (after.items() - before.items(), 1)):
                for name, group in attachments:
                    self._count(f"attached {member} {name}\0{group}", times)

    def clear(self) -> None:
        """Count from nothing."""
        self.digest = self.total = 0

    def copy(self) -> "LimitTally":
        """Return a copy, which counts on its own."""
        return LimitTally(self._levels, self.digest, self.total)

    def _count(self, line: str, times: int) -> None:
        one = int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest())
        self.digest = (self.digest + times * one) % _DIGESTS
        self.total += times


@dataclass(slots=True)
class Policies:
    """The configured values, and the resource group that each tenant or namespace is attached to.

    Attributes:
        tally: Counts the values, from the first one on; None without a fleet.
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
        """Swap contents with another object in one step."""
        for name in self.__slots__:
            mine, its = getattr(self, name), getattr(other, name)
            setattr(self, name, its)
            setattr(other, name, mine)

    def put_under(self, about: About, setting: Setting) -> Mapping[str, Value]:
        """Return the values of one setting, by name."""
        return self._values.get(about, {}).get(setting, {})

    def in_force(self, direction: Direction, topic: Topic, client: Client = ANYBODY) -> tuple[InForce, ...]:
        """The limits of one topic (one partition of a partitioned one) for one client's stream, outermost first."""
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
        return group

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


def _written(limit: Limit) -> str:
    """Return a limit as the value of a line."""
    parts = [
        f"{word}={one.tokens}/{one.period_ns}/{one.burst}"
        for word, name in _RATES.items()
        if (one := getattr(limit, name)) is not None
    ]
    parts += [f"mode={limit.mode}"] if limit.mode != "enforce" else []
    return " ".join(parts + (["relative"] if limit.published is not None else []))
