"""The report as one self-contained HTML page. Names come from clients: everything is escaped."""

from datetime import datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from compliance.charts import charts
from compliance.numbers import percent, quantity, span, whole
from compliance.report import Report

SIGNS = {"compliant": "✓", "violated": "✗", "unknown": "?", "no limit": "○"}


def render(report: Report) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("compliance"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        whole=whole,
        quantity=quantity,
        percent=percent,
        span=span,
        clock=_clock,
        between=_between,
        rate=_rate,
        size=_size,
    )
    drawn = [(chart, Markup(chart.svg)) for chart in charts(report.rates)]  # noqa: S704 - matplotlib escapes the texts that it draws
    return environment.get_template("report.html.j2").render(report=report, charts=drawn, signs=SIGNS)


def _clock(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else "an unknown time"


def _between(times: tuple[datetime, datetime]) -> str:
    start, end = times
    is_one_day = start.date() == end.date()
    return f"{start:%Y-%m-%d %H:%M:%S} to {end:{'%H:%M:%S' if is_one_day else '%Y-%m-%d %H:%M:%S'}} UTC"


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
