"""`sluice doctor`, which asks a running proxy and its broker; its imports happen when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from protocol.exit_codes import ExitCode
from protocol.printable import printable
from proxy.cli.options import AdminOptions, Json, Quiet, asks_proxy, print_json

if TYPE_CHECKING:
    from yarl import URL

    from proxy.cli.admin_link import AdminLink
    from proxy.stream_comparison import Looked

Streams = Annotated[
    bool,
    typer.Option(
        "--streams", help="Compare the producers and consumers of the proxy with those that the broker has, instead."
    ),
]
BrokerAdminUrl = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="The broker's web service, as http://broker:8080, for --streams. Nothing is changed there.",
    ),
]
BrokerTokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Token for the broker's web service. Default: none."),
]
SeenFrom = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="The proxy's own address, as the broker sees it, where others reach the broker without the proxy: only "
        "connections from there are compared. Default: all.",
    ),
]
Tenant = Annotated[str, typer.Option(metavar="TENANT", help="Only streams of this tenant's topics. Default: all.")]
Everywhere = Annotated[
    bool,
    typer.Option(
        "--everywhere",
        help="Look also at topics of the same namespaces that the proxy knows nothing of; the broker loads them.",
    ),
]

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@asks_proxy
def doctor(  # noqa: PLR0913 - one for each option
    *,
    admin: AdminOptions,
    broker_admin: BrokerAdminUrl = "",
    streams: Streams = False,
    broker_token_file: BrokerTokenFile = None,
    seen_from: SeenFrom = "",
    tenant: Tenant = "",
    everywhere: Everywhere = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Examine a running proxy; each finding has its remedy.

    It looks at brokers, clocks, certificates, degraded states, descriptors, kernel, disks, folders, limits and versions
    of a fleet's members. With --streams it lists
    the streams that differ between the proxy and its broker instead: the two are compared twice, 2 s apart, as a
    difference may be there for a moment only. Exit code 0: no problem, no difference. 3: some.
    """
    import asyncio

    from proxy.cli.admin_link import AdminLink
    from proxy.importing.admin_client import Options, read_url, token_in
    from proxy.importing.result import ImportFailed
    from proxy.stream_comparison import TooManyError

    if not streams:
        _examine(admin, is_of_streams=bool(broker_admin or seen_from or tenant or everywhere), json=json, quiet=quiet)
        return
    if not broker_admin:
        raise typer.BadParameter("--streams compares with a broker: name it with --broker-admin")
    options = Options("--broker-admin", "--broker-token-file")
    try:
        url, token, link = read_url(broker_admin, options), token_in(broker_token_file), AdminLink(admin)
        looked = asyncio.run(_look((url, token, options), link, tenant, seen_from, everywhere=everywhere))
    except ImportFailed as error:
        _give_up(error.problems, ExitCode.USAGE if error.is_of_words else ExitCode.FAILED)
    except TooManyError as error:
        _give_up([str(error)], ExitCode.FAILED)
    if json:
        print_json(looked._asdict())
    elif not quiet:
        _tell(looked, everywhere=everywhere)
    if looked.differences:
        raise typer.Exit(ExitCode.FINDINGS)


def _examine(admin: AdminOptions, *, is_of_streams: bool, json: bool, quiet: bool) -> None:
    from proxy.cli.admin_link import AdminLink

    if is_of_streams:
        raise typer.BadParameter("these options choose streams to compare: add --streams")
    shown = AdminLink(admin).get_json("/sluice/doctor")
    problems = sum(each["severity"] == "problem" for each in shown["findings"])
    if json:
        print_json(shown)
    elif not quiet:
        for each in shown["findings"]:
            typer.secho(f"{each['severity']:<8}", fg=_COLOURS[each["severity"]], nl=False)
            typer.echo(f" {each['check']:<13}{printable(each['text'])}")
            if each["remedy"]:
                typer.echo(f"{'':22}to do: {printable(each['remedy'])}")
        count = "1 problem" if problems == 1 else f"{problems} problems"
        typer.echo(f"sluice: {count} in {len(shown['findings'])} findings", err=True)
    if problems:
        raise typer.Exit(ExitCode.FINDINGS)


def _tell(looked: "Looked", *, everywhere: bool) -> None:
    """Print the differences, and the limits of the comparison."""
    for difference in looked.differences:
        typer.echo(printable(difference))
    where = "all topics of the proxy's namespaces" if everywhere else "the topics that the proxy knows of"
    extent = f"in {looked.streams} producers and consumers, on {where} ({looked.topics})"
    if looked.differences:
        typer.echo(f"sluice: {len(looked.differences)} differences {extent}", err=True)
    else:
        typer.echo(f"no difference {extent}")
    if not everywhere:
        typer.echo("sluice: no other topic was looked at, which --everywhere does", err=True)
    if looked.alike:
        typer.echo(
            f"sluice: {looked.alike} consumers have one name with others: only their number is compared", err=True
        )


async def _look(
    broker: "tuple[URL, str, Any]", link: "AdminLink", tenant: str, seen_from: str, *, everywhere: bool
) -> "Looked":
    from proxy.importing.admin_client import connected
    from proxy.stream_comparison import MOST_SHOWN, look

    query = {"limit": str(MOST_SHOWN)} | ({"tenant": tenant} if tenant else {})
    async with connected(*broker) as admin:
        return await look(admin, lambda: link.get_json("/sluice/streams", query), seen_from, everywhere=everywhere)


def _give_up(problems: list[str], code: ExitCode) -> NoReturn:
    for problem in problems:
        typer.echo(f"sluice: {printable(problem)}", err=True)
    raise typer.Exit(code)
