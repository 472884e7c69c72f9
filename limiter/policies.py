"""The limits that apply to a stream: values by setting, and Pulsar's precedence topic > namespace > broker."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

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
from limiter.token_bucket import Direction, Limit, Rate


@dataclass(frozen=True, slots=True)
class Value:
    """A limit and where it was written: `file`, `dynamic`, `global` or `rest`."""

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


class ValueTally(Protocol):
    """Counts what is written, as it changes."""

    def replaced(self, about: About, setting: Setting, name: str, before: Value | None, after: Value | None) -> None:
        """Take from a place what was written there, and put there what is."""

    def attached(self, member: Setting, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Count that the attachments of tenants or of namespaces to resource groups, by name, were replaced."""

    def clear(self) -> None:
        """Count nothing any more."""

    def copy(self) -> Self:
        """Return a copy."""


@dataclass(slots=True)
class Policies:
    """The configured values, and the resource group that each tenant or namespace is attached to.

    Attributes:
        tally: Counts what is written, from the first value on; None: nobody does.
        others: Rules of a fleet's other members: they hold where nothing is written here at a level, and where they are
            lower than what is written here for the same.
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
    tally: ValueTally | None = None
    others: "Policies | None" = None

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

    def copy(self) -> "Policies":
        """Return a copy, to be changed aside."""
        values = {about: {setting: dict(named) for setting, named in of.items()} for about, of in self._values.items()}
        networks = {key: networks.copy() for key, networks in self._networks.items()}
        other = Policies(dict(self.groups_of_namespaces), dict(self.groups_of_tenants), values, networks)
        other._levels = {about: tuple(other._written(about)) for about in values}
        other.tally = None if self.tally is None else self.tally.copy()
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
        levels = self._levels.get(direction)
        if not levels:
            return ()
        is_system, whose = topic.is_system, StreamIdentity(topic, client, self.group_of(topic))
        found = [_at_level(one, direction, whose) for one in levels if one.level.is_of_system is is_system]
        return tuple([entry for entry in found if entry is not None])

    def in_force_at(self, level: Level, direction: Direction, topic: Topic, client: Client) -> InForce | None:
        """The one of these limits that is of `level`, if there is one."""
        if level.is_of_system is not topic.is_system:
            return None
        whose = StreamIdentity(topic, client, self.group_of(topic))
        own = self._at(level, direction, whose)
        return own if self.others is None else _completed(own, self.others._at(level, direction, whose))  # noqa: SLF001 - of the same class

    def _at(self, level: Level, direction: Direction, whose: StreamIdentity) -> InForce | None:
        levels = self._levels.get(direction, ())
        return next((_at_level(written, direction, whose) for written in levels if written.level is level), None)

    @property
    def limits_subscribes(self) -> bool:
        """True if there is any subscribe rate."""
        return any(self._values.get("subscribe", {}).values())

    def subscribe_rate(self, topic: Topic) -> tuple[Rate, str] | None:
        """Return the rate of subscribing of each consumer of a topic, and its source for people (`namespace rest`).

        The narrowest value that is there holds, as with Pulsar.
        """
        if topic.is_system or "subscribe" not in self._values:
            return None
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


def _completed(own: InForce | None, other: InForce | None) -> InForce | None:
    if own is None or other is None:
        return own or other
    is_same_place = own.source.rpartition(" ")[0] == other.source.rpartition(" ")[0]
    limit = completed(own.limit, other.limit, is_same_place=is_same_place)
    if limit is other.limit or (is_same_place and limit != own.limit):
        return own._replace(limit=limit, source=other.source)
    return own._replace(limit=limit)


def completed(own: Limit, other: Limit, *, is_same_place: bool) -> Limit:
    """Return what holds where a fleet's other members have a limit, too.

    Of a unit that is not limited here, theirs holds; where it is written for the same, the lower of both. One that only
    observes limits nothing. A limit relative to publish rates, and one that is not, are not mixed.
    """
    if own.mode == "observe":
        return other
    if (own.published is None) != (other.published is None):
        return own
    return lowest(own, other, with_lower=is_same_place and own.published is None)


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


def change_of(place: tuple[About, Setting, str], before: Value | None, after: Value | None) -> Change | None:
    """Return the change at one place, or None if the value is the same."""
    if before == after:
        return None
    if not before or not after or not before.limit or not after.limit:
        return Change(*place)
    return Change(*place, only_tunes=(before.limit.mode == "observe") == (after.limit.mode == "observe"))
