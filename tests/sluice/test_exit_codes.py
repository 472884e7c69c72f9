"""One table of exit codes for all commands: no answer, a bad file, a wrong command line, a refusal, findings."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner, Result

from protocol.exit_codes import ExitCode
from sluice.cli import app
from sluice.reference import all_commands, reference
from tests.proxy.admin_client import Admin

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
    *("", "serv", "compliance", "compliance runs", "block role", "unblock role", "block", "unblock"),
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

VALUES_OF_PROXIES = [
    *("kick", "kick --address 1.2.3", "kick --tenant= --role r", "kick --connection x", "unblock user u"),
    *("block user u", "block address 1.2.3", "block role r --topic a/b/c", "explain ftp://a/b/c"),
]
"""Values that the proxy examines."""


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


# ---- answers of a proxy

TOKENS = """
ops: {access: write, token: write-0123456789}
prom: {access: read, token: read-0123456789a}
acme: {access: write, token: acme-0123456789ab, tenants: [acme]}
"""


@pytest.fixture
async def serving() -> AsyncIterator[Callable[..., Awaitable[Admin]]]:
    """Starts the admin address of a proxy with a configuration."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Admin:
            admin = Admin(**settings)
            await stack.enter_async_context(admin.client)
            return admin

        yield start


async def asked(admin: Admin, line: str, files: dict[str, Path]) -> Result:
    """Run a command beside the loop that answers it."""
    address = f"{admin.client.host}:{admin.client.port}"
    command = line.format(**files).split()
    return await asyncio.to_thread(CliRunner().invoke, app, command, env={"SLUICE_ADMIN": address})


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, Any]:
    """The configuration of an address that needs a token, and a file for each caller."""
    path = tmp_path / "tokens.yaml"
    path.touch(mode=0o600)
    path.write_text(TOKENS)
    texts = {"none": "not-known-any-more", "prom": "read-0123456789a", "acme": "acme-0123456789ab"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {"admin_access": {"tokens": path}}


@pytest.mark.parametrize("line", VALUES_OF_PROXIES)
async def test_value_that_the_proxy_does_not_take(line: str, files: dict[str, Path], serving) -> None:
    result = await asked(await serving(), line, files)
    assert (result.exit_code, bool(result.stderr)) == (ExitCode.USAGE, True), result.output


OF_PROXIES = [line for line in UNANSWERED if line.split()[0] not in {"load", "import"} and "broker" not in line]
CHANGING = [line for line in OF_PROXIES if line.split()[0] in {"drain", "block", "unblock", "kick", "apply"}]


@pytest.mark.parametrize("token", ["", " --token-file {folder}/none"])
@pytest.mark.parametrize("line", OF_PROXIES)
async def test_caller_without_access(line: str, token: str, files: dict[str, Path], tokens, serving) -> None:
    result = await asked(await serving(**tokens), line + token, files)
    assert (result.exit_code, "token" in result.stderr) == (ExitCode.FAILED, True), result.output


@pytest.mark.parametrize("line", CHANGING)
async def test_caller_that_may_only_read(line: str, files: dict[str, Path], tokens, serving) -> None:
    result = await asked(await serving(**tokens), f"{line} --token-file {{folder}}/prom", files)
    assert (result.exit_code, "may only read" in result.stderr) == (ExitCode.FAILED, True), result.output


async def test_caller_of_one_tenant(files: dict[str, Path], tokens, serving) -> None:
    result = await asked(await serving(**tokens), "blocks --token-file {folder}/acme", files)
    assert (result.exit_code, bool(result.stderr)) == (ExitCode.FAILED, True), result.output


async def test_refusal_of_one_block_too_many(files: dict[str, Path], serving, monkeypatch) -> None:
    monkeypatch.setattr("proxy.block_rules.MOST_RULES", 1)
    admin = await serving(blocks=[{"role": "billing"}])
    result = await asked(admin, "block role r", files)
    assert (result.exit_code, "unblock some first" in result.stderr) == (ExitCode.FAILED, True), result.output


async def test_answer_of_another_server(files: dict[str, Path]) -> None:
    """As nginx answers plain HTTP at a port of TLS."""

    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=400, text="<h1>400 Bad Request</h1>", content_type="text/html")

    nginx = web.Application()
    nginx.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(nginx) as server:
        for line in OF_PROXIES:
            command = f"{line} --admin {server.host}:{server.port}".format(**files).split()
            result = await asyncio.to_thread(CliRunner().invoke, app, command)
            assert (result.exit_code, bool(result.stderr)) == (ExitCode.FAILED, True), result.output


async def test_differences(files: dict[str, Path], serving) -> None:
    limited = await serving(limits={"proxy": {"publish": {"messages": 5}}})
    assert (await asked(limited, "diff {good}", files)).exit_code == ExitCode.FINDINGS
    assert (await asked(await serving(), "diff {good}", files)).exit_code == ExitCode.DONE


async def test_problems_of_a_proxy(files: dict[str, Path], serving) -> None:
    result = await asked(await serving(), "doctor", files)
    assert result.exit_code == ExitCode.FINDINGS, result.output


def test_lost_messages(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.load.run.run", lambda *_: None)
    monkeypatch.setattr("loadgen.load.run.document", lambda *_: {"faults": ["1 of 10 has no receipt"]})
    assert ended(f"{LOAD} --scenario {{scenario}}", files).exit_code == ExitCode.FINDINGS


def test_stand_in_broker_that_cannot_go_on(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise ValueError("not of an option")

    monkeypatch.setattr("loadgen.standin.server.run", run)
    assert ended("broker --listen 127.0.0.1:0", files).exit_code == ExitCode.FAILED


def test_all_commands_are_tried() -> None:
    without = {"version"}  # it asks and reads nothing
    assert {name for name in NAMES if not any(line.startswith(name) for line in UNANSWERED + OF_FILES)} == without


def test_the_reference_has_the_table() -> None:
    for code in ExitCode:
        assert f"| {code:d} | {code.meaning} |\n" in reference()
