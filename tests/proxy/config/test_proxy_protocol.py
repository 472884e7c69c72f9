"""Whose PROXY protocol headers are believed, as it is written."""

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.config.model import Config, ConfigError, load_config
from sluice.cli import app


def load(folder: Path, text: str, environment: dict[str, str] | None = None) -> Config:
    path = folder / "sluice.yaml"
    path.write_text(text)
    return load_config(path, {}, environment or {})


def test_without_a_word_no_header_is_read_and_none_is_sent(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert (config.proxy_protocol.mode, config.proxy_protocol.networks) == ("off", ())
    assert config.broker_proxy_protocol is False


def test_networks_are_written_as_everywhere(tmp_path: Path) -> None:
    config = load(tmp_path, "proxy_protocol: {mode: required, from: [10.0.0.0/24, '2001:db8::/32', 192.0.2.7]}")
    assert config.proxy_protocol.networks == (
        IPv4Network("10.0.0.0/24"),
        IPv6Network("2001:db8::/32"),
        IPv4Network("192.0.2.7/32"),
    )


def test_off_is_a_word_though_yaml_reads_it_as_false(tmp_path: Path) -> None:
    assert load(tmp_path, "proxy_protocol: {mode: off, from: [10.0.0.0/24]}").proxy_protocol.mode == "off"


def test_the_environment_gives_both_keys(tmp_path: Path) -> None:
    variables = {"SLUICE_PROXY_PROTOCOL__MODE": "optional", "SLUICE_PROXY_PROTOCOL__FROM": "10.0.0.5,10.0.0.6"}
    config = load(tmp_path, "", variables)
    assert config.proxy_protocol.mode == "optional"
    assert len(config.proxy_protocol.networks) == 2


@pytest.mark.parametrize(
    ("section", "key", "remedy"),
    [
        ("{mode: required}", "proxy_protocol", "mode required needs from: name the networks of the balancers"),
        ("{mode: optional, from: []}", "proxy_protocol", "mode optional needs from"),
        ("{mode: on, from: [10.0.0.5]}", "proxy_protocol.mode", "required"),
        ("{mode: required, from: [10.0.0.5/8]}", "proxy_protocol.from", "has host bits set"),
        ("{mode: required, from: [balancer]}", "proxy_protocol.from", "does not appear to be an IPv4 or IPv6 network"),
        ("{mode: required, networks: [10.0.0.5]}", "proxy_protocol.networks", "not known"),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_a_remedy(tmp_path: Path, section: str, key: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, f"proxy_protocol: {section}")
    assert any(f"{key}" in problem and remedy in problem for problem in error.value.problems), error.value


def test_a_check_refuses_a_mode_without_networks(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("proxy_protocol: {mode: required}")
    done = CliRunner().invoke(app, ["check", "--config", str(path)])
    assert done.exit_code != 0
    assert "mode required needs from" in done.output
