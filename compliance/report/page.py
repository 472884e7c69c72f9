"""The report's files: one self-contained HTML page, JSON for programs, and every table as CSV for spreadsheets.

Names come from clients: everything is escaped. Charts show rate against limit over time, one inline SVG for each limit
and resolution.
"""

import base64
import csv
import hashlib
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from msgspec import Struct
from pyarrow import Table
from pyarrow.parquet import write_table

from compliance.figures.facts import LimitKey, PeakFacts, RateFacts
from compliance.figures.what_if import Proposal
from compliance.judging.facts import EntitlementFacts, TopicFacts, UsageFacts
from compliance.judging.verdict import FleetVerdict, LimiterVerdict, Verdict
from compliance.report.impact import MODES, Answers, of_tenant, sufficing
from compliance.report.report import Fleets, Report, away, cut_off, outsiders, remedy
from compliance.report.sections import Event
from compliance.report.subjects import (
    between,
    broken_for,
    charted_sums,
    clock,
    containment,
    delay,
    entitlement,
    late,
    limits_of,
    numbered,
    percent,
    quantity,
    rate,
    size,
    span,
    topics_of,
    unknown_for,
    unseen,
    whole,
    window,
)

# Told apart by line style and weight as well as by colour; the colours are Okabe and Ito's.
PASSED, OFFERED, LIMIT, BAND, WRONG = "#0072b2", "#7a5c00", "#b03a00", "#f3d9c8", "#8c1a6a"
MOST_MARKS = 12
LEAST_WIDTH = 0.006
"""Share of the axis below which a window would not be seen."""
HEADROOM = 1.18
"""The height of a plot, in parts of the highest value. The space above that value has the numbers of changes."""
MOST_ABOVE = 1.6
"""The height of a plot with a limit, in parts of what passed or was allowed: demand beyond it is cut off and named."""
SMOOTH_S = 10
"""Demand is drawn as a mean over this time: what a proxy reads comes in bursts, where it pauses reading in between."""
_COLOURS = {
    "#0072b2": "passed",
    "#7a5c00": "offered",
    "#b03a00": "limit",
    "#f3d9c8": "band",
    "#d9a283": "hatch",
    "#8c1a6a": "wrong",
    "#f2dcea": "worst",
    "#d8dde3": "line",
    "#51606f": "soft",
    "#000000": "ink",
    "#ffffff": "sheet",
}
"""Colours of pictures, and the page's variables for them: a dark page has others."""
NEAR = 0.04
"""Share of the axis below which two labels would overlap."""
Series = dict[str, list[float | None]]
Windows = Mapping[tuple[str, str, str, str], Sequence[tuple[datetime, datetime]]]
"""By proxy, direction, level and name: begin and end of the windows in which a promise was broken worst."""


class Mark(Struct, frozen=True, kw_only=True):
    """A mark on a chart: an event, by its number in the list of changes."""

    number: int
    proxy_id: str
    at_s: float
    """Seconds since 1970."""


class Chart(LimitKey, frozen=True, kw_only=True):
    """One picture and its data."""

    unit: str
    step_s: int
    svg: str
    description: str
    """The chart in words, for readers who cannot see it."""


def charts(
    rates: list[RateFacts], events: Sequence[Event] = (), broken: Windows = MappingProxyType({})
) -> Iterator[Chart]:
    """Draw a chart for each limit and length of steps in `rates`, which are ordered by these; longer steps come first.

    Args:
        rates: Rates to draw.
        events: Events to mark; a chart shows those of its own proxy, a topic without a limit shows all.
        broken: Windows to shade.
    """
    marks = [
        Mark(number=number, proxy_id=event.proxy_id, at_s=event.at.timestamp())
        for number, event in enumerate(events, 1)
    ]
    for key, rows in groupby(rates, key=lambda rate: (rate.proxy_id, rate.direction, rate.level, rate.name)):
        by_step = groupby(rows, key=lambda rate: rate.step_s)
        views = [list(steps) for _, steps in by_step]
        own_marks = [mark for mark in marks if key[0] in ("", mark.proxy_id)]
        for steps in reversed(views):
            yield _chart(steps, chart_unit(steps), own_marks, broken.get(key, ()))


def sum_charts(fleets: Fleets) -> Iterator[tuple[FleetVerdict, Chart]]:
    """Draw the charts of what fleets passed together in the order of the sums; of each, longer steps come first."""
    for verdict in charted_sums(fleets.sums):
        key = (verdict.fleet, verdict.direction, verdict.level, verdict.name)
        rates = [rate for rate in fleets.rates if (rate.fleet, rate.direction, rate.level, rate.name) == key]
        worst = [(verdict.start, verdict.end)] if verdict.verdict == "violated" else []
        views = [list(steps) for _, steps in groupby(rates, key=lambda rate: rate.step_s)]
        for steps in reversed(views):
            yield verdict, _chart(steps, verdict.unit, [], worst)


def chart_unit(steps: list[RateFacts]) -> str:
    """Return the unit whose limit is used more; messages where there is no limit."""

    def use(unit: str) -> float:
        limited = [step for step in steps if getattr(step, f"limit_{unit}")]
        used = (getattr(step, f"passed_{unit}") / getattr(step, f"limit_{unit}") for step in limited)
        return sum(used) / len(limited) if limited else -1.0

    return max(("messages", "bytes"), key=use)


def filled(steps: Sequence[RateFacts], unit: str) -> tuple[list[int], Series]:
    """Fill every step from first to last: nothing passed where no line is; limit and burst hold until the next line.

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


def _chart(
    steps: Sequence[RateFacts], unit: str, marks: list[Mark], broken: Sequence[tuple[datetime, datetime]]
) -> Chart:
    numbers, series = filled(steps, unit)
    limit, step_s = steps[0], steps[0].step_s
    # Matplotlib counts in days.
    edges = [number * step_s / 86400 for number in (*numbers, numbers[-1] + 1)]
    salt = f"{limit.proxy_id} {limit.direction} {limit.level} {limit.name} {step_s}"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 12}):
        figure = Figure(figsize=(5.2, 3.1), layout="constrained")
        axes = figure.add_subplot()
        _shade(axes, edges, broken)
        _draw(axes, edges, series)
        _mark(axes, edges, marks)
        axes.set_ylabel(f"{unit}/s")
        image = io.StringIO()
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Chart(
        proxy_id=limit.proxy_id,
        direction=limit.direction,
        level=limit.level,
        name=limit.name,
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
        demand = smoothed(steps("offered"), max(1, round(SMOOTH_S / ((edges[1] - edges[0]) * 86400))))
        axes.stairs(demand, edges, color=OFFERED, linewidth=1.2, linestyle=":", label="offered", baseline=None)
    axes.stairs(steps("passed"), edges, color=PASSED, linewidth=2.2, label="passed", baseline=None)
    if has("limit"):
        axes.stairs(
            steps("limit"), edges, color=LIMIT, linewidth=1.6, linestyle="--", label="limit", baseline=None, zorder=3
        )
    top = height(axes.get_ylim()[1], series)
    axes.set_ylim(0, top * HEADROOM)
    if has("offered") and max(demand) > top:
        note = f"offered up to {quantity(max(demand))}"
        axes.annotate(note, (0.01, 0.9), xycoords="axes fraction", va="top", fontsize=10, color=OFFERED)
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


def smoothed(values: Sequence[float], steps: int) -> list[float]:
    """Return the mean of each value and those before it, `steps` in all."""
    sums = [0.0, *accumulate(values)]
    return [(sums[end] - sums[begin]) / (end - begin) for end in range(1, len(sums)) for begin in [max(0, end - steps)]]


def height(highest: float, series: Series) -> float:
    """Return the top of a plot: whatever was offered, a limit stays in the upper half."""
    shown = [value for name in ("passed", "limit") for value in series[name] if value is not None]
    is_limited = any(value is not None for value in series["limit"])
    return min(highest, MOST_ABOVE * max(shown)) if is_limited and max(shown) > 0 else highest


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
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "#ffffff", "edgecolor": "#51606f", "linewidth": 0.7},
        )


def labels(marks: Sequence[Mark], begin: float, end: float) -> list[tuple[float, str]]:
    """Days since 1970 and numbers of the events in that time; events too near to be distinguished share one label."""
    near: list[tuple[float, list[int]]] = []
    for mark in sorted(marks, key=lambda mark: mark.at_s):
        at = mark.at_s / 86400
        if near and at - near[-1][0] < (end - begin) * NEAR:
            near[-1][1].append(mark.number)
        elif begin < at < end:
            near.append((at, [mark.number]))
    return [(at, str(here[0]) if len(here) == 1 else f"{here[0]}-{here[-1]}") for at, here in near]


def _description(series: Series, unit: str) -> str:
    highest = {
        name: max((value for value in series[name] if value is not None), default=None)
        for name in ("offered", "passed", "limit")
    }
    parts = [f"{name} at most {quantity(value)} {unit}/s" for name, value in highest.items() if value is not None]
    return "Rate over time: " + ", ".join(parts) + "."


def _inline(svg: str) -> str:
    """The picture without the prolog of a file and its fixed size, in the colours of the page.

    Its groups lose their names, which each picture has: an id is for one element of a page.
    """
    head, rest = svg[svg.index("<svg") :].split(">", 1)
    rest = re.sub(r'<g id="[^"]*"', "<g", rest)
    drawn = re.sub(r'(?<=[ "])(#[0-9a-f]{6})\b', lambda match: _variable(match[1]), rest)
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + drawn


def _variable(colour: str) -> str:
    return f"var(--{_COLOURS[colour]})" if colour in _COLOURS else colour


def render(report: Report) -> str:
    """Return the page as text."""
    drawn = [(chart, Markup(chart.svg)) for chart in charts(report.rates, report.events, broken(report.limiters))]  # noqa: S704 - matplotlib escapes the texts that it draws
    pages, sums = {tenant.name: tenant.page for tenant in report.tenants}, report.fleets.sums
    template = _environment().get_template("report.html.j2")
    of_sums = [(verdict, chart, Markup(chart.svg)) for verdict, chart in sum_charts(report.fleets)]  # noqa: S704 - the same
    more: dict[str, Any] = {"sum_charts": of_sums, "modes": MODES} | _script()
    more |= {
        "outsiders": [remedy(*outsider) for outsider in outsiders(sums)],
        "cut_off": [away(*member) for member in cut_off(sums)],
    }
    return visible(template.render(report=report, charts=drawn, peaks=_by_limit(report.peaks), pages=pages, **more))


class TenantReport(Struct, frozen=True, kw_only=True):
    """One tenant's page for programs; it names no other tenant."""

    report_version: int
    tenant: str
    verdict: Verdict
    sentence: str
    first: datetime | None
    last: datetime | None
    complete_up_to: datetime | None
    answers: Answers
    limits: list[LimiterVerdict]
    topics: list[TopicFacts]


def tenant_exports(report: Report) -> dict[str, bytes]:
    """Return each tenant's page as JSON, and its topics as CSV and Parquet, by their files in the report's folder."""
    exports = {}
    for tenant in report.tenants:
        own = TenantReport(
            report_version=report.report_version,
            tenant=tenant.name,
            verdict=tenant.verdict,
            sentence=tenant.sentence,
            first=report.overall.first,
            last=report.overall.last,
            complete_up_to=report.overall.complete_up_to,
            answers=of_tenant(tenant.name, report.answers),
            limits=limits_of(tenant.name, report.limiters),
            topics=topics_of(tenant.name, report.topics),
        )
        rows = [flat(topic) | {"bytes_basis": report.bytes_basis} for topic in own.topics]
        columns = [*TopicFacts.__struct_fields__, "bytes_basis"]
        parquet = io.BytesIO()
        # A tenant without a topic has no types, only columns.
        write_table(Table.from_pylist(rows) if rows else Table.from_pydict({name: [] for name in columns}), parquet)
        name = tenant.page.removesuffix(".html")
        exports[f"{name}.json"] = msgspec.json.format(msgspec.json.encode(own), indent=2) + b"\n"
        exports[f"{name}.csv"] = table_csv(columns, rows).encode()
        exports[f"{name}.parquet"] = parquet.getvalue()
    return exports


def tenant_pages(report: Report) -> dict[str, str]:
    """Return the page of each tenant by its file, seen from the report's folder."""
    template = _environment().get_template("tenant.html.j2")
    worst, pages = broken(report.limiters), {}
    for tenant in report.tenants:
        chart = next(charts(tenant.rates, (), worst), None)
        page = template.render(
            tenant=tenant,
            answers=of_tenant(tenant.name, report.answers),
            modes=MODES,
            pages={},
            **_script(),
            report=report,
            overall=report.overall,
            chart=chart,
            svg=Markup(chart.svg) if chart else "",  # noqa: S704 - matplotlib escapes the texts that it draws
            limiters=limits_of(tenant.name, report.limiters),
            topics=topics_of(tenant.name, report.topics),
        )
        pages[tenant.page] = visible(page)
    return pages


@cache
def _script() -> dict[str, Any]:
    """The script of a page, and the policy by which a browser runs this script and no other."""
    text = "\n" + files("compliance.report").joinpath("templates/report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return {"script": Markup(text), "policy": policy}  # noqa: S704 - a file of this package


@cache
def _environment() -> Environment:
    """The templates, which are compiled once in a process."""
    environment = Environment(
        loader=PackageLoader("compliance.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    return environment


def broken(limiters: list[LimiterVerdict]) -> dict[tuple[str, str, str, str], list[tuple[datetime, datetime]]]:
    """Return, for each violated limit, begin and end of the worst windows of the promises that were broken."""
    windows: dict[tuple[str, str, str, str], list[tuple[datetime, datetime]]] = {}
    for limiter in limiters:
        promises = ((limiter.containment, limiter.worst_containment), (limiter.entitlement, limiter.worst_entitlement))
        worst = [(window.start, window.end) for verdict, window in promises if verdict == "violated" and window]
        if worst:
            windows[limiter.proxy_id, limiter.direction, limiter.level, limiter.name] = worst
    return windows


def _by_limit(peaks: list[PeakFacts]) -> list[tuple[tuple[LimitKey, str], dict[int, PeakFacts]]]:
    """Each limit and unit with its peaks by length of step."""
    limits: dict[tuple[str, ...], dict[int, PeakFacts]] = {}
    for peak in peaks:
        key = (peak.proxy_id, peak.direction, peak.level, peak.name, peak.unit)
        limits.setdefault(key, {})[peak.step_s] = peak
    return [((next(iter(steps.values())), key[-1]), steps) for key, steps in limits.items()]


_UNSEEN = re.compile(r"[^\t\n -~]")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def visible(text: str) -> str:
    """Return a text in which characters that turn, hide or end the text around them are escaped, as in JSON."""
    return _UNSEEN.sub(lambda match: _escaped(match[0]), text)


def _escaped(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if unicodedata.category(letter) in _HIDDEN else letter


def breakable(name: str) -> Markup:
    """Return a name as text that may go on in the next line behind a slash rather than within a word."""
    # Markup's join escapes the parts.
    return Markup("/<wbr>").join(re.split(r"/(?!/)", name))


def _counted(number: float, unit: str) -> str:
    # A fraction of a message says something only where there are few.
    text = whole(number) if number >= 100 or number == int(number) else f"{number:.1f}"
    return size(number) if unit == "bytes" and number >= 1000 else f"{text} {unit[:-1] if text == '1' else unit}"


def _entitled(least: EntitlementFacts) -> str:
    """Name the amounts that passed and that were owed in a window in which a stream waited."""
    owed = {"messages": least.owed_messages, "bytes": least.owed_bytes}
    amounts = {"messages": least.passed_messages, "bytes": least.passed_bytes}
    limited = {unit: number for unit, number in owed.items() if number is not None}
    passed = " and ".join(_counted(amounts[unit], unit) for unit in limited)
    return f"{passed} passed of {' or '.join(_counted(number, unit) for unit, number in limited.items())} owed"


def _proposed(proposal: Proposal) -> str:
    parts = [] if proposal.messages is None else [f"{quantity(proposal.messages)} messages/s"]
    parts += [] if proposal.bytes is None else [f"{size(proposal.bytes)}/s"]
    return " and ".join(parts)


_FILTERS: dict[str, Callable[..., Any]] = {
    "whole": whole,
    "quantity": quantity,
    "percent": percent,
    "span": span,
    "window": window,
    "breakable": breakable,
    "clock": clock,
    "contained": containment,
    "kept": entitlement,
    "broken_for": broken_for,
    "late": late,
    "unseen": unseen,
    "why": lambda limiter: unknown_for([limiter]),
    "between": between,
    "rate": rate,
    "size": size,
    "counted": _counted,
    "entitled": _entitled,
    "delay": delay,
    "proposed": _proposed,
    "sufficing": sufficing,
    "number": numbered,
}


USAGE_COLUMNS = (
    "day",
    "tenant",
    "namespace",
    "topic",
    "direction",
    "offered_messages",
    "offered_bytes",
    "passed_messages",
    "passed_bytes",
    "bytes_basis",
)

# A spreadsheet takes a cell that begins so for a formula, full-width signs too; one apostrophe before it makes it text.
_FORMULA_STARTS = frozenset("=+-@'")
# Before a formula it passes over blanks, line ends and characters without width.
_PASSED_OVER = frozenset(("Cc", "Cf", "Zs", "Zl", "Zp"))


def report_json(report: Report) -> bytes:
    """Return the whole report as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def usage_csv(usage: list[UsageFacts], bytes_basis: str) -> str:
    """Usage as CSV: one line for each day, topic and direction."""
    rows = [msgspec.structs.asdict(row) | {"bytes_basis": bytes_basis} for row in usage]
    return table_csv(USAGE_COLUMNS, rows)


def tables(report: Report) -> dict[str, str]:
    """Every table of the report as CSV, by the name of its file."""
    throttling, quality = report.throttling, report.quality
    rows: dict[str, list[Any]] = {
        "overall": [overall(report)],
        "verdicts": list(report.rollups),
        "limits": [flat(limiter, without=("doubts",)) for limiter in report.limiters],
        "log-runs": list(quality.runs),
        "log-gaps": list(quality.gaps),
        "log-losses": list(quality.losses),
        "log-malformed": list(quality.quarantine),
        "log-clock-steps": list(quality.clock_steps),
        "log-standstills": list(quality.standstills),
        "log-newer": list(quality.newer),
        "fleets": [flat(sum_, without=_PARTS_OF_SUMS) for sum_ in report.fleets.sums],
        "fleets-rates": list(report.fleets.rates),
        "fleets-cut-off": [_of_sum(sum_) | flat(member) for sum_ in report.fleets.sums for member in sum_.cut_off],
        "fleets-outside": [_of_sum(sum_) | flat(proxy) for sum_ in report.fleets.sums for proxy in sum_.outside],
        "fleets-without-log": list(report.fleets.gaps),
        "fleets-share-changes": list(report.fleets.share_changes),
        "doubts": list(report.doubts),
        "rates": list(report.rates),
        "peaks": list(report.peaks),
        "throttling": list(throttling.limits),
        "delays-by-reason": list(throttling.by_reason),
        "delays-by-topic": list(throttling.by_topic),
        "impact-tenants": list(report.answers.tenants),
        "impact-limits": [flat(limit, without=("clients",)) for limit in report.answers.limits],
        "impact-clients": [client for limit in report.answers.limits for client in limit.clients],
        "observed": list(report.answers.observed),
        "pauses": list(throttling.pauses),
        "refusals": list(throttling.refusals),
        "budgets": list(report.budgets.rows),
        "fairness": [
            flat(limit, without=("members",)) | flat(member) for limit in report.fairness for member in limit.members
        ],
        "neighbours": list(report.neighbours),
        "headroom": list(report.headroom),
        "what-if": list(report.what_if.rows) if report.what_if else [],
        "what-if-unmatched": [{"proposal": proposal} for proposal in report.what_if.unmatched]
        if report.what_if
        else [],
        "left-out": [{"table": name, "rows": count} for name, count in report.left_out.items()],
        "topics": list(report.topics),
        "usage-by-tenant": [flat(row) | {"bytes_basis": report.bytes_basis} for row in report.tenant_days],
        "changes": list(report.events),
    }
    flattened = {name: [row if isinstance(row, dict) else flat(row) for row in table] for name, table in rows.items()}
    made = {
        f"{name}.csv": table_csv(list(dict.fromkeys(column for row in table for column in row)), table)
        for name, table in flattened.items()
        if table
    }
    return made | {"usage.csv": usage_csv(report.usage, report.bytes_basis)}


_PARTS_OF_SUMS = ("members", "cut_off", "outside")


def _of_sum(verdict: FleetVerdict) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in ("fleet", "direction", "level", "name", "unit")}


def overall(report: Report) -> dict[str, Any]:
    """Return the verdict on the whole log as one row, with the facts that all tables share."""
    quality = report.quality
    counts = {name: getattr(quality, name) for name in ("lines", "quarantined", "duplicates", "missing")}
    counts |= {"passed_over": quality.passed_over, "unread": quality.unread}
    words = {"headline": report.headline, "sentence": report.sentence, "silent_proxies": " ".join(quality.silent)}
    caveat = {"what_if_caveat": report.what_if.caveat} if report.what_if else {}
    bases = {"objective": report.budgets.objective, "bytes_basis": report.bytes_basis}
    more = {"charts_left_out": report.charts_left_out, "report_version": report.report_version}
    return flat(report.overall) | words | counts | bases | more | caveat


def flat(row: msgspec.Struct, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a row in which the fields of nested structs are columns: `worst_containment_start`."""
    cells: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(row).items():
        if isinstance(value, msgspec.Struct):
            cells |= {f"{name}_{inner}": cell for inner, cell in flat(value).items()}
        elif name not in without:
            cells[name] = value
    return cells


def table_csv(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Lines of cells, the columns' names first; what a row has not is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = list(columns)
    writer.writerow(columns)
    quoting = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        cells = [_cell(row.get(column)) for column in columns]
        # The csv module quotes only the line end that it writes itself; readers also take a lone return for one.
        has_return = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoting if has_return else writer).writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """The value, with one more apostrophe before a text that a spreadsheet might run, or that begins with one.

    So a reader that removes one apostrophe from the begin of a text, where it has one, gets the original text.
    """
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if not isinstance(value, str) or not value:
        return value
    first = unicodedata.normalize("NFKC", value[0])[:1]
    is_run = first in _FORMULA_STARTS or unicodedata.category(value[0]) in _PASSED_OVER
    return "'" + value if is_run else value
