"""The `sluice` command: each application brings its own commands, this file only hangs them up."""

import importlib.metadata

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
from proxy.runtime import is_compiled

app = typer.Typer(
    name="sluice",
    help="A rate-limiting proxy for Apache Pulsar, with rate-compliance reports.",
    no_args_is_help=True,
    add_completion=False,
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


@app.command()
def version() -> None:
    """Print the version, and whether the hot modules run compiled or interpreted."""
    form = "compiled" if is_compiled() else "interpreted"
    typer.echo(f"{importlib.metadata.version('pulsar-sluice')} ({form})")


def main() -> None:
    """Run the command line."""
    app()
