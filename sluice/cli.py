"""The `sluice` command: each application brings its own commands, this file only hangs them up."""

import importlib.metadata

import typer

import compliance.commands
import compliance.stream.commands
import loadgen.commands
import protocol.scanner
import proxy.blocking.commands
import proxy.commands
import proxy.console.commands
import proxy.doctor.commands
import proxy.importing.commands
import proxy.policies.commands

app = typer.Typer(
    name="sluice",
    help="A rate-limiting proxy for Apache Pulsar, with rate-compliance reports.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(proxy.commands.serve)
app.command()(proxy.commands.check)
app.command()(proxy.console.commands.top)
app.command()(proxy.blocking.commands.block)
app.command()(proxy.blocking.commands.unblock)
app.command()(proxy.blocking.commands.blocks)
app.command()(proxy.doctor.commands.doctor)
app.command()(proxy.policies.commands.explain)
app.command()(proxy.policies.commands.export)
app.command()(proxy.policies.commands.apply)
app.command()(proxy.policies.commands.diff)
app.command()(proxy.policies.commands.audit)
app.command("import")(proxy.importing.commands.import_limits)
app.command()(loadgen.commands.broker)
app.command()(loadgen.commands.load)
app.command()(compliance.commands.report)
app.add_typer(compliance.stream.commands.app, name="compliance")


@app.command()
def version() -> None:
    """Print the version, and whether the hot modules run compiled or interpreted."""
    form = "interpreted" if str(protocol.scanner.__file__).endswith(".py") else "compiled"
    typer.echo(f"{importlib.metadata.version('pulsar-sluice')} ({form})")


def main() -> None:
    """Run the command line."""
    app()
