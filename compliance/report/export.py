"""The report as JSON for programs and every table of it as CSV for spreadsheets and finance."""

import csv
import io
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from compliance.judging.facts import UsageFacts
from compliance.report.report import Report

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
# Before a formula it passes over blanks, line ends and what has no width.
_PASSED_OVER = frozenset(("Cc", "Cf", "Zs", "Zl", "Zp"))


def report_json(report: Report) -> bytes:
    """All of the report, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def usage_csv(usage: list[UsageFacts], bytes_basis: str) -> str:
    """One line a day, topic and direction."""
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
        "doubts": list(report.doubts),
        "rates": list(report.rates),
        "peaks": list(report.peaks),
        "throttling": list(throttling.limits),
        "delays-by-reason": list(throttling.by_reason),
        "delays-by-topic": list(throttling.by_topic),
        "pauses": list(throttling.pauses),
        "refusals": list(throttling.refusals),
        "budgets": list(report.budgets.rows),
        "fairness": [
            flat(limit, without=("members",)) | flat(one) for limit in report.fairness for one in limit.members
        ],
        "neighbours": list(report.neighbours),
        "headroom": list(report.headroom),
        "what-if": list(report.what_if.rows) if report.what_if else [],
        "what-if-unmatched": [{"proposal": one} for one in report.what_if.unmatched] if report.what_if else [],
        "left-out": [{"table": name, "rows": count} for name, count in report.left_out.items()],
        "topics": list(report.topics),
        "usage-by-tenant": [flat(row) | {"bytes_basis": report.bytes_basis} for row in report.tenant_days],
        "changes": list(report.events),
    }
    flattened = {name: [row if isinstance(row, dict) else flat(row) for row in table] for name, table in rows.items()}
    made = {f"{name}.csv": table_csv(_columns(table), table) for name, table in flattened.items() if table}
    return made | {"usage.csv": usage_csv(report.usage, report.bytes_basis)}


def overall(report: Report) -> dict[str, Any]:
    """The verdict on the whole as one row, with what is said once for all tables."""
    quality = report.quality
    counts = {name: getattr(quality, name) for name in ("lines", "quarantined", "duplicates", "missing")}
    counts |= {"passed_over": quality.passed_over, "unread": quality.unread}
    words = {"headline": report.headline, "sentence": report.sentence, "silent_proxies": " ".join(quality.silent)}
    caveat = {"what_if_caveat": report.what_if.caveat} if report.what_if else {}
    said = {"objective": report.budgets.objective, "bytes_basis": report.bytes_basis}
    more = {"charts_left_out": report.charts_left_out, "report_version": report.report_version}
    return flat(report.overall) | words | counts | said | more | caveat


def flat(row: msgspec.Struct, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """A row whose parts' fields stand beside its own: `worst_containment_start`."""
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
        # The module quotes the line end that it writes itself, and not the other one, which readers take for one, too.
        has_return = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoting if has_return else writer).writerow(cells)
    return text.getvalue()


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _cell(value: Any) -> Any:
    """The value, or behind one more apostrophe a text that a spreadsheet might run, or that begins with one.

    So who takes one apostrophe from the begin of a text, where there is one, has what was meant.
    """
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if not isinstance(value, str) or not value:
        return value
    first = unicodedata.normalize("NFKC", value[0])[:1]
    is_run = first in _FORMULA_STARTS or unicodedata.category(value[0]) in _PASSED_OVER
    return "'" + value if is_run else value
