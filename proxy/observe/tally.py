"""What becomes of counts: the fields of the access log's lines, and the metrics' totals.

Totals are wanted at any time, lines only at the end of an interval. So a stream or limiter that was looked at in
between has a mark: what of it the totals hold already.
"""

from typing import Any

from limiter.journal import Journal
from limiter.limiter import Limiter
from limiter.stream import Stream
from limiter.usage import LimiterUsage, StreamUsage
from proxy.observe.changes import LIMITER, OBSERVED, STREAM, Counts, Values
from proxy.observe.totals import NamespaceTotals


class Tally:
    """Takes what was counted since the last line, once for the log and once for the totals.

    Args:
        totals: Gets the sums.
    """

    def __init__(self, totals: NamespaceTotals) -> None:
        self._totals = totals
        self._marks: dict[StreamUsage | LimiterUsage, Values] = {}

    def settle(self, journal: Journal, now: int) -> None:
        """Bring the totals up to now; the lines to come are the same as without."""
        for stream in journal.streams:
            totals = self._totals.of(stream.name.tenant, stream.name.namespace, stream.name.direction)
            totals.add(self._look(STREAM, stream.usage, now))
            if stream.observed is not None:
                totals.add_observed(self._look(OBSERVED, stream.observed.usage, now))
        for limiter in journal.limiters:
            if not limiter.is_observed:
                level = self._totals.of_level(limiter.scope.direction, limiter.scope.level)
                level.add(self._look(LIMITER, limiter.usage, now))

    def of_stream(self, stream: Stream, now: int) -> dict[str, Any]:
        """What a stream's line says that was counted; ends its interval."""
        name, usage = stream.name, stream.usage
        totals = self._totals.of(name.tenant, name.namespace, name.direction)
        changes, uncounted = self._take(STREAM, usage, now)
        totals.add(uncounted)
        fields: dict[str, Any] = {**changes, "delay_max_ms": usage.delay_max_ns / 1e6}
        fields["throttled_ms"] = fields.pop("throttled_ns") / 1e6
        usage.delay_max_ns = 0
        if stream.by_entry or usage.spared is not None:
            fields |= _charged(stream, changes)
        if stream.observed is not None:
            changes, uncounted = self._take(OBSERVED, stream.observed.usage, now)
            totals.add_observed(uncounted)
            fields |= _would(changes, stream.observed.usage)
        return fields

    def of_limiter(self, limiter: Limiter, now: int) -> dict[str, Any]:
        """What a limiter's line says that was counted; ends its interval."""
        usage, scope = limiter.usage, limiter.scope
        changes, uncounted = self._take(LIMITER, usage, now)
        if not limiter.is_observed:
            self._totals.of_level(scope.direction, scope.level).add(uncounted)
        fields: dict[str, Any] = {
            **changes,
            "largest_entry_messages": usage.largest_messages,
            "largest_entry_bytes": usage.largest_size,
        }
        fields["throttled_ms"] = fields.pop("throttled_ns") / 1e6
        usage.largest_messages = usage.largest_size = 0
        return fields

    def end(self) -> None:
        """All that did something has had its line."""
        self._marks.clear()

    def _look(self, counts: Counts, usage: StreamUsage | LimiterUsage, now: int) -> dict[str, int]:
        """What the totals do not hold yet."""
        values = counts.read(usage, now)
        before = self._marks.get(usage, usage.reported)
        self._marks[usage] = values
        return counts.changes(values, before)

    def _take(
        self, counts: Counts, usage: StreamUsage | LimiterUsage, now: int
    ) -> tuple[dict[str, int], dict[str, int]]:
        """What was counted since the last line, and what of it the totals do not hold yet."""
        values, before = counts.read(usage, now), usage.reported
        usage.reported = values
        changes = counts.changes(values, before)
        mark = self._marks.get(usage)
        return changes, changes if mark is None else counts.changes(values, mark)


def _charged(stream: Stream, changes: dict[str, int]) -> dict[str, int]:
    """What of it counts against limits, where that is not the same."""
    usage = stream.usage
    entries, messages, size = usage.spared.take(usage.passed) if usage.spared is not None else (0, 0, 0)
    charged = {
        "messages": stream.charged(changes["passed_entries"] - entries, changes["passed_messages"] - messages),
        "bytes": changes["passed_bytes"] - size,
    }
    return {f"charged_{unit}": count for unit, count in charged.items() if count != changes[f"passed_{unit}"]}


def _would(changes: dict[str, int], usage: StreamUsage) -> dict[str, Any]:
    """What limits in mode `observe` would have done."""
    delay_max_ns, usage.delay_max_ns = usage.delay_max_ns, 0
    return {
        "would_hold_messages": usage.held_messages,
        "would_throttle_ms": changes["throttled_ns"] / 1e6,
        "would_delay_max_ms": delay_max_ns / 1e6,
        "would_exceed_messages": changes["exceeded_messages"],
    }
