"""Metrics of single limits: of those that the operator chooses, of the fullest others, then of those not yet in use.

On request they are of all limits.
"""

import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import islice, product
from typing import Final, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from limiter.levels import LEVELS, PARTITIONED_TOPIC, TOPIC, SettingRecord
from limiter.limiter import Limiter, Scope
from limiter.names import EACH, PatternValues, is_pattern
from limiter.policies import Policies
from limiter.token_bucket import DIRECTIONS, Direction, Limit, Rate
from proxy.admin.in_force import FullestLimits
from proxy.config.values import LONGEST_LIMIT_NAME
from proxy.observe.limit_history import WIDE
from proxy.observe.log_lines import in_force

MOST_LIMITS: Final = 100
"""Limits that are shown of wide levels, and as many of all others."""
HIDDEN: Final = frozenset(level.word for level in LEVELS if level.names_clients)
"""Levels whose limits are never shown, as their names are those of clients: a scrape may need no token."""
MOST_CHOSEN: Final = 500
"""Limits that are shown because `metrics_limits` names them, alone or by a pattern."""
MOST_ALL: Final = 5000
"""Limits that a scrape of all shows; one of more is refused."""
PLACE_NS: Final = 900 * 10**9
"""How long a limit is shown, at least. Names that clients make up replace each other no faster, so Prometheus gets few
series."""
_LIMITERS, _SHOWN, _NAMES, _MATCHED = 10, 4, 12, 2
"""Limiters that are looked at, that are shown, names of the configuration that are, and names that are held against
patterns, in one unit of work."""
_LABELS: Final = ("direction", "level", "name", "mode")
_UNITS: Final = ("messages", "bytes")
_PARTITION: Final = re.compile(r"-partition-(?:0|[1-9]\d*)$")
_OF_TOPICS: Final = frozenset(level.word for level in LEVELS if {TOPIC, PARTITIONED_TOPIC} & {*level.limited})
"""Levels whose limits bear the name of a topic, or of a partition of it."""
T = TypeVar("T")


class TooManyLimitsError(Exception):
    """More limits are at work than a scrape of all shows; the text has the remedy."""

    def __init__(self) -> None:
        super().__init__(
            f"more than {MOST_ALL:,} limits are at work, as many as limits=all shows: name those that matter in "
            "metrics_limits, or ask GET /sluice/limiters"
        )


class ChosenLimits:
    """The limits that `metrics_limits` names.

    Args:
        entries: Its entries: a level, and a name or pattern of it; `*` alone for all of the level.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._of_levels: dict[str, PatternValues[bool]] = {}
        self._whole = set[str]()
        for level, _, name in (entry.partition(" ") for entry in entries):
            if name == EACH:
                self._whole.add(level)
            else:
                self._of_levels.setdefault(level, PatternValues()).put(name, value=True)

    def has(self, level: str, name: str) -> bool:
        """Return whether a limit is named."""
        if level in self._whole:
            return True
        names = self._of_levels.get(level)
        return names is not None and any(True for _ in names.matches(name))

    @property
    def has_patterns(self) -> bool:
        """Whether names are held against patterns, which takes ten times as long."""
        return any(is_pattern(name) for names in self._of_levels.values() for name in names.by_name)

    def whole_names(self, level: str) -> Iterator[str]:
        """Yield the names of a level that are written out."""
        names = self._of_levels.get(level)
        return (name for name in (() if names is None else names.by_name) if not is_pattern(name))

    def names_several(self, level: str) -> bool:
        """Return whether an entry is for several names of a level."""
        names = self._of_levels.get(level)
        return level in self._whole or (names is not None and any(map(is_pattern, names.by_name)))


class LimitMetrics:
    """Chooses the limits to show, and makes their metrics.

    They are those that `metrics_limits` names, and of others those with the most use since the look before. Use is the
    time that the limit needs for the entries that have passed. A limit on which streams wait is full. A limit that is
    shown keeps its place for `PLACE_NS`. Names that a terminal would obey are not shown: escaped, two of them could be
    the same label, which Prometheus refuses with the whole scrape.

    Places that are left go to limits of the configuration that no stream has used yet, with the use 0: so each series
    is there before the limit's first message, as far as the limit's name is in the configuration.

    Args:
        policies: The values in force.
        shared: The levels whose limits this process shares with others. The rate of such a limit in this process is not
            known while no stream is within it.
        is_outdated: Returns whether the limiter of a scope may have a value that is in force no more: it is not shown.
    """

    def __init__(
        self,
        policies: Policies,
        shared: Collection[str] = (),
        is_outdated: Callable[[Scope], bool] = lambda _scope: False,
    ) -> None:
        self._policies = policies
        self._is_outdated = is_outdated
        self._shared = shared
        self._chosen = ChosenLimits()
        self._named: NamedLimits | None = None
        """What was found after the last change of values or of entries; None: nobody has looked yet."""
        self._changes = 0
        self._at_once = _NAMES
        self._before: dict[Limiter, float] = {}
        """The use of each limiter at the look before; replaced at each look."""
        self._places: dict[Limiter, int] = {}
        """When each limit that is shown got its place."""

    def choose(self, entries: Iterable[str]) -> None:
        """Show the limits that these entries of `metrics_limits` name from the next look on, and no others for that."""
        self._chosen = ChosenLimits(entries)
        self._at_once = _MATCHED if self._chosen.has_patterns else _NAMES
        self.policies_changed()

    def policies_changed(self) -> None:
        """Look again at the next look which limits of the configuration `metrics_limits` names."""
        self._named = None
        self._changes += 1

    def parts_of_all(self, limiters: Mapping[Scope, Limiter], now: int) -> Iterator[Metric | None]:
        """Yield the metrics of all limits, then of unused ones; None after work that has yielded nothing yet.

        Raises:
            TooManyLimitsError: If the limits in use are more than `MOST_ALL`.
        """
        shown: list[Limiter] = []
        unused: dict[Names, UnusedLimit] = {}
        named = yield from self._look_for_named()
        yield from self._candidates(unused, named.first, MOST_ALL)
        for some in batched(list(limiters.values()), _LIMITERS):
            for limiter in some:
                unused.pop(_names(limiter.scope), None)
                if not self._is_outdated(limiter.scope) and _may_be_shown(limiter.scope.level, limiter.scope.name):
                    shown.append(limiter)
            if len(shown) > MOST_ALL:
                raise TooManyLimitsError
            yield None
        yield from _metrics(shown, list(islice(unused.values(), MOST_ALL - len(shown))), now)
        yield _left_out(0)

    def parts(self, limiters: Mapping[Scope, Limiter], now: int) -> Iterator[Metric | None]:
        """Yield the metrics of the limits that are chosen now; None after work that has yielded nothing yet."""
        used: dict[Limiter, float] = {}
        places = {limiter: since for limiter, since in self._places.items() if now - since < PLACE_NS}
        groups = {group: FullestLimits(_most(group)) for group in _Group}
        unused: dict[Names, UnusedLimit] = {}
        named = yield from self._look_for_named()
        yield from self._candidates(unused, named.first, 2 * MOST_LIMITS)
        named_in_use = set[Names]()
        for some in batched(list(limiters.values()), min(_LIMITERS, self._at_once)):
            for limiter in some:
                scope, names = limiter.scope, _names(limiter.scope)
                unused.pop(names, None)  # also of one that is not shown: its counters would begin again
                used[limiter] = seconds = seconds_used(limiter)
                if self._is_outdated(scope) or not _may_be_shown(scope.level, scope.name):
                    continue
                more = seconds - self._before.get(limiter, 0.0)
                rank = (limiter in places, len(limiter.waiters) > 0, more, scope)
                group = self._group(scope.level, scope.name, names[2])
                groups[group].add(rank, limiter)
                if group is _Group.NAMED and self._chosen.has(*names[1:]) and self._limit_of(*names):
                    named_in_use.add(names)
            yield None
        self._before = used
        fullest = [limiter for group in groups.values() for limiter in group.first()]
        chosen = [limiters[each.scope] for each in fullest if each.scope in limiters]
        self._places = {limiter: places.get(limiter, now) for limiter in chosen}
        left = {group: _most(group) - limits.added for group, limits in groups.items()}
        yield from _metrics(chosen, list(_fitting(unused.values(), left)), now)
        unused_ones = named.number - len(named_in_use)
        yield _left_out(max(0, groups[_Group.NAMED].added + unused_ones - MOST_CHOSEN))

    def _group(self, level: str, name: str, of_partitions: str = "") -> "_Group":
        chosen = self._chosen
        if chosen.has(level, name) or (of_partitions not in {"", name} and chosen.has(level, of_partitions)):
            return _Group.NAMED
        return _Group.WIDE if level in WIDE else _Group.OTHERS

    def _look_for_named(self) -> Generator[None, None, "NamedLimits"]:
        """Find the limits of the configuration that `metrics_limits` names; all names are looked at once a change."""
        if self._named is not None:
            return self._named
        changes, number = self._changes, 0
        written_out, others = list[Names](), list[Names]()
        for direction, (level, record) in product(DIRECTIONS, _NAMED_AS_WRITTEN.items()):
            values, whole = self._policies.by_name(direction, record.word), set(self._chosen.whole_names(level))
            names = list(values) if self._chosen.names_several(level) else [each for each in whole if each in values]
            for some in batched(names, self._at_once):
                for name in some:
                    if self._chosen.has(level, name) and self._limit_of(direction, level, name):
                        number += 1
                        limits = written_out if name in whole else others
                        if len(limits) < MOST_CHOSEN:
                            limits.append((direction, level, name))
                yield
        named = NamedLimits(number, tuple([*written_out, *others][:MOST_CHOSEN]))
        if changes == self._changes:
            self._named = named
        return named

    def _candidates(self, unused: "dict[Names, UnusedLimit]", named: "Sequence[Names]", most: int) -> Iterator[None]:
        """Add limits of the configuration: those that `metrics_limits` names, then of each setting the first ones.

        Args:
            unused: What they are added to; never many more than `MOST_ALL`.
            named: The names of those that `metrics_limits` names.
            most: The number of the first ones.
        """
        for first in batched(named, _NAMES):
            for labels in first:
                self._add(unused, labels, _Group.NAMED)
            yield
        for direction, (level, record) in product(DIRECTIONS, _NAMED_AS_WRITTEN.items()):
            values = self._policies.by_name(direction, record.word)
            for some in batched(list(islice(values, most)), self._at_once):
                if len(unused) >= MOST_ALL:
                    return
                for name in some:
                    self._add(unused, (direction, level, name), self._group(level, name))
                yield

    def _add(self, unused: "dict[Names, UnusedLimit]", labels: "Names", group: "_Group") -> None:
        limit = self._limit_of(*labels)
        if limit is not None:
            unused[labels] = UnusedLimit((*labels, limit.mode), limit, labels[1] not in self._shared, group)

    def _limit_of(self, direction: Direction, level: str, name: str) -> Limit | None:
        """Return the limit that the configuration has of this very name, and whose metrics may be shown; else None."""
        record = _NAMED_AS_WRITTEN.get(level)
        value = None if record is None else self._policies.get(direction, record.word, name)
        if record is None or value is None or not value.limit or record.is_each(name) or record.is_pattern(name):
            return None
        return value.limit if _may_be_shown(level, name) else None


class _Group(Enum):
    """Limits that have places of their own."""

    NAMED = auto()
    """Those that `metrics_limits` names."""
    WIDE = auto()
    """Others of wide levels."""
    OTHERS = auto()
    """All others."""


def _most(group: _Group) -> int:
    return MOST_CHOSEN if group is _Group.NAMED else MOST_LIMITS


Names = tuple[Direction, str, str]
"""Direction, level and name of a limit."""


class NamedLimits(NamedTuple):
    """The limits of the configuration that `metrics_limits` names, in use or not.

    Attributes:
        number: Their number.
        first: The names of as many as there are places: those first that it writes out.
    """

    number: int
    first: tuple[Names, ...]


class UnusedLimit(NamedTuple):
    """A limit of the configuration that no stream has used yet.

    Attributes:
        labels: Direction, level, name and mode.
        limit: Its value.
        is_known: Whether the rate that it will have in this process is that of the value.
        group: Whose places it may have.
    """

    labels: tuple[str, str, str, str]
    limit: Limit
    is_known: bool
    group: _Group


def _named_as_written() -> Iterator[tuple[str, SettingRecord]]:
    """Yield the levels with a setting whose names are those of its limits, and that setting: each has at most one."""
    for level in LEVELS:
        for record in level.settings:
            parts = tuple(part for limited in level.limited for part in (limited, limited.by) if part in record.named)
            if level.word not in HIDDEN and len(parts) == len(record.named) == len(level.limited):
                yield level.word, record


_NAMED_AS_WRITTEN: Final = dict(_named_as_written())


def _fitting(unused: Iterable[UnusedLimit], left: dict[_Group, int]) -> Iterator[UnusedLimit]:
    """Yield as many unused limits as places are left, and count the places down, also for those without one."""
    for each in unused:
        left[each.group] -= 1
        if left[each.group] >= 0:
            yield each


def _names(scope: Scope) -> Names:
    """Return the names by which the configuration has a limit: a partitioned topic has one for each partition."""
    is_partition = "-partition-" in scope.name and scope.level in _OF_TOPICS
    name = _PARTITION.sub("", scope.name) if is_partition else scope.name
    return scope.direction, scope.level, name


def _may_be_shown(level: str, name: str) -> bool:
    return level not in HIDDEN and len(name) <= LONGEST_LIMIT_NAME and name.isprintable()


def _left_out(number: int) -> Metric:
    return GaugeMetricFamily(
        "sluice_limits_left_out",
        f"Limits that metrics_limits names and that have no metrics, as it names more than {MOST_CHOSEN}",
        value=number,
    )


def seconds_used(limiter: Limiter) -> float:
    """Return for how many seconds of its rate a limit has passed entries, since it was made."""
    messages, _, size, _ = in_force(limiter)
    usage = limiter.usage
    return max(
        0.0 if messages is None else usage.messages / messages.per_second,
        0.0 if size is None else usage.size / size.per_second,
    )


def _metrics(chosen: list[Limiter], unused: list[UnusedLimit], now: int) -> Iterator[Metric]:
    for kind, name, text, labels, read, unused_value in _METRICS:
        for some in batched(chosen, _SHOWN):
            family = kind(name, text, labels=(*_LABELS, *labels))
            for limiter in some:
                scope = limiter.scope
                key = (scope.direction, scope.level, scope.name, limiter.limit.mode)
                for label, value in read(limiter, now):
                    family.add_metric((*key, *label), value)
            yield family
        for others in batched(unused, _SHOWN) if unused else ():
            family = kind(name, text, labels=(*_LABELS, *labels))
            for each in others:
                for label, value in unused_value(each):
                    family.add_metric((*each.labels, *label), value)
            yield family


Values = Iterator[tuple[tuple[str, ...], float]]


def _known(limiter: Limiter) -> tuple[Rate | None, Rate | None]:
    """Return the rates of messages and bytes in this process; None for those of a shared limit without streams."""
    if limiter.lease is not None and not limiter.streams:
        return None, None
    messages, _, size, _ = in_force(limiter)
    return messages, size


def _rates(limiter: Limiter, _now: int) -> Values:
    return (((unit,), rate.per_second) for unit, rate in zip(_UNITS, _known(limiter), strict=True) if rate)


def _bursts(limiter: Limiter, _now: int) -> Values:
    return (((unit,), rate.burst) for unit, rate in zip(_UNITS, _known(limiter), strict=True) if rate)


def _used(limiter: Limiter, _now: int) -> Values:
    usage, (messages, _, size, _) = limiter.usage, in_force(limiter)
    counts = (usage.messages, messages), (usage.size, size)
    return (((unit,), count) for unit, (count, rate) in zip(_UNITS, counts, strict=True) if rate)


def _throttled(limiter: Limiter, now: int) -> Values:
    yield (), limiter.usage.throttled.read(now) / 1e9


def _waiting(limiter: Limiter, _now: int) -> Values:
    yield (), len(limiter.waiters)


def _unused_units(value: Callable[[Rate], float], *, needs_share: bool) -> Callable[[UnusedLimit], Values]:
    def read(unused: UnusedLimit) -> Values:
        rates = (unused.limit.messages, unused.limit.size) if unused.is_known or not needs_share else ()
        return (((unit,), value(rate)) for unit, rate in zip(_UNITS, rates, strict=False) if rate)

    return read


def _none_yet(_unused: UnusedLimit) -> Values:
    yield (), 0.0


_METRICS: Final = (
    (
        GaugeMetricFamily,
        "sluice_limit_per_second",
        "Messages or metered bytes per second that a limit lets pass in this process",
        ("unit",),
        _rates,
        _unused_units(lambda rate: rate.per_second, needs_share=True),
    ),
    (
        GaugeMetricFamily,
        "sluice_limit_burst",
        "Messages or metered bytes that a limit lets pass at once in this process",
        ("unit",),
        _bursts,
        _unused_units(lambda rate: rate.burst, needs_share=True),
    ),
    (
        CounterMetricFamily,
        "sluice_limit_used",
        "Messages or metered bytes that a limit has let pass",
        ("unit",),
        _used,
        _unused_units(lambda _: 0.0, needs_share=False),
    ),
    (
        CounterMetricFamily,
        "sluice_limit_throttled_seconds",
        "Time that streams waited on a limit",
        (),
        _throttled,
        _none_yet,
    ),
    (GaugeMetricFamily, "sluice_limit_waiting_streams", "Streams that wait on a limit", (), _waiting, _none_yet),
)


def batched(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts; one empty part if there are none, so that each metric has its heading."""
    for begin in range(0, max(1, len(items)), most):
        yield items[begin : begin + most]
