"""Metrics of single limits: of those that the operator chooses, and the fullest others; on request of all."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from limiter.levels import LEVELS
from limiter.limiter import Limiter, Scope
from limiter.names import EACH, PatternValues
from proxy.admin.in_force import FullestLimits
from proxy.config.values import LONGEST_LIMIT_NAME
from proxy.observe.log_lines import in_force

MOST_LIMITS: Final = 100
"""Limits that are shown of wide levels, and as many of all others."""
WIDE: Final = frozenset(level.word for level in LEVELS if level.is_wide)
"""Levels with few limits: limits of topics do not push them out."""
HIDDEN: Final = frozenset(level.word for level in LEVELS if level.names_clients)
"""Levels whose limits are never shown, as their names are those of clients: a scrape may need no token."""
MOST_CHOSEN: Final = 500
"""Limits that are shown because `metrics_limits` names them, alone or by a pattern."""
MOST_ALL: Final = 5000
"""Limits that a scrape of all shows; one of more is refused."""
PLACE_NS: Final = 900 * 10**9
"""How long a limit is shown, at least. Names that clients make up replace each other no faster, so Prometheus gets few
series."""
_LIMITERS, _SHOWN = 20, 4
"""Limiters that are looked at, and that are shown, in one unit of work."""
_LABELS: Final = ("direction", "level", "name", "mode")
_UNITS: Final = ("messages", "bytes")
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

    def has(self, scope: Scope) -> bool:
        """Return whether a limit is named."""
        if scope.level in self._whole:
            return True
        names = self._of_levels.get(scope.level)
        return names is not None and any(True for _ in names.matches(scope.name))


class LimitMetrics:
    """Chooses the limits to show, and makes their metrics.

    They are those that `metrics_limits` names, and of others those with the most use since the look before. Use is the
    time that the limit needs for the entries that have passed. A limit on which streams wait is full. A limit that is
    shown keeps its place for `PLACE_NS`. Names that a terminal would obey are not shown: escaped, two of them could be
    the same label, which Prometheus refuses with the whole scrape.
    """

    def __init__(self) -> None:
        self._chosen = ChosenLimits()
        self._before: dict[Limiter, float] = {}
        """The use of each limiter at the look before; replaced at each look."""
        self._places: dict[Limiter, int] = {}
        """When each limit that is shown got its place."""

    def choose(self, entries: Iterable[str]) -> None:
        """Show the limits that these entries of `metrics_limits` name from the next look on, and no others for that."""
        self._chosen = ChosenLimits(entries)

    def parts_of_all(self, limiters: Mapping[Scope, Limiter], now: int) -> Iterator[Metric | None]:
        """Yield the metrics of all limits; None after work that has yielded nothing yet.

        Raises:
            TooManyLimitsError: If these are more than `MOST_ALL`.
        """
        shown: list[Limiter] = []
        for some in batched(list(limiters.values()), _LIMITERS):
            shown += [limiter for limiter in some if _may_be_shown(limiter.scope)]
            if len(shown) > MOST_ALL:
                raise TooManyLimitsError
            yield None
        yield from _metrics(shown, now)
        yield _left_out(0)

    def parts(self, limiters: Mapping[Scope, Limiter], now: int) -> Iterator[Metric | None]:
        """Yield the metrics of the limits that are chosen now; None after work that has yielded nothing yet."""
        used: dict[Limiter, float] = {}
        places = {limiter: since for limiter, since in self._places.items() if now - since < PLACE_NS}
        named, wide, others = FullestLimits(MOST_CHOSEN), FullestLimits(MOST_LIMITS), FullestLimits(MOST_LIMITS)
        for some in batched(list(limiters.values()), _LIMITERS):
            for limiter in some:
                scope = limiter.scope
                if not _may_be_shown(scope):
                    continue
                used[limiter] = seconds = seconds_used(limiter)
                more = seconds - self._before.get(limiter, 0.0)
                rank = (limiter in places, len(limiter.waiters) > 0, more, scope)
                group = named if self._chosen.has(scope) else wide if scope.level in WIDE else others
                group.add(rank, limiter)
            yield None
        self._before = used
        fullest = (*named.first(), *wide.first(), *others.first())
        chosen = [limiters[each.scope] for each in fullest if each.scope in limiters]
        self._places = {limiter: places.get(limiter, now) for limiter in chosen}
        yield from _metrics(chosen, now)
        yield _left_out(max(0, named.added - MOST_CHOSEN))


def _may_be_shown(scope: Scope) -> bool:
    return scope.level not in HIDDEN and len(scope.name) <= LONGEST_LIMIT_NAME and scope.name.isprintable()


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


def _metrics(chosen: list[Limiter], now: int) -> Iterator[Metric]:
    for kind, name, text, labels, read in _METRICS:
        for some in batched(chosen, _SHOWN):
            family = kind(name, text, labels=(*_LABELS, *labels))
            for limiter in some:
                scope = limiter.scope
                key = (scope.direction, scope.level, scope.name, limiter.limit.mode)
                for label, value in read(limiter, now):
                    family.add_metric((*key, *label), value)
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


_METRICS: Final = (
    (
        GaugeMetricFamily,
        "sluice_limit_per_second",
        "Messages or metered bytes per second that a limit lets pass in this process",
        ("unit",),
        _rates,
    ),
    (
        GaugeMetricFamily,
        "sluice_limit_burst",
        "Messages or metered bytes that a limit lets pass at once in this process",
        ("unit",),
        _bursts,
    ),
    (
        CounterMetricFamily,
        "sluice_limit_used",
        "Messages or metered bytes that a limit has let pass",
        ("unit",),
        _used,
    ),
    (
        CounterMetricFamily,
        "sluice_limit_throttled_seconds",
        "Time that streams waited on a limit",
        (),
        _throttled,
    ),
    (GaugeMetricFamily, "sluice_limit_waiting_streams", "Streams that wait on a limit", (), _waiting),
)


def batched(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts; one empty part if there are none, so that each metric has its heading."""
    for begin in range(0, max(1, len(items)), most):
        yield items[begin : begin + most]
