"""`sluice serve` and `sluice check`: what they say and how they end."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import proxy.serve
from proxy.assembly import ConfigSource, Proxy
from proxy.config.model import Config, ConfigError, load_config
from proxy.runtime import StartError
from sluice.cli import app
from tests.proxy.odd_files import ODD

runner = CliRunner()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that would have been served."""
    served: list[Config] = []
    monkeypatch.setattr(proxy.serve, "run", lambda source, **_: served.append(source.read()))
    return served


def test_serve_lays_the_flags_over_the_file(served: list[Config], tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump({"listen": "127.0.0.1:1", "proxy_id": "from-file"}))
    flags = ["--listen", "127.0.0.1:2", "--broker", "pulsar://b:3", "--admin", "127.0.0.1:4", "--access-log", "logs"]
    result = runner.invoke(app, ["serve", "--config", str(path), *flags])
    assert result.exit_code == 0, result.output
    (config,) = served
    assert (config.listen[0].address, str(config.broker[0]), config.admin.address) == (
        "127.0.0.1:2",
        "pulsar://b:3",
        "127.0.0.1:4",
    )
    assert (config.proxy_id, config.access_log.dir) == ("from-file", Path("logs"))


def test_serve_takes_file_and_values_from_the_environment_too(
    served: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("listen: 127.0.0.1:1\nproxy_id: from-file\n")
    monkeypatch.setenv("SLUICE_CONFIG", str(path))
    monkeypatch.setenv("SLUICE_LISTEN", "127.0.0.1:2")
    monkeypatch.setenv("SLUICE_ADMIN", "127.0.0.1:3")
    assert runner.invoke(app, ["serve", "--admin", "127.0.0.1:4"]).exit_code == 0
    (config,) = served
    assert (config.listen[0].address, config.admin.address, config.proxy_id) == (
        "127.0.0.1:2",
        "127.0.0.1:4",
        "from-file",
    )


@pytest.fixture(autouse=True)
def _many_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines differ in how many a process may have; too few are a warning."""
    monkeypatch.setattr("proxy.start_check.highest_limit", lambda: 100_000)


def test_check_looks_at_the_environment_too(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("linger: soon\n")
    result = runner.invoke(app, ["check", "--config", str(path)], env={"SLUICE_LISTN": "x"})
    assert result.exit_code == 1
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == [f"{path}:1", "SLUICE_LISTN"]


def test_serve_needs_nothing_at_all(served: list[Config]) -> None:
    assert runner.invoke(app, ["serve"]).exit_code == 0
    assert served == [Config()]


def test_serve_tells_every_configuration_error_and_ends_with_1(served: list[Config]) -> None:
    result = runner.invoke(app, ["serve", "--listen", "x", "--broker", "y"])
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "sluice: --listen: listen: 'x': is not host:port; write it as 0.0.0.0:6650",
        "sluice: --broker: broker: 'y': has no scheme; write it as pulsar://broker:6650",
    ]
    assert served == []


def test_serve_tells_in_one_line_why_it_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_config: Config, **_more: object) -> Any:
        raise StartError("listen: cannot listen on 127.0.0.1:1: permission denied")

    monkeypatch.setattr(proxy.serve, "run", fail)
    result = runner.invoke(app, ["serve"])
    assert result.exit_code == 1
    assert result.stderr == "sluice: listen: cannot listen on 127.0.0.1:1: permission denied\n"


def test_check_says_that_a_good_file_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text("limits: {namespaces: {a/b: {publish: {messages: 300, bytes: 1MB}}}}\n")
    result = runner.invoke(app, ["check", "--config", str(path)])
    assert (result.exit_code, result.stdout) == (0, f"{path}: fine\n")


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("admin_access: {tokens: FIFO}", "admin_access.tokens"),
        ("admin_access: {tokens: NONE}", "admin_access.tokens"),
        ("policies: {store: FOLDER}", "policies.store"),
        ("policies: {store: FIFO}", "policies.store"),
        ("policies: {store: NONE/policies.db}", "policies.store"),
        ("access_log: {dir: FILE}", "access_log.dir"),
        ("access_log: {dir: FILE/log}", "access_log.dir"),
    ],
)
def test_check_refuses_files_that_a_start_would_refuse(tmp_path: Path, section: str, key: str) -> None:
    os.mkfifo(tmp_path / "FIFO")
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FILE").touch()
    for name in ("FIFO", "FOLDER", "FILE", "NONE"):
        section = section.replace(name, str(tmp_path / name))
    path = tmp_path / "sluice.yaml"
    path.write_text(f"{section}\nlimits: {{proxy: {{publish: {{messages: 1}}}}}}\n")
    result = runner.invoke(app, ["check", "--config", str(path)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert key in result.stderr
    with pytest.raises((ConfigError, StartError), match=key):
        Proxy(ConfigSource(path, lambda: load_config(path, {})))
    assert runner.invoke(app, ["check", "--config", str(path), "--values-only"]).exit_code == 0


def test_check_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(f"policies: {{store: {tmp_path}/policies.db}}\naccess_log: {{dir: {tmp_path}/a/b}}\n")
    assert runner.invoke(app, ["check", "--config", str(path)]).exit_code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["sluice.yaml"]


def test_addresses_that_are_the_same_are_refused() -> None:
    refused = runner.invoke(app, ["check", "--listen", "127.0.0.1:7000", "--admin", "127.0.0.1:7000"])
    assert refused.exit_code == 1
    assert "listen listens on 127.0.0.1:7000 already" in refused.stderr
    assert runner.invoke(app, ["check", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).exit_code == 0


def test_check_needs_no_file_and_looks_at_flags_as_serve_does() -> None:
    assert runner.invoke(app, ["check"]).stdout == "without a file: fine\n"
    refused = runner.invoke(app, ["check", "--listen", "x"])
    assert (refused.exit_code, refused.stderr) == (
        1,
        "sluice: --listen: listen: 'x': is not host:port; write it as 0.0.0.0:6650\n",
    )


def test_check_shows_what_is_given_where(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("listen: 127.0.0.1:1\nadmin: 127.0.0.1:2\nlimits: {each_topic: {publish: {messages: 300}}}\n")
    variables = {"SLUICE_ADMIN": "127.0.0.1:3", "SLUICE_ACCESS_LOG__INTERVAL": "5s"}
    result = runner.invoke(app, ["check", "--config", str(path), "--listen", "127.0.0.1:4", "--show"], env=variables)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line for line in result.stdout.splitlines() if not line.startswith("#")] == [
        "listen: 127.0.0.1:4  # --listen",
        "admin: 127.0.0.1:3  # SLUICE_ADMIN",
        "access_log:",
        "  interval: 5s  # SLUICE_ACCESS_LOG__INTERVAL",
        "limits:",
        "  each_topic:",
        "    publish:",
        f"      messages: 300  # {path}",
    ]


def test_check_shows_defaults_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("proxy_id: p\n")
    result = runner.invoke(app, ["check", "--config", str(path), "--show-defaults"])
    assert "proxy_id: p  # " in result.stdout
    assert "\nmax_connections: 10000  # default\n" in result.stdout
    assert "\n  max_body: 64KiB  # default\n" in result.stdout
    assert "\n#   tls: none  # default\n" in result.stdout
    path.write_text(result.stdout)
    assert runner.invoke(app, ["check", "--config", str(path)]).exit_code == 0


def test_check_shows_nothing_of_what_is_wrong(tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", "--listen", "x", "--show"])
    assert (result.exit_code, result.stdout) == (1, "")


def test_check_tells_everything_that_is_wrong_and_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("listen: x\nlimits: {namespaces: {a/b: {publish: {messages: fast}}}}\n")
    result = runner.invoke(app, ["check", "--config", str(path)])
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first == f"sluice: {path}:1: listen: 'x': is not host:port; write it as 0.0.0.0:6650"
    assert second.startswith(f"sluice: {path}:2: limits.namespaces.a/b.publish.messages: 'fast': ")


def test_check_tells_in_one_line_that_there_is_no_file(tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", "--config", str(tmp_path / "none.yaml")])
    assert result.exit_code == 1
    assert result.stderr == f"sluice: {tmp_path}/none.yaml: cannot be read: No such file or directory\n"


@pytest.mark.parametrize("kind", ["a FIFO", "a sparse file of 1 GiB", "an endless device"])
@pytest.mark.parametrize("command", [["check", "--config"], ["serve", "--config"], ["apply"], ["diff"], ["import"]])
def test_what_is_no_file_of_a_bounded_size_is_told_in_one_line(
    served: list[Config], tmp_path: Path, command: list[str], kind: str
) -> None:
    make, reason = ODD[kind]
    path = make(tmp_path / "file")
    result = runner.invoke(app, [*command, str(path)])
    assert result.exit_code
    assert served == []
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"sluice: {path}: cannot be read: it ")
    assert reason in line
