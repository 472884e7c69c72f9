"""The whole job: access log in, three files out."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from compliance.export import report_json, usage_csv
from compliance.gather import gather
from compliance.ingest import Folders, ingest
from compliance.page import render
from compliance.report import Report, make_report
from compliance.session import spark_session

WORK = "work"


class ReportError(Exception):
    """The report cannot be made, for a reason that the operator can mend."""


def run(access_log: Path, out: Path, *, fresh: bool, on_step: Callable[[str], None]) -> Report:
    """Reads what is new, judges everything, writes `report.html`, `report.json` and `usage.csv`.

    Args:
        access_log: Folder of closed `*.jsonl` files.
        out: Folder for the three files and for what is kept between runs.
        fresh: Forget what earlier runs have read.
        on_step: Told, in words, what is done next.

    Raises:
        ReportError: If the log cannot be found or `out` cannot be written.
        JavaNotFoundError: If there is no Java for Spark.
    """
    files = closed_files(access_log)
    folders = Folders(access_log.resolve(), prepare(out, access_log, fresh=fresh))
    on_step("starting Spark")
    with spark_session(folders.work / "spark.log") as spark:
        on_step(f"reading {len(files)} files")
        ingest(spark, folders, lambda lines: on_step(f"reading {len(files)} files: {lines} lines"))
        report = make_report(gather(spark, folders, on_step))
    on_step("writing the report")
    write(report, out)
    return report


def closed_files(access_log: Path) -> list[Path]:
    """The files that the proxy has closed: the open one's name begins with a dot or an underscore."""
    if not access_log.is_dir():
        raise ReportError(f"--access-log {access_log}: no such folder; give the folder that the proxy writes")
    _refuse_patterns("--access-log", access_log)
    try:
        files = sorted(file for file in access_log.glob("*.jsonl") if not file.name.startswith((".", "_")))
    except OSError as error:
        raise ReportError(f"--access-log {access_log}: cannot be read: {error.strerror}") from error
    if not files:
        raise ReportError(
            f"--access-log {access_log}: no closed *.jsonl file in it; the proxy closes them by age or size"
        )
    return files


def prepare(out: Path, access_log: Path, *, fresh: bool) -> Path:
    """Makes the output folder and, in it, the work folder that belongs to this access log."""
    _refuse_patterns("--out", out)
    # Two logs in one work folder would be reported as one.
    name = hashlib.sha256(os.fsencode(access_log.resolve())).hexdigest()[:12]
    work = out.resolve() / WORK / name
    try:
        if fresh and work.exists():
            shutil.rmtree(work)
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out), tempfile.TemporaryFile(dir=work):
            pass
    except OSError as error:
        raise ReportError(f"--out {out}: cannot be written: {error.strerror}") from error
    return work


def write(report: Report, out: Path) -> None:
    """Each file is renamed into place, so a reader sees the old one or the new one whole."""
    contents = {
        "report.json": report_json(report),
        "usage.csv": usage_csv(report.usage).encode(),
        "report.html": render(report).encode(),
    }
    try:
        for name, content in contents.items():
            half = out / f".{name}.tmp"
            half.write_bytes(content)
            half.replace(out / name)
    except OSError as error:
        raise ReportError(f"--out {out}: cannot be written: {error.strerror}") from error


def _refuse_patterns(option: str, path: Path) -> None:
    # Spark's readers take these for patterns, even where they come from a listing: rows would be read twice or never.
    if found := set("*?[]{}\\") & set(str(path.resolve())):
        raise ReportError(f"{option} {path}: Spark reads {' '.join(sorted(found))} as a pattern; rename the folder")
