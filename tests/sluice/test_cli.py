"""The `sluice` command as people meet it."""

import importlib.metadata
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from adminrest.client import AdminClient
from sluice.cli import WITHOUT_JSON, app
from sluice.reference import all_commands
from tests.access_log_files import content_of
from tests.waiting import PATIENCE_S

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SLUICE = [sys.executable, "-m", "sluice"]
UNITS = ("second", "megabyte", "byte", "message", "time")
runner = CliRunner()


def options(command: str) -> list[Any]:
    return [option for option in COMMANDS[command].params if not getattr(option, "hidden", False)]


@contextmanager
def running(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A `sluice` that is gone afterwards, whatever happens."""
    process = subprocess.Popen([*SLUICE, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def next_line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next line of the operator's log that is no warning: the limits of this machine may deserve one.

    It is read byte by byte, as `select` does not know of a line that Python keeps from an earlier read.
    """
    assert process.stderr is not None
    while True:
        text = b""
        while not text.endswith(b"\n"):
            assert select.select([process.stderr], [], [], PATIENCE_S)[0], f"no line within {PATIENCE_S:g} s"
            text += os.read(process.stderr.fileno(), 1) or b"{}\n"
        line: dict[str, Any] = json.loads(text)
        if line["level"] != "warning":
            return line


def test_help_names_every_command_with_what_it_does() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert set(COMMANDS) == {
        "serve",
        "check",
        "compliance",
        "drain",
        "top",
        "fleet",
        "block",
        "unblock",
        "blocks",
        "kick",
        "doctor",
        "explain",
        "export",
        "apply",
        "diff",
        "audit",
        "backup",
        "restore",
        "import",
        "broker",
        "load",
        "report",
        "version",
    }
    for name, command in COMMANDS.items():
        assert name in result.output
        assert command.help, f"{name} says what it does"


def test_help_fits_a_screen() -> None:
    lines = runner.invoke(app, ["--help"]).output.splitlines()
    assert len(lines) <= 23, "the prompt needs the 24th"
    assert max(map(len, lines)) <= 79
    for name, command in COMMANDS.items():
        entry = f"  {name:<10} {command.short_help}"
        assert len(entry) <= 39
        assert sum(line[start:].startswith(entry) for line in lines for start in (0, 40)) == 1


def test_every_command_has_json_but_those_named_with_a_reason() -> None:
    without = {
        name.removeprefix("sluice ")
        for name, command in all_commands()
        if not any("--json" in option.opts for option in command.params)
    }
    assert without == set(WITHOUT_JSON)
    assert all(WITHOUT_JSON.values())


@pytest.mark.parametrize("name", [name.removeprefix("sluice ") for name, _ in all_commands()])
def test_every_command_takes_quiet_on_both_sides(name: str) -> None:
    for arguments in ("-q {} --help", "{} -q --help", "{} --quiet --help", "-q {} -q --help"):
        result = runner.invoke(app, arguments.format(name).split())
        assert (result.exit_code, result.stderr) == (0, "")
        assert f"Usage: sluice {name}" in result.stdout


def test_version_is_an_option_too() -> None:
    assert runner.invoke(app, ["--version"]).output == f"sluice {importlib.metadata.version('pulsar-sluice')}\n"
    document = json.loads(runner.invoke(app, ["version", "--json"]).output)
    assert document["version"] == importlib.metadata.version("pulsar-sluice")


@pytest.mark.parametrize(("limits", "code"), [("{}", 0), ("{tenants: {acme: {publish: fast}}}", 1)])
def test_quiet_leaves_errors_and_the_exit_code(tmp_path: Path, limits: str, code: int) -> None:
    (tmp_path / "sluice.yaml").write_text(f"limits: {limits}")
    command = ["check", "--values-only", "--config", str(tmp_path / "sluice.yaml")]
    loud, quiet, silent = (runner.invoke(app, line) for line in (command, ["-q", *command], [*command, "-q"]))
    assert (loud.exit_code, quiet.exit_code, silent.exit_code) == (code, code, code)
    assert bool(loud.stdout) == (code == 0)
    assert quiet.stdout == silent.stdout == ""
    assert quiet.stderr == silent.stderr == loud.stderr


def test_quiet_leaves_what_json_asks_for() -> None:
    loud = runner.invoke(app, ["version", "--json"]).stdout
    assert runner.invoke(app, ["-q", "version", "--json"]).stdout == loud
    document = json.loads(runner.invoke(app, ["check", "-q", "--json"]).stdout)
    assert document["warnings"], "without limits there is one"
    assert runner.invoke(app, ["check", "-q"]).stderr == ""


def test_check_as_json_has_problems_and_warnings(tmp_path: Path) -> None:
    (tmp_path / "sluice.yaml").write_text("limits: {tenants: {acme: {publish: fast}}}\nlisten: nowhere")
    result = runner.invoke(app, ["check", "--values-only", "--json", "--config", str(tmp_path / "sluice.yaml")])
    document = json.loads(result.output)
    assert result.exit_code == 1
    assert len(document["problems"]) == 2
    assert document["warnings"] == []


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_explains_each_option_and_its_default(command: str) -> None:
    result = runner.invoke(app, [command, "--help"], env={"COLUMNS": "250"})
    assert result.exit_code == 0
    for option in options(command):
        assert option.opts[0] in result.output
        assert option.help, f"{command} {option.opts[0]} has a help text"
        if option.default is not None and not isinstance(option.default, bool):
            default = ", ".join(option.default) if isinstance(option.default, list) else option.default
            assert f"[default: {default}" in result.output


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_number_has_its_unit(command: str) -> None:
    for option in options(command):
        if isinstance(option.default, int | float) and not isinstance(option.default, bool):
            assert any(unit in option.help.lower() for unit in UNITS), f"{command} {option.opts[0]}"


def test_the_proxys_options_name_their_defaults() -> None:
    for option in options("serve"):
        if not option.is_flag and option.opts[0] != "--config":
            assert "Default: " in option.help


def test_without_a_command_there_is_help() -> None:
    assert "Usage:" in runner.invoke(app, []).output


def test_an_unknown_command_is_no_traceback() -> None:
    result = runner.invoke(app, ["serv"])
    assert result.exit_code == 2
    assert "No such command 'serv'" in result.output


def test_help_loads_none_of_the_heavy_libraries() -> None:
    """`sluice --help` is fast, and the proxy's image has no Spark at all."""
    code = (
        "import sys, sluice.cli\n"
        "heavy = ['aiohttp', 'pyspark', 'uvloop', 'pydantic', 'google.protobuf', 'prometheus_client', '_pulsar']\n"
        "heavy += ['asyncio', 'ssl', 'importlib.metadata']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_port_in_use_gives_one_clear_line_and_exit_code_1(tmp_path: Path) -> None:
    with running("serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0") as first:
        listen = next_line(first)["listen"]
        second = subprocess.run(
            [*SLUICE, "serve", "--listen", listen, "--admin", "127.0.0.1:0", "--access-log", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert second.returncode == 1
    (line,) = [line for line in second.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith(f"sluice: listen: cannot listen on {listen}: ")
    assert "in use" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_end_and_then_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "log"
    arguments = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--access-log", str(folder)]
    with running("serve", *arguments) as process:
        serving = next_line(process)
        assert (serving["event"], serving["access_log"]) == ("serving", str(folder))
        assert AdminClient(f"http://{serving['admin']}", timeout_s=PATIENCE_S).get("/healthz") == b"alive\n"
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert out == ""
        assert [json.loads(line)["event"] for line in err.splitlines()][-2:] == ["ending", "ended"]
    (log,) = folder.iterdir()
    assert json.loads(content_of(log).splitlines()[-1])["last"] is True
