"""`sluice drain`; its imports happen when it runs."""

import time
from http import HTTPStatus
from typing import Annotated

import typer

from protocol.printable import printable
from proxy.cli.options import AdminLinkError, AdminOptions, DisconnectedError, Json, asks_proxy, print_json

Wait = Annotated[bool, typer.Option("--wait", help="Return when the drain is over, or the process has ended.")]
_LOOK_S = 0.2


@asks_proxy
def drain(*, admin: AdminOptions, wait: Wait = False, json: Json = False) -> None:
    """Have all clients of a proxy go on elsewhere, as SIGTERM does.

    The process runs on without clients. It is for hooks before a stop: /readyz is 503 at once, and clients leave after
    `drain.delay`. With --wait and --json, `phase` is `ended` if the process has ended by then. --wait ends with
    exit code 1 where another process answers, as behind one address of several replicas, or the drain was taken back.
    """
    from proxy.admin.process_header import PROCESS
    from proxy.cli.admin_link import AdminLink

    link = AdminLink(admin, kept_header=PROCESS)
    shown = link.call("POST", "/sluice/drain")
    try:
        while wait and shown["phase"] not in {"drained", "serving"}:
            time.sleep(_LOOK_S)
            shown = link.get_json("/sluice/drain")
    except DisconnectedError:
        if json:
            print_json({**shown, "phase": "ended"})
        else:
            typer.echo("the process has ended")
        return
    except AdminLinkError as error:
        if error.status != HTTPStatus.MISDIRECTED_REQUEST:
            raise
        problem = "another process answers than the one that drains; --admin must be the address of one process"
        raise AdminLinkError(f"{admin.admin}: {problem}") from None
    if wait and shown["phase"] == "serving":
        raise AdminLinkError("the drain was taken back: the process serves clients again")
    if json:
        print_json(shown)
        return
    outcome = shown["outcome"] or shown["phase"]
    moved, streams = shown["moved_connections"], shown["moved_streams"]
    typer.echo(printable(f"{outcome}: {moved} connections with {streams} producers and consumers moved"))
