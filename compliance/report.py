"""The report as one value: what report.json holds and the page shows."""

from msgspec import Struct

from compliance.facts import Facts, GapFacts, QuarantineFacts, RateFacts, RunFacts, TopicFacts, UsageFacts
from compliance.numbers import percent
from compliance.verdict import LimiterVerdict, Overall, judge_limiters, judge_overall

REPORT_VERSION = 1


class Quality(Struct, frozen=True, kw_only=True):
    """How much of the log is there."""

    lines: int
    quarantined: int
    duplicates: int
    missing: int
    runs: list[RunFacts]
    gaps: list[GapFacts]
    """The first hundred."""
    quarantine: list[QuarantineFacts]
    """The hundred largest groups of file and reason."""


class Report(Struct, frozen=True, kw_only=True):
    """Everything, the verdict first."""

    report_version: int
    overall: Overall
    headline: str
    sentence: str
    limiters: list[LimiterVerdict]
    topics: list[TopicFacts]
    quality: Quality
    rates: list[RateFacts]
    charts_left_out: int
    usage: list[UsageFacts]


def make_report(facts: Facts) -> Report:
    """Judges the facts and puts them in order."""
    limiters = judge_limiters(facts)
    overall = judge_overall(facts, limiters)
    headline, sentence = words(overall, limiters, facts)
    return Report(
        report_version=REPORT_VERSION,
        overall=overall,
        headline=headline,
        sentence=sentence,
        limiters=limiters,
        topics=sorted(facts.topics, key=lambda topic: (topic.topic, topic.direction)),
        quality=Quality(
            lines=sum(run.lines for run in facts.runs),
            quarantined=sum(group.lines for group in facts.quarantine),
            duplicates=sum(run.duplicates for run in facts.runs),
            missing=sum(run.missing for run in facts.runs),
            runs=sorted(facts.runs, key=lambda run: (run.proxy_id, run.first)),
            gaps=facts.gaps,
            quarantine=facts.quarantine,
        ),
        rates=facts.rates,
        charts_left_out=facts.charts_left_out,
        usage=sorted(facts.usage, key=lambda row: (row.day, row.topic, row.direction)),
    )


def words(overall: Overall, limiters: list[LimiterVerdict], facts: Facts) -> tuple[str, str]:
    """The verdict for a stranger: a headline and a sentence."""
    limited = [limiter for limiter in limiters if limiter.containment != "no limit"]
    if overall.verdict == "violated":
        return _violations(limited)
    if not facts.runs:
        return "Nothing to judge", "The access log has no valid line."
    if overall.verdict == "unknown":
        return (
            "No violation seen, but the log is not complete",
            f"Coverage is {percent(overall.coverage)}: the missing lines might show one, so nothing is confirmed.",
        )
    if not limited:
        return "No limits in force", "Traffic was counted, but there was no limit to keep."
    return (
        "All limits were kept, and nobody got less than owed",
        f"{_count(len(limited), 'limit')} judged, in every window of time; the log is complete.",
    )


def _violations(limited: list[LimiterVerdict]) -> tuple[str, str]:
    over = [limiter for limiter in limited if limiter.containment == "violated"]
    short = [limiter for limiter in limited if limiter.entitlement == "violated"]
    parts = []
    if over:
        parts.append(f"{_count(len(over), 'limit')} exceeded")
    if short:
        parts.append(f"{_count(len(short), 'limit')} passed less than owed")
    named = sorted({limiter.name for limiter in over + short})
    listed = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return " · ".join(parts), f"Of {_count(len(limited), 'limit')} judged. Concerned: {listed}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
