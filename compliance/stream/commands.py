"""`sluice compliance …`; what the commands need is imported when they run."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from compliance.log_folder import is_url

app = typer.Typer(help="The access log on Spark: rows and windows of it, kept up to date.", no_args_is_help=True)


@app.command()
def run(  # noqa: PLR0913 - each is an option of the command
    out: Annotated[str, typer.Option(help="Folder (or URI) for the tables, summary.json and the checkpoint.")],
    *,
    access_log: Annotated[
        str, typer.Option(help="Folder (or URI) of the proxy's closed files (*.jsonl); for --source files.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on for ever, or end with what is there now.")
    ] = False,
    source: Annotated[str, typer.Option(help="files, kafka or pulsar; bring the connector by --spark.")] = "files",
    source_option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for the connector, as kafka.bootstrap.servers=HOST:PORT.")
    ] = None,
    sink: Annotated[str, typer.Option(help="parquet, delta or iceberg; bring the connector by --spark.")] = "parquet",
    catalog: Annotated[str, typer.Option(help="CATALOG.NAMESPACE of the tables; for --sink iceberg.")] = "",
    late_after: Annotated[int, typer.Option(help="Seconds of event time after which a window is closed.", min=0)] = 60,
    every: Annotated[float, typer.Option(help="With --follow: seconds between looks for new lines.", min=0.1)] = 10.0,
    batch_mib: Annotated[int, typer.Option(help="About how much of the log is read at once.", min=1)] = 512,
    spark: Annotated[list[str] | None, typer.Option(help="KEY=VALUE setting of Spark, as spark.jars=FILE.jar.")] = None,
) -> None:
    """Add what is new in an access log to tables of rows and windows, each line once. Needs the extra `report`."""
    try:
        from compliance.stream.options import Job, JobError, Sink, Source, pairs
        from compliance.stream.run import run_with_progress
    except ImportError as error:
        typer.echo(
            f"sluice compliance run: {error.name} is not installed: run `pip install 'pulsar-sluice[report]'`", err=True
        )
        raise typer.Exit(1) from error
    try:
        job = Job(
            source=Source(source, _absolute(access_log), pairs("--source-option", source_option or [])),
            sink=Sink(sink, catalog),
            out=_absolute(out),
            late_after_s=late_after,
            batch_bytes=batch_mib * 2**20,
            every_s=every,
        )
        settings = pairs("--spark", spark or [])
    except JobError as error:
        typer.echo(f"sluice compliance run: {error}", err=True)
        raise typer.Exit(1) from error
    # Py4J would log each call that finds Java gone, with a traceback.
    logging.disable()
    raise typer.Exit(run_with_progress(job, follow=follow, settings=settings))


def _absolute(path: str) -> str:
    """Spark's executors need not stand where this command stands."""
    return path if not path or is_url(path) else str(Path(path).resolve())


@app.callback()
def compliance() -> None:
    """The access log on Spark: rows and windows of it, kept up to date."""
