"""`sluice report` as its user sees it: progress, one line for each error, the verdict, the exit code."""

import contextlib
import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console

from compliance.commands import STRICT_EXIT, Wanted
from compliance.figures.what_if import ProposalError, read_proposals
from compliance.java import JavaNotFoundError
from compliance.job import Origin, ReportError, links_of, run
from compliance.log_folder import look_into
from compliance.report.collect import Asked
from compliance.report.report import Report
from compliance.session import cause, disk_trouble
from compliance.stream.options import JobError, pairs


def report_with_progress(access_log: Path | None, tables: str, out: Path, wanted: Wanted) -> int:
    """Makes the report; returns the exit code: 0 made, 1 not made, 3 made and `wanted.strict` is not content."""
    console = Console(stderr=True)
    try:
        with console.status("") as status:
            # Where standard error is no terminal, the status draws nothing.
            report = run(
                Origin(access_log, tables),
                out,
                on_step=status.update,
                fresh=wanted.fresh,
                asked=_asked(wanted),
                settings=pairs("--spark", list(wanted.spark)),
            )
    except (ReportError, JobError, ProposalError, JavaNotFoundError) as error:
        return _fail(str(error))
    except (PySparkException, Py4JError, OSError) as error:
        return _fail(_of_spark(cause(error), access_log, out))
    _tell(report, out)
    _note(access_log)
    return STRICT_EXIT if wanted.strict and report.overall.verdict in ("violated", "unknown") else 0


def _asked(wanted: Wanted) -> Asked:
    proposals = read_proposals(wanted.what_if) if wanted.what_if else []
    return Asked(wanted.objective / 100, tuple(proposals))


def _of_spark(said: str, access_log: Path | None, out: Path) -> str:
    if access_log:
        said = said.replace(str(links_of(out, access_log)), str(access_log.resolve()))
    folders = {"--access-log": str(access_log.resolve()) if access_log else "", "--out": str(out.resolve())}
    return disk_trouble(said, folders) or f"Spark failed: {said} (its log: {out}/work/spark.log)"


def _fail(message: str) -> int:
    print(f"sluice report: {message}", file=sys.stderr)  # noqa: T201 - a command's answer
    return 1


def _tell(report: Report, out: Path) -> None:
    print(f"{report.overall.verdict}: {report.headline}")  # noqa: T201 - a command's answer
    print(out / "report.html")  # noqa: T201 - a command's answer


def _note(access_log: Path | None) -> None:
    with contextlib.suppress(OSError):
        if access_log and (words := look_into(access_log).words()):
            print(f"sluice report: --access-log {access_log}: passed over: {words}", file=sys.stderr)  # noqa: T201 - the same
