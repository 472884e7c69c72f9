"""Rate against limit over time, one inline SVG a topic."""

import io
import re
from collections.abc import Iterator
from datetime import UTC
from itertools import groupby

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from msgspec import Struct

from compliance.facts import RateFacts
from compliance.numbers import quantity

# Told apart by line style and weight as well as by colour; the colours are Okabe and Ito's.
PASSED, OFFERED, LIMIT = "#0072b2", "#7a5c00", "#b03a00"


class Chart(Struct, frozen=True, kw_only=True):
    """One picture and what it shows."""

    topic: str
    direction: str
    unit: str
    step_s: int
    svg: str
    description: str
    """The same in words, for those who cannot see it."""


def charts(rates: list[RateFacts]) -> Iterator[Chart]:
    """A chart for each topic and direction in `rates`, which are ordered by them."""
    for (topic, direction), steps in groupby(rates, key=lambda rate: (rate.topic, rate.direction)):
        yield _chart(topic, direction, list(steps))


def chart_unit(steps: list[RateFacts]) -> str:
    """The unit whose limit is used more; messages where there is no limit."""

    def use(unit: str) -> float:
        limited = [step for step in steps if getattr(step, f"limit_{unit}")]
        used = (getattr(step, f"passed_{unit}") / getattr(step, f"limit_{unit}") for step in limited)
        return sum(used) / len(limited) if limited else -1.0

    return max(("messages", "bytes"), key=use)


def filled(steps: list[RateFacts], unit: str) -> tuple[list[int], dict[str, list[float | None]]]:
    """Every step from first to last: nothing passed where no line is; the limit holds until a line says otherwise."""
    by_step = {step.step: step for step in steps}
    numbers = list(range(steps[0].step, steps[-1].step + 1))
    series: dict[str, list[float | None]] = {"offered": [], "passed": [], "limit": []}
    limit: float | None = None
    for number in numbers:
        step = by_step.get(number)
        limit = getattr(step, f"limit_{unit}") if step else limit
        series["offered"].append(getattr(step, f"offered_{unit}") if step else 0.0)
        series["passed"].append(getattr(step, f"passed_{unit}") if step else 0.0)
        series["limit"].append(limit)
    return numbers, series


def _chart(topic: str, direction: str, steps: list[RateFacts]) -> Chart:
    unit = chart_unit(steps)
    numbers, series = filled(steps, unit)
    step_s = steps[0].step_s
    # Matplotlib counts in days.
    edges = [number * step_s / 86400 for number in (*numbers, numbers[-1] + 1)]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"{topic} {direction}", "font.size": 11}):
        figure = Figure(figsize=(5.6, 2.9), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, edges, series)
        axes.set_ylabel(f"{unit}/s")
        image = io.StringIO()
        figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    description = _description(series, unit)
    return Chart(
        topic=topic,
        direction=direction,
        unit=unit,
        step_s=step_s,
        description=description,
        svg=_inline(image.getvalue()),
    )


def _draw(axes: Axes, edges: list[float], series: dict[str, list[float | None]]) -> None:
    def steps(name: str) -> list[float]:
        return [float("nan") if value is None else value for value in series[name]]

    axes.stairs(steps("offered"), edges, color=OFFERED, linewidth=1.2, linestyle=":", label="offered", baseline=None)
    axes.stairs(steps("passed"), edges, color=PASSED, linewidth=2.2, label="passed", baseline=None)
    if any(value is not None for value in series["limit"]):
        axes.stairs(
            steps("limit"), edges, color=LIMIT, linewidth=1.6, linestyle="--", label="limit", baseline=None, zorder=3
        )
    axes.set_ylim(0, axes.get_ylim()[1] * 1.04)
    axes.set_xlim(edges[0], edges[-1])
    locator = AutoDateLocator(minticks=3, maxticks=6, tz=UTC)  # type: ignore[no-untyped-call]  # matplotlib's own lack
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]  # the same
    axes.xaxis.set_major_formatter(formatter)
    axes.yaxis.set_major_formatter(lambda value, _: quantity(value))
    axes.grid(axis="y", color="#d8dde3", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)


def _description(series: dict[str, list[float | None]], unit: str) -> str:
    highest = {
        name: max((value for value in values if value is not None), default=None) for name, values in series.items()
    }
    said = [f"{name} at most {quantity(value)} {unit}/s" for name, value in highest.items() if value is not None]
    return "Rate over time: " + ", ".join(said) + "."


def _inline(svg: str) -> str:
    """The picture without the prolog of a file and without its fixed size."""
    head, rest = svg[svg.index("<svg") :].split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + rest
