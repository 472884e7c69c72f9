"""`sluice block`, `unblock` and `blocks`, which ask a running proxy; what they need is imported when they run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.cli.options import AdminOptions, asks_proxy

if TYPE_CHECKING:
    from proxy.cli.admin_link import AdminLink

Kind = Annotated[str, typer.Argument(help="address, role, producer, consumer, subscription or topic.")]
Name = Annotated[str, typer.Argument(help="The name; an address may be a range: 192.0.2.0/24.")]
Topic = Annotated[
    str,
    typer.Option(metavar="TOPIC", help="This topic only (for producer, consumer, subscription). Default: everywhere."),
]
Namespace = Annotated[
    str, typer.Option(metavar="TENANT/NAMESPACE", help="This namespace only (for the same kinds). Default: everywhere.")
]
Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Reason for people; clients get it in their error. Default: none.")
]

_PATH = "/sluice/blocks"


@asks_proxy
def block(  # noqa: PLR0913 - one for each option
    kind: Kind, name: Name, *, admin: AdminOptions, topic: Topic = "", namespace: Namespace = "", reason: Reason = ""
) -> None:
    """Block a client address, role, producer, consumer, subscription or topic, now."""
    body = {"kind": kind, "name": name, "topic": topic, "namespace": namespace, "reason": reason}
    answer = _link(admin).call("POST", _PATH, body)
    ended = answer["ended"]
    typer.echo(
        f"blocked: {kind} {answer['block']['name']}; "
        f"ended {ended['connections']} connections, {ended['streams']} producers and consumers"
    )


@asks_proxy
def unblock(kind: Kind, name: Name, *, admin: AdminOptions, topic: Topic = "", namespace: Namespace = "") -> None:
    """Take a block back; clients may come again at once."""
    parts = {"kind": kind, "name": name, "topic": topic, "namespace": namespace}
    answer = _link(admin).call("DELETE", _PATH, query={key: value for key, value in parts.items() if value})
    if not answer["unblocked"]:
        typer.echo(f"not blocked: {kind} {name}; `sluice blocks` shows what is")
        return
    typer.echo(f"unblocked: {kind} {name}" + (f"; {answer['note']}" if answer["note"] else ""))


@asks_proxy
def blocks(*, admin: AdminOptions) -> None:
    """Show what is blocked, since when, why, and how often each block refused or ended something."""
    from rich.console import Console
    from rich.table import Column, Table

    answer = _link(admin).get_json(_PATH)
    titles = ("kind", "name", "only in", "reason", "since (UTC)", "from", "hits")
    table = Table(*(Column(title, overflow="fold") for title in titles), title="blocked")
    for rule in answer["blocks"]:
        table.add_row(*_cells(rule), rule["origin"], str(rule["hits"]))
    for rule in answer["lifted"]:
        table.add_row(*_cells(rule), "file, lifted", "")
    Console().print(table if table.row_count else "nothing is blocked")


def _cells(rule: dict[str, Any]) -> tuple[Any, ...]:
    from rich.text import Text

    since = rule["since"].removesuffix("+00:00").replace("T", " ")
    where = rule["topic"] or rule["namespace"]
    return tuple(Text(str(cell)) for cell in (rule["kind"], rule["name"], where, rule["reason"], since))


def _link(admin: AdminOptions) -> "AdminLink":
    from proxy.cli.admin_link import AdminLink

    return AdminLink(admin)
