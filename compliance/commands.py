"""`sluice report` and `sluice compliance …`; both import Spark only when they run."""

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from accesslog.file_names import PATTERNS
from compliance.log_folder import is_url, on_this_machine
from protocol.exit_codes import ExitCode

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, one object at the end.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only, and the result that --json asks for.")]


def _folder(place: str | Path) -> Path:
    """A folder of this machine, by its path or its `file:` URL."""
    folder = on_this_machine(str(place))
    if folder is None:
        raise typer.BadParameter(
            f"{place}: give a folder of this machine: `sluice compliance run` reads and writes other storages, "
            "and --tables reports on them"
        )
    return folder


def _moment(text: str) -> datetime:
    """A time in UTC, from RFC 3339 or a date; without an offset it is UTC."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        given = None
    if given is None or not _FIRST_YEAR <= given.year < _LAST_YEAR:
        raise typer.BadParameter(f"{text}: is no time of a log; give 2026-11-28, or 2026-11-28T14:00Z")
    return given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)


_FIRST_YEAR, _LAST_YEAR = 1970, 9999


def report(  # noqa: PLR0913 - one for each option
    out: Annotated[
        Path,
        typer.Option(
            parser=_folder,
            metavar="<path>",
            help="Folder for report.html, report.json, usage.csv and csv/; made if it is not there.",
        ),
    ],
    *,
    access_log: Annotated[
        list[Path] | None,
        typer.Option(
            parser=_folder,
            metavar="<path>",
            help=f"Folder of the closed access-log files ({', '.join(PATTERNS)}), of several proxies together.",
            show_default=False,
        ),
    ] = None,
    tables: Annotated[
        str, typer.Option(help="Instead of --access-log: the --out of `sluice compliance run`, folder or URI.")
    ] = "",
    begin: Annotated[
        datetime | None,
        typer.Option(
            "--from",
            parser=_moment,
            metavar="TIME",
            help="Report on lines from this time on, as 2026-11-28 (its first moment in UTC) or 2026-11-28T14:00Z.",
            show_default=False,
        ),
    ] = None,
    end: Annotated[
        datetime | None,
        typer.Option(
            "--to", parser=_moment, metavar="TIME", help="Report on lines before this time.", show_default=False
        ),
    ] = None,
    tenant: Annotated[str, typer.Option(help="Report on this tenant's streams and limits alone.")] = "",
    fresh: Annotated[bool, typer.Option(help="Forget what earlier runs with this --out have read.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with code 3 unless every limit is proven compliant.")] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Make no report: check that the files of --access-log are those of the report in --out."
        ),
    ] = False,
    what_if: Annotated[
        Path | None, typer.Option(help="YAML file of proposed limits, to be replayed over the log.", show_default=False)
    ] = None,
    objective: Annotated[
        float,
        typer.Option(min=50, max=99.9999, help="Percent of the time in which limits should be kept: for burn rates."),
    ] = 99.9,
    spark: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE setting of Spark, as spark.driver.memory=8g.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge an access log: was each limit kept, each stream served?

    It needs the extra `report`. A later run with the same --access-log and --out reads only new lines and reports on
    all.
    """
    # Spark would also log a failure as a page of JSON; the command prints its root cause in a line. Matplotlib warns
    # of its cache of fonts.
    logging.disable()
    try:
        from compliance.excerpt import Excerpt
        from compliance.job import ReportOptions, report_with_progress
        from compliance.job import verify as verified
    except ImportError as error:
        typer.echo(f"sluice report: {error.name} is not installed: run `pip install 'pulsar-sluice[report]'`", err=True)
        raise typer.Exit(ExitCode.FAILED) from error
    if len(logs := access_log or []) > 1:
        raise typer.BadParameter(
            "give one folder: put the files of all proxies into it, whose names differ", param_hint="--access-log"
        )
    if begin is not None and end is not None and begin >= end:
        raise typer.BadParameter(f"{begin}: is not before --to {end}", param_hint="--from")
    if verify:
        raise typer.Exit(verified(logs[0] if logs else None, out, as_json=json, is_quiet=quiet))
    excerpt = Excerpt(begin=begin, end=end, tenant=tenant)
    options = ReportOptions(fresh, strict, what_if, objective, tuple(spark or ()), excerpt, json, quiet)
    raise typer.Exit(report_with_progress(logs[0] if logs else None, tables, out, options))


app = typer.Typer(help="Keep tables of the access log up to date, on Spark.", no_args_is_help=True)


@app.command()
def run(  # noqa: PLR0913 - each is an option of the command
    out: Annotated[str, typer.Option(help="Folder (or URI) for the tables, summary.json and the checkpoint.")],
    *,
    access_log: Annotated[
        str,
        typer.Option(help=f"Folder (or URI) of the proxy's closed files ({', '.join(PATTERNS)}); for --source files."),
    ] = "",
    follow: Annotated[
        bool,
        typer.Option("--follow/--once", help="Keep running for new files, or stop after those that are there now."),
    ] = False,
    source: Annotated[
        str, typer.Option(help="files, kafka or pulsar; name the connector's package by --spark.")
    ] = "files",
    source_option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for the connector, as kafka.bootstrap.servers=HOST:PORT.")
    ] = None,
    sink: Annotated[
        str, typer.Option(help="parquet, delta or iceberg; name the connector's package by --spark.")
    ] = "parquet",
    catalog: Annotated[str, typer.Option(help="CATALOG.NAMESPACE of the tables; for --sink iceberg.")] = "",
    every: Annotated[float, typer.Option(help="With --follow: seconds between looks for new lines.", min=0.1)] = 10.0,
    retain: Annotated[
        int | None,
        typer.Option(
            help="Days whose rows are kept, up to the latest, and until they are judged; all if not given.",
            min=1,
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            parser=_folder,
            metavar="<path>",
            help="With --follow: folder in which a report on the last --hours is kept up to date.",
            show_default=False,
        ),
    ] = None,
    hours: Annotated[
        float, typer.Option(help="Hours before the last line that --report is about.", min=0.01, max=87600)
    ] = 24.0,
    batch_mib: Annotated[int, typer.Option(help="About how much of the log is read at once.", min=1)] = 2048,
    spark: Annotated[list[str] | None, typer.Option(help="KEY=VALUE setting of Spark, as spark.jars=FILE.jar.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add the new lines of an access log to tables, each once, and judge days that are over.

    It needs the extra `report`.
    """
    try:
        from compliance.job import ReportError, alone
        from compliance.live import FollowingReport
        from compliance.stream.options import Job, JobError, Sink, Source, pairs
        from compliance.stream.run import run_with_progress
        from compliance.verdicts import judge_settled_days
    except ImportError as error:
        typer.echo(
            f"sluice compliance run: {error.name} is not installed: run `pip install 'pulsar-sluice[report]'`", err=True
        )
        raise typer.Exit(ExitCode.FAILED) from error
    try:
        job = Job(
            source=Source(source, _absolute(access_log), pairs("--source-option", source_option or [])),
            sink=Sink(sink, catalog),
            out=_absolute(out),
            batch_bytes=batch_mib * 2**20,
            every_s=every,
            retain_days=retain,
        )
        settings = pairs("--spark", spark or [])
    except JobError as error:
        typer.echo(f"sluice compliance run: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    if report is not None and not follow:
        raise typer.BadParameter("needs --follow; `sluice report --tables` makes a report once", param_hint="--report")
    # Py4J would log each call that finds Java gone, with a traceback.
    logging.disable()
    follows = partial(
        run_with_progress,
        job,
        follow=follow,
        settings=settings,
        judge=judge_settled_days,
        as_json=json,
        is_quiet=quiet,
    )
    if report is None:
        raise typer.Exit(follows())
    try:
        with alone(report, None):
            live = partial(FollowingReport, tables=job.out, out=report, window=timedelta(hours=hours))
            code = follows(live=live)
    except ReportError as error:
        typer.echo(f"sluice compliance run: {str(error).replace('--out', '--report')}", err=True)
        code = ExitCode.FAILED
    raise typer.Exit(code)


def _absolute(path: str) -> str:
    """Spark's executors may have another working directory than this command."""
    return path if not path or is_url(path) else str(Path(path).resolve())


@app.callback()
def compliance() -> None:
    """Keep tables of the access log up to date, on Spark."""
