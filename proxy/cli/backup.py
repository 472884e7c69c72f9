"""`sluice backup` and `sluice restore`; their imports happen when they run."""

import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from protocol.exit_codes import ExitCode
from proxy.cli.options import AdminOptions, Json, Quiet, asks_proxy, print_json

Target = Annotated[Path, typer.Argument(metavar="FILE", help="File for the backup; one that is there is replaced.")]
OfStore = Annotated[
    Path | None,
    typer.Option(
        metavar="STORE",
        help="policies.store, to be read itself, whether a proxy runs on it or not. Default: the proxy at --admin is "
        "asked.",
    ),
]
Source = Annotated[Path, typer.Argument(metavar="BACKUP", help="The backup.")]
Store = Annotated[Path, typer.Argument(metavar="STORE", help="policies.store of a proxy that does not run.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace a store that is there.")]
_PATIENCE_S = 120.0
_MOST_BYTES = 4 << 30


@asks_proxy
def backup(file: Target, *, admin: AdminOptions, store: OfStore = None, json: Json = False) -> None:
    """Write the policies set at run time, and the audit log, into a file.

    The proxy may run while the backup is made. All parts of the file are of one moment.
    """
    from proxy.cli.admin_link import AdminLink
    from proxy.policies.store import StoreError, read_backup, write_backup

    try:
        link = AdminLink(admin, _PATIENCE_S, _MOST_BYTES) if store is None else None
        content = link.get("/sluice/backup") if link else read_backup(store or file)
        counts = write_backup(file, content)
    except StoreError as error:
        _fail(error)
    if json:
        print_json({"file": str(file), "policies": counts.policies, "changes": counts.changes})
        return
    typer.echo(f"{file}: {counts.policies} policies, {counts.changes} changes of the audit log")


def restore(
    backup: Source, store: Store, *, replace: Replace = False, json: Json = False, quiet: Quiet = False
) -> None:
    """Put a backup in the place of a policy store.

    The proxy that serves with it must not run.
    """
    from proxy.policies.store import StoreError, first_of
    from proxy.policies.store import restore as put_in_place

    warnings = []
    if first := first_of(store):
        warnings.append(f"{store}: a start with several processes makes it a copy of {first}: restore that one")
    for warning in warnings if not (json or quiet) else ():
        typer.echo(f"sluice: warning: {warning}", err=True)
    if store.exists() and not replace:
        _fail(f"{store}: already exists: --replace puts the backup in its place; `sluice backup --store` keeps it")
    try:
        counts = put_in_place(backup, store, time.time_ns())
    except StoreError as error:
        _fail(error)
    if json:
        done = {"store": str(store), "policies": counts.policies, "changes": counts.changes, "warnings": warnings}
        print_json(done)
    elif not quiet:
        typer.echo(f"{store}: {counts.policies} policies, {counts.changes} changes of the audit log")


def _fail(problem: object) -> NoReturn:
    typer.echo(f"sluice: {problem}", err=True)
    raise typer.Exit(ExitCode.FAILED)
