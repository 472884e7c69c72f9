"""The commands about limits and blocks, which ask a running proxy; their imports happen when they run."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiter.levels import CLIENT_PARTS
from protocol.exit_codes import ExitCode
from protocol.printable import printable
from proxy.cli.options import AdminLinkError, AdminOptions, CommandLineError, Json, asks_proxy, option, print_json
from proxy.cli.output import Force, Output, OutputError, check_output, write_output

if TYPE_CHECKING:
    from proxy.cli.admin_link import AdminLink
    from proxy.policies.policy_set import PolicySet

Topic = Annotated[str, typer.Argument(help="persistent://tenant/namespace/topic, or one of its partitions.")]
_CLIENT = tuple(
    option(
        part.word,
        "",
        Annotated[
            str,
            typer.Option(metavar=part.word.upper(), help=f"{part.meaning}. Default: none, its limits are left out."),
        ],
    )
    for part in CLIENT_PARTS
)
File = Annotated[Path, typer.Argument(help="Configuration file with the limits, as `sluice check` takes it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the changes.")]
Number = Annotated[int, typer.Option(min=1, max=10_000, help="Most changes shown at a time.")]

_PATIENCE_S = 120.0
"""100,000 limits take a while to write and to put in force."""


@partial(asks_proxy, more=_CLIENT)
def explain(topic: Topic, *, admin: AdminOptions, json: Json = False, **client: str) -> None:
    """Show which limits hold for a topic and a client, and why.

    Each level is listed with its values, their origin, and what hides what.
    """
    from rich.console import Console

    from proxy.cli.policy_tables import explanation

    client_parts = {key: value for key, value in client.items() if value}
    answer = _link(admin).get_json("/sluice/explain", {"topic": topic, **client_parts})
    if json:
        print_json(answer)
        return
    for part in explanation(answer):
        Console().print(part)


@asks_proxy
def export(*, admin: AdminOptions, output: Output = None, force: Force = False, json: Json = False) -> None:
    """Write the limits and blocks in force as a configuration.

    They are those of the file and of run time together; `sluice check` accepts the result. The file of --output is
    written whole or not at all. With --json the policies are printed as JSON; with --output as well, the file has YAML,
    and their numbers are printed.
    """
    try:
        if output:
            check_output(output, force=force)
        if json:
            _export_as_json(_held(_link(admin)), output, force=force)
            return
        text = _link(admin).get("/sluice/policies").decode()
        if output:
            write_output(output, text, force=force)
        else:
            typer.echo(text, nl=False)
    except OutputError as error:
        typer.echo(f"sluice: {error}", err=True)
        raise typer.Exit(ExitCode.FAILED) from None


def _export_as_json(held: "PolicySet", output: Path | None, *, force: bool) -> None:
    from proxy.policies.policy_set import as_tree, as_yaml

    if output is None:
        print_json({"limits": {}, **as_tree(held)})
        return
    write_output(output, b"".join(as_yaml(held)).decode(), force=force)
    counts = {"limits": len(held.values), "attachments": len(held.attached), "blocks": len(held.blocks or ())}
    print_json({"file": str(output), **counts})


@asks_proxy
def apply(file: File, *, admin: AdminOptions, dry_run: DryRun = False, json: Json = False) -> None:
    """Make the limits of a file hold in a proxy, and no others.

    All change at once, or none. If the file has the key `blocks`, its blocks and no others hold as well. A limit of the
    proxy's own file that is not in this file is hidden by a value that limits nothing.
    """
    from proxy.cli.policy_tables import applied
    from proxy.policies.policy_set import as_tree

    tree = as_tree(_read(file, needs_limits=True))
    body = {"limits": {}, **{key: tree[key] for key in ("limits", "admission", "blocks") if key in tree}}
    try:
        answer = _link(admin).call("PUT", "/sluice/policies", body, {"dry_run": "1" if dry_run else "0"})
    except AdminLinkError as error:  # a 400 is about the file, and not about the command line
        raise error if isinstance(error, CommandLineError) else AdminLinkError(str(error)) from None
    if json:
        print_json(answer)
        return
    for line in applied(answer):
        typer.echo(printable(line))


@asks_proxy
def diff(file: File, *, admin: AdminOptions, json: Json = False) -> None:
    """Compare the limits of a file with those in force.

    Exit code 0: they are the same. 3: they are not. If the file has the key `blocks`, blocks are compared as well.
    """
    from proxy.cli.policy_tables import difference_lines
    from proxy.policies.policy_set import differences

    mismatches = list(differences(_read(file), _held(_link(admin))))
    if json:
        print_json([asdict(mismatch) for mismatch in mismatches])
    else:
        for line in difference_lines(mismatches):
            typer.echo(printable(line))
    if mismatches:
        raise typer.Exit(ExitCode.FINDINGS)


@asks_proxy
def audit(*, admin: AdminOptions, limit: Number = 100, json: Json = False) -> None:
    """Show the changes made at run time: the caller, the time, and the values before and after.

    The newest change comes first.
    """
    from rich.console import Console

    from proxy.cli.policy_tables import audit_lines

    changes: list[dict[str, Any]] = _link(admin).get_json("/sluice/audit", {"limit": str(limit)})["changes"]
    if json:
        print_json(changes)
        return
    if not changes:
        typer.echo("nothing has been changed at run time; the access log has changes of the configuration file")
    for part in audit_lines(changes):
        Console().print(part)


def _link(admin: AdminOptions) -> "AdminLink":
    from proxy.cli.admin_link import AdminLink

    return AdminLink(admin, _PATIENCE_S)


def _held(link: "AdminLink") -> "PolicySet":
    import msgspec

    from proxy.policies.bodies import BodyError
    from proxy.policies.policy_set import decoded

    try:
        return decoded(link.get("/sluice/policies", {"format": "json"}))
    except (msgspec.DecodeError, BodyError) as error:
        raise AdminLinkError(f"{link.address}: its policies cannot be read here: {error}") from None


def _read(file: Path, *, needs_limits: bool = False) -> "PolicySet":
    """Return the policies of a file; ends the command with a line for each problem."""
    from proxy.config.model import ConfigError, load_config
    from proxy.policies.policy_set import of_file

    try:
        config = load_config(file, {})
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(f"sluice: {problem}", err=True)
        raise typer.Exit(ExitCode.FAILED) from None
    if needs_limits and "limits" not in config.model_fields_set:
        typer.echo(f"sluice: {file}: has no limits; to take all away write `limits: {{}}`", err=True)
        raise typer.Exit(ExitCode.FAILED)
    blocks = config.blocks if "blocks" in config.model_fields_set else None
    return of_file(config.limits, config.admission.subscribe_rate_per_consumer, blocks)


Kind = Annotated[str, typer.Argument(help="address, role, producer, consumer, subscription or topic.")]
Name = Annotated[str, typer.Argument(help="The name; an address may be a range: 192.0.2.0/24.")]
OfTopic = Annotated[
    str,
    typer.Option(metavar="TOPIC", help="This topic only (for producer, consumer, subscription). Default: everywhere."),
]
OfNamespace = Annotated[
    str, typer.Option(metavar="TENANT/NAMESPACE", help="This namespace only (for the same kinds). Default: everywhere.")
]
Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Reason for people; clients get it in their error. Default: none.")
]

DryBlock = Annotated[
    bool, typer.Option("--dry-run", help="Only count the connections, producers and consumers that would end.")
]

_BLOCKS = "/sluice/blocks"


@asks_proxy
def block(
    kind: Kind,
    name: Name,
    *,
    admin: AdminOptions,
    topic: OfTopic = "",
    namespace: OfNamespace = "",
    reason: Reason = "",
    dry_run: DryBlock = False,
    json: Json = False,
) -> None:
    """Block clients, producers, consumers, subscriptions or topics by name or address.

    Connections, producers and consumers that the block matches end at once; --dry-run counts them first. The counts
    are those of this proxy. Where a topic carries policies, all members of the fleet block.
    """
    body: dict[str, object] = {"kind": kind, "name": name, "topic": topic, "namespace": namespace, "reason": reason}
    if dry_run:
        body["dry_run"] = True  # in the body, which a proxy without it refuses; it would ignore a query, and block
    answer = _prompt_link(admin).call("POST", _BLOCKS, body)
    if json:
        print_json(answer)
        return
    count, its = answer if dry_run else answer["ended"], answer["block"]
    counts = f"{count['connections']} connections, {count['streams']} producers and consumers"
    named = f"{kind} {printable(its['name'])}"
    if not dry_run:
        typer.echo(f"blocked: {named}; ended {counts}")
    elif answer["was_blocked"]:
        typer.echo(f"blocked already: {named}, since {printable(its['since'])}; would end {counts}")
    else:
        typer.echo(f"would block: {named}; would end {counts}")


@asks_proxy
def unblock(
    kind: Kind,
    name: Name,
    *,
    admin: AdminOptions,
    topic: OfTopic = "",
    namespace: OfNamespace = "",
    json: Json = False,
) -> None:
    """Take a block back; clients may come again at once."""
    parts = {"kind": kind, "name": name, "topic": topic, "namespace": namespace}
    answer = _prompt_link(admin).call("DELETE", _BLOCKS, query={key: value for key, value in parts.items() if value})
    if json:
        print_json(answer)
        return
    if not answer["unblocked"]:
        typer.echo(f"not blocked: {kind} {printable(name)}; `sluice blocks` shows what is")
        return
    typer.echo(f"unblocked: {kind} {printable(name)}" + (f"; {answer['note']}" if answer["note"] else ""))


@asks_proxy
def blocks(*, admin: AdminOptions, json: Json = False) -> None:
    """Show the blocks in force, each with its time and reason.

    `hits` is how often a block refused or ended something.
    """
    from rich.console import Console
    from rich.table import Column, Table

    answer = _prompt_link(admin).get_json(_BLOCKS)
    if json:
        print_json(answer)
        return
    titles = ("kind", "name", "only in", "reason", "since (UTC)", "from", "hits")
    table = Table(*(Column(title, overflow="fold") for title in titles), title="blocked")
    for rule in answer["blocks"]:
        table.add_row(*_cells(rule), rule["origin"], str(rule["hits"]))
    for rule in answer["lifted"]:
        table.add_row(*_cells(rule), "file, lifted", "")
    Console().print(table if table.row_count else "nothing is blocked")


OneTenant = Annotated[
    str | None, typer.Option("--tenant", metavar="TENANT", help="The tenant's producers and consumers.")
]
OneTopic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic's producers and consumers.")]
OneRole = Annotated[str | None, typer.Option("--role", metavar="ROLE", help="Connections of clients with this role.")]
OneAddress = Annotated[
    str | None,
    typer.Option("--address", metavar="ADDRESS", help="Connections from this address or range, as 192.0.2.0/24."),
]
OneConnection = Annotated[
    str | None,
    typer.Option("--connection", metavar="ID", help="The connection with this `connection_id` of the streams."),
]
DryKick = Annotated[
    bool, typer.Option("--dry-run", help="Only count the connections, producers and consumers that would end.")
]


@asks_proxy
def kick(
    *,
    admin: AdminOptions,
    tenant: OneTenant = None,
    topic: OneTopic = None,
    role: OneRole = None,
    address: OneAddress = None,
    connection: OneConnection = None,
    dry_run: DryKick = False,
    json: Json = False,
) -> None:
    """End what clients have open; they may come again at once.

    Of several options all must fit. With a tenant or a topic, producers and consumers end, else whole connections.
    """
    words = {"tenant": tenant, "topic": topic, "role": role, "address": address, "connection": connection}
    given = {word: value for word, value in words.items() if value is not None}
    query = given | {"dry_run": "1" if dry_run else "0"}
    answer = _prompt_link(admin).call("POST", "/sluice/kick", query=query)
    if json:
        print_json(answer)
        return
    done = "ended" if answer["kicked"] else "would end"
    typer.echo(f"{done}: {answer['connections']} connections, {answer['streams']} producers and consumers")


def _cells(rule: dict[str, Any]) -> tuple[Any, ...]:
    from rich.text import Text

    since = rule["since"].removesuffix("+00:00").replace("T", " ")
    where = rule["topic"] or rule["namespace"]
    return tuple(Text(str(cell)) for cell in (rule["kind"], rule["name"], where, rule["reason"], since))


def _prompt_link(admin: AdminOptions) -> "AdminLink":
    from proxy.cli.admin_link import AdminLink

    return AdminLink(admin)
