"""`sluice report`: an access log, or tables of one, in; the report's files out.

The sums are a batch job on purpose: it looks at lines, and not at the job's windows, so that no window hides what its
parts show. The user sees progress, one line for each error, the verdict and the exit code.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from accesslog.file_names import PATTERNS
from compliance import storage
from compliance.excerpt import WHOLE_LOG, Excerpt
from compliance.figures.what_if import ProposalError, read_proposals
from compliance.java import JavaNotFoundError
from compliance.judging.facts import Facts
from compliance.kept_days import KeptDays
from compliance.log_folder import NOT_WITHIN, is_url, is_within, look_into, on_this_machine
from compliance.logs import Logs, settings_of_sums
from compliance.report.collect import ExtraQuestions, collect
from compliance.report.page import render, report_json, tables, tenant_exports, tenant_pages, visible
from compliance.report.provenance import LIST, as_list, check, digests, of_list, seal
from compliance.report.report import Report, fleet_lines, make_report
from compliance.report.subjects import FOLDER
from compliance.session import cause, disk_trouble, spark_session, with_settings
from compliance.stream.log_file import JobPlaces
from compliance.stream.options import JobError, pairs
from compliance.tables import LogTables, read_log, read_tables
from protocol.exit_codes import ExitCode


@dataclass(frozen=True)
class ReportOptions:
    """The options of `sluice report`.

    Args:
        fresh: Forget what earlier runs have read.
        strict: Exit code 3 unless every limit is proven compliant.
        what_if: File of proposed limits.
        objective: Percent of the time in which promises should be kept.
        spark: `KEY=VALUE` settings of Spark.
        excerpt: The part of the log that is asked about.
        as_json: Print the verdict and the report's place as one object of JSON.
        is_quiet: Print errors only, and that object where it is wanted.
    """

    fresh: bool = False
    strict: bool = False
    what_if: Path | None = None
    objective: float = 99.9
    spark: tuple[str, ...] = ()
    excerpt: Excerpt = WHOLE_LOG
    as_json: bool = False
    is_quiet: bool = False


def gather(
    spark: SparkSession,
    tables: LogTables,
    on_step: Callable[[str], None],
    questions: ExtraQuestions | None = None,
    kept: KeptDays | None = None,
) -> Facts:
    """Collect all facts that the report needs.

    Args:
        spark: The session.
        tables: The tables of a job.
        on_step: Called with the name of the next step.
        questions: The reader's further questions.
        kept: The days that earlier reports have kept.
    """
    asked = questions or ExtraQuestions()
    with with_settings(spark, settings_of_sums(tables.lines)):
        logs = Logs.of(tables, asked.excerpt, kept)
        if not asked.excerpt.is_whole:
            _look_for_lines(logs, tables)
        return collect(logs, asked, on_step)


def _look_for_lines(logs: Logs, tables: LogTables) -> None:
    """Refuse an excerpt that has nothing to report on: a time or a name may be mistyped."""
    if not len(logs.tables.runs):
        first, last = (pc.min_max(tables.runs[name])[of].as_py() for name, of in (("first", "min"), ("last", "max")))
        there = f"it has lines from {first:{_TIME}} to {last:{_TIME}}" if first else "it has no valid line"
        raise ReportError(f"--from, --to: no line of the log begins in that time; {there}")
    if not any(len(logs.sums[name]) for name in ("streams", "limited")):
        raise ReportError(
            f"--tenant {logs.excerpt.tenant}: no producer, consumer or limit of this tenant is in the log at that time"
        )


_TIME = "%Y-%m-%dT%H:%M:%SZ"


WORK = "work"
DAYS_PREFIX = "days-"
"""Prefix of the folder in which a report keeps days of a job's tables."""
LITTLE_BYTES = 2**30
"""Bytes of lines up to which Java's second compiler takes longer than it saves: Python reads and judges."""
COMPRESSED = {".zst": 16, ".gz": 16, ".parquet": 16}
"""Bytes of lines for each byte of a file with this suffix, about."""
CSV = "csv"
"""Folder of the report's tables."""
USAGE = "usage.csv"

OnStep = Callable[[str], None]


class ReportError(Exception):
    """The report cannot be made, for a reason that the operator can mend."""

    exit_code = ExitCode.FAILED


class ReportOptionError(ReportError):
    """The options of the command line do not go together."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True)
class Origin:
    """The source of a report: either an access log, or the tables of a job.

    Args:
        access_log: Folder of the log's closed files.
        tables: `--out` of `sluice compliance run`: a folder, or a URI.
    """

    access_log: Path | None = None
    tables: str = ""

    def __post_init__(self) -> None:
        """Exactly one has to be given.

        Raises:
            ReportOptionError: If none or both are.
        """
        if (self.access_log is None) == (not self.tables):
            raise ReportOptionError(
                "give either --access-log (the folder that the proxy writes) "
                "or --tables (the --out of `sluice compliance run`)"
            )


def run(
    origin: Origin,
    out: Path,
    *,
    on_step: OnStep,
    fresh: bool = False,
    questions: ExtraQuestions | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    is_quiet: bool = False,
) -> Report:
    """Reads new lines, judges everything, writes `report.html` and the other files.

    Args:
        origin: The source of the report.
        out: Folder for these files and, for an access log, for the state between runs.
        on_step: Called with the name of the next step.
        fresh: Forget what earlier runs have read.
        questions: The reader's further questions.
        settings: Of Spark, from the user.
        is_quiet: Say nothing of a Java that is passed over.

    Raises:
        ReportError: If the log or the tables cannot be found, or `out` cannot be written.
        JobError: If the tables are none, or their connector is missing.
        JavaNotFoundError: If there is no Java for Spark.
    """
    files = closed_files(origin.access_log) if origin.access_log else []
    place = "" if origin.access_log else _tables_of(origin)
    with alone(out, origin.access_log):
        work = prepare(out, origin.access_log, fresh=fresh) if origin.access_log else None
        on_step("starting Spark")
        more = settings_for(files, work) if work else {}
        with spark_session(out / WORK / "spark.log", {**more, **settings}, is_quiet=is_quiet) as spark:
            if origin.access_log and work:
                reading = f"reading {len(files)} files"
                on_step(reading)
                kept = read_log(spark, origin.access_log, work, lambda lines: on_step(f"{reading}: {lines} lines"))
            else:
                kept = read_tables(spark, place)
            if work:
                days = KeptDays(JobPlaces(str(work)).judged)
            else:
                days = KeptDays(str(place_of_days(out, place)), JobPlaces(place).judged)
            if fresh:
                days.forget_others(())
            report = make_report(gather(spark, kept, on_step, questions, days))
        on_step("writing the report")
        files_list = listed(files, work) if work else b""
        write(msgspec.structs.replace(report, log_sha256=seal(files_list)), out, files_list)
    return report


@contextlib.contextmanager
def alone(out: Path, access_log: Path | None) -> Iterator[None]:
    """Hold a report's folder: two reports at once would mix their files.

    Raises:
        ReportError: If it cannot be written, lies in the log, or another report is written into it.
    """
    _refuse_patterns("--out", out)
    if access_log and is_within(str(out), str(access_log)):
        raise ReportError(f"--out {out}: lies in --access-log {access_log}, {NOT_WITHIN}")
    work = _make(out, out.resolve() / WORK)
    taken = ReportError(f"--out {out}: another report is written into it; wait for it, or give another folder")
    with storage.locked(work, taken):
        yield


def _tables_of(origin: Origin) -> str:
    place = origin.tables
    if folder := on_this_machine(place):
        _refuse_patterns("--tables", folder)
        place = place if is_url(place) else str(folder.resolve())
        if not (folder / "summary.json").exists():
            raise ReportError(f"--tables {origin.tables}: no tables of `sluice compliance run` in it; give its --out")
    return place


def settings_for(files: list[Path], work: Path) -> dict[str, str]:
    """Return Spark's settings that the user need not give."""
    kept = (work / "rows").rglob("*.parquet")
    lines = sum(file.stat().st_size * COMPRESSED.get(file.suffix, 1) for file in (*files, *kept))
    is_little = lines < LITTLE_BYTES
    return {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"} if is_little else {}


def closed_files(access_log: Path) -> list[Path]:
    """Return the files that the proxy has closed.

    Raises:
        ReportError: If there is none; names the files that are passed over.
    """
    if not access_log.is_dir():
        raise ReportError(f"--access-log {access_log}: no such folder; give the folder that the proxy writes")
    _refuse_patterns("--access-log", access_log)
    try:
        content = look_into(access_log)
    except OSError as error:
        raise ReportError(f"--access-log {access_log}: cannot be read: {error.strerror}") from error
    if not content.closed:
        why = f"passed over: {words}" if (words := content.words()) else "the proxy closes them by age or size"
        raise ReportError(f"--access-log {access_log}: no closed {' or '.join(PATTERNS)} file in it; {why}")
    return content.closed


def prepare(out: Path, access_log: Path, *, fresh: bool) -> Path:
    """Makes, in the output folder, the work folder that belongs to this access log.

    Raises:
        ReportError: If it cannot be written.
    """
    work = work_of(out, access_log)
    try:
        if fresh and work.exists():
            shutil.rmtree(work)
    except OSError as error:
        raise ReportError(f"--out {out}: cannot be written: {error.strerror}") from error
    return _make(out, work)


def place_of_days(out: Path, tables: str) -> Path:
    """Return the folder for days of a job's tables."""
    return out.resolve() / WORK / f"{DAYS_PREFIX}{_short(tables)}"


def work_of(out: Path, access_log: Path) -> Path:
    """Return the folder for one log's state between runs; two logs in one folder would be reported as one."""
    return out.resolve() / WORK / _short(access_log.resolve())


def _short(place: str | Path) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:12]


def _make(out: Path, work: Path) -> Path:
    try:
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out), tempfile.TemporaryFile(dir=work):
            pass
    except OSError as error:
        raise ReportError(f"--out {out}: cannot be written: {error.strerror}") from error
    return work


def listed(files: list[Path], work: Path) -> bytes:
    """Return the list of a log's files and their digests; it is kept in `work` with those of files deleted since."""
    place = work / LIST
    try:
        content = as_list(digests(files, of_list(place.read_bytes()) if place.exists() else {}))
        storage.write(str(place.resolve()), content)
    except OSError as error:
        raise ReportError(f"{error.filename}: {error.strerror}") from error
    return content


def verify(access_log: Path | None, out: Path, *, as_json: bool = False, is_quiet: bool = False) -> int:
    """Check that the log's files are those that a report was made from; returns the exit code, as `report`."""
    try:
        file_check = check(closed_files(access_log) if access_log else [], _sealed_list(access_log, out))
    except ReportError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}")
    code = ExitCode.DONE if file_check.is_proved else ExitCode.FINDINGS
    if as_json:
        _print_json({"proved": file_check.is_proved, "exit_code": code, **msgspec.to_builtins(file_check)})
    for line in file_check.words() if not (as_json or is_quiet) else ():
        print(visible(line))  # noqa: T201 - a command's answer
    return code


def _sealed_list(access_log: Path | None, out: Path) -> dict[str, str]:
    """Return the digests of a report's list of files, if that is the list that the report was made with."""
    if access_log is None:
        raise ReportOptionError("--verify needs --access-log, the folder that the report was made from")
    made, place = out / "report.json", out / LIST
    if not made.exists():
        raise ReportError(f"--out {out}: no report.json in it; give the folder of a report")
    try:
        sealed = msgspec.json.decode(made.read_bytes(), type=_Sealed).log_sha256
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReportError(f"{made}: is no report: {error}; make the report again") from None
    content = place.read_bytes() if place.exists() else b""
    if not sealed:
        raise ReportError(f"--out {out}: this report has no list of files, as it was made from --tables")
    if seal(content) != sealed:
        raise ReportError(f"--out {out}: {LIST} is not the list that the report was made with")
    return of_list(content)


class _Sealed(msgspec.Struct):
    """The part of report.json that a check needs."""

    log_sha256: str = ""


def write(report: Report, out: Path, files_list: bytes = b"") -> None:
    """Write the report's files. Each is renamed into place, so a reader sees the old file or the new one whole.

    Args:
        report: The report.
        out: Its folder.
        files_list: The list of the log's files; empty for none.
    """
    csv = tables(report)
    contents = {
        "report.json": report_json(report),
        USAGE: csv.pop(USAGE).encode(),
        "report.html": render(report).encode(),
    }
    contents |= {LIST: files_list} if files_list else {}
    contents |= {f"{CSV}/{name}": text.encode() for name, text in csv.items()}
    contents |= {name: text.encode() for name, text in tenant_pages(report).items()} | tenant_exports(report)
    try:
        for folder in (CSV, FOLDER):
            (out / folder).mkdir(exist_ok=True)
        # A table or page that this report has not would be an earlier one's.
        if not files_list:
            (out / LIST).unlink(missing_ok=True)
        for old in {*(out / CSV).glob("*.csv"), *(out / FOLDER).glob("*.*")} - {out / name for name in contents}:
            old.unlink()
        for name, content in contents.items():
            storage.write(str(out.resolve() / name), content)
    except OSError as error:
        raise ReportError(f"--out {out}: cannot be written: {error.strerror}") from error


def _refuse_patterns(option: str, path: Path) -> None:
    # Spark's readers take these for patterns, even where they come from a listing: rows would be read twice or never.
    if special := set("*?[]{}\\") & set(str(path.resolve())):
        raise ReportError(f"{option} {path}: Spark reads {' '.join(sorted(special))} as a pattern; rename the folder")


def report_with_progress(access_log: Path | None, tables: str, out: Path, options: ReportOptions) -> int:
    """Makes the report; returns the exit code: `FINDINGS` if it is made and `options.strict` is not content."""
    console = Console(stderr=True, quiet=options.is_quiet)
    try:
        with console.status("") as status:
            # Where standard error is no terminal, the status draws nothing.
            report = run(
                Origin(access_log, tables),
                out,
                on_step=status.update,
                fresh=options.fresh,
                questions=_questions(options),
                settings=pairs("--spark", list(options.spark)),
                is_quiet=options.is_quiet,
            )
    except (ReportError, JobError) as error:
        return _fail(str(error), error.exit_code)
    except (ProposalError, JavaNotFoundError) as error:
        return _fail(str(error))
    except (PySparkException, Py4JError, OSError) as error:
        return _fail(_of_spark(cause(error), access_log, out))
    code = ExitCode.FINDINGS if options.strict and report.overall.verdict in ("violated", "unknown") else ExitCode.DONE
    passed_over = _passed_over(access_log)
    if options.as_json:
        verdict = {"verdict": report.overall.verdict, "headline": report.headline, "fleets": fleet_lines(report.fleets)}
        places = {"report": str(out / "report.html"), "data": str(out / "report.json")}
        _print_json({**verdict, **places, "passed_over": passed_over, "exit_code": code})
    elif not options.is_quiet:
        _print_verdict(report, out)
        if passed_over:
            print(f"sluice report: --access-log {access_log}: passed over: {passed_over}", file=sys.stderr)  # noqa: T201 - a command's answer
    return code


def _questions(options: ReportOptions) -> ExtraQuestions:
    proposals = read_proposals(options.what_if) if options.what_if else []
    return ExtraQuestions(options.objective / 100, tuple(proposals), options.excerpt)


def _of_spark(text: str, access_log: Path | None, out: Path) -> str:
    folders = {"--access-log": str(access_log.resolve()) if access_log else "", "--out": str(out.resolve())}
    return disk_trouble(text, folders) or f"Spark failed: {text} (its log: {out / WORK / 'spark.log'})"


def _fail(message: str, code: ExitCode = ExitCode.FAILED) -> int:
    print(f"sluice report: {message}", file=sys.stderr)  # noqa: T201 - a command's answer
    return code


def _print_verdict(report: Report, out: Path) -> None:
    print(visible(f"{report.overall.verdict}: {report.headline}"))  # noqa: T201 - a command's answer
    for line in fleet_lines(report.fleets):
        print(visible(line))  # noqa: T201 - a command's answer
    print(out / "report.html")  # noqa: T201 - a command's answer


def _print_json(result: Mapping[str, Any]) -> None:
    print(json.dumps(result, indent=2))  # noqa: T201 - a command's answer


def _passed_over(access_log: Path | None) -> str:
    with contextlib.suppress(OSError):
        return look_into(access_log).words() if access_log else ""
    return ""
