"""`sluice check` finds what `sluice serve` would refuse at its start, all of it at once, and makes nothing."""

import fcntl
import json
import os
import socket
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from loadgen.real.process import free_ports
from proxy.assembly import ConfigSource, Proxy
from proxy.config.model import NO_LIMITS, Config, load_config
from proxy.policies.store import Store
from proxy.runtime import StartError
from proxy.start_check import StartCheck
from sluice.cli import app
from tests.proxy.identity.test_passwords import HASHES


def check(**values: Any) -> StartCheck:
    return StartCheck.of(Config.model_validate({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"} | values))


def test_nothing_is_found_about_a_good_configuration(tmp_path: Path) -> None:
    start_check = check(
        access_log={"dir": tmp_path / "log"},
        policies={"store": tmp_path / "p.db"},
        drain={"state": tmp_path / "state"},
        max_connections=10,
    )
    assert (start_check.problems, start_check.warnings) == ([], [])
    assert list(tmp_path.iterdir()) == []


def test_all_that_is_wrong_is_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    missing = tmp_path / "none"
    start_check = check(
        listen="pulsar+ssl://127.0.0.1:0",
        tls={"certificate": missing, "key": missing},
        admin_access={"tokens": missing},
        access_log={"dir": tmp_path / "file", "address_key": missing},
        policies={"store": missing / "p.db"},
        fleet={"name": "f", "token_file": missing},
    )
    keys = [problem.split(":")[0] for problem in start_check.problems]
    expected = ("admin_access.tokens", "tls.certificate", "fleet.token_file", "policies.store", "access_log.dir")
    assert {*expected, "access_log.address_key"} <= {*keys}


def test_state_folder_that_is_no_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "state"):
        start_check = check(drain={"state": folder})
        assert start_check.problems == [f"drain.state: {folder}: {tmp_path / 'file'} is not a folder"]
        config = Config.model_validate({"drain": {"state": folder}})
        with pytest.raises(StartError, match=rf"^drain\.state: {folder}: cannot be read and written by this user \("):
            Proxy(ConfigSource(None, config.model_copy))


@pytest.mark.parametrize(
    ("room", "condition"), [({"f_bavail": 0}, "is full"), ({"f_favail": 0}, "takes no further file")]
)
def test_disk_without_room_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: dict[str, int], condition: str
) -> None:
    has = {"f_blocks": 9, "f_bavail": 9, "f_files": 9, "f_favail": 9} | room
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**has))
    start_check = check(
        policies={"store": tmp_path / "p.db"}, drain={"state": tmp_path}, access_log={"dir": tmp_path / "log"}
    )
    keys, text = {"policies.store", "drain.state", "access_log.dir"}, f"the file system of {tmp_path} {condition}"
    of_start = {each.split(":")[0]: each for each in start_check.problems}
    of_serving = {each.split(":")[0]: each for each in start_check.warnings}
    assert set(of_start) == ({"policies.store"} if condition == "is full" else keys)
    assert all(text in (of_start | of_serving)[key] for key in keys)


def test_what_is_wrong_in_the_file_hides_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(f"max_connection: 5\nadmin_access: {{tokens: {tmp_path}/none}}\nlinger: 010\n")
    result = CliRunner().invoke(app, ["check", "--config", str(path)])
    assert result.exit_code == 1
    assert f"{path}:1: max_connection: this key is not known here; did you mean max_connections?" in result.stderr
    assert f"{path}:3: linger: '010': " in result.stderr
    assert f"admin_access.tokens: {tmp_path}/none: cannot be read" in result.stderr


@pytest.mark.parametrize("content", [b"", b"no store, but text that is long enough to be taken for one" * 100])
def test_a_file_that_is_no_store_is_found(tmp_path: Path, content: bytes) -> None:
    store = tmp_path / "p.db"
    store.write_bytes(content)
    (problem,) = check(policies={"store": store}).problems
    assert problem.startswith(f"policies.store: {store}: is ")
    with pytest.raises(StartError) as refused:
        Proxy(ConfigSource(None, lambda: Config.model_validate({"policies": {"store": store}})))
    assert str(refused.value) == problem


def test_a_link_to_a_store_that_a_start_makes_is_fine(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "p.db")
    assert check(policies={"store": tmp_path / "link"}, max_connections=10).problems == []
    (tmp_path / "other").symlink_to(tmp_path / "none" / "p.db")
    assert "its folder is not there" in check(policies={"store": tmp_path / "other"}).problems[0]


def test_a_store_without_tables_is_found(tmp_path: Path) -> None:
    store = tmp_path / "p.db"
    with sqlite3.connect(store) as base:
        base.execute("CREATE TABLE other (name TEXT)")
    assert len(check(policies={"store": store}).problems) == 1


def test_stores_of_all_processes_are_checked(tmp_path: Path) -> None:
    for name in ("p.db", "p-1.db"):
        Store(tmp_path / name).close()
    (tmp_path / "p-1.db").write_bytes(b"")
    given = {"policies": {"store": tmp_path / "p.db"}, "admin": "127.0.0.1:0"}
    (problem,) = check(processes=2, **given).problems
    assert problem.startswith(f"policies.store: {tmp_path}/p-1.db: is empty")
    assert check(**given).problems == []
    (tmp_path / "p.db").unlink()
    assert "is not there, but p-1.db is" in check(**given).problems[0]


def test_store_of_a_running_proxy_is_a_warning_with_its_address(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    store = Store(path)
    assert "another process uses it" in check(policies={"store": path}).problems[0]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        start_check = check(policies={"store": path}, listen=f"127.0.0.1:{taken.getsockname()[1]}")
    assert start_check.problems == []
    assert [warning.split(":")[0] for warning in start_check.warnings[:2]] == ["listen", "policies.store"]
    assert "perhaps by the proxy that this start replaces" in start_check.warnings[1]
    store.close()
    assert check(policies={"store": path}).problems == []


def test_a_check_keeps_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    Store(path).close()
    check(policies={"store": path})
    lock = os.open(f"{path}.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)


@pytest.mark.parametrize(("mount", "kind"), [("/proc", "proc"), ("/sys", "sysfs")])
def test_a_folder_below_a_pseudo_file_system_is_found(monkeypatch: pytest.MonkeyPatch, mount: str, kind: str) -> None:
    monkeypatch.setattr("os.access", lambda *_: True)  # as for root
    start_check = check(
        access_log={"dir": f"{mount}/log"}, drain={"state": mount}, policies={"store": Path(mount) / "policies.db"}
    )
    keys = [problem.split(":")[0] for problem in start_check.problems]
    assert sorted(keys) == ["access_log.dir", "drain.state", "policies.store"]
    assert all(f"{mount} is in a file system of type {kind}" in problem for problem in start_check.problems)


def test_an_address_that_cannot_be_had_is_found() -> None:
    start_check = check(listen="192.0.2.1:0")
    assert [problem.split(":")[0] for problem in start_check.problems] == ["listen"]


def test_a_broker_without_an_address_is_a_warning() -> None:
    start_check = check(
        broker="pulsar://no-such-host.invalid:6650", admin_forward={"url": "http://no-such-host.invalid:1"}
    )
    assert start_check.problems == []
    warnings = [each for each in start_check.warnings if "its name cannot be resolved" in each]
    assert [each.split(":")[0] for each in warnings] == ["broker", "admin_forward.url"]


@pytest.mark.parametrize("host", ["127.0.0.1", "LocalHost."])
def test_requests_to_this_proxy_itself_are_refused(host: str) -> None:
    (free_port,) = free_ports(0)
    start_check = check(admin=f"127.0.0.1:{free_port}", admin_forward={"url": f"http://{host}:{free_port}"})
    (problem,) = start_check.problems
    assert problem.startswith(f"admin_forward.url: http://{host}:{free_port}: this is the proxy's own admin address")


def test_too_few_descriptors_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.start_check.highest_limit", lambda: 1024)
    (warning,) = check(max_connections=10_000).warnings
    assert warning.startswith("max_connections: 10000: the process may open 1024 file descriptors and needs 20376")


def test_a_token_that_is_read_later_is_a_warning(tmp_path: Path) -> None:
    start_check = check(admin_forward={"url": "http://127.0.0.1:1", "token": tmp_path / "none"}, max_connections=10)
    assert [each.split(":")[0] for each in start_check.warnings] == ["admin_forward.token"]


def test_keys_that_are_passed_over_are_warnings(tmp_path: Path) -> None:
    jwks = tmp_path / "keys.json"
    good = '{"kty": "oct", "kid": "a", "k": "' + "A" * 64 + '", "alg": "HS256"}'
    jwks.write_text('{"keys": [' + good + ', {"kty": "oct", "kid": "b", "k": "AAAA", "alg": "HS256"}]}')
    token = tmp_path / "token"
    token.write_text("x")
    token.chmod(0o600)
    jwks.chmod(0o600)
    section = {"mode": "terminate", "token": {"jwks": str(jwks)}, "broker": {"token_file": token}}
    start_check = check(authentication=section, max_connections=10)
    assert start_check.problems == []
    assert len(start_check.warnings) == 1


def test_users_and_holders_that_are_passed_over_are_warnings(tmp_path: Path) -> None:
    users, tokens, own = (tmp_path / name for name in ("htpasswd", "tokens.yaml", "token"))
    users.write_text(f"alice:{HASHES['sha1']}\nbob:plain\n")
    tokens.write_text("ops: {access: write, token: 0123456789abcdef}\nprom: {access: reed, token: fedcba9876543210}\n")
    own.write_text("x")
    for path in (users, tokens, own):
        path.chmod(0o600)
    section = {"mode": "terminate", "basic": {"htpasswd": str(users)}, "broker": {"token_file": own}}
    start_check = check(authentication=section, admin_access={"tokens": tokens}, max_connections=10)
    assert start_check.problems == []
    assert [
        warning.split(f"{path}: ")[1][:40] for path, warning in zip((tokens, users), start_check.warnings, strict=True)
    ] == [
        "2: 'prom': access: 'reed': is neither re",
        "line 2: the hash is of no kind that is s",
    ]
    assert start_check.warnings[0].endswith(" (a holder is passed over: its token opens nothing)")
    assert all(str(path) in warning for path, warning in zip((tokens, users), start_check.warnings, strict=True))


def test_warnings_leave_the_exit_code_0(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("broker: pulsar://no-such-host.invalid:6650\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlimits: {}\n")
    result = CliRunner().invoke(app, ["check", "--config", str(path)])
    assert (result.exit_code, result.stdout) == (0, f"{path}: fine\n")
    assert result.stderr.startswith(f"sluice: warning: {path}:1: broker: ")
    assert load_config(path, {}).broker


@pytest.mark.parametrize("content", ["", "# nothing\n"])
def test_an_empty_file_is_a_warning(tmp_path: Path, content: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(content)
    result = CliRunner().invoke(app, ["check", "--values-only", "--config", str(path)])
    assert result.exit_code == 0
    assert result.stderr == f"sluice: warning: {path}: is empty: it has no keys, and {NO_LIMITS}\n"


@pytest.mark.parametrize(("content", "warning"), [("max_connections: 5\n", NO_LIMITS), ("limits: {}\n", "")])
def test_a_file_without_limits_is_a_warning(tmp_path: Path, content: str, warning: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(content)
    result = CliRunner().invoke(app, ["check", "--values-only", "--config", str(path)])
    assert (result.exit_code, result.stderr) == (0, warning and f"sluice: warning: {warning}\n")


@pytest.mark.parametrize(
    ("limits", "warning"),
    [
        ("topics: {'acme/shop/*': {}}", "limits.topics.persistent://acme/shop/*: this is no pattern"),
        ("roles: {'app-*': {}}", "limits.roles.app-*: this is no pattern"),
        ("producers: {'app-*': {}}", "limits.producers.app-*: this is no pattern"),
        ("plans: {gold: {publish: {messages: 5}}}", "limits.plans.gold: no tenant and no namespace has this plan"),
        (
            "namespaces: {pulsar/system: {publish: {messages: 5}}}",
            "limits.namespaces.pulsar/system: its topics are exempt",
        ),
        ("resource_groups: {g: {}}", "limits.resource_groups.g: no tenant and no namespace is attached"),
        ("tenants: {acme: {}}", "limits.tenants.acme: limits nothing"),
        ("namespaces: {a/b: {}}", "limits.namespaces.a/b: limits nothing"),
        ("{plans: {gold: {}}, tenants: {acme: gold}}", "limits.plans.gold: limits nothing"),
        (
            "{plans: {gold: {publish: {messages: 5}}}, tenants: {'a*': gold}, roles: {'*': {}}, producers: {'*': {}}}",
            "",
        ),
    ],
)
def test_limits_that_no_stream_may_have_are_warnings(tmp_path: Path, limits: str, warning: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(f"limits: {limits if limits[0] == '{' else '{' + limits + '}'}\n")
    result = CliRunner().invoke(app, ["check", "--config", str(path), "--values-only"])
    assert result.exit_code == 0
    assert result.stderr.startswith(f"sluice: warning: {path}:1: {warning}" if warning else "")
    assert result.stderr.count("\n") == bool(warning)


def findings(path: Path, *flags: str) -> list[str]:
    result = CliRunner().invoke(app, ["check", "--config", str(path), *flags])
    return [line.removeprefix("sluice: ").removeprefix("warning: ") for line in result.stderr.splitlines()]


def test_each_finding_has_the_line_of_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "jwks").write_text('{"keys": [{"kty": "OKP"}]}')
    path = tmp_path / "sluice.yaml"
    path.write_text(
        f"listen: 127.0.0.1:0\n"
        f"admin_access:\n"
        f"  tokens: {tmp_path}/none\n"
        f"access_log: {{dir: {tmp_path}/file}}\n"
        f"policies:\n"
        f"  store: {tmp_path}/none/p.db\n"
        f"authentication:\n"
        f"  mode: terminate\n"
        f"  token:\n"
        f"    jwks: {tmp_path}/jwks\n"
        f"  broker: {{token_file: {tmp_path}/none}}\n"
        f"limits:\n"
        f"  tenants:\n"
        f"    acme: {{}}\n"
        f"broker: pulsar://no-such-host.invalid:6650\n"
    )
    monkeypatch.setenv("SLUICE_DRAIN__STATE", f"{tmp_path}/file")
    monkeypatch.setattr("proxy.start_check.highest_limit", lambda: 100)
    lines = findings(path, "--admin", "192.0.2.1:1")
    keys = [finding.split(": ")[:2] for finding in lines]
    assert sorted(keys) == sorted(
        [
            [f"{path}:3", "admin_access.tokens"],
            [f"{path}:4", "access_log.dir"],
            [f"{path}:6", "policies.store"],
            [f"{path}:10", "authentication.token.jwks"],
            [f"{path}:11", "authentication.broker.token_file"],
            ["SLUICE_DRAIN__STATE", "drain.state"],
            ["--admin", "admin"],
            [f"{path}:14", "limits.tenants.acme"],
            [f"{path}:15", "broker"],
            ["default", "max_connections"],
        ]
    )
    (tokens,) = [each for each in lines if "admin_access.tokens" in each]
    assert tokens.endswith(": cannot be read: No such file or directory; make this file, or name another")


def test_findings_of_a_folder_name_its_files(tmp_path: Path) -> None:
    for name, text in {
        "a": "limits: {plans: {gold: {publish: {messages: 1}}}}",
        "b": "otlp: {url: http://h, token: /no}",
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    lines = findings(tmp_path, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    assert f"{tmp_path}/a.yaml:1: limits.plans.gold: no tenant and no namespace has this plan" in lines
    assert any(finding.startswith(f"{tmp_path}/b.yaml:1: otlp.token: /no: cannot be read") for finding in lines)


def test_line_of_the_log_about_a_key_has_its_place(tmp_path: Path) -> None:
    good = {"kty": "oct", "kid": "a", "k": "A" * 64, "alg": "HS256"}
    (tmp_path / "jwks").write_text(json.dumps({"keys": [good, good | {"kid": "b", "k": "AAAA"}]}))
    path = tmp_path / "sluice.yaml"
    section = f"{{mode: terminate, token: {{jwks: {tmp_path}/jwks}}, broker: {{token_file: {tmp_path}/none}}}}"
    path.write_text(f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlimits: {{}}\nauthentication: {section}\n")
    (line,) = [each for each in findings(path) if "is passed over" in each]
    assert line.startswith(f"{path}:4: authentication.token.jwks: {tmp_path}/jwks: ")
