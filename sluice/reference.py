"""Makes `docs/commands.md` from the command line itself.

python -m sluice.reference > docs/commands.md
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from protocol.exit_codes import ExitCode
from sluice.cli import WITHOUT_JSON, app

_WIDTH = 100
_OF_TYPES = {int: "INTEGER", float: "NUMBER", Path: "PATH"}
_HEAD = """\
# Commands

Made from the command line by `python -m sluice.reference > docs/commands.md`; `sluice COMMAND
--help` says the same. The configuration file: [configuration.md](configuration.md).

The exit codes are the same for all commands:

| exit code | meaning |
|---|---|
{codes}

`-q`, before or after a command, leaves errors and the result that was asked for: by `--json`, or by a command that only
shows or writes one, as `explain` and `export`. `--json` prints the result as JSON; of commands that write files or run
on, it is one object at the end. `sluice serve` writes its log with `-q`, too: the key `log.level` chooses its lines.
`sluice --install-completion` has the shell complete commands and options.

{without_json}
"""


Parameter = TyperArgument | TyperOption


def commands(group: TyperGroup, prefix: str = "sluice") -> Iterator[tuple[str, TyperCommand]]:
    """Yield the commands with their whole names; of a group its commands, not the group."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{prefix} {name}")
        elif isinstance(command, TyperCommand):
            yield f"{prefix} {name}", command


def all_commands() -> list[tuple[str, TyperCommand]]:
    """Return the commands of `sluice`."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return list(commands(group))


def parameters(command: TyperCommand) -> list[Parameter]:
    """Arguments and options that are not hidden."""
    return [each for each in command.params if isinstance(each, TyperArgument | TyperOption) and not each.hidden]


def reference() -> str:
    """The whole page."""
    without_json = _prose(
        "\n".join(f"`sluice {name}` has no `--json`: {reason}." for name, reason in WITHOUT_JSON.items())
    )
    codes = "\n".join(f"| {code:d} | {code.meaning} |" for code in ExitCode)
    return "\n".join(
        [
            _HEAD.format(codes=codes, without_json=without_json),
            *(_section(name, command) for name, command in all_commands()),
        ]
    )


def _section(name: str, command: TyperCommand) -> str:
    params = parameters(command)
    words = [_word(each) for each in params if isinstance(each, TyperArgument)]
    usage = " ".join([name, *(["[OPTIONS]"] if len(words) < len(params) else []), *words])
    entries = "".join(f"{_entry(each)}\n" for each in params)
    return f"## {name}\n\n```sh\n{usage}\n```\n\n{_prose(command.help or '')}\n" + (f"\n{entries}" if entries else "")


def _entry(parameter: Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if isinstance(parameter, TyperArgument):
        names = f"`{_word(parameter)}`"
    elif not parameter.is_flag:
        names += f" *{_word(parameter)}*"
    entry = f"- {names}: {' '.join((parameter.help or '').split())}{_default(parameter)}"
    return textwrap.fill(entry, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _word(parameter: Parameter) -> str:
    """Return the placeholder of an option's value."""
    if parameter.metavar or isinstance(parameter, TyperArgument):
        return parameter.metavar or (parameter.name or "").upper()
    annotation = parameter.type_descriptor.annotation
    return _OF_TYPES.get(annotation, "TEXT")


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return " Must be given."
    if (
        parameter.default in (None, False, "")
        or callable(parameter.default)
        or "default" in (parameter.help or "").lower()
    ):
        return ""
    default = ", ".join(parameter.default) if isinstance(parameter.default, list) else parameter.default
    return f" Default: `{default}`."


def _prose(text: str) -> str:
    """Paragraphs, wrapped; lines that stand alone, as those of exit codes, stay so."""
    parts = re.split(r"\n\s*\n", text.strip().replace("\b\n", ""))
    return "\n\n".join(textwrap.fill(" ".join(part.split()), _WIDTH, break_on_hyphens=False) for part in parts)


def main() -> None:
    """Print the page."""
    sys.stdout.write(reference())


if __name__ == "__main__":
    main()
