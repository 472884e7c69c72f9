"""Commands of `compliance`; what they need is imported when they run."""

from pathlib import Path
from typing import Annotated

import typer

STRICT_EXIT = 3


def report(
    access_log: Annotated[Path, typer.Option(help="Folder of the proxy's closed access-log files (*.jsonl).")],
    out: Annotated[
        Path, typer.Option(help="Folder for report.html, report.json and usage.csv; made if it is not there.")
    ],
    *,
    fresh: Annotated[bool, typer.Option(help="Forget what earlier runs with this --out have read.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with code 3 unless every limit is proven compliant.")] = False,
) -> None:
    """Judge an access log: were limits kept, did everybody get what was owed? Needs the extra `report`.

    A later run with the same --out reads only what is new and reports on everything.
    """
    try:
        from compliance.run import report_with_progress
    except ImportError as error:
        typer.echo(f"sluice report: {error.name} is not installed: run `pip install 'pulsar-sluice[report]'`", err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(report_with_progress(access_log, out, fresh=fresh, strict=strict))
