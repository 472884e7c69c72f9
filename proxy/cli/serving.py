"""`sluice serve` and `sluice check`; their imports happen when they run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from protocol.exit_codes import ExitCode
from proxy.cli.options import Json, Quiet, print_json

if TYPE_CHECKING:
    from proxy.config.model import Loaded

_CONFIG = "SLUICE_CONFIG"
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        envvar=_CONFIG, help="YAML file, or folder with YAML files; SLUICE_ variables override it, flags override both."
    ),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where clients connect; pulsar+ssl://HOST:PORT for TLS; may be given several times. "
        "Default: 127.0.0.1:6650.",
    ),
]
Broker = Annotated[
    list[str] | None,
    typer.Option(
        metavar="pulsar://HOST:PORT",
        help="The broker, or a load balancer before several; may be given several times. "
        "Default: pulsar://127.0.0.1:6651.",
    ),
]
Admin = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Metrics, health and admin REST. Default: 127.0.0.1:8080."),
]
LogDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder for access-log files, made if needed. Default: none, no access log."),
]
Processes = Annotated[
    int | None,
    typer.Option(metavar="N", help="Processes that serve clients, all on that port. Default: 1."),
]
Takeover = Annotated[
    bool,
    typer.Option(
        "--takeover",
        help="Take over the ports of the running process of this proxy_id, which then drains; needs drain.state.",
    ),
]
Show = Annotated[
    bool, typer.Option("--show", help="Print every value that is given, and its source: file, variable or flag.")
]
ValuesOnly = Annotated[
    bool,
    typer.Option("--values-only", help="Do not check the files that the configuration names, as on another machine."),
]
ShowDefaults = Annotated[bool, typer.Option("--show-defaults", help="As --show, with the defaults of all other keys.")]


def serve(
    config: ConfigFile = None,
    listen: Listen = None,
    broker: Broker = None,
    admin: Admin = None,
    access_log: LogDir = None,
    processes: Processes = None,
    *,
    takeover: Takeover = False,
) -> None:
    """Run the proxy until SIGTERM.

    /metrics, /healthz, /readyz and /sluice/streams are on the admin address.
    """
    from proxy.runtime import StartError, paused_collector

    with paused_collector():  # most of these objects stay
        from proxy.assembly import ConfigSource
        from proxy.config.model import ConfigError
        from proxy.config.rereading import ConfigFiles
        from proxy.processes import run_processes
        from proxy.serve import run, successor_of
        from proxy.socket_activation import by_address, given_sockets

    flags = {
        "listen": _one_or_more(listen),
        "broker": _one_or_more(broker),
        "admin": admin,
        "access_log": None if access_log is None else str(access_log),
        "processes": processes,
    }
    files = ConfigFiles(config, flags, dict(os.environ))
    try:
        sockets = given_sockets(os.environ)
        loaded = files.read()
        given = by_address(sockets, loaded)
        if loaded.processes > 1 and not takeover:
            run_processes(config, flags, loaded, given)
        else:
            source = ConfigSource(config, files.read, reread=files.reread)
            run(source, successor=successor_of(loaded) if takeover else None, given=given)
    except ConfigError as error:
        _fail(error.problems)
    except StartError as error:
        _fail([str(error)])


def check(  # noqa: PLR0913 - one for each option
    config: ConfigFile = None,
    listen: Listen = None,
    broker: Broker = None,
    admin: Admin = None,
    access_log: LogDir = None,
    processes: Processes = None,
    *,
    show: Show = False,
    show_defaults: ShowDefaults = False,
    values_only: ValuesOnly = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check a configuration as `sluice serve` would take it.

    All errors are listed at once, each with its remedy. Exit code 0: it would start, perhaps with the warnings on
    standard error. 1: it would not.
    """
    from proxy.config.limits import doubtful_names
    from proxy.config.model import NO_LIMITS, ConfigError, load, usable_part
    from proxy.config.showing import shown
    from proxy.config.written import passed_over
    from proxy.start_check import StartCheck

    flags = {
        "listen": _one_or_more(listen),
        "broker": _one_or_more(broker),
        "admin": admin,
        "access_log": access_log,
        "processes": processes,
    }
    warnings = passed_over(config)
    try:
        loaded = load(config, flags, os.environ)
        taken: Loaded | None = loaded
        problems: list[str] = []
        if "limits" not in loaded.config.model_fields_set:
            empty = f"{config}: is empty: it has no keys, and " if loaded.has_empty_file else ""
            warnings.append(f"{empty}{NO_LIMITS}")
    except ConfigError as error:
        taken, problems = usable_part(config, flags, os.environ), error.problems
    start_check = StartCheck() if values_only or taken is None else StartCheck.of(taken.config, taken.sources)
    doubtful = taken.sources.placed(list(doubtful_names(taken.config.limits))) if taken else []
    warnings += [*doubtful, *start_check.warnings]
    problems = [*problems, *start_check.problems]
    if json:
        print_json({"problems": problems, "warnings": warnings})
        raise typer.Exit(ExitCode.FAILED if problems else ExitCode.DONE)
    for warning in warnings if not quiet else ():
        typer.echo(f"sluice: warning: {warning}", err=True)
    if problems:
        _fail(problems)
    if show or show_defaults:
        typer.echo(shown(loaded, with_defaults=show_defaults), nl=False)
    elif not quiet:
        typer.echo(f"{config or 'without a file'}: fine")


def _one_or_more(given: list[str] | None) -> str | list[str] | None:
    """Return the values of an option as the file would have them: one value, or a list."""
    return given[0] if given and len(given) == 1 else given or None


def _fail(problems: list[str]) -> NoReturn:
    for problem in problems:
        typer.echo(f"sluice: {problem}", err=True)
    raise typer.Exit(ExitCode.FAILED)
