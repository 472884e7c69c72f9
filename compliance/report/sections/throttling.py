"""How long messages were held: percentiles read from the sum of all lines' histograms."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from accesslog.delays import upper_bound_ms
from compliance.figures.facts import DelayFacts


class Delay(Struct, frozen=True, kw_only=True):
    """Delays of one topic and direction, or by the level that held."""

    tenant: str
    namespace: str
    topic: str
    """Empty for all topics together."""
    direction: str
    reason: str
    """Level of the limit that held; empty for all together."""
    passed_messages: int
    held_messages: int
    mean_ms: float | None
    """Over the messages that were held; null if none was, or the log is of a proxy that did not tell."""
    p50_ms: float | None
    """Half of the messages that were held had been held for less than this; so on. Right to a quarter of itself."""
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float


def percentile_ms(hist: Sequence[int], share: float, highest_ms: float) -> float | None:
    """Below what delay that share of the messages in a histogram stayed, milliseconds; None if there are none.

    Args:
        hist: Messages by bucket of the access log's fixed bounds.
        share: 0 to 1.
        highest_ms: The longest of all delays: no percentile is above it, and the last bucket has no other bound.
    """
    wanted, seen = share * sum(hist), 0
    for bucket, messages in enumerate(hist):
        seen += messages
        if messages and seen >= wanted:
            bound = upper_bound_ms(bucket)
            return highest_ms if bound is None else min(bound, highest_ms)
    return None


def added(hists: Iterable[Sequence[int]]) -> list[int]:
    """Histograms summed place by place."""
    total: defaultdict[int, int] = defaultdict(int)
    for hist in hists:
        for bucket, messages in enumerate(hist):
            total[bucket] += messages
    return [total[bucket] for bucket in range(max(total, default=-1) + 1)]


def delays(facts: list[DelayFacts]) -> list[Delay]:
    """The same with percentiles, in the same order."""
    return [_delay(row) for row in facts]


def by_reason(facts: list[DelayFacts]) -> list[Delay]:
    """Delays by the level that held, after one row for all of a direction together."""
    rows = []
    for direction in ("publish", "dispatch"):
        mine = [row for row in facts if row.direction == direction]
        if any(row.delay_max_ms for row in mine):
            rows.append(_delay(_together(direction, mine)))
            rows += [_delay(row) for row in sorted(mine, key=lambda one: -one.delay_sum_ms) if row.reason]
    return rows


def _together(direction: str, rows: list[DelayFacts]) -> DelayFacts:
    return DelayFacts(
        tenant="",
        namespace="",
        topic="",
        direction=direction,
        reason="",
        passed_messages=sum(row.passed_messages for row in rows),
        held_messages=sum(row.held_messages for row in rows),
        delay_sum_ms=sum(row.delay_sum_ms for row in rows),
        delay_max_ms=max(row.delay_max_ms for row in rows),
        hist=added(row.hist for row in rows),
    )


def _delay(row: DelayFacts) -> Delay:
    p50, p95, p99 = (percentile_ms(row.hist, share, row.delay_max_ms) for share in (0.5, 0.95, 0.99))
    return Delay(
        tenant=row.tenant,
        namespace=row.namespace,
        topic=row.topic,
        direction=row.direction,
        reason=row.reason,
        passed_messages=row.passed_messages,
        held_messages=row.held_messages,
        mean_ms=row.delay_sum_ms / row.held_messages if row.held_messages else None,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=row.delay_max_ms,
    )
