"""The time axis of each run: its monotonic clock, placed by the wall clock of the run's first line.

Order, gaps and lengths come from the axis. So a step of the wall clock changes none of them: it only shows as a change
of `end` less `mono_us` from one moment of the log to the next one.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.figures.sums import Grouping, Latest, Sum, with_columns
from compliance.judging.facts import ClockStepFacts, LinePlace
from compliance.schema import BOOT, STEP_S
from compliance.session import local_frame


class RunClock(NamedTuple):
    """The axis of a run, microseconds.

    Args:
        ahead_us: The lead of the wall clock over the monotonic one at the run's first moment.
        first_us: The end of its first line, on the axis.
        last_us: The end of its last line, on the axis.
    """

    ahead_us: int
    first_us: int
    last_us: int

    def ahead_by(self, ahead_us: int) -> "RunClock":
        """Return the same times on an axis on which the wall clock has another lead."""
        more_us = ahead_us - self.ahead_us
        return RunClock(ahead_us, self.first_us + more_us, self.last_us + more_us)


Clocks = Mapping[tuple[str, str], RunClock]


_SOURCE = (*BOOT, "file")
_MOMENTS = Grouping((*_SOURCE, "mono_us"), latest=(Latest(("before",), ("ahead_us", "end", "seq", "line")),))
_COLUMNS = (*BOOT, "mono_us", "end", "seq", "file", "line")


def _moments(lines: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Return the moments at which lines of a run end, in the order of each file, and which are the first of one."""
    lines = lines.filter(lines["mono_us"].is_valid())  # lines of newer kinds have none
    ahead_us = pc.subtract(lines["end"].cast(pa.int64()), lines["mono_us"])
    moments = _MOMENTS.of(with_columns(lines, ahead_us=ahead_us, before=pc.negate(lines["seq"])))
    moments = moments.sort_by([(name, "ascending") for name in _MOMENTS.keys])
    is_first = np.ones(len(moments), np.bool_)
    same = [pc.equal(moments[name].slice(1), moments[name].slice(0, max(0, len(moments) - 1))) for name in _SOURCE]
    is_first[1:] = ~reduce(pc.and_, same).to_numpy()
    return moments, is_first


def _steps(lines: pa.Table) -> pa.Table:
    moments, is_first = _moments(lines)
    after = np.flatnonzero(~is_first)
    return _stepped(moments.take(after), moments.take(after - 1))


def _stepped(after: pa.Table, before: pa.Table) -> pa.Table:
    size_s = pa.array((after["ahead_us"].to_numpy() - before["ahead_us"].to_numpy()) / 1e6)
    both = with_columns(after, size_s=size_s, end_before=before["end"], mono_us_before=before["mono_us"])
    return both.filter(pc.greater(pc.abs(size_s), STEP_S))


def _spans(lines: pa.Table) -> pa.Table:
    moments, is_first = _moments(lines)
    last = moments.take(np.flatnonzero(np.append(is_first[1:], [True] * (len(moments) > 0))))
    of_last = {f"last_{name}": last[name] for name in ("mono_us", "ahead_us", "end")}
    return with_columns(moments.filter(is_first), **of_last)


_OF_STEP = ("size_s", "end_before", "mono_us_before", "end", "seq", "line")
CLOCK_STEPS = Sum(_COLUMNS, _steps, Grouping((*_MOMENTS.keys, *_OF_STEP)))
"""Steps of wall clocks within the lines of a file that a task read together."""
_OF_SPAN = ("ahead_us", "end", "seq", "line", "last_mono_us", "last_ahead_us", "last_end")
CLOCK_SPANS = Sum(_COLUMNS, _spans, Grouping((*_MOMENTS.keys, *_OF_SPAN)))
"""The first and the last moment of each run in such lines."""


def clocks_of(spans: pa.Table) -> Clocks:
    """Return the axis of each run."""
    runs = Grouping(BOOT, most=("last_mono_us",), latest=(Latest(("before",), ("mono_us", "ahead_us")),))
    return {
        (row["proxy_id"], row["boot_id"]): RunClock(
            row["ahead_us"], row["ahead_us"] + row["mono_us"], row["ahead_us"] + row["last_mono_us"]
        )
        for row in runs.of(with_columns(spans, before=pc.negate(spans["mono_us"]))).to_pylist()
    }


def on_axes(clocks: Clocks, ahead_us: Mapping[tuple[str, str], int]) -> Clocks:
    """Return the axes of runs; those that have one already keep it.

    Args:
        clocks: The axes by the lines that are there.
        ahead_us: Per run the lead of its wall clock at its first moment, by lines that may no longer be there.
    """
    return {run: clock.ahead_by(ahead_us.get(run, clock.ahead_us)) for run, clock in clocks.items()}


def step_facts(steps: pa.Table, spans: pa.Table) -> list[ClockStepFacts]:
    """Find the steps of wall clocks: in lines that were read together, and between such lines.

    Where files overlap in time, several may show one step.
    """
    in_order = spans.sort_by([(name, "ascending") for name in (*BOOT, "mono_us")]).to_pylist()
    rows = steps.to_pylist()
    last: dict[str, Any] = {}
    for span in in_order:
        if not last or any(last[name] != span[name] for name in BOOT):
            last = span
            continue
        size_s = (span["ahead_us"] - last["last_ahead_us"]) / 1e6
        if span["mono_us"] > last["last_mono_us"] and abs(size_s) > STEP_S:
            before = {"end_before": last["last_end"], "mono_us_before": last["last_mono_us"]}
            rows.append(span | before | {"size_s": size_s})
        last = max(last, span, key=itemgetter("last_mono_us"))
    facts: list[ClockStepFacts] = []
    until: dict[tuple[str, str], int] = {}
    for row in sorted(rows, key=itemgetter("mono_us", "mono_us_before", "seq")):
        run = row["proxy_id"], row["boot_id"]
        if row["mono_us_before"] >= until.get(run, row["mono_us_before"]):
            until[run] = row["mono_us"]
            place = LinePlace(file=row["file"], seq=row["seq"], line=row["line"])
            times = {"first": row["end_before"], "last": row["end"]}
            facts.append(ClockStepFacts(proxy_id=run[0], boot_id=run[1], size_s=row["size_s"], line=place, **times))
    return facts


def with_axis(lines: DataFrame, clocks: Clocks) -> DataFrame:
    """Add `start_us` and `end_us`: begin and end of each line on its run's axis."""
    rows = [(*run, clock.ahead_us) for run, clock in clocks.items()]
    columns = {**dict.fromkeys(BOOT, "string"), "run_ahead_us": "long"}
    ahead = F.broadcast(local_frame(lines.sparkSession, rows, columns))
    end = F.col("mono_us") + F.coalesce("run_ahead_us", F.lit(0))
    start = end - F.round(F.col("duration_ms") * 1e3).cast("long")
    joined = lines.join(ahead, on=list(BOOT), how="left")
    return joined.withColumns({"start_us": start, "end_us": end}).drop("run_ahead_us")


def placed(lines: pa.Table, clocks: Clocks) -> pa.Table:
    """Add `start_us` and `end_us`, as `with_axis`."""
    ahead_us = of_runs(lines, lambda run: clocks[run].ahead_us if run in clocks else 0, pa.int64())
    end_us = pc.add(lines["mono_us"], ahead_us)
    lasts_us = pc.round(pc.multiply(lines["duration_ms"], 1e3), round_mode="half_towards_infinity").cast(pa.int64())
    return with_columns(lines, start_us=pc.subtract(end_us, lasts_us), end_us=end_us)


def of_runs(lines: pa.Table, value: Callable[[tuple[str, str]], Any], kind: pa.DataType) -> pa.Array:
    """Return a value of each line's run."""
    runs = pc.binary_join_element_wise(lines["proxy_id"], lines["boot_id"], "\n").combine_chunks().dictionary_encode()
    proxies = (run.partition("\n") for run in runs.dictionary.to_pylist())
    return pa.array([value((proxy, boot)) for proxy, _, boot in proxies], kind).take(runs.indices)


def on_axis(lines: pa.Table, clocks: Clocks) -> list[dict[str, Any]]:
    """Return few lines as rows, with `start_us` and `end_us` as `with_axis`."""
    rows: list[dict[str, Any]] = lines.to_pylist()
    for row in rows:
        clock = clocks.get((row["proxy_id"], row["boot_id"]))
        row["end_us"] = row["mono_us"] + (clock.ahead_us if clock else 0)
        row["start_us"] = row["end_us"] - round(row["duration_ms"] * 1e3)
    return rows
