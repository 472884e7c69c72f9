"""Completeness of the log: duplicates, gaps, coverage. It bounds all else that the report can say.

A heartbeat *covers* its span if every line since the heartbeat before it is there. The last lines of a run that ends
without having said that it ends may be lost though no number is missing.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from accesslog.record import Kinds
from compliance.excerpt import Excerpt
from compliance.figures.sums import Grouping, Latest, Sum, itself, listed, ones, with_columns
from compliance.judging.facts import GapFacts, LinePlace, QuarantineFacts, RunFacts, StandstillFacts, cut_off
from compliance.schema import BOOT

RunId = tuple[str, str]
_NEWER_VERSION = rf"^({'|'.join(Kinds.BY_NAME)}) \(version \d+\)$"
"""The name of lines of a known kind and an unknown version; see `compliance.schema`."""


def run_of(row: Mapping[str, Any]) -> RunId:
    """Return the run of a row."""
    return row["proxy_id"], row["boot_id"]


def _ends(lines: pa.Table) -> pa.Table:
    begin_us = pc.subtract(
        lines["mono_us"],
        pc.round(pc.multiply(lines["duration_ms"], 1e3), round_mode="half_towards_infinity").cast(pa.int64()),
    )
    is_beat, is_counted = pc.equal(lines["kind"], "heartbeat"), pc.is_in(lines["kind"], pa.array(["interval", "limit"]))
    last = {"beat": pc.if_else(is_beat, lines["seq"], None), "counted": pc.if_else(is_counted, lines["seq"], None)}
    return with_columns(lines, begin_us=begin_us, lines=ones(lines), **last)


ENDS = Sum(
    (*BOOT, "kind", "seq", "mono_us", "end", "duration_ms"),
    _ends,
    Grouping(
        BOOT,
        sums=("lines",),
        least=("begin_us",),
        most=("beat", "counted"),
        latest=(Latest(("mono_us",), ("end",)),),
    ),
)
"""The begin and the end of each run, its last heartbeat and line of amounts, and how many lines it has."""


def ends_within(ends: pa.Table, excerpt: Excerpt) -> pa.Table:
    """Return the ends of runs, none of them after the end of a part of the log.

    Args:
        ends: As `ENDS`, of lines that begin in the part.
        excerpt: The part.
    """
    if excerpt.end is None:
        return ends
    beyond_us = pc.subtract(ends["end"].cast(pa.int64()), int(excerpt.times_us[1]))
    return with_columns(ends, mono_us=pc.subtract(ends["mono_us"], pc.max_element_wise(beyond_us, 0)))


BEATS = listed("heartbeat", "end", "mono_us", "duration_ms", "dropped_lines", "complete_until", "fleet")
LOSSES = listed("loss", "of_boot", "cause", "detail", "lost_lines", "lost_from", "lost_until")
STANDSTILLS = listed("standstill", "start", "end", "mono_us", "duration_ms", "file", "line")


def _unknown(lines: pa.Table) -> pa.Table:
    unknown = lines.filter(pc.invert(pc.is_in(lines["kind"], pa.array(list(Kinds.BY_NAME)))))
    is_newer = pc.match_substring_regex(unknown["kind"], _NEWER_VERSION)
    return with_columns(unknown, is_newer=is_newer, lines=ones(unknown))


UNKNOWN = Sum((*BOOT, "seq", "kind"), _unknown, Grouping((*BOOT, "seq", "kind", "is_newer"), sums=("lines",)))
"""Lines of kinds or versions that this report does not know; for the judging those of known kinds are missing."""


RUNS_OF_FILES = Sum(("file", *BOOT), itself, Grouping(("file", *BOOT)))
"""The runs that have lines in each file."""


def after_gaps(gaps: pa.Table) -> Sum:
    """Return the lines after gaps, by which the gaps are placed.

    Args:
        gaps: As `stream.ledger.gap_table`.
    """
    after = pc.add(pc.add(gaps["after_seq"], gaps["missing"]), 1)
    numbers = with_columns(gaps, seq=after).select([*BOOT, "seq"])
    columns = (*BOOT, "seq", "start", "file", "line")
    return Sum(columns, partial(_numbered, numbers), Grouping(columns))


def _numbered(numbers: pa.Table, lines: pa.Table) -> pa.Table:
    if not len(numbers):
        return lines.slice(0, 0)
    return lines.join(numbers, keys=[*BOOT, "seq"], join_type="left semi")


def gaps_within(gaps: pa.Table, after: pa.Table) -> pa.Table:
    """Return the gaps before some lines.

    Args:
        gaps: As `stream.ledger.gap_table`.
        after: As `after_gaps`.
    """
    numbers = {(*run_of(row), row["seq"]) for row in after.to_pylist()}
    within = [(*run_of(gap), gap["after_seq"] + gap["missing"] + 1) in numbers for gap in gaps.to_pylist()]
    return gaps.filter(pa.array(within, pa.bool_()))


def losses_within(losses: pa.Table, runs: Collection[RunId], excerpt: Excerpt) -> pa.Table:
    """Return the losses that may be of a part of the log: often only the next run says what one has lost.

    Args:
        losses: As `LOSSES`.
        runs: Those that have lines in the excerpt.
        excerpt: The part.
    """
    within = [
        (row["proxy_id"], row["of_boot"]) in runs
        and (excerpt.begin is None or row["lost_until"] >= excerpt.begin)
        and (excerpt.end is None or row["lost_from"] < excerpt.end)
        for row in losses.to_pylist()
    ]
    return losses.filter(pa.array(within, pa.bool_()))


def runs_within(runs: pa.Table, gaps: pa.Table, ends: pa.Table, excerpt: Excerpt) -> pa.Table:
    """Return the runs as far as they are in a part of the log.

    Lines behind the part show that those of the part were written, so a run that goes on counts as ended.

    Args:
        runs: As `stream.ledger.run_table`.
        gaps: Those in the excerpt.
        ends: As `ENDS`, of lines in the excerpt.
        excerpt: The part.
    """
    lines = {run_of(row): row["lines"] for row in ends.to_pylist()}
    missing: Counter[RunId] = Counter()
    for gap in gaps.to_pylist():
        missing[run_of(gap)] += gap["missing"]
    rows = []
    for row in runs.to_pylist():
        run, complete = run_of(row), row["complete_up_to"]
        if run not in lines:
            continue
        if excerpt.begin is not None:
            row["first"] = max(row["first"], excerpt.begin)
        if excerpt.end is not None and row["last"] > excerpt.end:
            row |= {"last": excerpt.end, "has_ended": True, "complete_up_to": complete and min(complete, excerpt.end)}
        rows.append(row | {"read": lines[run], "there": lines[run], "missing": missing[run]})
    return pa.Table.from_pylist(rows, runs.schema)


def gap_facts(gaps: pa.Table, after: pa.Table) -> list[GapFacts]:
    """Find where numbers are missing.

    Args:
        gaps: As `stream.ledger.gap_table`.
        after: As `after_gaps`.
    """
    lines = {(*run_of(row), row["seq"]): row for row in after.to_pylist()}
    facts = []
    for gap in gaps.to_pylist():
        if line := lines.get((*run_of(gap), gap["after_seq"] + gap["missing"] + 1)):
            place = LinePlace(file=line["file"], seq=line["seq"], line=line["line"])
            facts.append(msgspec.convert(gap | {"until": line["start"], "behind": place}, GapFacts))
    return facts


def standstill_facts(standstills: pa.Table) -> list[StandstillFacts]:
    """List the times in which proxies did nothing.

    Args:
        standstills: As `STANDSTILLS`.
    """
    return [
        StandstillFacts(
            proxy_id=row["proxy_id"],
            boot_id=row["boot_id"],
            start=row["start"],
            end=row["end"],
            lasted_s=row["duration_ms"] / 1e3,
            line=LinePlace(file=row["file"], seq=row["seq"], line=row["line"]),
        )
        for row in standstills.to_pylist()
    ]


def _malformed(lines: pa.Table) -> pa.Table:
    of_run = [pc.extract_regex(lines["text"], rf'"{name}"\s*:\s*"(?P<value>[^"\\]*)"') for name in BOOT]
    named = {f"own_{name}": pc.struct_field(match, "value") for name, match in zip(BOOT, of_run, strict=True)}
    return with_columns(lines, lines=ones(lines), **named)


MALFORMED = Sum(
    ("file", "reason", "text"),
    _malformed,
    Grouping(("file", "reason", *(f"own_{name}" for name in BOOT)), sums=("lines",), least=("text",)),
)
"""Malformed lines by file, reason, and the run that they name."""


def quarantine_facts(malformed: pa.Table) -> list[QuarantineFacts]:
    """List malformed lines by file and reason.

    Args:
        malformed: As `MALFORMED`.
    """
    groups = Grouping(("file", "reason"), sums=("lines",), least=("text",)).of(malformed)
    return [msgspec.convert(row | {"example": row["text"][:300]}, QuarantineFacts) for row in groups.to_pylist()]


def malformed_of(malformed: pa.Table, runs_of_files: pa.Table) -> Counter[RunId]:
    """Return per run how many malformed lines may be its own.

    A line that still names its run is that run's; another may be of each run that has lines in its file.
    """
    runs: defaultdict[str, list[RunId]] = defaultdict(list)
    for row in runs_of_files.to_pylist():
        runs[row["file"]].append(run_of(row))
    counts: Counter[RunId] = Counter()
    for row in malformed.to_pylist():
        own = row["own_proxy_id"], row["own_boot_id"]
        for run in [own] if all(own) else runs[row["file"]]:
            counts[run] += row["lines"]
    return counts


def conflicts_of(rows: DataFrame, copies: DataFrame) -> Counter[RunId]:
    """Return per run how many copies of lines are not the same as the line that was kept."""
    place = ("file", "line", "step", "day")
    fields = [name for name in copies.columns if name not in (*BOOT, "seq", *place)]
    contents = F.xxhash64(*(F.col(name).cast("string") for name in fields)).alias("content")
    keys = [*BOOT, "seq"]
    numbers = F.broadcast(copies.select(*keys).distinct())
    kept = rows.join(numbers, on=keys, how="left_semi").select(*keys, contents)
    both = copies.select(*keys, contents.alias("other")).join(kept, on=keys, how="inner")
    of_runs = both.where(F.col("content") != F.col("other")).groupBy(*BOOT).agg(F.count("*"))
    return Counter({(proxy_id, boot_id): number for proxy_id, boot_id, number in of_runs.collect()})


@dataclass
class _Cover:
    """The heartbeats of one run: seconds that they span, seconds covered, seconds in holes between them."""

    spanned_s: float = 0.0
    covered_s: float = 0.0
    holes_s: float = 0.0
    longest_s: float = 0.0
    first_us: float = 0.0
    last_us: int = 0

    @staticmethod
    def of(beats: Sequence[Mapping[str, Any]], holes: Sequence[Mapping[str, Any]], *, began_before: bool) -> "_Cover":
        """Add up heartbeats, in the order of their numbers; so are the holes.

        The first heartbeat of a run that began before these lines also counts lines that were dropped before them.
        """
        cover, lost, before, left = _Cover(), 0, None, list(reversed(holes))
        dropped = beats[0]["dropped_lines"] if beats and began_before else 0
        for beat in beats:
            lasts_s, mono_us = beat["duration_ms"] / 1e3, beat["mono_us"]
            now = lost
            # A hole has the number of the line before it, and comes after that line.
            while left and left[-1]["after_seq"] < beat["seq"]:
                now += left.pop()["missing"]
            is_whole = (now, beat["dropped_lines"]) == (lost, dropped)
            hole_s = (mono_us - before) / 1e6 - lasts_s if before is not None else 0.0
            begin_us = mono_us - lasts_s * 1e6
            cover.first_us = begin_us if before is None else min(cover.first_us, begin_us)
            cover.last_us = mono_us if before is None else max(cover.last_us, mono_us)
            cover.spanned_s += lasts_s
            cover.covered_s += lasts_s if is_whole else 0.0
            cover.holes_s += hole_s if hole_s > lasts_s / 2 else 0.0
            cover.longest_s = max(cover.longest_s, lasts_s)
            lost, dropped, before = now, beat["dropped_lines"], mono_us
        return cover

    def share(self, begin_us: int, end_us: int) -> float:
        """Return the share of a run's time that is covered."""
        edges_s = ((self.first_us - begin_us) / 1e6, (end_us - self.last_us) / 1e6)
        # Time since the last beat, less than a beat, is not silence; nor is it before the first.
        whole_s = self.spanned_s + self.holes_s + sum(edge for edge in edges_s if edge > self.longest_s)
        return self.covered_s / whole_s if whole_s else 0.0


def run_facts(
    runs: pa.Table,
    gaps: pa.Table,
    sums: Mapping[str, pa.Table],
    more: Mapping[str, Mapping[RunId, int]],
    begun: Collection[RunId] = frozenset(),
) -> list[RunFacts]:
    """Describe each run of each proxy.

    Args:
        runs: As `stream.ledger.run_table`.
        gaps: As `stream.ledger.gap_table`.
        sums: `ENDS`, `BEATS` and `LOSSES` as `ends`, `beats` and `losses`.
        more: Per run `malformed`, `conflicts`, `clock_steps` and `newer` (lines), where there are any.
        begun: Runs that began before these lines.
    """
    beats, holes = _by_run(sums["beats"], "seq"), _by_run(gaps, "after_seq")
    ends = {run_of(row): row for row in sums["ends"].to_pylist()}
    lossy = {(row["proxy_id"], row["of_boot"]) for row in sums["losses"].to_pylist() if row["lost_lines"] != 0}
    facts = []
    for row in runs.to_pylist():
        run = run_of(row)
        end, cover = ends.get(run), _Cover.of(beats[run], holes[run], began_before=run in begun)
        has_lines_after = end is not None and None not in (end["counted"], end["beat"]) and end["counted"] > end["beat"]
        values = row | {
            "lines": row["there"],
            "duplicates": row["read"] - row["there"],
            "coverage": cover.share(end["begin_us"], end["mono_us"]) if end and beats[run] else 0.0,
            "is_lossy": run in lossy,
            "ended": row["has_ended"],
            "has_tail": not row["has_ended"] and has_lines_after,
            "clock_steps": 0,
            **{name: counts.get(run, 0) for name, counts in more.items()},
        }
        facts.append(msgspec.convert(values, RunFacts))
    return facts


def _by_run(table: pa.Table, number: str) -> defaultdict[RunId, list[dict[str, Any]]]:
    of: defaultdict[RunId, list[dict[str, Any]]] = defaultdict(list)
    for row in table.sort_by(number).to_pylist():
        of[run_of(row)].append(row)
    return of


def marked(runs: list[RunFacts], horizon: datetime) -> list[RunFacts]:
    """Return the runs, with cut-off runs marked.

    Args:
        runs: All runs.
        horizon: The latest time that a correct clock may show.
    """
    cut = cut_off([run.end for run in runs], horizon)
    return [
        msgspec.structs.replace(run, is_cut_off=True) if (run.proxy_id, run.boot_id) in cut else run for run in runs
    ]
