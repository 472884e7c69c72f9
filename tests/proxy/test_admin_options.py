"""The options of commands that ask a running proxy."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from proxy.cli.options import AdminLinkError, AdminOptions, asks_proxy

runner = CliRunner()
given: list[AdminOptions] = []


@asks_proxy
def look(name: Annotated[str, typer.Argument()], *, admin: AdminOptions, often: bool = False) -> None:
    """Look at something."""
    given.append(admin)
    if name == "wrong":
        raise AdminLinkError("127.0.0.1:8080: no answer")
    typer.echo(f"{name} {often}")


@pytest.fixture
def app() -> typer.Typer:
    given.clear()
    app = typer.Typer()
    app.command()(look)
    return app


def test_what_is_not_given_has_its_default(app: typer.Typer) -> None:
    assert runner.invoke(app, ["x"]).output == "x False\n"
    assert given == [AdminOptions("127.0.0.1:8080", None, None, None, None)]


def test_options_and_environment_name_the_same_and_options_win(app: typer.Typer) -> None:
    names = ("ADMIN", "TOKEN_FILE", "CA", "CERT", "KEY")
    environment = {f"SLUICE_{name}": name.lower() for name in names}
    runner.invoke(app, ["x"], env=environment)
    token, ca, cert, key = (Path(name.lower()) for name in names[1:])
    assert given == [AdminOptions("admin", token, ca, cert, key)]
    runner.invoke(app, ["x", "--admin", "a:1", "--ca", "other"], env=environment)
    assert given[1] == AdminOptions("a:1", token, Path("other"), cert, key)


def test_tokens_go_out_in_the_clear_only_if_told(app: typer.Typer) -> None:
    for words, environment in ((["x"], {}), (["x", "--plain-http"], {}), (["x"], {"SLUICE_PLAIN_HTTP": "1"})):
        assert runner.invoke(app, words, env=environment).exit_code == 0
    assert [each.plain_http for each in given] == [False, True, True]


def test_the_commands_own_options_and_words_stay(app: typer.Typer) -> None:
    assert runner.invoke(app, ["x", "--often"]).output == "x True\n"
    shown = runner.invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for word in ("Look at something.", "--often", "--admin", "--token-file", "--ca", "--cert", "--key", "--plain-http"):
        assert word in shown


def test_no_answer_is_one_line_and_exit_code_1(app: typer.Typer) -> None:
    done = runner.invoke(app, ["wrong"])
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "sluice: 127.0.0.1:8080: no answer\n")
