"""`sluice top` and `sluice fleet`, which look at a running proxy; their imports happen when they run."""

from typing import Annotated, Literal

import typer

from proxy.cli.options import AdminOptions, asks_proxy

Interval = Annotated[str, typer.Option(metavar="DURATION", help="Time between two looks; rates are means over it.")]
Once = Annotated[bool, typer.Option(help="Print one table, after two looks, and end.")]
Sort = Annotated[
    Literal["held", "rate", "wait"],
    typer.Option(help="Order of the rows: most messages held, highest rate passed, or longest held."),
]
Rows = Annotated[int, typer.Option(min=1, max=10_000, help="Most rows shown at a time.")]


@asks_proxy
def top(
    *,
    admin: AdminOptions,
    interval: Interval = "1s",
    once: Once = False,
    sort: Sort = "held",
    rows: Rows = 20,
) -> None:
    """Show which streams are held, by which limit and since when, and the passed rates; live, until Ctrl-C.

    Output into a pipe or a file is plain text.
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
    run(TopRequest(AdminLink(admin), interval_s, once, sort, rows))


@asks_proxy
def fleet(
    *,
    admin: AdminOptions,
    json: Annotated[bool, typer.Option("--json", help="Print the answer of /sluice/fleet as it is.")] = False,
    rows: Rows = 50,
) -> None:
    """Show a proxy's part in its fleet: who coordinates, its shares, and those of all members where it coordinates."""
    from proxy.cli.admin_link import AdminLink
    from proxy.cli.top_view import show_fleet

    show_fleet(AdminLink(admin), rows, as_json=json)
