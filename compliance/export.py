"""The report as JSON for programs and its usage as CSV for finance."""

import csv
import io
import re

import msgspec

from compliance.facts import UsageFacts
from compliance.report import Report

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
)

# A spreadsheet takes a cell that begins so for a formula ...
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
# ... but letters, digits and these signs alone, Pulsar's own for names, cannot call anything: those names stay.
_PULSAR_NAME = re.compile(r"[-=:.\w]*", re.ASCII)


def report_json(report: Report) -> bytes:
    """All of the report, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def usage_csv(usage: list[UsageFacts]) -> str:
    """One line a day, topic and direction."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(USAGE_COLUMNS)
    for row in usage:
        writer.writerow([_cell(getattr(row, column)) for column in USAGE_COLUMNS])
    return text.getvalue()


def _cell(value: str | int) -> str | int:
    """The value, or the value behind an apostrophe if a spreadsheet might run it."""
    if isinstance(value, int) or not value.startswith(_FORMULA_STARTS) or _PULSAR_NAME.fullmatch(value):
        return value
    return "'" + value
