"""The `sluice` command: each application brings its own commands, this file only hangs them up."""

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import compliance.commands
import loadgen.commands
import proxy.cli.backup
import proxy.cli.doctor
import proxy.cli.drain
import proxy.cli.importing
import proxy.cli.policies
import proxy.cli.serving
import proxy.cli.top
from protocol.exit_codes import ExitCode
from proxy.cli.options import Json, Quiet, option, print_json

WITHOUT_JSON = {
    "serve": "its output is the log, which is JSON by `log.format: json`, and by default unless it goes to a terminal"
}
"""The commands that have no `--json`, and why."""
_HALF, _SCREEN = 39, 79
"""Columns of one column of commands, and of the whole help."""


class _FrontPage(TyperGroup):
    """The group of all commands, whose help fits a screen of 24 lines: two columns of commands by their use."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        lines = [*self._columns(ctx)]
        options = [", ".join(each.opts) for each in self.get_params(ctx) if not getattr(each, "hidden", False)]
        parts = [
            f"Usage: {ctx.command_path} [OPTIONS] COMMAND [ARGS]...",
            "",
            self.help or "",
            "",
            *lines,
            "",
            *_wrapped("Options: ", options),
            f"`{ctx.command_path} COMMAND --help` has what a command does, and its options.",
        ]
        formatter.write("\n".join(parts) + "\n")

    def _columns(self, ctx: Any) -> Iterator[str]:
        parts: dict[str, list[str]] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            assert isinstance(command, TyperCommand | TyperGroup)
            parts.setdefault(str(command.rich_help_panel), []).append(f"  {name:<10} {command.short_help}")
        left, right = list[str](), list[str]()
        half = (sum(map(len, parts.values())) + len(parts)) / 2
        for title, commands in parts.items():
            side = left if len(left) + (len(commands) + 1) / 2 <= half and not right else right
            side += [f"{title}:", *commands]
        for line, other in zip_longest(left, right, fillvalue=""):
            yield f"{line:<{_HALF}} {other}".rstrip()


def _wrapped(head: str, words: list[str]) -> Iterator[str]:
    line = head
    for number, word in enumerate(words):
        part = f"{word}{'' if number == len(words) - 1 else ' | '}"
        if len(line) + len(part) > _SCREEN:
            yield line.rstrip()
            line = " " * len(head)
        line += part
    yield line


app = typer.Typer(
    name="sluice",
    cls=_FrontPage,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)
_compliance = typer.Typer(no_args_is_help=True)


def _hang(
    part: str,
    summary: str,
    command: Callable[..., None],
    *,
    name: str | None = None,
    group: typer.Typer = app,
    shows: bool = False,
) -> None:
    """Hang up a command, with the option `-q`.

    Args:
        part: The part of the help that lists it.
        summary: Its effect in few words, for that list.
        command: The command. One with a parameter `quiet` minds it itself; the standard output of others is silenced,
            unless `--json` asks for it.
        name: Its name, if it is not that of the function.
        group: The group that it belongs to.
        shows: Its only effect is what it prints, which `-q` therefore leaves.
    """
    hang = group.command(name, short_help=summary, rich_help_panel=part)
    hang(_with_quiet(command, shows=shows))


def _with_quiet(command: Callable[..., None], *, shows: bool) -> Callable[..., None]:
    own = inspect.signature(command)
    minds = "quiet" in own.parameters

    @functools.wraps(command)
    def run(*, context: typer.Context, quiet: bool, **given: Any) -> None:
        is_quiet = quiet or bool(context.obj)
        if minds:
            given["quiet"] = is_quiet
        with _silence() if is_quiet and not (minds or shows or given.get("json")) else contextlib.nullcontext():
            command(**given)

    more = [option("context", inspect.Parameter.empty, typer.Context)]
    if not minds:
        more.append(option("quiet", default=False, kind=Quiet))
    signature = own.replace(parameters=[*own.parameters.values(), *more])
    run.__signature__ = signature  # type: ignore[attr-defined] # where inspect looks for one
    run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return run


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - it reads mail, which no other command needs

    return version("pulsar-sluice")


def _show_version(*, is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"sluice {_version()}")
        raise typer.Exit


def version(*, json: Json = False) -> None:
    """Print the version, and whether hot modules run compiled."""
    from proxy.runtime import is_compiled  # noqa: PLC0415 - it has the event loop

    if json:
        print_json({"version": _version(), "is_compiled": is_compiled()})
        return
    typer.echo(f"{_version()} ({'compiled' if is_compiled() else 'interpreted'})")


@app.callback()
def sluice(
    context: typer.Context,
    *,
    quiet: Quiet = False,
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """A rate-limiting proxy for Apache Pulsar, with rate-compliance reports."""
    context.obj = quiet
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(ExitCode.USAGE)


@_compliance.callback()
def _of_group(context: typer.Context, *, quiet: Quiet = False) -> None:
    context.obj = quiet or context.obj


_hang("Serve", "run the proxy", proxy.cli.serving.serve)
_hang("Serve", "check a configuration", proxy.cli.serving.check)
_hang("Serve", "have its clients move on", proxy.cli.drain.drain)
_hang("Serve", "print the version", version, shows=True)
_hang("Clients", "keep a client or topic out", proxy.cli.policies.block)
_hang("Clients", "take a block back", proxy.cli.policies.unblock)
_hang("Clients", "what is blocked, and why", proxy.cli.policies.blocks, shows=True)
_hang("Clients", "end what clients have open", proxy.cli.policies.kick)
_hang("Reports and trials", "judge an access log", compliance.commands.report)
_hang("Reports and trials", "add new lines, each once", compliance.commands.run, group=_compliance)
_hang("Reports and trials", "a stand-in Pulsar broker", loadgen.commands.broker)
_hang("Reports and trials", "offer load, and count", loadgen.commands.load)
_hang("See", "what is held, and why", proxy.cli.top.top, shows=True)
_hang("See", "a fleet's members, shares", proxy.cli.top.fleet, shows=True)
_hang("See", "problems, with remedies", proxy.cli.doctor.doctor)
_hang("See", "which limits hold, and why", proxy.cli.policies.explain, shows=True)
_hang("See", "who changed what, and when", proxy.cli.policies.audit, shows=True)
_hang("Limits", "write those in force", proxy.cli.policies.export, shows=True)
_hang("Limits", "make those of a file hold", proxy.cli.policies.apply)
_hang("Limits", "compare those of a file", proxy.cli.policies.diff)
_hang("Limits", "take those of a broker", proxy.cli.importing.import_limits, name="import")
_hang("Limits", "save what run time set", proxy.cli.backup.backup)
_hang("Limits", "put a backup in its place", proxy.cli.backup.restore)
app.add_typer(
    _compliance,
    name="compliance",
    help=compliance.commands.app.info.help,
    short_help="keep tables of the log",
    rich_help_panel="Reports and trials",
)


def main() -> None:
    """Run the command line."""
    app()
