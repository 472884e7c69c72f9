"""Runs the sums of every section on Spark and returns plain values, never more than one machine can hold."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType

from compliance.excerpt import WHOLE_LOG, Excerpt
from compliance.figures import facts as figures
from compliance.figures import rates, traffic, trends, what_if
from compliance.figures.limits import LIMIT_KEY, episode_facts, headroom_facts, limiter_facts, observed_facts
from compliance.figures.shards import figures_by_limit
from compliance.figures.sums import Grouping
from compliance.figures.wanted import COLUMNS, Wanted, wanted_figures, wanted_lines
from compliance.figures.what_if import Proposal
from compliance.judging import facts, quality
from compliance.judging.change_watch import removed_us
from compliance.judging.clocks import step_facts
from compliance.judging.days import doubts_of_days
from compliance.judging.facts import AHEAD
from compliance.judging.fleets import (
    FleetNotes,
    fleet_sums,
    in_fleets,
    of_members,
    share_change_facts,
)
from compliance.judging.judge import MINUTES, Notes, results_of, worst_limits
from compliance.judging.quality import run_of
from compliance.judging.verdict import LimiterVerdict, judge_fleets, judge_limiters
from compliance.logs import Logs
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
from compliance.schema import BOOT, LIMITER
from compliance.session import local_frame

MOST_LIMITS = 20_000
MOST_TOPICS = 20_000
MOST_USAGE = 200_000
MOST_RUNS = 10_000
MOST_IMPACTS = 5_000
MOST_LISTED = 1_000
"""Rows of every other table that come out of Spark: the worst rows."""

_KEYS = dict.fromkeys(LIMIT_KEY, "string")
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
        excerpt: The part of the log that is asked about.
    """

    objective: float = 0.999
    proposals: tuple[Proposal, ...] = ()
    excerpt: Excerpt = WHOLE_LOG


def collect(logs: Logs, questions: ExtraQuestions, on_step: Callable[[str], None]) -> facts.Facts:
    """Collect all facts that the report needs.

    Args:
        logs: The lines.
        questions: The reader's further questions.
        on_step: Called with the name of the next step.
    """
    report_tables = ReportTables()
    on_step("checking that the log is complete")
    tables = report_tables.quality(logs)
    notes = None
    if logs.has_fleets:
        on_step("judging what fleets passed together")
        notes, gaps = logs.fleets
        tables |= report_tables.fleets(logs, notes) | {"fleet_gaps": gaps}
    on_step("judging the limits")
    judged = logs.judged()
    tables |= report_tables.judged(logs, judged) | report_tables.burn(judged, questions.objective)
    tables["changes"] += [event for limiter in tables["limiters"] if (event := removal(limiter))]
    on_step("adding up topics and days")
    tables |= report_tables.totals(logs.sums)
    limiters = judge_limiters(_facts(tables))
    subjects = charted(limiters, tables["topics"])
    own = list(pictures(limiters, tables["topics"]).values())
    on_step("drawing rates")
    tables |= report_tables.drawn(logs, limiters, subjects, own)
    if notes is not None:
        tables |= report_tables.sums_drawn(logs, notes, sum_subjects(judge_fleets(_facts(tables))))
    on_step("measuring waits and headroom")
    tables |= report_tables.measured(logs, judged, questions, notes)
    is_limited = any(limiter.containment != "no limit" for limiter in limiters)
    all_subjects = (
        sum(limiter.containment != "no limit" for limiter in limiters) if is_limited else len(tables["topics"])
    )
    shown = len({(subject.proxy_id, subject.direction, subject.level, subject.name) for subject in subjects})
    more = {
        "charts_left_out": all_subjects - shown,
        "left_out": report_tables.left_out,
        "objective": questions.objective,
    }
    return _facts(tables | more | {"proposals": list(questions.proposals), "excerpt": logs.excerpt})


def verdicts_of(logs: Logs, judged: Mapping[str, pa.Table]) -> list[LimiterVerdict]:
    """Return the verdicts on all limits, the gravest first.

    Args:
        logs: The lines.
        judged: As `judge.Judging.of`.
    """
    report_tables = ReportTables()
    return judge_limiters(_facts(report_tables.quality(logs) | report_tables.judged(logs, judged)))


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

    def kept(
        self, name: str, table: pa.Table, kind: type[T], order: dict[str, str], most: int = MOST_LISTED
    ) -> list[T]:
        """Return the first rows of a sum in an order of columns; ties are in the order of their other names."""
        is_name = {
            field.name: pa.types.is_string(field.type) or pa.types.is_integer(field.type) for field in table.schema
        }
        ties = dict.fromkeys((column for column, is_one in is_name.items() if is_one), "ascending")
        places = {"ascending": "at_start", "descending": "at_end"}
        keys = [(column, way, places[way]) for column, way in (order | {**ties, **order}).items()]
        self._leave_out(name, len(table) - most)
        first = table.take(pc.sort_indices(table, sort_keys=keys)[:most])
        return [msgspec.convert(row, kind) for row in first.to_pylist()]

    def first(self, name: str, values: Iterable[T], key: Callable[[T], Any], most: int = MOST_LISTED) -> list[T]:
        """Return the first of some facts in order."""
        in_order = sorted(values, key=key)
        self._leave_out(name, len(in_order) - most)
        return in_order[:most]

    def _leave_out(self, name: str, more: int) -> None:
        if more > 0:
            self.left_out[name] = more

    def quality(self, logs: Logs) -> _Tables:
        """Facts on how much of the log is there."""
        kept, sums = logs.tables, logs.sums
        malformed = logs.malformed
        steps = step_facts(sums["clock_steps"], sums["clock_spans"])
        if not logs.excerpt.is_whole:  # these lines have no time
            malformed = malformed.filter(pc.is_in(malformed["file"], sums["runs_of_files"]["file"].combine_chunks()))
        unknown = sums["unknown"].to_pylist()
        more = {
            "malformed": quality.malformed_of(malformed, sums["runs_of_files"]),
            "clock_steps": Counter((step.proxy_id, step.boot_id) for step in steps),
            "newer": Counter(run_of(row) for row in unknown if row["is_newer"]),
            "conflicts": quality.conflicts_of(kept.rows.lines, kept.copies) if kept.duplicates else {},
        }
        runs = quality.run_facts(kept.runs, kept.gaps, sums, more, logs.begun)
        runs = self.first("runs", runs, attrgetter("coverage", "first", *BOOT), MOST_RUNS)
        kinds = Counter(row["kind"] for row in unknown).items()
        newer = (facts.NewerFacts(what=kind, lines=lines) for kind, lines in kinds)
        standstills = quality.standstill_facts(sums["standstills"])
        groups = quality.quarantine_facts(malformed)
        gaps = quality.gap_facts(kept.gaps, sums["after_gaps"])
        return {
            "runs": quality.marked(runs, datetime.now(UTC) + AHEAD),
            "passed_over": kept.passed_over,
            "unread": kept.unread,
            "clock_steps": self.first("clock_steps", steps, attrgetter("first", *BOOT)),
            "standstills": self.first("standstills", standstills, attrgetter("start", *BOOT)),
            "newer": [
                *self.first("newer", newer, lambda row: (-row.lines, row.what)),
                *(facts.NewerFacts(what=f"field {name}", lines=lines) for name, lines in sorted(kept.newer.items())),
            ],
            "gaps": self.first("gaps", gaps, attrgetter("until", *BOOT, "after_seq")),
            "quarantine": self.first("quarantine", groups, lambda group: (-group.lines, group.file, group.reason)),
            "losses": self.kept("losses", sums["losses"], figures.LossFacts, {"lost_from": "ascending"}),
        }

    def judged(self, logs: Logs, judged: Mapping[str, pa.Table]) -> _Tables:
        """Return the limits, or the worst ones of too many, with their worst windows, and what changed.

        Args:
            logs: The lines.
            judged: As `judge.Judging.of`.
        """
        limiters = limiter_facts(judged["limiters"], judged["configured"])
        tables = self.limits(results_of(judged["judged"]), limiters, logs.notes)
        broken = (
            msgspec.msgpack.decode(doubt, type=facts.DoubtFacts) for doubt in judged["outside"]["facts"].to_pylist()
        )
        tables["doubts"] += self.first(
            "doubts", doubts_of_days(broken), attrgetter("name", *BOOT, "direction", "level", "what")
        )
        roles = {
            (limiter.proxy_id, limiter.direction, limiter.name)
            for limiter in tables["limiters"]
            if limiter.level == "role"
        }
        proofs = traffic.role_facts(logs.sums["roles"], roles)
        values = [msgspec.convert(row, figures.ChangeFacts) for row in judged["values"].to_pylist()]
        settings = trends.set_facts(logs.sums["changes"], logs.excerpt)
        return tables | {
            "roles": self.first("roles", proofs, attrgetter("name", "proxy_id", "direction"), MOST_LIMITS),
            "changes": self.first("changes", [*settings, *values], attrgetter("at", "name")),
        }

    def burn(self, judged: Mapping[str, pa.Table], objective: float) -> _Tables:
        """Return the burn rates of budgets.

        Args:
            judged: As `judge.Judging.of`.
            objective: Share of time in which promises should be kept.
        """
        burned = trends.burn_facts(MINUTES.of(judged["minutes"]), objective)
        return {"burn": self.first("burn", burned, lambda burn: (-burn.worst, burn.tenant, burn.promise, burn.long_s))}

    def fleets(self, logs: Logs, notes: FleetNotes) -> _Tables:
        """Return what fleets passed together, of limits nearest to a violation, and how shares changed."""
        shares = logs.shares
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

    def limits(self, results: list[facts.Judged], limiters: pa.Table, notes: Notes, most: int = MOST_LIMITS) -> _Tables:
        """Facts of all limiters, or of the worst ones.

        Args:
            results: Of all limiters.
            limiters: As `LimiterFacts`.
            notes: Notes of the runs.
            most: The most limits.
        """
        limits = Grouping(LIMIT_KEY).of(limiters.select(list(LIMIT_KEY)))
        worst = worst_limits(results, limiters, most)
        if worst is not None:
            limiters = limiters.join(worst, list(LIMIT_KEY), join_type="left semi")
            keys = {tuple(row.values()) for row in worst.to_pylist()}
            known = {tuple(row.values()) for row in limits.to_pylist()} | {_key(result.kept) for result in results}
            self._leave_out("limiters", len(known) - len(keys))
            results = [result for result in results if _key(result.kept) in keys]
        alone = [result.alone for result in results if result.alone is not None]
        removed = {
            limiter_run(result.kept): facts.moment(at_us)
            for result in results
            if (at_us := _removed_us(result, notes)) is not None
        }
        of_lines = [
            msgspec.convert(row | {"removed": removed.get(tuple(row[name] for name in LIMITER))}, facts.LimiterFacts)
            for row in limiters.sort_by([(name, "ascending") for name in LIMITER]).to_pylist()
        ]
        return {
            "limiters": [*of_lines, *alone],
            "containment": [window for result in results for window in result.windows],
            "entitlement": [result.entitlement for result in results if result.entitlement is not None],
            "doubts": [doubt for result in results for doubt in result.doubts],
            "kept": [result.kept for result in results if result.kept.lines],
        }

    def totals(self, sums: Mapping[str, pa.Table]) -> _Tables:
        """Topics and days."""
        busiest = {"throttled_s": "descending", "passed_messages": "descending", "topic": "ascending"}
        by_day = dict.fromkeys(("day", "tenant", "namespace", "topic", "direction"), "ascending")
        by_tenant = dict.fromkeys(("day", "tenant", "direction"), "ascending")
        topics, tenant_days = traffic.topic_facts(sums["streams"]), traffic.tenant_day_facts(sums["minutes"])
        return {
            "topics": self.kept("topics", topics, facts.TopicFacts, busiest, MOST_TOPICS),
            "usage": self.kept("usage", sums["days"], facts.UsageFacts, by_day, MOST_USAGE),
            "tenant_days": self.kept("tenant_days", tenant_days, figures.TenantDayFacts, by_tenant, MOST_USAGE),
        }

    def drawn(self, logs: Logs, limiters: list[LimiterVerdict], subjects: list[Subject], own: list[Subject]) -> _Tables:
        """Figures of some limits: rates of charts and of the tenants' own pages, shares of members, and demand.

        Args:
            logs: The lines.
            limiters: The verdicts on all limits.
            subjects: The subjects of charts.
            own: Those of tenants' own pages.
        """
        spans = sorted({_span(subject) for subject in (*subjects, *own)})
        wanted = Wanted(
            limits=[span for span in spans if span[0]],
            topics=[span for span in spans if not span[0]],
            peaks=sorted({_key(subject) for subject in subjects if subject.proxy_id}),
            shared=[
                (*_key(limit), "bytes" if limit.limit_messages is None else "messages")
                for limit in shared_limits(limiters)
            ],
            demands=[(*_key(limit), "" if limit.is_shared else limit.proxy_id) for limit in wanted_limits(limiters)],
        )
        if not any(msgspec.structs.astuple(wanted)):
            return {}
        parts_of, figures_of = partial(wanted_lines, wanted=wanted), partial(wanted_figures, wanted=wanted)
        tables = figures_by_limit(logs.tables.rows, COLUMNS, parts_of, figures_of, logs.shards)
        most = MOST_STEPS * 3 * len(spans)
        in_order = dict.fromkeys((*LIMIT_KEY, "step_s", "step"), "ascending")
        rates = self.kept("rates", tables["rates"], figures.RateFacts, in_order, most)
        of = {
            name: {(*_key(subject), subject.step_s) for subject in shown}
            for name, shown in (("rates", subjects), ("tenant_rates", own))
        }
        by_unit = dict.fromkeys((*LIMIT_KEY, "unit", "step_s"), "ascending")
        most_lacking = {"lacks": "descending", "name": "ascending", "member": "ascending"}
        return {
            **{name: [row for row in rates if (*_key(row), row.step_s) in keys] for name, keys in of.items()},
            "peaks": self.kept("peaks", tables["peaks"], figures.PeakFacts, by_unit),
            "fairness": self.kept("fairness", tables["fairness"], figures.FairnessFacts, most_lacking),
            "demands": self.kept("demands", tables["demands"], figures.DemandFacts, {"name": "ascending"}),
        }

    def sums_drawn(self, logs: Logs, notes: FleetNotes, subjects: list[SumSubject]) -> _Tables:
        """Rates of what fleets passed together."""
        if not subjects:
            return {}
        rows_of_spans = [(subject.fleet, *_span(subject)[1:]) for subject in subjects]
        keys = dict.fromkeys(("fleet", *LIMIT_KEY[1:]), "string")
        spans = local_frame(logs.limits.sparkSession, rows_of_spans, keys | _SPAN)
        used, streams = in_fleets(logs.limits, notes), of_members(logs.intervals, notes)
        drawn = rates.fleet_rates(used, streams, spans, {subject.level for subject in subjects})
        order = ("fleet", *LIMIT_KEY, "step_s", "step")
        most = MOST_STEPS * 3 * len(subjects)
        return {"fleet_rates": self.rows("fleet_rates", drawn, figures.FleetRateFacts, *order, most=most)}

    def measured(
        self, logs: Logs, judged: Mapping[str, pa.Table], questions: ExtraQuestions, notes: FleetNotes | None
    ) -> _Tables:
        """Figures without a verdict."""
        limits, intervals, sums = logs.limits, logs.intervals, logs.sums
        pauses = traffic.of_connections(sums["pauses"], sums["streams"]) if logs.excerpt.tenant else sums["pauses"]
        clients, waits = sums["clients"], sums["client_waits"]
        by_reason, by_topic = (traffic.delay_facts(clients, waits, by_topic=which) for which in (False, True))
        tables: _Tables = {
            "episodes": self.kept(
                "episodes",
                episode_facts(judged["episodes"], judged["in_force"]),
                figures.EpisodeFacts,
                {"order_s": "descending", "name": "ascending"},
            ),
            "delays_by_reason": self.kept(
                "delays_by_reason", by_reason, figures.DelayFacts, {"direction": "ascending", "reason": "ascending"}
            ),
            "delays_by_topic": self.kept(
                "delays_by_topic",
                by_topic,
                figures.DelayFacts,
                {"delay_sum_ms": "descending", "delay_max_ms": "descending", "topic": "ascending"},
            ),
            "impacts": self.kept(
                "impacts",
                traffic.impact_facts(clients, waits),
                figures.ImpactFacts,
                {"rank": "ascending", "failed_messages": "descending", "throttled_s": "descending"},
                MOST_IMPACTS,
            ),
            "observed": self.kept(
                "observed",
                observed_facts(judged["observed"]),
                figures.ObservedFacts,
                {"would_throttle_s": "descending", "name": "ascending"},
            ),
            "pauses": self.kept("pauses", traffic.pause_facts(pauses), figures.PauseFacts, {"total_s": "descending"}),
            "refusals": self.kept(
                "refusals", traffic.refusal_facts(sums["refusals"]), figures.RefusalFacts, {"rejected": "descending"}
            ),
            "neighbours": traffic.neighbour_facts(sums["streams"], sums["pauses"]),
            "headroom": self.kept(
                "headroom",
                headroom_facts(judged["use"], judged["used"]),
                figures.HeadroomFacts,
                {"peak": "descending", "name": "ascending"},
            ),
        }
        if questions.proposals:
            of = None if notes is None else what_if.MemberLines(of_members(intervals, notes), of_members(limits, notes))
            replayed = what_if.replay_facts(intervals, list(questions.proposals), of)
            order = (F.desc("held_messages"), F.desc("offered_messages"), "name")
            tables["replays"] = self.rows("replays", replayed, figures.ReplayFacts, *order)
        return tables


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


def _removed_us(result: facts.Judged, notes: Notes) -> int | None:
    run = notes.get((result.kept.proxy_id, result.kept.boot_id))
    if run is None or not run.changed or result.last is None:
        return None
    own = run.of_limiter(result.kept.direction, result.kept.level, result.kept.name)
    return removed_us(own.values, result.last)


def limiter_run(facts_of_one: facts.LimiterRunKey) -> tuple[str, ...]:
    """Return the key of a limiter in one run."""
    return tuple(getattr(facts_of_one, name) for name in LIMITER)


def _names(frame: DataFrame) -> list[str]:
    """Return the columns that distinguish rows. No fractions: their sums differ with the order of adding."""
    return [field.name for field in frame.schema if isinstance(field.dataType, (StringType, IntegerType, LongType))]


def _span(subject: Subject) -> tuple[str | float, ...]:
    return (*_key(subject), subject.step_s, subject.first.timestamp(), subject.last.timestamp())


def _key(limit: Subject | LimiterVerdict | figures.RateFacts | facts.KeptFacts) -> tuple[str, str, str, str]:
    return (limit.proxy_id, limit.direction, limit.level, limit.name)
