"""The `sluice` command: each application brings its own commands, this file only hangs them up."""

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import compliance.commands
import loadgen.commands
import proxy.cli.backup
import proxy.cli.doctor
import proxy.cli.drain
import proxy.cli.importing
import proxy.cli.policies
import proxy.cli.serving
import proxy.cli.top
from proxy.cli.options import Json, print_json
from proxy.runtime import is_compiled

app = typer.Typer(
    name="sluice",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(proxy.cli.serving.serve)
app.command()(proxy.cli.serving.check)
app.command()(proxy.cli.drain.drain)
app.command()(proxy.cli.top.top)
app.command()(proxy.cli.top.fleet)
app.command()(proxy.cli.policies.block)
app.command()(proxy.cli.policies.unblock)
app.command()(proxy.cli.policies.blocks)
app.command()(proxy.cli.policies.kick)
app.command()(proxy.cli.doctor.doctor)
app.command()(proxy.cli.policies.explain)
app.command()(proxy.cli.policies.export)
app.command()(proxy.cli.policies.apply)
app.command()(proxy.cli.policies.diff)
app.command()(proxy.cli.policies.audit)
app.command()(proxy.cli.backup.backup)
app.command()(proxy.cli.backup.restore)
app.command("import")(proxy.cli.importing.import_limits)
app.command()(loadgen.commands.broker)
app.command()(loadgen.commands.load)
app.command()(compliance.commands.report)
app.add_typer(compliance.commands.app, name="compliance")


def _version() -> str:
    return importlib.metadata.version("pulsar-sluice")


def _show_version(*, is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"sluice {_version()}")
        raise typer.Exit


@app.callback()
def sluice(
    *,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print errors only: the exit code is the result.")
    ] = False,
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """A rate-limiting proxy for Apache Pulsar, with rate-compliance reports."""
    if quiet:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the end


@app.command()
def version(*, json: Json = False) -> None:
    """Print the version, and whether hot modules run compiled."""
    if json:
        print_json({"version": _version(), "is_compiled": is_compiled()})
        return
    typer.echo(f"{_version()} ({'compiled' if is_compiled() else 'interpreted'})")


def main() -> None:
    """Run the command line."""
    app()
