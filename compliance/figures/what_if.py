"""The replay of proposed limits: read from a file, replayed over the log."""

import re
import stat
from collections.abc import Collection, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.figures.limits import LIMIT_KEY
from compliance.figures.rates import scoped, spread, whole_limit
from compliance.figures.scopes import LEVEL_WORDS, SCOPED_BY
from compliance.schema import OBSERVED, rfc3339, seconds
from compliance.session import local_frame
from limiter.levels import SHAREABLE
from protocol.yaml_text import YamlTextError, read_yaml_text

MOST_PROPOSALS = 100
_MOST_BYTES = 1024 * 1024
DEFAULT_BURST_S = 0.1
"""A tenth of a second's worth, Sluice's own default."""
_LONGEST_SHOWN = 100
_BELONGS = {
    "float": "a number of messages or bytes per second, as 80 or 0.5 (30 a minute are 0.5),",
    "str": "text",
    "array": "a list of proposed limits, as [{level: topic, messages: 80}],",
    "object": "a section of keys, as {level: topic, messages: 80},",
}
"""The value that belongs in a place, by msgspec's word for the type that it expected there."""
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `(\w+)")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class ProposalError(Exception):
    """The file of proposed limits cannot be used, for a reason that its author can mend."""


class Proposal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One proposed limit. On each proxy, each name that fits it has a limit of its own; members of a fleet share it."""

    level: str
    """`proxy`, `tenant`, `namespace`, `resource_group`, `partitioned_topic`, `topic`, `subscription`, `producer`,
    `role` or `address`."""
    name: str = "*"
    """A name as in limit lines: a topic's full name, `tenant/namespace`, `producer@topic` …; `*`: any text."""
    direction: str = "publish"
    """`publish` or `dispatch`."""
    messages: float | None = None
    """Messages per second; null for no limit of messages."""
    bytes: float | None = None
    """Bytes per second."""
    burst_messages: float | None = None
    """Capacity of the bucket; null for a tenth of a second's worth."""
    burst_bytes: float | None = None


class Proposals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    limits: list[Proposal]


def _content(file: Path) -> bytes:
    status = file.stat()  # before it is opened: a FIFO would be waited for, and a device may have no end
    if not stat.S_ISREG(status.st_mode):
        raise ProposalError(f"--what-if {file}: is a device, pipe or folder; write the proposals into a file")
    if status.st_size > _MOST_BYTES:
        raise ProposalError(f"--what-if {file}: has {status.st_size} bytes, at most {_MOST_BYTES} are read")
    return file.read_bytes()


def read_proposals(file: Path) -> list[Proposal]:
    """Return the limits of a YAML file.

    Raises:
        ProposalError: If it cannot be read or does not fit; one line that names file, place and remedy.
    """
    try:
        content = read_yaml_text(_content(file))
        proposals = msgspec.convert(content, Proposals, strict=False).limits
    except OSError as error:
        raise ProposalError(f"--what-if {file}: cannot be read: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise ProposalError(f"--what-if {file}: {_explained(str(error), content)}") from error
    except YamlTextError as error:
        raise ProposalError(f"--what-if {file}: {error}") from error
    if not 0 < len(proposals) <= MOST_PROPOSALS:
        raise ProposalError(f"--what-if {file}: limits: give 1 to {MOST_PROPOSALS}, not {len(proposals)}")
    for place, proposal in enumerate(proposals):
        if fault := _fault(proposal):
            raise ProposalError(f"--what-if {file}: limits[{place}]: {fault}")
    return proposals


def _explained(error: str, content: object) -> str:
    """Return the key, its value and the value that belongs there, from an error of msgspec."""
    problem, _, where = error.partition(" - at `")
    place = where.rstrip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    key = f"{place}: " if place else ""
    if unknown := _UNKNOWN.fullmatch(problem):
        fields = (Proposal if place else Proposals).__struct_fields__
        return f"{key}{unknown[1]}: this key is not known here; known are {', '.join(fields)}"
    if missing := _MISSING.fullmatch(problem):
        return f"{key}{missing[1]}: this key must be given here"
    expected = _EXPECTED.match(problem)
    if not expected or expected[1] not in _BELONGS or where.startswith("key`"):
        return f"{key}{problem}"
    return f"{key}{repr(_at(content, place))[:_LONGEST_SHOWN]}: {_BELONGS[expected[1]]} belongs here"


def _at(content: Any, place: str) -> Any:
    for number, key in _STEP.findall(place):
        content = content[int(number) if number else key]
    return content


def _fault(proposal: Proposal) -> str | None:
    if proposal.level not in LEVEL_WORDS:
        return f"level: {proposal.level!r} is none of {', '.join(LEVEL_WORDS)}"
    if proposal.direction not in ("publish", "dispatch"):
        return f"direction: {proposal.direction!r} is neither publish nor dispatch"
    if proposal.messages is None and proposal.bytes is None:
        return "messages and bytes: give at least one of them"
    numbers = ("messages", "bytes", "burst_messages", "burst_bytes")
    bad = [name for name in numbers if not (getattr(proposal, name) is None or 0 < getattr(proposal, name) < 1e15)]
    if bad:
        return f"{bad[0]}: give a number above 0 and below 1e15"
    lone = [
        unit for unit in ("messages", "bytes") if getattr(proposal, f"burst_{unit}") and not getattr(proposal, unit)
    ]
    return f"burst_{lone[0]}: there is no limit of {lone[0]} that it could be of" if lone else None


SECOND = 1
"""Seconds in which arrivals at all members of a fleet are added up."""
KEY = ("proposal", *LIMIT_KEY, "fleet")
_UNITS = ("messages", "bytes")
_COLUMNS = {"proposal": "int", "level": "string", "direction": "string", "pattern": "string"} | {
    f"{name}_{unit}": "double" for unit in _UNITS for name in ("limit", "burst")
}


class MemberLines(NamedTuple):
    """Lines with the fleets of their runs, as `fleets.of_members`.

    Args:
        streams: All lines of streams.
        limits: All lines of limiters.
    """

    streams: DataFrame
    limits: DataFrame


def replay_facts(
    interval_lines: DataFrame, proposals: list[Proposal], of_fleets: MemberLines | None = None
) -> DataFrame:
    """Replay each proposed limit for each name that fits it, as `ReplayFacts`.

    Args:
        interval_lines: All lines of streams.
        proposals: Limits to replay.
        of_fleets: The lines again, where there are fleets: members share each limit of a level that can be shared.
    """
    table = _table(interval_lines, proposals)
    levels = {proposal.level for proposal in proposals}
    shareable = levels.intersection(SHAREABLE if of_fleets else ())
    arrivals = [_arrivals(_fitting(interval_lines, own, table))] if (own := levels - shareable) else []
    if of_fleets and shareable:
        lines = _fitting(of_fleets.streams, shareable, table, ("fleet", "duration_ms", *SCOPED_BY))
        arrivals.append(_arrivals(lines.where("fleet is null")))
        arrivals.append(_fleet_arrivals(lines.where("fleet is not null"), of_fleets.limits))
    return _summed(queued(reduce(DataFrame.unionByName, arrivals)))


def _table(lines: DataFrame, proposals: list[Proposal]) -> DataFrame:
    rows = [
        (
            place,
            proposal.level,
            proposal.direction,
            like(proposal.name),
            *_bucket(proposal.messages, proposal.burst_messages),
            *_bucket(proposal.bytes, proposal.burst_bytes),
        )
        for place, proposal in enumerate(proposals)
    ]
    return local_frame(lines.sparkSession, rows, _COLUMNS)


def like(name: str) -> str:
    """Return a name with stars as a pattern of SQL's LIKE."""
    return name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")


def _bucket(rate: float | None, burst: float | None) -> tuple[float | None, float | None]:
    return (rate, None) if rate is None else (float(rate), float(burst or max(1.0, rate * DEFAULT_BURST_S)))


def _fitting(lines: DataFrame, levels: Collection[str], table: DataFrame, more: Collection[str] = ()) -> DataFrame:
    """Return the lines of each name that a proposal fits, with the proposed limits."""
    own_limits = (F.col(f"limit_{unit}").alias(f"own_{unit}") for unit in _UNITS)
    of_names = scoped(lines, levels).select(*LIMIT_KEY, *_FLOWS, "start", "end", *own_limits, *more)
    return of_names.join(F.broadcast(table), on=["level", "direction"], how="inner").where(F.expr("name LIKE pattern"))


_FLOWS = (*(f"offered_{unit}" for unit in _UNITS), "throttled_ms")
_LIMITS = tuple(f"{name}_{unit}" for unit in _UNITS for name in ("limit", "burst"))


def _arrivals(fitting: DataFrame) -> DataFrame:
    """One row for each name and end of a line: what arrived by then, and how long the lines are."""
    own = [F.min(f"own_{unit}").alias(f"limit_now_{unit}") for unit in _UNITS]
    return (
        fitting.withColumn("fleet", F.lit(""))
        .groupBy(*KEY, *_LIMITS, "end")
        .agg(F.min("start").alias("start"), *_arrived(), F.lit(0).alias("members"), *own)
    )


def _arrived() -> Iterator[Column]:
    for unit in _UNITS:
        yield F.sum(f"offered_{unit}").alias(f"offered_{unit}")
    yield F.max("throttled_ms").alias("throttled_ms")


def _fleet_arrivals(fitting: DataFrame, limit_lines: DataFrame) -> DataFrame:
    """One row for each name of a fleet and second: what arrived at all members, from the first arrival to the last.

    Lines of members do not end in the same moment, so each counts in the seconds that it touches, spread evenly over
    its length. Members that together never get more than a limit gives have no second with more.
    """
    touched = spread(fitting.withColumn("step_s", F.lit(SECOND)), _FLOWS)
    begin, behind = (F.timestamp_seconds((F.col("step") + more) * F.col("step_s")) for more in (0, 1))
    of_members = touched.withColumns({"member_id": F.col("proxy_id"), "proxy_id": F.lit("")})
    arrivals = of_members.groupBy(*KEY, *_LIMITS, "step").agg(
        F.min(F.greatest("start", begin)).alias("start"),
        F.max(F.least("end", behind)).alias("end"),
        *_arrived(),
        F.size(F.collect_set("member_id")).alias("members"),
    )
    return arrivals.drop("step").join(_lowest_limits(fitting, limit_lines), on=list(KEY), how="left")


def _lowest_limits(fitting: DataFrame, limit_lines: DataFrame) -> DataFrame:
    """The lowest limit that the streams of each name of a fleet were under; streams' lines have shares only."""
    whole = (F.min(whole_limit(unit)).alias(f"limit_now_{unit}") for unit in _UNITS)
    limiter = ["fleet", *LIMIT_KEY[1:]]
    limits = limit_lines.where((F.col("mode") != OBSERVED) & F.col("fleet").isNotNull()).groupBy(*limiter).agg(*whole)
    renamed = {"level": "of_level", "name": "of_name"}
    streams = fitting.select(*KEY, *SCOPED_BY).withColumn("proxy_id", F.lit("")).distinct()
    under = scoped(streams.withColumnsRenamed(renamed)).join(limits, on=limiter, how="inner")
    back = under.drop(*renamed).withColumnsRenamed({now: before for before, now in renamed.items()})
    return back.groupBy(*KEY).agg(*(F.min(f"limit_now_{unit}").alias(f"limit_now_{unit}") for unit in _UNITS))


def queued(arrivals: DataFrame) -> DataFrame:
    """Add, for each unit, the backlog at the end of each line (`backlog_…`), and how long its last message waits."""
    by_end = Window.partitionBy(*KEY).orderBy("end")
    so_far = by_end.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.coalesce(F.lag("end").over(by_end), F.col("start"))
    # Lines that overlap the one before count from its end; time between lines earns like any other.
    timed = arrivals.withColumns(
        {
            "line_s": F.greatest(F.lit(0.0), seconds(F.col("end")) - seconds(F.greatest("start", before))),
            "idle_s": F.greatest(F.lit(0.0), seconds(F.col("start")) - seconds(before)),
        }
    )
    for unit in _UNITS:
        timed = _with_backlog(timed, unit, so_far)
    waits = (F.try_divide(F.col(f"backlog_{unit}"), F.col(f"limit_{unit}")) for unit in _UNITS)
    return timed.withColumn("wait_s", F.coalesce(F.greatest(*waits), F.lit(0.0)))


def _with_backlog(lines: DataFrame, unit: str, so_far: WindowSpec) -> DataFrame:
    rate, offered = F.col(f"limit_{unit}"), F.col(f"offered_{unit}")
    surplus = F.sum(offered - rate * (F.col("line_s") + F.col("idle_s"))).over(so_far)
    summed = lines.withColumn("surplus", surplus)
    before_line = F.col("surplus") - offered + rate * F.col("line_s")
    over = F.col("surplus") - F.min(before_line).over(so_far) - F.col(f"burst_{unit}")
    return summed.withColumn(f"backlog_{unit}", F.greatest(over, F.lit(0.0))).drop("surplus")


def _summed(lines: DataFrame) -> DataFrame:
    waits = F.col("wait_s") > 0
    # Of a fleet's second it may be part of a message.
    offered = F.ceil("offered_messages")
    waited_ms = F.percentile("wait_s", F.array(*map(F.lit, (0.5, 0.95, 0.99))), offered)
    sums = lines.groupBy(*KEY).agg(
        F.max("members").alias("members"),
        *(F.round(F.sum(f"offered_{unit}")).cast("long").alias(f"offered_{unit}") for unit in _UNITS),
        F.round(F.coalesce(F.sum(F.when(waits, F.col("offered_messages"))), F.lit(0)))
        .cast("long")
        .alias("held_messages"),
        F.coalesce(F.max("backlog_messages"), F.lit(0.0)).alias("backlog_messages"),
        waited_ms.alias("waits"),
        (F.max("wait_s") * 1e3).alias("delay_max_ms"),
        F.coalesce(F.sum(F.when(waits, F.col("line_s"))), F.lit(0.0)).alias("queued_s"),
        (F.max_by("wait_s", "end") * 1e3).alias("left_ms"),
        rfc3339(F.min(F.when(waits, F.col("start")))).alias("first_at"),
        (F.sum("throttled_ms") / 1e3).alias("censored_s"),
        *(F.min(f"limit_now_{unit}").alias(f"limit_now_{unit}") for unit in _UNITS),
    )
    delays = [
        (F.coalesce(F.get("waits", F.lit(place)), F.lit(0.0)) * 1e3).alias(f"delay_{name}_ms")
        for place, name in enumerate(("p50", "p95", "p99"))
    ]
    return sums.select("*", *delays).drop("waits")
