"""The report as one self-contained HTML page. Names come from clients: everything is escaped."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from compliance.figures.facts import LimitKey, PeakFacts
from compliance.figures.what_if import Proposal
from compliance.judging.facts import EntitlementFacts
from compliance.judging.verdict import LimiterVerdict
from compliance.report.charts import charts
from compliance.report.report import Report
from compliance.report.subjects import limits_of, topics_of
from compliance.report.words import (
    broken_for,
    clock,
    containment,
    entitlement,
    late,
    numbered,
    percent,
    quantity,
    span,
    unknown_for,
    unseen,
    whole,
    window,
)


def render(report: Report) -> str:
    """The page as text."""
    drawn = [(chart, Markup(chart.svg)) for chart in charts(report.rates, report.events, broken(report.limiters))]  # noqa: S704 - matplotlib escapes the texts that it draws
    pages = {tenant.name: tenant.page for tenant in report.tenants}
    template = _environment().get_template("report.html.j2")
    return template.render(report=report, charts=drawn, peaks=_by_limit(report.peaks), pages=pages)


def tenant_pages(report: Report) -> dict[str, str]:
    """The page of each tenant by its file, seen from the report's folder."""
    template = _environment().get_template("tenant.html.j2")
    worst, pages = broken(report.limiters), {}
    for tenant in report.tenants:
        chart = next(charts(tenant.rates, (), worst), None)
        pages[tenant.page] = template.render(
            tenant=tenant,
            report=report,
            overall=report.overall,
            chart=chart,
            svg=Markup(chart.svg) if chart else "",  # noqa: S704 - matplotlib escapes the texts that it draws
            limiters=limits_of(tenant.name, report.limiters),
            topics=topics_of(tenant.name, report.topics),
        )
    return pages


def _environment() -> Environment:
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
    """Of each limit with a violation: begin and end of the worst windows of the promises that were broken."""
    windows: dict[tuple[str, str, str, str], list[tuple[datetime, datetime]]] = {}
    for one in limiters:
        promises = ((one.containment, one.worst_containment), (one.entitlement, one.worst_entitlement))
        worst = [(window.start, window.end) for verdict, window in promises if verdict == "violated" and window]
        if worst:
            windows[one.proxy_id, one.direction, one.level, one.name] = worst
    return windows


def _by_limit(peaks: list[PeakFacts]) -> list[tuple[tuple[LimitKey, str], dict[int, PeakFacts]]]:
    """Each limit and unit with its peaks by length of step."""
    limits: dict[tuple[str, ...], dict[int, PeakFacts]] = {}
    for peak in peaks:
        key = (peak.proxy_id, peak.direction, peak.level, peak.name, peak.unit)
        limits.setdefault(key, {})[peak.step_s] = peak
    return [((next(iter(steps.values())), key[-1]), steps) for key, steps in limits.items()]


def breakable(name: str) -> Markup:
    """A name as text that may go on in the next line behind a slash rather than within a word."""
    # Markup's join escapes the parts.
    return Markup("/<wbr>").join(re.split(r"/(?!/)", name))


def between(times: tuple[datetime, datetime]) -> str:
    """Begin and end of a window, with the digits that tell the two apart."""
    start, end = times
    cut = next((cut for cut in (-7, -3) if _digits(start, cut) != _digits(end, cut)), None)
    behind = _digits(end, cut)[len("2026-11-22 ") if start.date() == end.date() else 0 :]
    back = ", the clock was put back in between" if end < start else ""
    return f"{_digits(start, cut)} to {behind} UTC{back}"


def _digits(time: datetime, cut: int | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S.%f}"[:cut]


def _size(octets: float) -> str:
    number = quantity(octets)
    # "12.3k" is read as a count: a size has its prefix at the unit.
    return f"{number[:-1]} {number[-1]}B" if number[-1].isalpha() else f"{number} B"


def _rate(limited: object) -> str:
    """The limits of a row, in words."""
    messages, octets = (getattr(limited, f"limit_{unit}") for unit in ("messages", "bytes"))
    said = [] if messages is None else [f"{quantity(messages)} messages/s"]
    said += [] if octets is None else [f"{_size(octets)}/s"]
    return " and ".join(said) or "none"


def _counted(number: float, unit: str) -> str:
    said = _few(number)
    return _size(number) if unit == "bytes" and number >= 1000 else f"{said} {unit[:-1] if said == '1' else unit}"


def _entitled(least: EntitlementFacts) -> str:
    """What passed in a window in which somebody waited, and what was owed."""
    owed = {"messages": least.owed_messages, "bytes": least.owed_bytes}
    of = {"messages": least.passed_messages, "bytes": least.passed_bytes}
    limited = {unit: number for unit, number in owed.items() if number is not None}
    passed = " and ".join(_counted(of[unit], unit) for unit in limited)
    return f"{passed} passed of {' or '.join(_counted(number, unit) for unit, number in limited.items())} owed"


def _few(number: float) -> str:
    # A fraction of a message says something only where there are few.
    return whole(number) if number >= 100 or number == int(number) else f"{number:.1f}"


def _delay(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else span(milliseconds / 1e3)


def _proposed(proposal: Proposal) -> str:
    said = [] if proposal.messages is None else [f"{quantity(proposal.messages)} messages/s"]
    said += [] if proposal.bytes is None else [f"{_size(proposal.bytes)}/s"]
    return " and ".join(said)


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
    "rate": _rate,
    "size": _size,
    "counted": _counted,
    "entitled": _entitled,
    "delay": _delay,
    "proposed": _proposed,
    "number": numbered,
}
