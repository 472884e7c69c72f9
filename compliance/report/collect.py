"""Runs the sums of every section on Spark and returns plain values, never more than one machine can hold."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any, TypeVar

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType

from compliance.figures import facts as figures
from compliance.figures import impact, rates, trends, waiting, what_if
from compliance.figures.what_if import Proposal
from compliance.judging import facts
from compliance.judging.bypasses import falsely_exempt, outsiders
from compliance.judging.changes import Changed, changed
from compliance.judging.clocks import Clocks, clocks_of, moments_of, step_facts, with_axis
from compliance.judging.facts import AHEAD
from compliance.judging.fleets import (
    FleetNotes,
    fleet_notes,
    fleet_sums,
    in_fleets,
    member_clocks,
    of_members,
    share_change_facts,
    share_clocks,
    share_turns,
    sharing_runs,
)
from compliance.judging.judge import judged_limiters, results_of, with_waits
from compliance.judging.lines import RunNotes
from compliance.judging.quality import (
    conflicts_of,
    gap_facts,
    malformed_of,
    marked,
    newer_facts,
    run_facts,
    unknown_lines,
)
from compliance.judging.verdict import LimiterVerdict, judge_fleets, judge_limiters
from compliance.report.subjects import (
    MOST_STEPS,
    Subject,
    SumSubject,
    charted,
    pictures,
    shared_limits,
    sum_subjects,
    wanted_limits,
)
from compliance.schema import BOOT, LIMITER, defaulted_fields, nullable_fields, required_fields, rfc3339
from compliance.session import local_frame
from compliance.tables import LogTables

_LARGE = ("interval", "limit")
_SMALL = ("change", "heartbeat", "loss", "reject", "share", "standstill", "throttle")
_EVERY = ("kind", *BOOT, "seq", "start", "end", "mono_us", "duration_ms", "file", "line")


@dataclass(frozen=True)
class Logs:
    """The lines that the report is about.

    Args:
        tables: What a job has kept.
        lines: Each line of every kind once, with the columns that all kinds have.
        limits: Lines of limiters, on the axis of `clocks.with_axis`.
        intervals: Lines of streams, on the same axis.
        others: Lines of the other kinds that are counted, on the same axis.
        clock_steps: As `clocks.step_facts`.
        unknown: As `quality.unknown_lines`.
        clocks: As `clocks.clocks_of`.
    """

    tables: LogTables
    lines: DataFrame
    limits: DataFrame
    intervals: DataFrame
    others: DataFrame
    clock_steps: DataFrame
    unknown: DataFrame
    clocks: Clocks

    def of(self, kind: str) -> DataFrame:
        """Return the lines of one other kind, without the columns of the rest: plans over them are quicker to make."""
        return self.others.where(F.col("kind") == kind).select(*_columns(kind), "start_us", "end_us")


@contextlib.contextmanager
def opened(tables: LogTables) -> Iterator[Logs]:
    """Keeps in memory (or on disk, where it does not fit) what all sections read."""
    rows = tables.rows
    kept = [with_waits(rows.where(F.col("kind") == kind).select(*_columns(kind))) for kind in _LARGE]
    is_small = F.col("kind").isin(*_SMALL)
    kept.append(rows.where(is_small).select(*dict.fromkeys(name for kind in _SMALL for name in _columns(kind))))
    intervals, limits, others = kept
    lines = rows.select(*_EVERY)
    moments = moments_of(reduce(DataFrame.unionByName, (frame.select(*_EVERY) for frame in kept)))
    unknown = unknown_lines(lines)
    frames = [frame.persist() for frame in (intervals, limits, others, moments, unknown)]
    try:
        clocks = clocks_of(moments)
        limits, intervals, others = (with_axis(frame, clocks) for frame in (limits, intervals, others))
        yield Logs(tables, lines, limits, intervals, others, step_facts(moments), unknown, clocks)
    finally:
        for frame in frames:
            frame.unpersist()


def _columns(kind: str) -> dict[str, None]:
    fields = (*required_fields(kind), *nullable_fields(kind), *defaulted_fields(kind))
    return dict.fromkeys(("kind", "file", "line", "day", *fields))


MOST_LIMITS = 20_000
MOST_TOPICS = 20_000
MOST_USAGE = 200_000
MOST_RUNS = 10_000
MOST_NOTES = 200_000
MOST_IMPACTS = 5_000
MOST_LISTED = 1_000
"""Rows of every other table that come out of Spark: the worst rows."""

_KEYS = dict.fromkeys(rates.LIMIT_KEY, "string")
_SPAN = {"step_s": "long", "from_s": "double", "to_s": "double"}

T = TypeVar("T")
_Tables = dict[str, Any]
"""Tables of `Facts` by their names there."""


@dataclass(frozen=True)
class ExtraQuestions:
    """Questions of the reader beyond the verdicts.

    Args:
        objective: Share of time in which promises should be kept; burn rates are measured by it.
        proposals: Limits to replay over the log.
    """

    objective: float = 0.999
    proposals: tuple[Proposal, ...] = ()


def collect(logs: Logs, questions: ExtraQuestions, on_step: Callable[[str], None]) -> facts.Facts:
    """Collect all facts that the report needs.

    Args:
        logs: The lines.
        questions: The reader's further questions.
        on_step: Called with the name of the next step.
    """
    found = ReportTables()
    on_step("checking that the log is complete")
    tables = found.quality(logs)
    on_step("judging the limits")
    tables |= found.judged(logs, questions.objective)
    tables["changes"] += [event for limiter in tables["limiters"] if (event := removal(limiter))]
    notes = None
    if any(limiter.is_shared for limiter in tables["limiters"]):
        on_step("judging what fleets passed together")
        notes, gaps = notes_of_fleets(logs)
        tables |= found.fleets(logs, notes) | {"fleet_gaps": gaps}
    on_step("adding up topics and days")
    tables |= found.totals(logs.intervals)
    limiters = judge_limiters(_facts(tables))
    subjects = charted(limiters, tables["topics"])
    own = list(pictures(limiters, tables["topics"]).values())
    on_step("drawing rates")
    tables |= found.drawn(logs, subjects, own)
    if notes is not None:
        tables |= found.sums_drawn(logs, notes, sum_subjects(judge_fleets(_facts(tables))))
    on_step("measuring waits, fairness and headroom")
    tables |= found.measured(logs, questions, notes)
    tables |= found.shared(logs, shared_limits(limiters))
    tables |= found.demanded(logs, wanted_limits(limiters))
    is_limited = any(limiter.containment != "no limit" for limiter in limiters)
    all_subjects = (
        sum(limiter.containment != "no limit" for limiter in limiters) if is_limited else len(tables["topics"])
    )
    shown = len({(subject.proxy_id, subject.direction, subject.level, subject.name) for subject in subjects})
    more = {"charts_left_out": all_subjects - shown, "left_out": found.left_out, "objective": questions.objective}
    return _facts(tables | more | {"proposals": list(questions.proposals)})


def _facts(tables: Mapping[str, Any]) -> facts.Facts:
    empty: dict[str, Any] = {
        name: [] for name in ("runs", "gaps", "quarantine", "limiters", "containment", "entitlement", "topics", "usage")
    }
    return facts.Facts(read_at=datetime.now(UTC), **(empty | dict(tables)))


class ReportTables:
    """Runs the sums; remembers which tables had more rows than it returns."""

    def __init__(self) -> None:
        self.left_out: dict[str, int] = {}

    def rows(
        self, name: str, frame: DataFrame, kind: type[T], *order: Column | str, most: int = MOST_LISTED
    ) -> list[T]:
        """Return the first rows of a table in that order, as values; ties are in the order of their other names."""
        first = frame.orderBy(*order, *_names(frame)).limit(most + 1).collect()
        if len(first) > most:
            self.left_out[name] = frame.count() - most
        return [msgspec.convert(row.asDict(recursive=True), kind) for row in first[:most]]

    def quality(self, logs: Logs) -> _Tables:
        """Facts on how much of the log is there."""
        kept = logs.tables
        steps = logs.clock_steps.groupBy(*BOOT).agg(F.count("*").alias("clock_steps"))
        newer = logs.unknown.where("is_newer").groupBy(*BOOT).agg(F.count("*").alias("newer"))
        more = [malformed_of(kept.quarantine, logs.lines), steps, newer]
        more += [conflicts_of(kept.rows, kept.copies)] if kept.duplicates else []
        covered = run_facts(kept.runs, kept.gaps, logs.lines, logs.others, more)
        runs = self.rows("runs", covered, facts.RunFacts, "coverage", "first", most=MOST_RUNS)
        groups = kept.quarantine.groupBy("file", "reason").agg(
            F.count("*").alias("lines"), F.substring(F.min("text"), 1, 300).alias("example")
        )
        missing = gap_facts(kept.gaps, logs.lines)
        is_gapped = any(run.missing for run in runs)
        order = (F.desc("lines"), "file", "reason")
        changed = trends.change_facts(logs.of("change"), logs.limits)
        return {
            "runs": marked(runs, datetime.now(UTC) + AHEAD),
            "passed_over": kept.passed_over,
            "unread": kept.unread,
            "clock_steps": self.rows("clock_steps", logs.clock_steps, facts.ClockStepFacts, "first", "proxy_id"),
            "standstills": self.rows("standstills", _standstills(logs), facts.StandstillFacts, "start", "proxy_id"),
            "newer": [
                *self.rows("newer", newer_facts(logs.unknown), facts.NewerFacts, F.desc("lines")),
                *(facts.NewerFacts(what=f"field {name}", lines=lines) for name, lines in sorted(kept.newer.items())),
            ],
            "gaps": self.rows("gaps", missing, facts.GapFacts, "until", "proxy_id", "boot_id") if is_gapped else [],
            "quarantine": self.rows("quarantine", groups, facts.QuarantineFacts, *order),
            "losses": self.rows("losses", trends.loss_facts(logs.of("loss")), figures.LossFacts, "lost_from"),
            "changes": self.rows("changes", changed, figures.ChangeFacts, "at", "name"),
        }

    def judged(self, logs: Logs, objective: float) -> _Tables:
        """Return the limits, or the worst ones of too many, with their worst windows, and the burn of budgets."""
        judged = judged_limiters(logs.limits, logs.intervals, _notes(logs)).persist()
        limiters = rates.limiter_facts(logs.limits).persist()
        try:
            windows = judged.where(F.col("facts").isNotNull())
            tables = self.limits(limiters, windows)
            broken = outsiders(logs.intervals, logs.limits, logs.of("change")).unionByName(
                falsely_exempt(logs.intervals, logs.limits)
            )
            if any(limiter.level == "role" for limiter in tables["limiters"]):
                roles = rates.role_facts(logs.limits, logs.intervals)
                tables["roles"] = self.rows("roles", roles, facts.RoleFacts, "name", most=MOST_LIMITS)
            tables["doubts"] += self.rows("doubts", broken, facts.DoubtFacts, "name")
            minutes = judged.where(F.col("minute").isNotNull())
            burned = trends.burn_facts(minutes, objective)
            return tables | {"burn": self.rows("burn", burned, figures.BurnFacts, F.desc("worst"), "tenant")}
        finally:
            judged.unpersist()
            limiters.unpersist()

    def fleets(self, logs: Logs, notes: FleetNotes) -> _Tables:
        """Return what fleets passed together, of limits nearest to a violation, and how shares changed."""
        shares = logs.of("share")
        sums = fleet_sums(logs.limits, notes).persist()
        try:
            worst = sums.orderBy(F.desc("score"), *LIMITER[2:], "unit").limit(MOST_LISTED + 1).collect()
            if len(worst) > MOST_LISTED:
                self.left_out["fleet_sums"] = sums.count() - MOST_LISTED
        finally:
            sums.unpersist()
        return {
            "fleet_sums": [msgspec.msgpack.decode(row.facts, type=facts.FleetSumFacts) for row in worst[:MOST_LISTED]],
            "share_changes": self.rows(
                "share_changes", share_change_facts(shares), facts.ShareChangeFacts, "fleet", "proxy_id", "cause"
            ),
        }

    def limits(self, limiters: DataFrame, windows: DataFrame) -> _Tables:
        """Facts of all limiters, or of the worst ones.

        Args:
            limiters: As `LimiterFacts`.
            windows: The rows of `judged_limiters` with facts.
        """
        keys = limiters.select(*rates.LIMIT_KEY).unionByName(windows.select(*rates.LIMIT_KEY)).distinct()
        more = keys.count() - MOST_LIMITS
        if more > 0:
            self.left_out["limiters"] = more
            worst = worst_limits(limiters, windows, MOST_LIMITS)
            limiters, windows = (
                frame.join(worst, on=list(rates.LIMIT_KEY), how="left_semi") for frame in (limiters, windows)
            )
        results = results_of(windows.orderBy(*LIMITER).collect())
        alone = [result.alone for result in results if result.alone is not None]
        removed = {limiter_run(result.kept): result.removed for result in results if result.removed}
        of_lines = [
            msgspec.structs.replace(limiter, removed=removed.get(limiter_run(limiter)))
            for limiter in all_rows(limiters, facts.LimiterFacts)
        ]
        return {
            "limiters": [*of_lines, *alone],
            "containment": [window for result in results for window in result.windows],
            "entitlement": [result.entitlement for result in results if result.entitlement is not None],
            "doubts": [doubt for result in results for doubt in result.doubts],
            "kept": [result.kept for result in results if result.kept.lines],
        }

    def totals(self, intervals: DataFrame) -> _Tables:
        """Topics and days."""
        topics, days = rates.topic_facts(intervals), rates.usage_facts(intervals)
        tenants = rates.tenant_day_facts(intervals)
        busiest = (F.desc("throttled_s"), F.desc("passed_messages"), "topic", "direction")
        by_day = ("day", "tenant", "namespace", "topic", "direction")
        return {
            "topics": self.rows("topics", topics, facts.TopicFacts, *busiest, most=MOST_TOPICS),
            "usage": self.rows("usage", days, facts.UsageFacts, *by_day, most=MOST_USAGE),
            "tenant_days": self.rows(
                "tenant_days", tenants, figures.TenantDayFacts, "day", "tenant", "direction", most=MOST_USAGE
            ),
        }

    def drawn(self, logs: Logs, subjects: list[Subject], own: list[Subject]) -> _Tables:
        """Rates of the charts' subjects, and of the tenants' own pages."""
        limited = sorted({_key(subject) for subject in subjects if subject.proxy_id})
        peaks = rates.peak_facts(logs.limits, local_frame(logs.limits.sparkSession, limited, _KEYS))
        by = (*rates.LIMIT_KEY, "unit", "step_s")
        facts_of_rates = self.rates(logs, list(dict.fromkeys((*subjects, *own))))
        of = {
            name: {(*_key(subject), subject.step_s) for subject in shown}
            for name, shown in (("rates", subjects), ("tenant_rates", own))
        }
        return {
            **{name: [row for row in facts_of_rates if (*_key(row), row.step_s) in keys] for name, keys in of.items()},
            "peaks": self.rows("peaks", peaks, figures.PeakFacts, *by) if limited else [],
        }

    def rates(self, logs: Logs, subjects: list[Subject]) -> list[figures.RateFacts]:
        """Rates of limits, and of topics without one."""
        kinds = (
            [subject for subject in subjects if subject.proxy_id],
            [subject for subject in subjects if not subject.proxy_id],
        )
        order = (*rates.LIMIT_KEY, "step_s", "step")
        facts_of_rates: list[figures.RateFacts] = []
        for members in filter(None, kinds):
            spans = local_frame(logs.limits.sparkSession, list(map(_span, members)), _KEYS | _SPAN)
            levels = {subject.level for subject in members}
            drawn = (
                rates.limiter_rates(logs.limits, logs.intervals, spans, levels)
                if members is kinds[0]
                else rates.topic_rates(logs.intervals, spans)
            )
            facts_of_rates += self.rows("rates", drawn, figures.RateFacts, *order, most=MOST_STEPS * 3 * len(members))
        return facts_of_rates

    def sums_drawn(self, logs: Logs, notes: FleetNotes, subjects: list[SumSubject]) -> _Tables:
        """Rates of what fleets passed together."""
        if not subjects:
            return {}
        rows_of_spans = [(subject.fleet, *_span(subject)[1:]) for subject in subjects]
        keys = dict.fromkeys(("fleet", *rates.LIMIT_KEY[1:]), "string")
        spans = local_frame(logs.limits.sparkSession, rows_of_spans, keys | _SPAN)
        used, streams = in_fleets(logs.limits, notes), of_members(logs.intervals, notes)
        drawn = rates.fleet_rates(used, streams, spans, {subject.level for subject in subjects})
        order = ("fleet", *rates.LIMIT_KEY, "step_s", "step")
        most = MOST_STEPS * 3 * len(subjects)
        return {"fleet_rates": self.rows("fleet_rates", drawn, figures.FleetRateFacts, *order, most=most)}

    def measured(self, logs: Logs, questions: ExtraQuestions, notes: FleetNotes | None) -> _Tables:
        """Figures without a verdict."""
        limits, intervals, pauses = logs.limits, logs.intervals, logs.of("throttle")
        used = limits if notes is None else in_fleets(limits, notes)
        tables: _Tables = {
            "episodes": self.rows(
                "episodes",
                waiting.episode_facts(limits),
                figures.EpisodeFacts,
                F.desc(F.round("throttled_s", 9)),
                "name",
            ),
            "delays_by_reason": self.rows(
                "delays_by_reason",
                waiting.delay_facts(intervals, by_topic=False),
                figures.DelayFacts,
                "direction",
                "reason",
            ),
            "delays_by_topic": self.rows(
                "delays_by_topic",
                waiting.delay_facts(intervals, by_topic=True),
                figures.DelayFacts,
                F.desc("delay_sum_ms"),
                F.desc("delay_max_ms"),
                "topic",
            ),
            "impacts": self.rows(
                "impacts",
                impact.impact_facts(intervals),
                figures.ImpactFacts,
                F.desc(F.col("level").isNull()),
                F.desc(F.col("topic").isNull()),
                F.desc(F.col("late_messages") + F.col("rejected_messages")),
                F.desc("throttled_s"),
                most=MOST_IMPACTS,
            ),
            "observed": self.rows(
                "observed", impact.observed_facts(limits), figures.ObservedFacts, F.desc("would_throttle_s"), "name"
            ),
            "pauses": self.rows("pauses", waiting.pause_facts(pauses), figures.PauseFacts, F.desc("total_s")),
            "refusals": self.rows(
                "refusals", waiting.refusal_facts(logs.of("reject")), figures.RefusalFacts, F.desc("rejected"), "reason"
            ),
            "neighbours": self.rows(
                "neighbours",
                waiting.neighbour_facts(intervals, pauses),
                figures.NeighbourFacts,
                F.desc("ratio"),
                "offender",
            ),
            "headroom": self.rows(
                "headroom", trends.headroom_facts(used), figures.HeadroomFacts, F.desc("peak"), "name"
            ),
        }
        if questions.proposals:
            of = None if notes is None else what_if.MemberLines(of_members(intervals, notes), of_members(limits, notes))
            replayed = what_if.replay_facts(intervals, list(questions.proposals), of)
            order = (F.desc("held_messages"), F.desc("offered_messages"), "name")
            tables["replays"] = self.rows("replays", replayed, figures.ReplayFacts, *order)
        return tables

    def shared(self, logs: Logs, limits: list[LimiterVerdict]) -> _Tables:
        """Shares of the members of shared limits."""
        if not limits:
            return {}
        units = [(*_key(limit), "bytes" if limit.limit_messages is None else "messages") for limit in limits]
        wanted = local_frame(logs.lines.sparkSession, units, _KEYS | {"unit": "string"})
        members = waiting.fairness_facts(logs.limits, logs.intervals, wanted, {limit.level for limit in limits})
        order = (F.desc(F.col("fair") - F.col("got")), "name", "member")
        return {"fairness": self.rows("fairness", members, figures.FairnessFacts, *order)}

    def demanded(self, logs: Logs, limits: list[LimiterVerdict]) -> _Tables:
        """Return the demand at limits that held or refused."""
        if not limits:
            return {}
        owners = [(*_key(limit), "" if limit.is_shared else limit.proxy_id) for limit in limits]
        wanted = local_frame(logs.lines.sparkSession, owners, _KEYS | {"owner": "string"})
        demands = impact.demand_facts(logs.intervals, wanted, {limit.level for limit in limits})
        return {"demands": self.rows("demands", demands, figures.DemandFacts, "name")}


def notes_of_fleets(logs: Logs) -> tuple[FleetNotes, list[facts.FleetGapFacts]]:
    """Tell which run was in which fleet, and when it was cut off, as `fleet_notes`; none that shared is left out."""
    shares = logs.of("share")
    turns = share_turns(shares).orderBy(*BOOT, "seq").limit(MOST_NOTES).collect()
    clocks = member_clocks(share_clocks(shares).orderBy(*BOOT, "epoch").limit(MOST_NOTES).collect())
    beats = logs.of("heartbeat").where("fleet is not null and fleet != ''").select(*BOOT, "fleet").distinct()
    fleets = {(row.proxy_id, row.boot_id): row.fleet for row in beats.limit(MOST_NOTES).collect()}
    lives = {run: (clock.first_us, clock.last_us) for run, clock in logs.clocks.items()}
    notes, gaps = fleet_notes(turns, lives, clocks, fleets)
    sharing = sharing_runs(logs.limits).orderBy(*BOOT).limit(MOST_NOTES).collect()
    members = {*notes.fleets, *((row.proxy_id, row.boot_id) for row in sharing)}
    return replace(notes, fleets={run: notes.fleet(run) for run in members}), gaps


def worst_limits(limiters: DataFrame, windows: DataFrame, most: int) -> DataFrame:
    """Return the keys of the limits that come nearest to a violation, or are in one; then those waited on longest."""
    scores = windows.select(*rates.LIMIT_KEY, "score", F.lit(0.0).alias("waits"))
    waits = limiters.select(*rates.LIMIT_KEY, F.lit(None).cast("double").alias("score"), F.col("throttled_s"))
    either = scores.unionByName(waits.withColumnRenamed("throttled_s", "waits"))
    worst = either.groupBy(*rates.LIMIT_KEY).agg(F.max("score").alias("score"), F.sum("waits").alias("waits"))
    order = (F.desc_nulls_last("score"), F.desc("waits"), *rates.LIMIT_KEY)
    return worst.orderBy(*order).limit(most).select(*rates.LIMIT_KEY)


def _standstills(logs: Logs) -> DataFrame:
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    lasted = (F.col("duration_ms") / 1e3).alias("lasted_s")
    return logs.of("standstill").select(*BOOT, *times, lasted, F.struct("file", "seq", "line").alias("line"))


def _notes(logs: Logs) -> dict[tuple[str, str], RunNotes]:
    """Return notes of each run that has no end, or in which limits changed or lines are missing."""
    changes: defaultdict[tuple[str, str], list[Changed]] = defaultdict(list)
    holes: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    still: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    spans = logs.of("standstill").select(*BOOT, "start_us", "end_us")
    for row in spans.limit(MOST_NOTES).collect():
        still[row.proxy_id, row.boot_id].append((row.start_us, row.end_us))
    key, texts = F.struct("what", "setting", "name"), F.struct("before", "after")
    of_changes = logs.of("change").select(*BOOT, "seq", "end_us", key.alias("key"), texts.alias("texts"))
    for row in of_changes.limit(MOST_NOTES).collect():
        if (change := changed(row.seq, row.end_us, tuple(row.key), tuple(row.texts))) is not None:
            changes[row.proxy_id, row.boot_id].append(change)
    for row in logs.tables.gaps.select(*BOOT, "after_seq", "missing").limit(MOST_NOTES).collect():
        holes[row.proxy_id, row.boot_id].append(row.after_seq + row.missing + 1)
    for row in logs.unknown.where("is_newer").select(*BOOT, "seq").limit(MOST_NOTES).collect():
        holes[row.proxy_id, row.boot_id].append(row.seq)
    runs = logs.tables.runs.where(~F.col("has_ended")).select(*BOOT).limit(MOST_NOTES).collect()
    late_us = F.unix_micros("end") - F.unix_micros(F.coalesce("complete_until", "end"))
    beats = logs.of("heartbeat").groupBy(*BOOT).agg(F.max(F.col("end_us") - late_us)).limit(MOST_NOTES).collect()
    complete = {(proxy_id, boot_id): until_us for proxy_id, boot_id, until_us in beats}
    unended = {run: complete.get(run, 0) for run in map(tuple, runs)}
    return {
        run: RunNotes(
            has_begin=0 not in holes[run],
            changed=sorted(changes[run]),
            holes=sorted(holes[run]),
            still_us=sorted(still[run]),
            complete_us=unended.get(run),
        )
        for run in {*changes, *holes, *still, *unended}
    }


def removal(limiter: facts.LimiterFacts) -> figures.ChangeFacts | None:
    """Return the end of a limit that has no value any more, and so no further lines; None if it has one."""
    if limiter.removed is None:
        return None
    limits = limiter.shared_messages or limiter.limit_messages, limiter.shared_bytes or limiter.limit_bytes
    values = zip(limits, ("messages", "bytes"), strict=True)
    return figures.ChangeFacts(
        at=limiter.removed,
        kind="limit",
        proxy_id=limiter.proxy_id,
        what=f"{limiter.direction} {limiter.level}",
        name=limiter.name,
        before=", ".join(f"{limit:,.12g} {unit}/s" for limit, unit in values if limit is not None),
        after="",
        who="",
    )


def limiter_run(facts_of_one: facts.LimiterRunKey) -> tuple[str, ...]:
    """Return the key of a limiter in one run."""
    return tuple(getattr(facts_of_one, name) for name in LIMITER)


def all_rows(frame: DataFrame, kind: type[T]) -> list[T]:
    """Return a table of limits that is bounded already, in an order that is the same in every run."""
    order = [*LIMITER, *(name for name in ("unit", "is_peak", "basis") if name in frame.columns)]
    return [msgspec.convert(row.asDict(recursive=True), kind) for row in frame.orderBy(*order).collect()]


def _names(frame: DataFrame) -> list[str]:
    """Return the columns that distinguish rows. No fractions: their sums differ with the order of adding."""
    return [field.name for field in frame.schema if isinstance(field.dataType, (StringType, IntegerType, LongType))]


def _span(subject: Subject) -> tuple[str | float, ...]:
    return (*_key(subject), subject.step_s, subject.first.timestamp(), subject.last.timestamp())


def _key(limit: Subject | LimiterVerdict | figures.RateFacts) -> tuple[str, str, str, str]:
    return (limit.proxy_id, limit.direction, limit.level, limit.name)
