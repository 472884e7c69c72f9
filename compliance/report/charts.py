"""Rate against limit over time, one inline SVG for each limit and resolution."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from types import MappingProxyType

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from msgspec import Struct

from compliance.figures.facts import LimitKey, RateFacts
from compliance.report.sections import Event
from compliance.report.words import quantity

# Told apart by line style and weight as well as by colour; the colours are Okabe and Ito's.
PASSED, OFFERED, LIMIT, BAND, WRONG = "#0072b2", "#7a5c00", "#b03a00", "#f3d9c8", "#8c1a6a"
MOST_MARKS = 12
LEAST_WIDTH = 0.006
"""Share of the axis below which a window would not be seen."""
HEADROOM = 1.18
"""Of the highest value: above it stand the numbers of changes, and hide nothing."""
NEAR = 0.04
"""Share of the axis below which two labels would overlap."""
Series = dict[str, list[float | None]]
Windows = Mapping[tuple[str, str, str, str], Sequence[tuple[datetime, datetime]]]
"""By proxy, direction, level and name: begin and end of the windows in which a promise was broken worst."""


class Mark(Struct, frozen=True, kw_only=True):
    """Something that happened, by its number in the list of changes."""

    number: int
    proxy_id: str
    at_s: float
    """Seconds since 1970."""


class Chart(LimitKey, frozen=True, kw_only=True):
    """One picture and what it shows."""

    unit: str
    step_s: int
    svg: str
    description: str
    """The same in words, for those who cannot see it."""


def charts(
    rates: list[RateFacts], events: Sequence[Event] = (), broken: Windows = MappingProxyType({})
) -> Iterator[Chart]:
    """A chart for each limit and length of steps in `rates`, which are ordered by them; the longer steps first.

    Args:
        rates: What is drawn.
        events: What happened; a chart shows those of its own proxy, a topic without a limit all.
        broken: What is shaded.
    """
    marks = [
        Mark(number=number, proxy_id=event.proxy_id, at_s=event.at.timestamp())
        for number, event in enumerate(events, 1)
    ]
    for key, rows in groupby(rates, key=lambda rate: (rate.proxy_id, rate.direction, rate.level, rate.name)):
        by_step = groupby(rows, key=lambda rate: rate.step_s)
        views = [list(steps) for _, steps in by_step]
        mine = [mark for mark in marks if key[0] in ("", mark.proxy_id)]
        for steps in reversed(views):
            yield _chart(steps, mine, broken.get(key, ()))


def chart_unit(steps: list[RateFacts]) -> str:
    """The unit whose limit is used more; messages where there is no limit."""

    def use(unit: str) -> float:
        limited = [step for step in steps if getattr(step, f"limit_{unit}")]
        used = (getattr(step, f"passed_{unit}") / getattr(step, f"limit_{unit}") for step in limited)
        return sum(used) / len(limited) if limited else -1.0

    return max(("messages", "bytes"), key=use)


def filled(steps: list[RateFacts], unit: str) -> tuple[list[int], Series]:
    """Every step from first to last: nothing passed where no line is; limit and burst hold until a line says otherwise.

    `burst` is the highest average that limit and burst allow over one step.
    """
    by_step = {step.step: step for step in steps}
    numbers = list(range(steps[0].step, steps[-1].step + 1))
    series: Series = {"offered": [], "passed": [], "limit": [], "burst": []}
    limit, burst = None, None
    is_offered = any(getattr(step, f"offered_{unit}") is not None for step in steps)
    for number in numbers:
        step = by_step.get(number)
        if step:
            limit, burst = getattr(step, f"limit_{unit}"), getattr(step, f"burst_{unit}")
        offered = getattr(step, f"offered_{unit}") if step else None
        series["offered"].append((offered or 0.0) if is_offered else None)
        series["passed"].append(getattr(step, f"passed_{unit}") if step else 0.0)
        series["limit"].append(limit)
        series["burst"].append(None if limit is None else limit + (burst or 0.0) / steps[0].step_s)
    return numbers, series


def _chart(steps: list[RateFacts], marks: list[Mark], broken: Sequence[tuple[datetime, datetime]]) -> Chart:
    unit = chart_unit(steps)
    numbers, series = filled(steps, unit)
    of, step_s = steps[0], steps[0].step_s
    # Matplotlib counts in days.
    edges = [number * step_s / 86400 for number in (*numbers, numbers[-1] + 1)]
    salt = f"{of.proxy_id} {of.direction} {of.level} {of.name} {step_s}"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 12}):
        figure = Figure(figsize=(5.2, 3.1), layout="constrained")
        axes = figure.add_subplot()
        _shade(axes, edges, broken)
        _draw(axes, edges, series)
        _mark(axes, edges, marks)
        axes.set_ylabel(f"{unit}/s")
        image = io.StringIO()
        figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return Chart(
        proxy_id=of.proxy_id,
        direction=of.direction,
        level=of.level,
        name=of.name,
        unit=unit,
        step_s=step_s,
        description=_description(series, unit),
        svg=_inline(image.getvalue()),
    )


def _draw(axes: Axes, edges: list[float], series: Series) -> None:
    def steps(name: str) -> list[float]:
        return [float("nan") if value is None else value for value in series[name]]

    def has(name: str) -> bool:
        return any(value is not None for value in series[name])

    if has("limit"):
        # Hatched as well as tinted: without colours it is still a band.
        axes.stairs(
            steps("burst"),
            edges,
            baseline=steps("limit"),
            fill=True,
            facecolor=BAND,
            edgecolor="#d9a283",
            hatch="////",
            linewidth=0,
            label="burst",
        )
    if has("offered"):
        axes.stairs(
            steps("offered"), edges, color=OFFERED, linewidth=1.2, linestyle=":", label="offered", baseline=None
        )
    axes.stairs(steps("passed"), edges, color=PASSED, linewidth=2.2, label="passed", baseline=None)
    if has("limit"):
        axes.stairs(
            steps("limit"), edges, color=LIMIT, linewidth=1.6, linestyle="--", label="limit", baseline=None, zorder=3
        )
    axes.set_ylim(0, axes.get_ylim()[1] * HEADROOM)
    axes.set_xlim(edges[0], edges[-1])
    locator = AutoDateLocator(minticks=3, maxticks=6, tz=UTC)  # type: ignore[no-untyped-call]  # matplotlib's own lack
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]  # the same
    axes.xaxis.set_major_formatter(formatter)
    axes.yaxis.set_major_formatter(lambda value, _: quantity(value))
    axes.grid(axis="y", color="#d8dde3", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=5,
        frameon=False,
        columnspacing=0.9,
        handlelength=1.4,
        handletextpad=0.5,
    )


def _shade(axes: Axes, edges: list[float], broken: Sequence[tuple[datetime, datetime]]) -> None:
    """The windows that lie in the picture, dotted as well as tinted; none is too narrow to be seen."""
    least = (edges[-1] - edges[0]) * LEAST_WIDTH
    label = "worst"
    for start, end in broken:
        begin, behind = start.timestamp() / 86400, end.timestamp() / 86400
        if begin < edges[-1] and behind > edges[0]:
            more = max(0.0, least - (behind - begin)) / 2
            axes.axvspan(
                max(begin - more, edges[0]),
                min(behind + more, edges[-1]),
                facecolor="#f2dcea",
                edgecolor=WRONG,
                hatch="..",
                linewidth=0.8,
                zorder=0,
                label=label,
            )
            label = "_"


def _mark(axes: Axes, edges: list[float], marks: list[Mark]) -> None:
    for at, label in labels(marks, edges[0], edges[-1])[:MOST_MARKS]:
        axes.axvline(at, color="#51606f", linewidth=0.9, linestyle="-.", zorder=1)
        axes.annotate(
            label,
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize=9,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "#51606f", "linewidth": 0.7},
        )


def labels(marks: Sequence[Mark], begin: float, end: float) -> list[tuple[float, str]]:
    """Days since 1970 and numbers of what happened in that time; what is too near to be told apart has one label."""
    near: list[tuple[float, list[int]]] = []
    for mark in sorted(marks, key=lambda one: one.at_s):
        at = mark.at_s / 86400
        if near and at - near[-1][0] < (end - begin) * NEAR:
            near[-1][1].append(mark.number)
        elif begin < at < end:
            near.append((at, [mark.number]))
    return [(at, str(of[0]) if len(of) == 1 else f"{of[0]}-{of[-1]}") for at, of in near]


def _description(series: Series, unit: str) -> str:
    highest = {
        name: max((value for value in series[name] if value is not None), default=None)
        for name in ("offered", "passed", "limit")
    }
    said = [f"{name} at most {quantity(value)} {unit}/s" for name, value in highest.items() if value is not None]
    return "Rate over time: " + ", ".join(said) + "."


def _inline(svg: str) -> str:
    """The picture without the prolog of a file and without its fixed size."""
    head, rest = svg[svg.index("<svg") :].split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + rest
