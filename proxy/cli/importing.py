"""`sluice import`; its imports happen when it runs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.exit_codes import ExitCode
from proxy.cli.options import Json, Quiet, print_json
from proxy.cli.output import Force, Output, OutputError, check_output, write_output

if TYPE_CHECKING:
    from proxy.importing.result import ImportResult

File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A broker's broker.conf or standalone.conf."),
]
FromAdmin = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Ask a running broker's admin REST instead, as http://broker:8080: its own limits, and those of "
        "namespaces, topics and resource groups. Nothing is changed there. Default: none.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Token of a superuser, for --from-admin. Default: none."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Name also the keys that limit nothing.")]

_LIMITS_ONLY = "Limits only: listen, broker and admin are Sluice's own (docs/configuration.md)."


def import_limits(
    file: File = None,
    *,
    from_admin: FromAdmin = None,
    token_file: TokenFile = None,
    output: Output = None,
    force: Force = False,
    verbose: Verbose = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn the limits of a Pulsar broker into Sluice's configuration.

    The result is a YAML file for `sluice serve --config`. Limits that have no place in it are listed on
    standard error, with the reason. With --json all is one object: the YAML too, where --output names no file for it.
    """
    from proxy.config.showing import yaml_text
    from proxy.importing.result import ImportFailed, as_json, check_text, report_lines

    source, read = _source(file, from_admin, token_file, is_silent=quiet)
    heading = f"Made by `sluice import` from {source!r}.\n{_LIMITS_ONLY}"
    try:
        if output:
            check_output(output, force=force)
        findings = read()
        text = yaml_text(heading, findings.taken)
        check_text(text)
        if output:
            write_output(output, text, force=force)
    except ImportFailed as error:
        for problem in error.problems:
            typer.echo(f"sluice: {problem}", err=True)
        raise typer.Exit(ExitCode.USAGE if error.is_of_words else ExitCode.FAILED) from None
    except OutputError as error:
        typer.echo(f"sluice: {error}", err=True)
        raise typer.Exit(ExitCode.FAILED) from None
    if json:
        place = {"file": str(output)} if output else {"yaml": text}
        print_json({"source": source, **place, **as_json(findings)})
        return
    if not output:
        typer.echo(text, nl=False)
    for line in report_lines(findings, verbose=verbose) if not quiet else ():
        typer.echo(line, err=True)


def _source(
    file: Path | None, from_admin: str | None, token_file: Path | None, *, is_silent: bool
) -> "tuple[str, Callable[[], ImportResult]]":
    """The name of the source for people, and the function that reads it."""
    from proxy.importing.broker_conf import from_file
    from proxy.importing.from_admin import from_broker

    if (file is None) == (from_admin is None):
        raise typer.BadParameter("give a broker's configuration file, or --from-admin with the URL of a broker")
    if token_file and from_admin is None:
        raise typer.BadParameter("a file needs no token; --token-file goes with --from-admin")
    if file is not None:
        return file.name, lambda: from_file(file)
    return str(from_admin), lambda: from_broker(str(from_admin), token_file, is_silent=is_silent)
