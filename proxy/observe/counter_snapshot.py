"""Take the counts of streams and limiters since the last look, for lines of the log and totals of the metrics.

Totals are wanted at any time, lines only at the end of an interval. So a stream or limiter that was looked at in
between has a mark: the part of its counts that the totals hold already. All counts of an interval are taken at one
moment, which is quick. The fields are computed from them afterwards.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from operator import attrgetter, itemgetter, sub
from typing import Any, NamedTuple

from limiter.activity import ActivityJournal
from limiter.limiter import Limiter, Stream
from limiter.usage import Delays, LimiterUsage, Passed, StreamUsage
from proxy.observe.log_lines import in_force
from proxy.observe.totals import DirectionTotals, NamespaceTotals

Values = tuple[int, ...]
"""Counts at one moment, in the order of a `CountNames`; empty for the beginning."""


class CountNames:
    """The counts of a usage that are read, and their names in the access log.

    Args:
        fields: The log's name and the usage's attribute of each count; `throttled_ns` follows as the last.
    """

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._names = (*(name for name, _ in fields), "throttled_ns")
        self._read = attrgetter(*(attribute for _, attribute in fields))

    def reader(self, *names: str) -> Callable[[Values], Values]:
        """Return the function that takes some counts out of all, by their names."""
        return itemgetter(*map(self._names.index, names))

    def read(self, usage: StreamUsage | LimiterUsage, now: int) -> Values:
        """Return the counts as of now."""
        return (*self._read(usage), usage.throttled.read(now))

    def changes(self, values: Values, before: Values) -> dict[str, int]:
        """Return the differences of the counts at two moments, by name."""
        return dict(zip(self._names, map(sub, values, before) if before else values, strict=True))


STREAM = CountNames(
    (
        ("offered_entries", "offered_entries"),
        ("offered_messages", "offered_messages"),
        ("offered_bytes", "offered_size"),
        ("passed_entries", "passed_entries"),
        ("passed_messages", "passed_messages"),
        ("passed_bytes", "passed_size"),
        ("dropped_messages", "dropped_messages"),
        ("dropped_bytes", "dropped_size"),
        ("rejected_messages", "rejected_messages"),
        ("rejected_bytes", "rejected_size"),
        ("permits_asked", "permits_asked"),
        ("permits_granted", "permits_granted"),
    )
)
OBSERVED = CountNames((("held_messages", "held_messages"), ("exceeded_messages", "dropped_messages")))
LIMITER = CountNames(
    (
        ("idle_ns", "idle_ns"),
        ("recovered_ns", "recovered_ns"),
        ("reserved_ns", "reserved_ns"),
        ("passed_entries", "entries"),
        ("passed_messages", "messages"),
        ("passed_bytes", "size"),
        ("rejected_messages", "rejected_messages"),
        ("rejected_bytes", "rejected_size"),
    )
)


_BUCKETS = ("messages", "peak_messages", "bytes", "peak_bytes")
"""The buckets of a limiter, by the names of its line's fields."""


_STREAM_TROUBLE = STREAM.reader(
    "dropped_messages", "dropped_bytes", "rejected_messages", "rejected_bytes", "throttled_ns"
)
_OBSERVED_TROUBLE = OBSERVED.reader("held_messages", "exceeded_messages", "throttled_ns")
_LIMITER_TROUBLE = LIMITER.reader("idle_ns", "reserved_ns", "rejected_messages", "rejected_bytes", "throttled_ns")
_LIMITER_PASSED = LIMITER.reader("passed_messages", "passed_bytes")
_ARRIVED = STREAM.reader("offered_entries", "offered_messages", "offered_bytes")


class Taken(NamedTuple):
    """Counts of one usage: at the end of an interval, at its begin, and at the last look for the totals in between."""

    values: Values
    before: Values
    mark: Values | None

    def are_same(self, of: Callable[[Values], Values]) -> bool:
        """Return whether some counts are as at the begin."""
        return of(self.values) == of(self.before) if self.before else not any(of(self.values))

    def changes(self, of: Callable[[Values], Values]) -> Values:
        """Return the differences of some counts."""
        return tuple(map(sub, of(self.values), of(self.before))) if self.before else of(self.values)

    def after(self, earlier: "Taken") -> "Taken":
        """Return the counts of both intervals; those of the earlier one are in the totals."""
        return Taken(self.values, earlier.before, self.before if self.mark is None else self.mark)

    @property
    def in_totals(self) -> "Taken":
        """Return the same counts, of which the totals hold all."""
        return self._replace(mark=self.values)


class TakenObserved(NamedTuple):
    """The counts of a stream's observed limits in an interval."""

    counts: Taken
    delay_max_ns: int
    held_messages: int


class TakenStream(NamedTuple):
    """The counts of a stream in an interval.

    Args:
        stream: The stream.
        counts: The counts of its usage.
        delay_max_ns: The longest delay.
        delays: The histogram and sum of delays, if there were any.
        delays_mark: The part of them that the totals hold already, as `_values_of` has it.
        held: Messages and bytes held at the end.
        waiting_ns: For how long entries had been held at the end; None: none were.
        spared: Entries, messages and bytes that were charged to no limit; None: there were never any.
        observed: The counts of observed limits; None: there were never any.
    """

    stream: Stream
    counts: Taken
    delay_max_ns: int
    delays: tuple[tuple[int, ...], int] | None
    delays_mark: Values | None
    held: tuple[int, int]
    waiting_ns: int | None
    spared: Passed | None
    observed: TakenObserved | None

    def is_steady(self, _duration_ns: int) -> bool:
        """Return whether nothing was held, dropped, rejected or withheld, nor would be by observed limits."""
        stream, observed = self.stream, self.observed
        return (
            self.waiting_ns is None
            and self.delays is None
            and not self.delay_max_ns
            and stream.is_open
            and not (stream.permits and stream.permits.asked)
            and self.counts.are_same(_STREAM_TROUBLE)
            and (
                observed is None
                or (
                    not (observed.delay_max_ns or observed.held_messages)
                    and observed.counts.are_same(_OBSERVED_TROUBLE)
                )
            )
        )

    def largest_bound(self) -> tuple[int, int]:
        """Return messages and bytes that no entry exceeds, if each has one of both at least."""
        entries, messages, size = self.counts.changes(_ARRIVED)
        others = max(0, entries - 1)
        return messages - others, size - others

    def after(self, earlier: "TakenStream | TakenLimiter") -> "TakenStream":
        """Return the counts of this interval and an earlier one of the stream, both steady."""
        assert isinstance(earlier, TakenStream), "lines are of one stream"
        spared, observed = self.spared, self.observed
        if spared is not None and earlier.spared is not None:
            spared = spared[0] + earlier.spared[0], spared[1] + earlier.spared[1], spared[2] + earlier.spared[2]
        if observed is not None and earlier.observed is not None:
            observed = observed._replace(counts=observed.counts.after(earlier.observed.counts))
        return self._replace(
            counts=self.counts.after(earlier.counts), spared=spared or earlier.spared, observed=observed
        )


class TakenLimiter(NamedTuple):
    """The counts of a limiter in an interval.

    Args:
        limiter: The limiter.
        counts: The counts of its usage.
        largest: Messages and bytes of its largest entry.
        balances: Its `Limiter.balances`.
        began: Its `Limiter.began`, for its first line alone.
    """

    limiter: Limiter
    counts: Taken
    largest: tuple[int, int]
    balances: tuple[tuple[float, float] | None, ...]
    began: tuple[float | None, ...] | None

    def is_steady(self, duration_ns: int) -> bool:
        """Return whether no stream waited, nothing was rejected, and each bucket passed its rate at most."""
        if not self.counts.are_same(_LIMITER_TROUBLE):
            return False
        messages, size = self.counts.changes(_LIMITER_PASSED)
        for rate, passed in zip(in_force(self.limiter), (messages, messages, size, size), strict=True):
            if rate is not None and passed * rate.period_ns > rate.tokens * duration_ns:
                return False
        return all(balance is None or balance[0] >= 0 for balance in self.balances)

    def largest_bound(self) -> tuple[int, int]:
        """Return messages and bytes of the largest entry."""
        return self.largest

    def after(self, earlier: "TakenStream | TakenLimiter") -> "TakenLimiter":
        """Return the counts of this interval and an earlier one of the limiter."""
        assert isinstance(earlier, TakenLimiter), "lines are of one limiter"
        largest = max(self.largest[0], earlier.largest[0]), max(self.largest[1], earlier.largest[1])
        balances = tuple(
            now and (now[0], now[1] + (before[1] if before else 0.0))
            for now, before in zip(self.balances, earlier.balances, strict=True)
        )
        began = earlier.began if self.began is None else self.began
        return TakenLimiter(self.limiter, self.counts.after(earlier.counts), largest, balances, began)


TakenCounts = TakenStream | TakenLimiter


class CounterSnapshot:
    """Takes the counts since the last line, once for the log and once for the totals.

    Args:
        totals: Gets the sums.
    """

    def __init__(self, totals: NamespaceTotals) -> None:
        self._totals = totals
        self._marks: dict[StreamUsage | LimiterUsage | Delays, Values] = {}

    def settling(self, journal: ActivityJournal, clock: Callable[[], int]) -> Iterator[None]:
        """Bring the totals up to now, a stream or limiter in each step; the lines to come do not change by it."""
        for stream in list(journal.streams):
            now = clock()
            totals = self._of(stream)
            totals.add(self._look(STREAM, stream.usage, now))
            delays = stream.usage.delays
            if delays:
                values = _values_of(*delays.read())
                self._add_delays(stream, values, self._marks.get(delays))
                self._marks[delays] = values
            if stream.observed is not None:
                totals.add_observed(self._look(OBSERVED, stream.observed.usage, now))
            yield
        for limiter in list(journal.limiters):
            if not limiter.is_observed:
                level = self._totals.of_level(limiter.scope.direction, limiter.scope.level)
                level.add(self._look(LIMITER, limiter.usage, clock()))
            yield

    def take_stream(self, stream: Stream, now: int) -> TakenStream:
        """Return a stream's counts up to now, and end its interval."""
        usage, observed = stream.usage, None
        delay_max_ns = usage.take_delay_max()
        if stream.observed is not None:
            would = stream.observed.usage
            observed = TakenObserved(self._take(OBSERVED, would, now), would.take_delay_max(), would.held_messages)
        return TakenStream(
            stream,
            self._take(STREAM, usage, now),
            delay_max_ns,
            usage.delays.take() if usage.delays else None,
            self._marks.pop(usage.delays, None),
            (usage.held_messages, usage.held_size),
            usage.throttled.running_ns(now) if stream.held else None,
            None if usage.spared is None else usage.spared.take(usage.passed),
            observed,
        )

    def take_limiter(self, limiter: Limiter, now: int) -> TakenLimiter:
        """Return a limiter's counts up to now, and end its interval."""
        usage = limiter.usage
        limiter.count_idle(now)
        taken, largest = self._take(LIMITER, usage, now), usage.take_largest()
        return TakenLimiter(limiter, taken, largest, limiter.balances(now), limiter.take_began())

    def count(self, taken: TakenCounts) -> TakenCounts:
        """Add counts to the totals now; their line comes later."""
        if isinstance(taken, TakenLimiter):
            if not taken.limiter.is_observed:
                scope = taken.limiter.scope
                self._totals.of_level(scope.direction, scope.level).add(_changes(LIMITER, taken.counts)[1])
            return taken._replace(counts=taken.counts.in_totals)
        totals = self._of(taken.stream)
        totals.add(_changes(STREAM, taken.counts)[1])
        if taken.observed is None:
            return taken._replace(counts=taken.counts.in_totals)
        totals.add_observed(_changes(OBSERVED, taken.observed.counts)[1])
        observed = taken.observed._replace(counts=taken.observed.counts.in_totals)
        return taken._replace(counts=taken.counts.in_totals, observed=observed)

    def of_stream(self, taken: TakenStream) -> dict[str, Any]:
        """Return the counted fields of a stream's line, and add them to the totals."""
        totals = self._of(taken.stream)
        changes, uncounted = _changes(STREAM, taken.counts)
        totals.add(uncounted)
        fields: dict[str, Any] = {**changes, "delay_max_ms": _ms(taken.delay_max_ns)}
        fields["throttled_ms"] = _ms(fields.pop("throttled_ns"))
        fields["held_messages"], fields["held_bytes"] = taken.held
        if taken.delays is not None:
            fields["delay_hist"], delay_sum_ns = taken.delays
            fields["delay_sum_ms"] = _ms(delay_sum_ns)
            self._add_delays(taken.stream, _values_of(*taken.delays), taken.delays_mark)
        if taken.stream.by_entry or taken.spared is not None:
            fields |= _charged(taken.stream, changes, taken.spared or (0, 0, 0))
        if taken.observed is not None:
            changes, uncounted = _changes(OBSERVED, taken.observed.counts)
            totals.add_observed(uncounted)
            fields |= _would(changes, taken.observed)
        return fields

    def of_limiter(self, taken: TakenLimiter) -> dict[str, Any]:
        """Return the counted fields of a limiter's line, and add them to the totals."""
        scope = taken.limiter.scope
        changes, uncounted = _changes(LIMITER, taken.counts)
        if not taken.limiter.is_observed:
            self._totals.of_level(scope.direction, scope.level).add(uncounted)
        fields: dict[str, Any] = {
            **changes,
            "largest_entry_messages": taken.largest[0],
            "largest_entry_bytes": taken.largest[1],
        }
        fields["throttled_ms"] = _ms(fields.pop("throttled_ns"))
        fields["idle_ms"] = fields.pop("idle_ns") / 1e6
        for part in ("recovered", "reserved"):
            part_ns = fields.pop(f"{part}_ns")
            if part_ns:
                fields[f"{part}_ms"] = part_ns / 1e6
        for name, balance in zip(_BUCKETS, taken.balances, strict=True):
            if balance is not None:
                tokens, overflow = balance
                # Digits below these tell nothing, and are most of what is left of a line that is compressed.
                fields[f"tokens_{name}"] = round(tokens, 3)
                if overflow:
                    fields[f"overflow_{name}"] = round(overflow, 3)
        if taken.began is not None:
            fields |= {f"began_{name}": balance for name, balance in zip(_BUCKETS, taken.began, strict=True)}
        return fields

    def end(self) -> dict[Any, Any]:
        """Forget the marks, as everything of this interval has been taken; return them, to be freed in slices."""
        forgotten, self._marks = self._marks, {}
        return forgotten

    def _add_delays(self, stream: Stream, values: Values, mark: Values | None) -> None:
        """Add the delays that the totals do not hold yet; `values` of one interval only grow, and get longer."""
        sum_ns, *counts = values
        if mark is not None:
            sum_ns -= mark[0]
            counts = [count - before for count, before in zip_longest(counts, mark[1:], fillvalue=0)]
        label = self._totals.label(stream.name.tenant, stream.name.namespace, stream.name.direction)
        self._totals.delays_of(label[0], label[2]).add(counts, sum_ns)

    def _of(self, stream: Stream) -> DirectionTotals:
        return self._totals.of(stream.name, has_messages=stream.usage.offered_messages > 0)

    def _look(self, counts: CountNames, usage: StreamUsage | LimiterUsage, now: int) -> dict[str, int]:
        """Return the counts that the totals do not hold yet."""
        values = counts.read(usage, now)
        before = self._marks.get(usage, usage.reported)
        self._marks[usage] = values
        return counts.changes(values, before)

    def _take(self, counts: CountNames, usage: StreamUsage | LimiterUsage, now: int) -> Taken:
        values, before = counts.read(usage, now), usage.reported
        usage.reported = values
        return Taken(values, before, self._marks.pop(usage, None))


def _values_of(by_bucket: Values, sum_ns: int) -> Values:
    """Return the sum of delays and their counts by bucket."""
    return (sum_ns, *by_bucket)


def _ms(nanoseconds: int) -> float:
    """Return milliseconds, to a microsecond."""
    return round(nanoseconds / 1e6, 3)


def _changes(counts: CountNames, taken: Taken) -> tuple[dict[str, int], dict[str, int]]:
    """Return the counts since the last line, and the part that the totals do not hold yet."""
    changes = counts.changes(taken.values, taken.before)
    return changes, changes if taken.mark is None else counts.changes(taken.values, taken.mark)


def _charged(stream: Stream, changes: dict[str, int], spared: Passed) -> dict[str, int]:
    """Return the part of the changes that counts against limits, where it differs."""
    entries, messages, size = spared
    charged = {
        "messages": stream.charged(changes["passed_entries"] - entries, changes["passed_messages"] - messages),
        "bytes": changes["passed_bytes"] - size,
    }
    return {f"charged_{unit}": count for unit, count in charged.items() if count != changes[f"passed_{unit}"]}


def _would(changes: dict[str, int], taken: TakenObserved) -> dict[str, Any]:
    """Return what limits in mode `observe` would have done; zeros are left out."""
    would = {
        "would_hold_messages": taken.held_messages,
        "would_throttle_ms": changes["throttled_ns"] / 1e6,
        "would_delay_max_ms": taken.delay_max_ns / 1e6,
        "would_exceed_messages": changes["exceeded_messages"],
    }
    return {name: value for name, value in would.items() if value}
