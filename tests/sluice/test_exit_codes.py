"""One table of exit codes for all commands, whatever goes wrong."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from protocol.exit_codes import ExitCode
from sluice.cli import app
from sluice.reference import all_commands, reference

NAMES = [name.removeprefix("sluice ") for name, _ in all_commands()]
NOWHERE = "127.0.0.1:1"
BROKER_URL = "http://127.0.0.1:1"
LOAD = "load --service-url pulsar://127.0.0.1:1"
SCENARIO = "tenants: {a: {topics: {b/c: {pattern: {kind: steady, rate: 1}}}}}"

UNANSWERED = [
    *("drain", "block role r", "unblock role r", "blocks", "kick --role r", "top --once", "fleet", "doctor"),
    *("explain a/b/c", "audit", "export", "apply {good}", "diff {good}", "backup {folder}/new"),
    f"doctor --streams --broker-admin {BROKER_URL}",
    f"import --from-admin {BROKER_URL}",
    f"{LOAD} --seconds 0.1 --scenario {{scenario}}",
]
"""Commands that ask a proxy or a broker."""
OF_FILES = [
    *("serve --config {file}", "check --config {file}", "check --json --config {file}"),
    *(
        "apply {file}",
        "diff {file}",
        "import {file}",
        "restore {file} {folder}/store",
        "backup {folder}/new --store {file}",
    ),
    *(f"{LOAD} --scenario {{file}}", f"{LOAD} --ca {{file}} --seconds 0.1 --scenario {{scenario}}"),
    "broker --listen pulsar+ssl://127.0.0.1:0 --certificate {file}",
    *("report --access-log {file} --out {folder}/out", "report --tables {file} --out {folder}/out"),
    "report --access-log {folder} --out {folder}/out --what-if {file}",
    "report --verify --access-log {file} --out {folder}/out",
    "compliance run --access-log {file} --out {folder}/out",
    f"import --from-admin {BROKER_URL} --token-file {{file}}",
    f"doctor --streams --broker-admin {BROKER_URL} --broker-token-file {{file}}",
    *(
        f"{name} --token-file {{file}}"
        for name in ("drain", "block role r", "unblock role r", "blocks", "kick --role r")
    ),
    *(
        f"{name} --token-file {{file}}"
        for name in ("top --once", "fleet", "doctor", "explain a/b/c", "audit", "export")
    ),
    *(f"fleet --{option} {{file}}" for option in ("ca", "cert")),
]
"""Commands that read a file or a folder."""
WRONG_WORDS = [
    *("", "serv", "compliance", "compliance runs", "kick", "kick --address 1.2.3", "kick --tenant= --role r"),
    *("kick --connection x", "block user u", "block address 1.2.3", "block role r --topic a/b/c", "unblock user u"),
    *(
        "top --sort foo",
        "top --rows 0",
        "top --interval soon",
        "top --admin a:b:c",
        "fleet --admin http://x --ca {good}",
    ),
    *("fleet --key {good} --admin https://x:1", "doctor --tenant t", "doctor --streams", "audit --limit x"),
    *("doctor --streams --broker-admin ftp://x", "import", "import --from-admin ftp://x", "apply", "restore {good}"),
    *(
        "broker --listen x",
        "broker --listen 127.0.0.1:0 --partitioned t",
        "broker --listen 127.0.0.1:0 --certificate {good}",
    ),
    *("load --service-url nowhere --scenario {scenario}", f"{LOAD} --seconds x --scenario {{scenario}}", "load"),
    *("report --out {folder}/out", "report --out {folder}/out --access-log {folder} --tables {folder}", "report"),
    *("report --verify --out {folder}/out", "report --out {folder}/out --access-log {folder} --from soon"),
    *("compliance run --out {folder}/out", "compliance run --out {folder}/out --source tape", "serve --processes x"),
    *("compliance run --out {folder}/out --access-log {folder} --spark x", "check --processes x"),
]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load tools wait 20 s for a broker."""
    monkeypatch.setattr("loadgen.load.clients.TIMEOUT_S", 1)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Files that are as they should be, one that is not, and one that is not there."""
    texts = {"good": "limits: {}\n", "scenario": SCENARIO, "wrong": "[\x01 \\u12"}
    paths = {name: tmp_path / name for name in texts} | {"folder": tmp_path, "missing": tmp_path / "none" / "missing"}
    for name, text in texts.items():
        paths[name].write_text(text)
    return paths


def ended(line: str, files: dict[str, Path]) -> Result:
    return CliRunner().invoke(app, line.format(**files).split(), env={"SLUICE_ADMIN": NOWHERE})


@pytest.mark.parametrize("line", UNANSWERED)
def test_no_answer(line: str, files: dict[str, Path]) -> None:
    result = ended(line, files)
    assert (result.exit_code, bool(result.stderr)) == (ExitCode.FAILED, True), result.output


@pytest.mark.parametrize("kind", ["missing", "wrong", "folder"])
@pytest.mark.parametrize("line", OF_FILES)
def test_input_that_cannot_be_used(line: str, kind: str, files: dict[str, Path]) -> None:
    result = ended(line, files | {"file": files[kind]})
    assert result.exit_code == ExitCode.FAILED, result.output


@pytest.mark.parametrize("line", [*WRONG_WORDS, *(f"{name} --unknown-option" for name in NAMES)])
def test_wrong_command_line(line: str, files: dict[str, Path]) -> None:
    assert ended(line, files).exit_code == ExitCode.USAGE


def test_all_commands_are_tried() -> None:
    without = {"version"}  # it asks and reads nothing
    assert {name for name in NAMES if not any(line.startswith(name) for line in UNANSWERED + OF_FILES)} == without


def test_the_reference_has_the_table() -> None:
    for code in ExitCode:
        assert f"| {code:d} | {code.meaning} |\n" in reference()
