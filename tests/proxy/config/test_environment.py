"""Variables give values to keys; whatever begins with SLUICE_ and stands for none is a mistake, with few exceptions."""

from pathlib import Path

import pytest

from proxy.config import sources
from proxy.config.model import Config, ConfigError, load_config
from proxy.config.sources import OF_COMMANDS, _is_for_others, read_environment, variables


def problems(path: Path | None, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_config(path, {}, environment)
    return refused.value.problems


def test_a_variable_gives_its_key_a_value_as_the_file_does() -> None:
    config = load_config(
        None,
        {},
        {
            "SLUICE_LISTEN": "0.0.0.0:1",
            "SLUICE_PROXY_ID": "123",
            "SLUICE_MAX_CONNECTIONS": "7",
            "SLUICE_ACCESS_LOG__DIR": "/logs",
            "SLUICE_ACCESS_LOG__ROTATE_SIZE": "10MB",
            "SLUICE_LINGER": "500ms",
            "SLUICE_DISPATCH__PRECISEDISPATCHERFLOWCONTROL": "true",
            "SLUICE_ADMIN_ACCESS__TOKENS": "tokens.yaml",
            "SLUICE_ADMISSION__CONNECTION_RATE": "30/min",
            "PATH": "/bin",
        },
    )
    assert (config.listen[0].address, config.proxy_id, config.max_connections) == ("0.0.0.0:1", "123", 7)
    assert (config.access_log.dir, config.access_log.rotate_size) == (Path("/logs"), 10_000_000)
    assert (config.linger, config.dispatch.preciseDispatcherFlowControl) == (0.5, True)
    assert config.admin_access.tokens == Path("tokens.yaml")
    assert config.admission.connection_rate == (30, 60 * 10**9)


def test_a_list_has_commas_and_what_is_by_name_is_yaml() -> None:
    config = load_config(
        None,
        {},
        {
            "SLUICE_ALLOWED_BROKERS": "a:1, b:2",
            "SLUICE_LIMITS__PROXY__PUBLISH__MESSAGES": "500/s",
            "SLUICE_LIMITS__NAMESPACES": "{t/n: {publish: {messages: 5}}}",
            "SLUICE_BLOCKS": "[{role: r}]",
        },
    )
    assert [each.address for each in config.allowed_brokers] == ["a:1", "b:2"]
    assert config.limits.proxy is not None
    assert config.limits.proxy.publish is not None
    assert config.limits.proxy.publish.messages == (500, 10**9)
    assert list(config.limits.namespaces) == ["t/n"]
    assert config.blocks[0].role == "r"


def test_empty_variable_of_a_key_is_a_mistake() -> None:
    assert load_config(None, {}, {"SLUICE_CONFIG": "", "OTHER": ""}) == Config()
    unknown = "take it away, or see the configuration reference for the keys that are"
    remedy = "is empty; give it a value, or unset it for the file's value or the default"
    assert problems(None, SLUICE_LIMITS__PROXY__PUBLISH__MESSAGES="", SLUICE_NONE_SUCH="") == [
        f"SLUICE_LIMITS__PROXY__PUBLISH__MESSAGES: {remedy}",
        f"SLUICE_NONE_SUCH: no key has this variable; {unknown}",
    ]


def test_flags_are_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("listen: f:1\nadmin: localhost:1\nproxy_id: file\naccess_log: {dir: f, interval: 2s}\n")
    environment = {"SLUICE_LISTEN": "e:2", "SLUICE_ADMIN": "localhost:2", "SLUICE_ACCESS_LOG__DIR": "e"}
    config = load_config(path, {"listen": "l:3", "access_log": Path("flag")}, environment)
    assert (config.listen[0].address, config.admin.address, config.proxy_id) == ("l:3", "localhost:2", "file")
    assert (config.access_log.dir, config.access_log.interval) == (Path("flag"), 2.0)


def test_a_wrong_value_is_blamed_on_its_variable_and_a_hidden_one_on_nobody(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("listen: nowhere\nlinger: soon\n")
    assert problems(path, SLUICE_LISTEN="6650") == [
        "SLUICE_LISTEN: listen: '6650': is not host:port; write it as 0.0.0.0:6650",
        f"{path}:2: linger: 'soon': write a duration as 500ms, 1s, 5min, 2h",
    ]


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [
        ("SLUICE_LISTN", "no key has this variable; take it away"),
        ("SLUICE_ACCESS_LOG", "name a key of this section, as SLUICE_ACCESS_LOG__"),
        ("SLUICE_ACCESS_LOG_DIR", "write SLUICE_ACCESS_LOG__DIR"),
        ("SLUICE_LIMITS__TOPICS__X", "no key has this variable"),
        ("SLUICE_WORKERS", "no key has this variable; set processes"),
    ],
)
def test_variable_without_a_key_is_an_error_with_its_name(variable: str, remedy: str) -> None:
    (problem,) = problems(None, **{variable: "1"})
    assert problem.startswith(f"{variable}: ")
    assert remedy in problem


def test_what_is_wrong_in_file_and_environment_comes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("linger: soon\n")
    environment = {"SLUICE_LISTN": "x", "SLUICE_ADMIN": "y", "SLUICE_BLOCKS": "[", "SLUICE_LIMITS__TOPICS": "a: [" * 3}
    places = [problem.split(": ")[0] for problem in problems(path, **environment)]
    assert places == ["SLUICE_ADMIN", f"{path}:1", "SLUICE_BLOCKS", "SLUICE_LIMITS__TOPICS", "SLUICE_LISTN"]


def test_errors_name_wrong_variables_beside_an_unreadable_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("limits: {proxy: {publish: {messages: 5}}\n")
    lines = problems(path, SLUICE_LISTEN="x", SLUICE_LIMITS__PROXY__PUBLISH__BURST_MESSAGES="5", SLUICE_X="1")
    assert [problem.split(": ")[0] for problem in lines] == ["SLUICE_LISTEN", f"{path}:1:9", "SLUICE_X"]


def test_a_section_that_several_have_written_is_blamed_on_all(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("limits: {proxy: {publish: {messages: 5}}}\n")
    (problem,) = problems(path, SLUICE_LIMITS__PROXY__PUBLISH__BURST_BYTES="5")
    assert problem.startswith(f"{path}:1, SLUICE_LIMITS__PROXY__PUBLISH__BURST_BYTES: limits.proxy.publish: ")
    assert "burst_bytes needs bytes" in problem


def test_several_addresses_have_commas() -> None:
    config = load_config(None, {}, {"SLUICE_BROKER": "pulsar://a:1, pulsar://b:1", "SLUICE_LISTEN": "[::]:1,b:1"})
    assert [each.address for each in config.broker] == ["a:1", "b:1"]
    assert [each.address for each in config.listen] == ["[::]:1", "b:1"]


def test_comma_alone_is_the_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("allowed_brokers: [a:6650]\n")
    assert load_config(path, {}, {"SLUICE_ALLOWED_BROKERS": ","}).allowed_brokers == ()


def test_an_admin_address_for_all_is_blamed_on_its_variable() -> None:
    (problem,) = problems(None, SLUICE_ADMIN="0.0.0.0:8080")
    assert problem.startswith("SLUICE_ADMIN: admin: '0.0.0.0:8080': any host")


@pytest.mark.parametrize(
    "variable",
    [
        *sorted(OF_COMMANDS),
        "SLUICE_SERVICE_HOST",
        "SLUICE_SERVICE_PORT",
        "SLUICE_SERVICE_PORT_PULSAR",
        "SLUICE_PORT",
        "SLUICE_PORT_6650_TCP",
        "SLUICE_PORT_6650_TCP_ADDR",
        "SLUICE_ADMIN_SERVICE_HOST",
        "SLUICE_ADMIN_PORT_8080_TCP_PROTO",
    ],
)
def test_variables_of_commands_and_of_kubernetes_are_ignored(variable: str) -> None:
    assert load_config(None, {}, {variable: "tcp://10.0.0.1:1"}) == Config()


def test_no_key_has_a_variable_that_is_let_be() -> None:
    assert [variable for variable in variables(Config) if _is_for_others(variable)] == []


def test_the_url_with_which_commands_ask_is_no_address_to_listen_on() -> None:
    assert read_environment(Config, {"SLUICE_ADMIN": "https://sluice:8443"}) == ([], [])


def test_no_two_keys_share_a_variable() -> None:
    keys = [key for key, _ in variables(Config).values()]
    assert len(keys) == len(set(keys))
    assert ("admin_access", "tls", "key") in keys


def test_no_pattern_goes_over_a_variable_longer_than_those_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _is_for_others("SLUICE_" + "A" * 63 + "_SERVICE_PORT_" + "B" * 15)
    monkeypatch.setattr(sources, "_OF_KUBERNETES", None)
    assert not _is_for_others("SLUICE_" + "A_SERVICE_PORT_" * 20 + "B")
