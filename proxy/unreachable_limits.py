"""Limits that no stream can reach: a limit of a wider level holds for the same streams, and is lower. No I/O.

A level is wider than another one if each limit of the other is within one of its limits. Limits by pattern, and those
of each topic, are for many names. They are compared with the wider limit that holds for names without one of their own,
and with all that hold in its place for some of these names: where one of them is high enough, the limit can be reached.
Patterns may overlap without one being within the other, as `a*` and `*z`: for names that both match, the more specific
one holds.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import inf
from typing import NamedTuple

from limiter.levels import (
    ANYBODY,
    GROUP,
    LEVELS,
    NAMESPACE,
    PARTITIONED_TOPIC,
    TENANT,
    TOPIC,
    Level,
    Part,
    Setting,
    SettingRecord,
    StreamIdentity,
)
from limiter.names import EACH, PatternForm, form_of, overlap
from limiter.policies import Policies, Value
from limiter.token_bucket import DIRECTIONS, Direction, Limit
from protocol.topic_name import TopicName, parse_topic
from proxy.policies.explain import limiting

MOST_LISTED = 20
"""Limits that are named; the others are counted."""
_GIVES = {TOPIC: (PARTITIONED_TOPIC,), PARTITIONED_TOPIC: (NAMESPACE,), NAMESPACE: (TENANT, GROUP)}
"""The properties that each property of a stream determines."""
Rates = Mapping[str, float]
"""Per second, by unit (`messages`, `bytes`); a unit that is not limited is left out."""
Highest = dict[tuple[Setting, str], dict[str, float]]
"""By limits for many names, and by unit: the highest rate of the limits that hold in their place for some of these."""
_LOOKED_AT_ONCE, _NOTED_AT_ONCE = 20, 4
"""Patterns that are looked at, and limits that are noted, in one unit of work."""


class _Held(NamedTuple):
    """A limit as it is written.

    Args:
        setting: Its setting.
        name: Its name there, perhaps a pattern.
        value: The limit and its origin.
    """

    setting: Setting
    name: str
    value: Value

    def __str__(self) -> str:
        plan = f", plan {self.value.plan}" if self.value.plan else ""
        return f"{self.setting.replace('_', ' ')} {self.name}".rstrip() + f" ({self.value.origin}{plan})"


class _Bound(NamedTuple):
    """A wider limit, as far as another one is within it.

    Args:
        held: The wider limit.
        highest: The highest rates that hold in its place for some of the streams of the other one.
        members: The members of a fleet that each have the wider limit, and share the other one.
    """

    held: _Held
    highest: Rates
    members: int

    def most(self, unit: str) -> float:
        """Return the rate above which the other limit cannot be reached."""
        return max(_rates(self.held.value.limit).get(unit, inf), self.highest.get(unit, 0.0)) * self.members


class UnreachableLimits:
    """Finds the limits that no stream can reach.

    Args:
        policies: The limits in force.
        shared: Levels whose limits the members of a fleet share; empty without a fleet.
        members: The number of members of the fleet.

    Attributes:
        texts: The mistakes in words, of the first `MOST_LISTED` limits.
        number: The number of limits.
    """

    def __init__(self, policies: Policies, shared: Iterable[str] = (), members: int = 1) -> None:
        self._policies = policies
        self._shared = frozenset(shared)
        self._members = max(1, members)
        self._split_tenants = set[str]()
        """Tenants of which a namespace has a resource group of its own."""
        self.texts: list[str] = []
        self.number = 0

    def looking(self) -> Iterator[None]:
        """Look at all limits, one in each step."""
        for namespace in list(self._policies.groups_of_namespaces):
            self._split_tenants.add(namespace.partition("/")[0])
            yield
        for direction in DIRECTIONS:
            yield from self._looking(direction)

    def _looking(self, direction: Direction) -> Iterator[None]:
        wider = {level.word: _wider(level) for level in LEVELS}
        both = (self._policies, self._policies.tenants)  # the operator's values and the tenants' hold at the same time
        sets = [_Set(policies, direction) for policies in both if policies is not None]
        for each in sets:
            for level in LEVELS:
                if any(level in others for others in wider.values()):
                    for held in _written(each.policies, level, direction):
                        if held is not None:
                            yield from self._noting(each, level, direction, held)
                        yield
        for each in sets:
            for level in LEVELS:
                for held in _written(each.policies, level, direction) if wider[level.word] else ():
                    if held is not None:
                        yield from self._comparing(sets, level, wider[level.word], direction, held)
                    yield

    def _noting(self, values: "_Set", level: Level, direction: Direction, held: _Held) -> Iterator[None]:
        """Note a limit at all others in whose place it holds."""
        for number, other in enumerate(_holding(values.policies, level, direction, self._identity(held)), 1):
            if other[:2] != held[:2]:
                _raise_to(values.highest[other.setting, other.name], _holds(held.value.limit))
            if number % _NOTED_AT_ONCE == 0:
                yield

    def _comparing(
        self, sets: list["_Set"], level: Level, wider: list[Level], direction: Direction, held: _Held
    ) -> Iterator[None]:
        """Compare a limit with the wider ones that hold at the same time; each step looks at one."""
        identity, bounds = self._identity(held), list[_Bound]()
        for other in wider:
            is_of_each_member = level.word in self._shared and other.word not in self._shared
            for each in sets if not identity.topic.is_system else ():
                if other.word not in each.levels:
                    continue
                outer = next(_holding(each.policies, other, direction, identity), None)
                yield
                if outer is None or outer.value.limit.mode == "observe" or self._may_differ(other, identity):
                    continue
                highest = dict[str, float]()
                if _is_of_many(other, identity):
                    yield from each.looking_at_overlaps(outer, _own_name(other, outer.setting, identity))
                    highest = each.highest_for(outer, _own_name(other, outer.setting, identity))
                bounds.append(_Bound(outer, highest, self._members if is_of_each_member else 1))
        self._compare(direction, held, bounds)

    def _compare(self, direction: Direction, held: _Held, bounds: list[_Bound]) -> None:
        for unit, rate in _rates(held.value.limit).items():
            lowest = min(bounds, key=lambda bound: bound.most(unit), default=None)
            if lowest is None or rate <= lowest.most(unit):
                continue
            self.number += 1
            if len(self.texts) < MOST_LISTED:
                bound = _rates(lowest.held.value.limit)[unit]
                each = f" in each of {lowest.members} members" if lowest.members > 1 else ""
                words = f"{direction} limit of {held}, {rate:.15g} {unit}/s, is above that of {lowest.held}"
                self.texts.append(f"{words}, {bound:.15g} {unit}/s{each}")

    def _may_differ(self, level: Level, identity: StreamIdentity) -> bool:
        """Return whether some of the namespaces that are meant have another resource group than the others."""
        topic = identity.topic
        return GROUP in level.limited and EACH in topic.namespace and topic.tenant in self._split_tenants

    def _identity(self, held: _Held) -> StreamIdentity:
        """Return a stream for which a limit holds; where that is for many names, these are as in its pattern."""
        record = held.setting.record
        topic = _topic(record, held.name)
        group = held.name if record.named == (GROUP,) else self._policies.group_of(topic)
        return StreamIdentity(topic, ANYBODY, group)


class _Set:
    """Values of one set of policies in one direction: what holds in the place of limits for many names.

    Args:
        policies: The values.
        direction: The direction.

    Attributes:
        highest: By limits for many names, those of the limits that are within them.
        levels: The levels that have values.
    """

    def __init__(self, policies: Policies, direction: Direction) -> None:
        self.policies = policies
        self.highest: Highest = defaultdict(lambda: dict.fromkeys(("messages", "bytes"), 0.0))
        self.levels = {
            level.word for level in LEVELS if any(policies.by_name(direction, record.word) for record in level.settings)
        }
        self._direction = direction
        self._patterns: dict[Setting, dict[PatternForm, list[str]]] = {}
        """The patterns of each setting, by their forms."""
        self._overlaps: dict[tuple[Setting, str, str], dict[str, float]] = {}
        """By a limit for many names, and the names that another one is for: the highest rate of patterns that hold."""

    def looking_at_overlaps(self, outer: _Held, own: str) -> Iterator[None]:
        """Look for patterns that hold in the place of `outer` for some of the names of `own`; some in each step."""
        setting, name, _ = outer
        if not setting.record.may_have_forms or (setting, name, own) in self._overlaps:
            return
        if setting not in self._patterns:
            yield from self._looking_for_patterns(setting)
        rates, form = dict.fromkeys(("messages", "bytes"), 0.0), form_of(name)
        narrower = [names for other, names in self._patterns[setting].items() if other > form]
        for number, other in enumerate(chain.from_iterable(narrower), 1):
            value = self.policies.get(self._direction, setting, other)
            if value is not None and value.limit and overlap(other, own):
                _raise_to(rates, _holds(value.limit))
            if number % _LOOKED_AT_ONCE == 0:
                yield
        self._overlaps[setting, name, own] = rates

    def _looking_for_patterns(self, setting: Setting) -> Iterator[None]:
        by_form: dict[PatternForm, list[str]] = {}
        for number, name in enumerate(list(self.policies.by_name(self._direction, setting)), 1):
            if setting.record.is_pattern(name):
                by_form.setdefault(form_of(name), []).append(name)
            if number % _LOOKED_AT_ONCE == 0:
                yield
        self._patterns[setting] = by_form

    def highest_for(self, outer: _Held, own: str) -> dict[str, float]:
        """Return the highest rates that hold in the place of a limit for some of the names of `own`."""
        rates = dict(self.highest.get(outer[:2], {}))
        _raise_to(rates, self._overlaps.get((outer.setting, outer.name, own), {}), missing=0.0)
        return rates


def _raise_to(known: dict[str, float], rates: Rates, missing: float = inf) -> None:
    """Raise the rates of each unit to those of a limit; a unit that this has not is `missing`."""
    for unit in ("messages", "bytes"):
        known[unit] = max(known.get(unit, 0.0), rates.get(unit, missing))


def _holds(limit: Limit) -> Rates:
    """Return the rates that a limit holds; one that observes holds nothing."""
    return {} if limit.mode == "observe" else _rates(limit)


def _own_name(level: Level, setting: Setting, identity: StreamIdentity) -> str:
    """Return the name that streams have at a setting; of limits for many names with the `*` of these."""
    return next(naming for each, naming, _ in level.lookups if each is setting)(identity)


def _written(policies: Policies, level: Level, direction: Direction) -> Iterator[_Held | None]:
    """Yield the limits of a level, and None for values that limit nothing."""
    for record in level.settings:
        for name in list(policies.by_name(direction, record.word)):
            value = policies.get(direction, record.word, name)
            yield _Held(record.word, name, value) if value is not None and value.limit else None


def _holding(policies: Policies, level: Level, direction: Direction, identity: StreamIdentity) -> Iterator[_Held]:
    """Yield the limits of a level that are for a stream, the one that holds first."""
    return (_Held(setting, name, value) for (_, setting, name), value in limiting(policies, direction, level, identity))


def _topic(record: SettingRecord, name: str) -> TopicName:
    """Return the topic of a limit's name; `*` and an empty local name, which no topic has, are for many."""
    if record.named and record.named[-1] is PARTITIONED_TOPIC:
        if len(record.named) > 1:
            name = name[max(name.rfind("@persistent://"), name.rfind("@non-persistent://")) + 1 :]
        return parse_topic(name)
    tenant, namespace = EACH, EACH
    if record.named == (TENANT,):
        tenant = name
    elif record.named == (NAMESPACE,):
        tenant, _, namespace = name.partition("/")
    return TopicName("persistent", tenant, namespace, "")


def _is_of_many(level: Level, identity: StreamIdentity) -> bool:
    """Return whether the streams that are meant may have different limits of this level."""
    names = [part.of(identity) for part in level.limited]
    return any(EACH in name or name.endswith("/") for name in names)


def _wider(level: Level) -> list[Level]:
    """Return the levels of which one limit holds for all streams of one limit of this level."""
    given, new = set[Part](), [*level.limited]
    while new:
        part = new.pop()
        given.add(part)
        new += _GIVES.get(part, ())
    others = [other for other in LEVELS if other is not level and not (other.is_of_system or level.is_of_system)]
    return [other for other in others if given.issuperset(other.limited)]


def _rates(limit: Limit) -> dict[str, float]:
    """Return the rates of a limit, by unit; none of a limit that is relative to the publish rate: it may be any."""
    if limit.published is not None:
        return {}
    rates = {"messages": limit.messages, "bytes": limit.size}
    return {unit: rate.per_second for unit, rate in rates.items() if rate is not None}
