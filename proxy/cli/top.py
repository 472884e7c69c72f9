"""`sluice top` and `sluice fleet`, which look at a running proxy; their imports happen when they run."""

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from proxy.cli.options import AdminOptions, Json, asks_proxies, asks_proxy

Interval = Annotated[str, typer.Option(metavar="DURATION", help="Time between two looks; rates are means over it.")]
Once = Annotated[bool, typer.Option(help="Print one table, after two looks, and end.")]
Sort = Annotated[
    Literal["held", "rate", "wait"],
    typer.Option(help="Order of the rows: most messages held, highest rate passed, or longest held."),
]
Rows = Annotated[int, typer.Option(min=1, max=10_000, help="Most rows shown at a time.")]


Tenant = Annotated[str, typer.Option(metavar="TENANT", help="Only streams of this tenant's topics. Default: all.")]
Topic = Annotated[
    str, typer.Option(metavar="TOPIC", help="Only streams of this topic, by its full name. Default: all.")
]
Role = Annotated[str, typer.Option(metavar="ROLE", help="Only streams of clients with this role. Default: all.")]
Search = Annotated[
    str, typer.Option(metavar="TEXT", help="Only streams with this in their topic or in a name of their client.")
]
Held = Annotated[bool, typer.Option("--held", help="Only streams with held messages.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print each refresh as one line of JSON with every field.")]


@asks_proxies
def top(  # noqa: PLR0913 - one for each option
    *,
    admin: Sequence[AdminOptions],
    interval: Interval = "1s",
    once: Once = False,
    sort: Sort = "held",
    rows: Rows = 20,
    tenant: Tenant = "",
    topic: Topic = "",
    role: Role = "",
    search: Search = "",
    held: Held = False,
    json: AsJson = False,
) -> None:
    """Show which streams are held, by which limit, and rates; live.

    Ctrl-C ends it. Output into a pipe or a file is plain text. Of several proxies one table is made; one that does not
    answer is named above it; the exit code of --once is 1 then, after the table of the others.
    """
    from proxy.cli.admin_link import AdminLink
    from proxy.cli.top_view import TopRequest, run
    from proxy.config.values import read_span

    try:
        interval_s = read_span(interval)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--interval") from None
    if not 0.1 <= interval_s <= 3600:
        raise typer.BadParameter(f"{interval} is not between 100ms and 1h", param_hint="--interval")
    choice = {"tenant": tenant, "topic": topic, "role": role, "search": search, "held": "1" if held else ""}
    wanted = {name: value for name, value in choice.items() if value}
    run(TopRequest([AdminLink(options) for options in admin], interval_s, once, sort, rows, wanted, json))


@asks_proxy
def fleet(
    *,
    admin: AdminOptions,
    json: Json = False,
    rows: Rows = 50,
) -> None:
    """Show who coordinates a proxy's fleet, its members, and the proxy's shares.

    Where it coordinates, the shares of all members are shown as well.
    """
    from proxy.cli.admin_link import AdminLink
    from proxy.cli.top_view import show_fleet

    show_fleet(AdminLink(admin), rows, as_json=json)
