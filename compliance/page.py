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
    environment.filters.update(whole=whole, quantity=quantity, percent=percent, span=span, clock=_clock, rate=_rate)
    drawn = [(chart, Markup(chart.svg)) for chart in charts(report.rates, report.rate_step_s)]  # noqa: S704 - matplotlib escapes the texts that it draws
    return environment.get_template("report.html.j2").render(report=report, charts=drawn, signs=SIGNS)


def _clock(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else "nothing"


def _rate(limited: object) -> str:
    """The limits of a row, in words."""
    limits = [(getattr(limited, f"limit_{unit}"), unit) for unit in ("messages", "bytes")]
    said = [f"{quantity(value)} {unit}/s" for value, unit in limits if value is not None]
    return " and ".join(said) or "none"
