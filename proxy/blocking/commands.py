"""`sluice block`, `unblock` and `blocks`, which ask a running proxy; what they need is imported when they run."""

from typing import Annotated, Any

import typer

Kind = Annotated[str, typer.Argument(help="address, role, producer, consumer, subscription or topic.")]
Name = Annotated[str, typer.Argument(help="Its name; an address may be a range: 192.0.2.0/24.")]
Topic = Annotated[
    str, typer.Option(metavar="TOPIC", help="Only there (for producer, consumer, subscription). Default: everywhere.")
]
Namespace = Annotated[
    str, typer.Option(metavar="TENANT/NAMESPACE", help="Only there (for the same kinds). Default: everywhere.")
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="For people; clients get it in their error. Default: none.")]
Admin = Annotated[str, typer.Option(metavar="HOST:PORT", help="Admin address of the proxy.")]

_ADMIN = "127.0.0.1:8080"
_PATIENCE_S = 10


def block(  # noqa: PLR0913 - one for each option
    kind: Kind, name: Name, *, topic: Topic = "", namespace: Namespace = "", reason: Reason = "", admin: Admin = _ADMIN
) -> None:
    """Block a client address, role, producer, consumer, subscription or topic, now."""
    body = {"kind": kind, "name": name, "topic": topic, "namespace": namespace, "reason": reason}
    answer = _ask(admin, "POST", body)
    ended = answer["ended"]
    typer.echo(
        f"blocked: {kind} {answer['block']['name']}; "
        f"ended {ended['connections']} connections, {ended['streams']} producers and consumers"
    )


def unblock(kind: Kind, name: Name, *, topic: Topic = "", namespace: Namespace = "", admin: Admin = _ADMIN) -> None:
    """Take a block back; clients may come again at once."""
    parts = {"kind": kind, "name": name, "topic": topic, "namespace": namespace}
    answer = _ask(admin, "DELETE", query={key: value for key, value in parts.items() if value})
    if not answer["unblocked"]:
        typer.echo(f"not blocked: {kind} {name}; `sluice blocks` shows what is")
        return
    typer.echo(f"unblocked: {kind} {name}" + (f"; {answer['note']}" if answer["note"] else ""))


def blocks(admin: Admin = _ADMIN) -> None:
    """Show what is blocked, since when, why, and how often each block refused or ended something."""
    from rich.console import Console
    from rich.table import Column, Table

    answer = _ask(admin, "GET")
    titles = ("kind", "name", "only in", "reason", "since (UTC)", "from", "hits")
    table = Table(*(Column(title, overflow="fold") for title in titles), title="blocked")
    for rule in answer["blocks"]:
        table.add_row(*_cells(rule), rule["origin"], str(rule["hits"]))
    for rule in answer["lifted"]:
        table.add_row(*_cells(rule), "file, lifted until the next start", "")
    Console().print(table if table.row_count else "nothing is blocked")


def _cells(rule: dict[str, Any]) -> tuple[Any, ...]:
    from rich.text import Text

    since = rule["since"].removesuffix("+00:00").replace("T", " ")
    where = rule["topic"] or rule["namespace"]
    return tuple(Text(str(cell)) for cell in (rule["kind"], rule["name"], where, rule["reason"], since))


def _ask(admin: str, method: str, body: object = None, query: dict[str, str] | None = None) -> Any:
    """The JSON of the proxy's answer; ends the command with one line where there is none."""
    import http.client
    import json
    import urllib.error
    import urllib.parse
    import urllib.request

    url = f"http://{admin}/sluice/blocks" + (f"?{urllib.parse.urlencode(query)}" if query else "")
    data = None if body is None else json.dumps(body).encode()
    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        with straight.open(request, timeout=_PATIENCE_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        problem = _reason_of(error.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        problem = f"{admin}: no answer ({reason}); --admin must be the admin address of a running `sluice serve`"
    typer.echo(f"sluice: {problem}", err=True)
    raise typer.Exit(1)


def _reason_of(answer: bytes) -> str:
    import json

    try:
        return str(json.loads(answer)["reason"])
    except (ValueError, KeyError, TypeError):
        return "the answer is not Sluice's; --admin must be the admin address of a running `sluice serve`"
