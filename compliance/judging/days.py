"""The joining of the results of one limiter's days."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from compliance.judging.facts import ContainmentFacts, DoubtFacts, EntitlementFacts, Judged, LimiterFacts, together
from compliance.judging.lines import ROUNDING
from compliance.schema import LIMITER


def of_days(days: Sequence[Judged]) -> Judged:
    """Return the result of several days, given in their order: the worst windows, and sums."""
    first = days[0]
    if len(days) == 1:
        return first
    windows: dict[tuple[str, bool, str], ContainmentFacts] = {}
    for day in days:
        for window in day.windows:
            key = window.unit, window.is_peak, window.basis
            if key not in windows or window.excess > windows[key].excess + ROUNDING:
                windows[key] = window
    alone = [day.alone for day in days if day.alone is not None]
    return Judged(
        windows=list(windows.values()),
        entitlement=_owed_of_days([day.entitlement for day in days if day.entitlement is not None]),
        doubts=doubts_of_days(doubt for day in days for doubt in day.doubts),
        kept=replace(
            first.kept,
            lines=sum(day.kept.lines for day in days),
            judged_s=sum(day.kept.judged_s for day in days),
            waited_s=sum(day.kept.waited_s for day in days),
            over=together(day.kept.over for day in days),
            short=together(day.kept.short for day in days),
        ),
        minutes={},
        last=max((day.last for day in days if day.last is not None), default=None),
        alone=None if any(day.last for day in days) or not alone else _alone_of_days(alone),
    )


def doubts_of_days(doubts: Iterable[DoubtFacts]) -> list[DoubtFacts]:
    """Return the first doubt of each limiter and kind, with how many there are."""
    first_doubts: dict[tuple[str, ...], DoubtFacts] = {}
    for doubt in sorted(doubts, key=lambda facts: facts.start):
        key = *(getattr(doubt, name) for name in LIMITER), doubt.what
        known = first_doubts.setdefault(key, doubt)
        if known is not doubt:
            first_doubts[key] = replace(known, times=known.times + doubt.times)
    return list(first_doubts.values())


def _owed_of_days(days: Sequence[EntitlementFacts]) -> EntitlementFacts | None:
    """Return the worst ten seconds and the worst day."""
    if not days:
        return None
    worst = days[0]
    for day in days:
        worst = day if day.deficit_s > worst.deficit_s + ROUNDING else worst
    whole = max(days, key=lambda day: (day.whole_deficit_s, day.whole_waited_s))
    return replace(
        worst,
        whole_waited_s=whole.whole_waited_s,
        whole_served_s=whole.whole_served_s,
        whole_deficit_s=whole.whole_deficit_s,
        unseen_s=max(day.unseen_s for day in days),
        still_s=sum(day.still_s for day in days),
    )


def _alone_of_days(days: Sequence[LimiterFacts]) -> LimiterFacts:
    return replace(
        days[-1],
        passed_messages=sum(day.passed_messages for day in days),
        passed_bytes=sum(day.passed_bytes for day in days),
        first=days[0].first,
    )
