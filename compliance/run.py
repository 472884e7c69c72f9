"""`sluice report` as its user sees it: progress, one line for each error, the verdict, the exit code."""

import sys
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from rich.console import Console

from compliance.commands import STRICT_EXIT
from compliance.java import JavaNotFoundError
from compliance.job import ReportError, run
from compliance.report import Report


def report_with_progress(access_log: Path, out: Path, *, fresh: bool, strict: bool) -> int:
    """Makes the report; returns the exit code: 0 made, 1 not made, 3 made and `strict` is not content."""
    console = Console(stderr=True)
    try:
        with console.status("") as status:
            # Where standard error is no terminal, the status draws nothing.
            report = run(access_log, out, fresh=fresh, on_step=status.update)
    except (ReportError, JavaNotFoundError) as error:
        return _fail(str(error))
    except (PySparkException, Py4JError) as error:
        return _fail(f"Spark failed: {_first_line(error)} (its log: {out}/work/*/spark.log)")
    _tell(report, out)
    return STRICT_EXIT if strict and report.overall.verdict in ("violated", "unknown") else 0


def _fail(message: str) -> int:
    print(f"sluice report: {message}", file=sys.stderr)  # noqa: T201 - a command's answer
    return 1


def _first_line(error: Exception) -> str:
    # Py4J's own first line names an object number, Java's names the cause.
    said = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    return said.strip().splitlines()[0]


def _tell(report: Report, out: Path) -> None:
    print(f"{report.overall.verdict}: {report.headline}")  # noqa: T201 - a command's answer
    print(out / "report.html")  # noqa: T201 - a command's answer
