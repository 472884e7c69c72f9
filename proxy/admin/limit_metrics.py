"""Metrics of single limits: of the fullest ones, as many as a scrape has room for, then of those not yet in use."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from limiter.levels import LEVELS, Level, SettingRecord
from limiter.limiter import Limiter, Scope
from limiter.policies import Policies
from limiter.token_bucket import DIRECTIONS, Limit, Rate
from proxy.admin.in_force import FullestLimits
from proxy.observe.log_lines import in_force

MOST_LIMITS: Final = 100
"""Limits that are shown of wide levels, and as many of all others."""
WIDE: Final = frozenset(level.word for level in LEVELS if level.is_wide)
"""Levels with few limits: limits of topics do not push them out."""
HIDDEN: Final = frozenset(level.word for level in LEVELS if level.names_clients)
"""Levels whose limits are never shown, as their names are those of clients: a scrape may need no token."""
LONGEST_NAME: Final = 300
"""Most characters of a limit's name; limits with longer names are not shown, so that a scrape is bounded."""
PLACE_NS: Final = 900 * 10**9
"""How long a limit is shown, at least. Names that clients make up replace each other no faster, so Prometheus gets few
series."""
_LIMITERS, _SHOWN = 20, 4
"""Limiters that are looked at, and that are shown, in one unit of work."""
_LABELS: Final = ("direction", "level", "name", "mode")
_UNITS: Final = ("messages", "bytes")
_PARTITION: Final = re.compile(r"-partition-(?:0|[1-9]\d*)$")
T = TypeVar("T")


class LimitMetrics:
    """Chooses the limits to show by their use since the look before, and makes their metrics.

    Use is the time that the limit needs for the entries that have passed. A limit on which streams wait is full.
    A limit that is shown keeps its place for `PLACE_NS`. Names that a terminal would obey are not shown: escaped, two
    of them could be the same label, which Prometheus refuses with the whole scrape.

    Places that are left go to limits of the configuration that no stream has used yet, with the use 0: so each series
    is there before the limit's first message, as far as the limit's name is in the configuration.

    Args:
        policies: The values in force.
        is_of_fleet: Whether a fleet shares limits. The rate of such a limit in this process is not known before its
            first use.
    """

    def __init__(self, policies: Policies, *, is_of_fleet: bool = False) -> None:
        self._policies = policies
        self._is_of_fleet = is_of_fleet
        self._before: dict[Limiter, float] = {}
        """The use of each limiter at the look before; replaced at each look."""
        self._places: dict[Limiter, int] = {}
        """When each limit that is shown got its place."""

    def parts(self, limiters: Mapping[Scope, Limiter], now: int) -> Iterator[Metric | None]:
        """Yield the metrics of the limits that are chosen now; None after work that has yielded nothing yet."""
        used: dict[Limiter, float] = {}
        places = {limiter: since for limiter, since in self._places.items() if now - since < PLACE_NS}
        wide, others = FullestLimits(MOST_LIMITS), FullestLimits(MOST_LIMITS)
        unused: dict[Names, UnusedLimit] = {}
        yield from self._candidates(unused)
        for some in batched(list(limiters.values()), _LIMITERS):
            for limiter in some:
                scope = limiter.scope
                unused.pop((scope.direction, scope.level, _whole_topic(scope.name)), None)
                if scope.level in HIDDEN or len(scope.name) > LONGEST_NAME or not scope.name.isprintable():
                    continue
                used[limiter] = seconds = seconds_used(limiter)
                more = seconds - self._before.get(limiter, 0.0)
                rank = (limiter in places, len(limiter.waiters) > 0, more, scope)
                (wide if scope.level in WIDE else others).add(rank, limiter)
            yield None
        self._before = used
        chosen = [limiters[each.scope] for each in (*wide.first(), *others.first()) if each.scope in limiters]
        self._places = {limiter: places.get(limiter, now) for limiter in chosen}
        yield from _metrics(chosen, _fitting(unused.values(), chosen), now)

    def _candidates(self, unused: "dict[Names, UnusedLimit]") -> Iterator[None]:
        """Add limits of the configuration: of each setting twice as many as there are places, as some are in use."""
        for direction in DIRECTIONS:
            for level, record in _NAMED_AS_WRITTEN:
                is_known = not (self._is_of_fleet and level.may_be_shared)
                for name, value in islice(self._policies.by_name(direction, record.word).items(), 2 * MOST_LIMITS):
                    is_of_one = not (record.is_each(name) or record.is_pattern(name))
                    if is_of_one and value.limit and len(name) <= LONGEST_NAME and name.isprintable():
                        labels = (direction, level.word, name, value.limit.mode)
                        unused[labels[:3]] = UnusedLimit(labels, value.limit, is_known)
                yield


Names = tuple[str, str, str]
"""Direction, level and name of a limit."""


class UnusedLimit(NamedTuple):
    """A limit of the configuration that no stream has used yet.

    Attributes:
        labels: Direction, level, name and mode.
        limit: Its value.
        is_known: Whether the rate that it will have in this process is that of the value.
    """

    labels: tuple[str, str, str, str]
    limit: Limit
    is_known: bool


def _named_as_written() -> Iterator[tuple[Level, SettingRecord]]:
    """Yield the settings whose names are those of the limits that they set, with their levels."""
    for level in LEVELS:
        for record in level.settings:
            parts = tuple(part for limited in level.limited for part in (limited, limited.by) if part in record.named)
            if level.word not in HIDDEN and len(parts) == len(record.named) == len(level.limited):
                yield level, record


_NAMED_AS_WRITTEN: Final = tuple(_named_as_written())


def _fitting(unused: Iterable[UnusedLimit], chosen: Sequence[Limiter]) -> list[UnusedLimit]:
    """Return as many unused limits as the chosen ones leave places."""
    in_use = sum(limiter.scope.level in WIDE for limiter in chosen)
    wide = [each for each in unused if each.labels[1] in WIDE]
    others = [each for each in unused if each.labels[1] not in WIDE]
    return [*wide[: MOST_LIMITS - in_use], *others[: MOST_LIMITS - (len(chosen) - in_use)]]


def _whole_topic(name: str) -> str:
    """Return the topic as limits name it: a limit of a partitioned topic is one for each partition."""
    return _PARTITION.sub("", name) if "-partition-" in name else name


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


def _rates(limiter: Limiter, _now: int) -> Values:
    messages, _, size, _ = in_force(limiter)
    return (((unit,), rate.per_second) for unit, rate in zip(_UNITS, (messages, size), strict=True) if rate)


def _bursts(limiter: Limiter, _now: int) -> Values:
    messages, _, size, _ = in_force(limiter)
    return (((unit,), rate.burst) for unit, rate in zip(_UNITS, (messages, size), strict=True) if rate)


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
