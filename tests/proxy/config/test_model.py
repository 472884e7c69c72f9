"""Every wrong value gives one line that names file, key, value and remedy."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, Rate, rate
from proxy.config.model import Config, ConfigError, load_config
from proxy.config.values import read_rate, read_size, read_span
from tests.proxy.config.lines import without_line
from tests.proxy.file_limits import policies_of

TOPIC = "persistent://t/n/x"


def problems(path: Path, settings: Any, **flags: Any) -> list[str]:
    path.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
    with pytest.raises(ConfigError) as refused:
        load_config(path, flags)
    assert str(refused.value) == "\n".join(refused.value.problems)
    return refused.value.problems


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def test_without_a_file_the_defaults_hold() -> None:
    config = load_config(None, {})
    assert config == Config()
    assert (str(config.listen[0]), str(config.admin)) == ("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
    assert config.access_log.dir is None


def test_listen_and_broker_are_one_address_or_a_list_of_them(path: Path) -> None:
    files = {"certificate": "a.pem", "key": "a.key"}
    listen = ["0.0.0.0:1", "pulsar+ssl://[::]:2"]
    path.write_text(
        yaml.safe_dump({"listen": listen, "tls": files, "broker": ["pulsar+ssl://a:1", "pulsar+ssl://b:1"]})
    )
    config = load_config(path, {})
    assert [str(each) for each in config.listen] == ["pulsar://0.0.0.0:1", "pulsar+ssl://[::]:2"]
    assert [str(each) for each in config.broker] == ["pulsar+ssl://a:1", "pulsar+ssl://b:1"]
    keys = {"listen", "tls", "broker"}
    assert Config.model_validate_json(config.model_dump_json(include=keys)) == config


def test_an_allowed_broker_without_a_scheme_is_reached_as_the_configured_one(path: Path) -> None:
    path.write_text(yaml.safe_dump({"broker": "pulsar+ssl://a:1", "allowed_brokers": ["b-*:1", "pulsar+ssl://c:1"]}))
    assert [str(each) for each in load_config(path, {}).allowed_brokers] == ["pulsar+ssl://b-*:1", "pulsar+ssl://c:1"]


def test_clients_need_a_certificate_where_their_authority_is_named(path: Path) -> None:
    tls = {"certificate": "a", "key": "b", "client_ca": "c"}
    path.write_text(yaml.safe_dump({"listen": "pulsar+ssl://a:1", "tls": tls}))
    config = load_config(path, {})
    assert config.tls is not None
    assert config.tls.asks_clients == "required"


def test_an_empty_file_changes_nothing(path: Path) -> None:
    path.write_text("# nothing yet\n")
    assert load_config(path, {}) == Config()


def test_flags_override_the_file(path: Path) -> None:
    path.write_text(yaml.safe_dump({"listen": "0.0.0.0:1", "proxy_id": "a", "access_log": {"dir": "x", "interval": 5}}))
    flags = {"listen": "0.0.0.0:2", "broker": None, "admin": None, "access_log": Path("y")}
    config = load_config(path, flags)
    assert config.listen[0].address == "0.0.0.0:2"
    assert config.proxy_id == "a"
    assert config.access_log.dir == Path("y")
    assert config.access_log.interval == 5


def test_a_broken_section_is_told_though_a_flag_touches_it(path: Path) -> None:
    (problem,) = problems(path, {"access_log": {"interval": "soon"}}, access_log=Path("y"))
    assert "access_log.interval: 'soon'" in problem


@pytest.mark.parametrize(
    ("settings", "key", "value", "remedy"),
    [
        ({"listen": "6650"}, "listen", "'6650'", "is not host:port"),
        ({"listen": 6650}, "listen", "6650", "is not host:port"),
        ({"admin": "host:99999"}, "admin", "'host:99999'", "is not host:port"),
        ({"broker": "127.0.0.1:6650"}, "broker", "'127.0.0.1:6650'", "write it as pulsar://broker:6650"),
        ({"broker": ["pulsar://a:1", "pulsar+ssl://b:1"]}, "broker", "'pulsar+ssl://b:1'", "are in one list"),
        ({"broker": ["pulsar://a:1", "b:1"]}, "broker", "'b:1'", "has no scheme"),
        ({"broker": ["pulsar://a:1", "pulsar://a:1"]}, "broker", "'pulsar://a:1'", "occurs twice in the list"),
        ({"broker": []}, "broker", "[]", "write one address at least, as pulsar://broker:6650"),
        ({"broker": "b:6651"}, "broker", "'b:6651'", "write it as pulsar://"),
        ({"listen": "pulsar+ssl://0.0.0.0:1"}, "tls", "pulsar+ssl://0.0.0.0:1", "set tls.certificate and tls.key"),
        ({"listen": ["a:1", "b"]}, "listen", "'b'", "is not host:port; write it as 0.0.0.0:6650"),
        ({"listen": ["a:1", "pulsar+ssl://a:1"]}, "listen", "a:1", "occurs twice in the list"),
        ({"tls": {"certificate": "a"}}, "tls.key", "", "must be given here"),
        ({"tls": {"certificate": "a", "key": "b", "client_auth": "optional"}}, "tls", "'optional'", "needs client_ca"),
        (
            {"tls": {"certificate": "a", "key": "b", "client_ca": "c", "client_auth": "none"}},
            "tls",
            "'none'",
            "client_ca is of no use with client_auth: none",
        ),
        (
            {"tls": {"certificate": "a", "key": "b", "min_version": "TLSv1.1"}},
            "tls.min_version",
            "'TLSv1.1'",
            "'TLSv1.2' or 'TLSv1.3'",
        ),
        ({"broker_tls": {"certificate": "a"}}, "broker_tls", "'a'", "certificate and key need each other"),
        ({"listen": "http://0.0.0.0:6651"}, "listen", "'http://0.0.0.0:6651'", "http:// is not taken here"),
        ({"admin": "https://127.0.0.1:1"}, "admin", "'https://127.0.0.1:1'", "admin_access.tls makes it HTTPS"),
        ({"metrics": "pulsar://127.0.0.1:1"}, "metrics", "'pulsar://127.0.0.1:1'", "pulsar:// is not taken here"),
        ({"allowed_brokers": ["pulsar+ssl://b:1"]}, "allowed_brokers", "pulsar+ssl://b:1", "write pulsar://b:1"),
        (
            {"broker": "pulsar+ssl://a:1", "allowed_brokers": ["pulsar://b:1"]},
            "allowed_brokers",
            "pulsar://b:1",
            "write pulsar+ssl://b:1",
        ),
        ({"broker": "http://b:1"}, "broker", "'http://b:1'", "http:// is not taken here"),
        ({"broker": "pulsar://a:1,b:2"}, "broker", "'pulsar://a:1,b:2'", "names several hosts"),
        ({"broker": "pulsar://a:0"}, "broker", "'pulsar://a:0'", "port 0"),
        ({"allowed_brokers": ["*"]}, "allowed_brokers.0", "'*'", "is not host:port"),
        ({"allowed_broker_networks": ["10.0.0.0/99"]}, "allowed_broker_networks.0", "'10.0.0.0/99'", "IPv4"),
        ({"proxy_id": "a b"}, "proxy_id", "'a b'", "letters, digits"),
        ({"proxy_id": ""}, "proxy_id", "''", "1 to 100"),
        ({"proxy_id": "_a"}, "proxy_id", "'_a'", "no dot or underscore first"),
        ({"proxy_id": ".a"}, "proxy_id", "'.a'", "no dot or underscore first"),
        ({"handshake_timeout": "soon"}, "handshake_timeout", "'soon'", "500ms, 1s, 5min, 2h"),
        ({"handshake_timeout": 0}, "handshake_timeout", "0", "greater than 0"),
        ({"connect_timeout": "-1s"}, "connect_timeout", "'-1s'", "500ms, 1s, 5min, 2h"),
        ({"max_connections": 0}, "max_connections", "0", "greater than 0"),
        ({"max_connections": "many"}, "max_connections", "'many'", "integer"),
        ({"access_log": {"interval": "10ms"}}, "access_log.interval", "0.01", "greater than or equal to 0.1"),
        ({"access_log": {"rotate_size": "1 mile"}}, "access_log.rotate_size", "'1 mile'", "4096, 64KB, 10MB"),
        ({"access_log": {"rotate_age": 0}}, "access_log.rotate_age", "0", "greater than 0"),
        ({"publish": {"hold_total": True}}, "publish.hold_total", "true", "write bytes as"),
        ({"publish": None}, "publish", "'null'", "this is nothing to YAML; leave the key out for its default"),
        ({"listn": "x"}, "listn", "", "not known here"),
        ({"access_log": {"dri": "x"}}, "access_log.dri", "", "not known here"),
        ({"limits": {"namespaces": {"t": {}}}}, "limits.namespaces.t", "'t'", "as tenant/namespace"),
        (
            {"limits": {"namespaces": {"t/": {}}}},
            "limits.namespaces.t/",
            "'t/'",
            "as tenant/namespace",
        ),
        ({"limits": {"topics": {"a/b": {}}}}, "limits.topics.a/b", "'a/b'", "is not a topic name"),
        (
            {"limits": {"topics": {f"{TOPIC}-partition-3": {}}}},
            f"limits.topics.{TOPIC}-partition-3",
            f"'{TOPIC}-partition-3'",
            "name the topic 'persistent://t/n/x'",
        ),
        (
            {"limits": {"topics": {"x": {}, "persistent://public/default/x": {}}}},
            "limits.topics.x",
            "persistent://public/default/x",
            "twice",
        ),
    ],
)
def test_a_wrong_value_gives_one_line(path: Path, settings: Any, key: str, value: str, remedy: str) -> None:
    (problem,) = problems(path, settings)
    assert without_line(problem, path).startswith(f"{path}: {key}: ")
    assert value in problem
    assert remedy in problem
    assert "\n" not in problem
    assert "Value error" not in problem


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (0, "above 0"),
        (-5, "500/s, 30/min"),
        ("100/fortnight", "500, 500/s, 30/min, 5/30s, 10MB/s"),
        ("fast", "500/s, 30/min"),
        (1.5, "whole number"),
        ("0.4/s", "whole number"),
    ],
)
@pytest.mark.parametrize("which", ["messages", "bytes"])
def test_a_wrong_rate_is_named_with_its_place(path: Path, which: str, value: Any, remedy: str) -> None:
    (problem,) = problems(path, {"limits": {"namespaces": {"t/n": {"publish_total": {which: value}}}}})
    assert without_line(problem, path).startswith(
        f"{path}: limits.namespaces.t/n.publish_total.{which}: {str(value)!r}: "
    )
    assert remedy in problem


def test_a_wrong_burst_is_named_with_its_place(path: Path) -> None:
    settings = {"limits": {"topics": {TOPIC: {"dispatch": {"messages": 1, "burst_messages": 0}}}}}
    (problem,) = problems(path, settings)
    assert without_line(problem, path).startswith(f"{path}: limits.topics.{TOPIC}.dispatch.burst_messages: '0': ")


def test_all_errors_come_at_once(path: Path) -> None:
    settings = {"listen": "x", "admin": "y", "publish": {"hold_total": "z"}, "nonsense": 1}
    lines = problems(path, settings)
    assert [re.split(": ", problem)[1] for problem in lines] == ["listen", "admin", "publish.hold_total", "nonsense"]


def test_a_wrong_flag_is_not_blamed_on_a_file() -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {"listen": "x"})
    assert refused.value.problems == ["--listen: listen: 'x': is not host:port; write it as 0.0.0.0:6650"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", ":2:1: is not YAML: a value or a closing bracket is missing here"),
        ("\x00", ":1:1: is not YAML: a control character stands here"),
        ("- a\n- b\n", ": holds a list, not keys with values"),
        ("just text", ": holds text, not keys with values"),
    ],
)
def test_a_file_that_is_no_configuration_gives_one_line(path: Path, text: str, message: str) -> None:
    (problem,) = problems(path, text)
    assert problem.startswith(f"{path}{message}")
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("9" * 5000, "write a rate"),
        ("0x" + "f" * 5000, "write a rate"),
        ("2024-13-45", "write a rate"),
        ("!!int ''", "the tag !!int is not read here"),
        ("!!float soon", "the tag !!float"),
        ("!!timestamp soon", "the tag !!timestamp"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(path: Path, value: str, reason: str) -> None:
    (problem,) = problems(path, f"limits:\n  proxy:\n    publish: {{messages: {value}}}\n")
    assert problem.startswith(f"{path}:3: limits.proxy.publish.messages: ")
    assert reason in problem
    assert "\n" not in problem
    assert len(problem) < 600


@pytest.mark.parametrize(
    ("settings", "key", "remedy"),
    [
        ({"limits": {"proxy": {"publish": {"messages": "9" * 5000}}}}, "limits.proxy.publish.messages", "write a rate"),
        (
            {"limits": {"proxy": {"publish": {"bytes": f"5/{'9' * 400}s"}}}},
            "limits.proxy.publish.bytes",
            "write a rate",
        ),
        ({"access_log": {"rotate_size": "9" * 5000}}, "access_log.rotate_size", "write bytes as"),
        ({"linger": "9" * 400}, "linger", "write a duration as"),
    ],
)
def test_a_number_of_more_digits_than_can_be_read_is_named_with_its_place(
    path: Path, settings: dict[str, Any], key: str, remedy: str
) -> None:
    (problem,) = problems(path, settings)
    assert without_line(problem, path).startswith(f"{path}: {key}: '")
    assert remedy in problem
    assert len(problem) < 600


def test_times_of_a_drain_must_fit_its_timeout(path: Path) -> None:
    (problem,) = problems(path, {"drain": {"period": "26s"}})
    assert without_line(problem, path).startswith(f"{path}: drain: ")
    assert problem.endswith(
        "delay and period, 31 s together, do not fit timeout, 30 s: raise timeout, or lower one of the two"
    )
    path.write_text("drain: {timeout: 0}\n")
    assert load_config(path, {}).drain.timeout == 0


def test_a_file_that_is_no_text_gives_one_line(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is no UTF-8; save the file as UTF-8"):
        load_config(path, {})


def test_a_file_that_is_not_there_gives_one_line(path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert refused.value.problems == [f"{path}: cannot be read: No such file or directory"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        (10, 10),
        ("64KB", 64_000),
        ("64 KiB", 65_536),
        ("1.5MB", 1_500_000),
        ("2GiB", 2 * 1024**3),
        ("1kB", 1000),
    ],
)
def test_sizes_are_read(text: Any, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), (2, 2.0), ("1.5", 1.5), ("5min", 300), ("1d", 86400)])
def test_durations_are_read(text: Any, seconds: float) -> None:
    assert read_span(text) == seconds


@pytest.mark.parametrize(
    ("text", "tokens", "seconds"),
    [(500, 500, 1), ("500/s", 500, 1), ("30/min", 30, 60), ("10MB/h", 10_000_000, 3600), ("1.5KB/s", 1500, 1)],
)
def test_rates_are_read(text: Any, tokens: int, seconds: int) -> None:
    assert read_rate(text) == (tokens, seconds * 10**9)


def test_limits_become_policies_with_their_origin() -> None:
    config = Config.model_validate(
        {
            "limits": {
                "namespaces": {
                    "t/n": {"publish": {"messages": 500}, "dispatch_total": {"bytes": "1MB", "burst_bytes": "5KB"}}
                },
                "topics": {"x": {"publish": {"messages": "30/min"}}},
            }
        }
    )
    policies = policies_of(config.limits)
    assert policies.by_name("publish", Setting.TOPIC_OF_NAMESPACE) == {"t/n": Value(Limit(rate(500)), "file")}
    assert policies.by_name("dispatch", Setting.NAMESPACE) == {
        "t/n": Value(Limit(None, Rate(1_000_000, 10**9, 5000)), "file")
    }
    assert policies.by_name("publish", Setting.TOPIC) == {
        "persistent://public/default/x": Value(Limit(rate(30, 60 * 10**9)), "file")
    }


def test_every_wrong_name_is_told_and_not_only_the_first(path: Path) -> None:
    limits: dict[str, Any] = {
        "topics": {"kafka://a/b/c": {}, f"{TOPIC}-partition-3": {}},
        "namespaces": {"shop": {}, "a/b/c": {}},
    }
    assert len(problems(path, {"limits": limits})) == 4


def test_a_key_that_stands_twice_is_told(path: Path) -> None:
    path.write_text("listen: 127.0.0.1:1\nadmin: 127.0.0.1:2\nlisten: 127.0.0.1:3\n")
    with pytest.raises(ConfigError, match=r"yaml:3: listen: this key stands in line 1, too; leave one out"):
        load_config(path, {})


def test_what_is_nested_too_deeply_is_told(path: Path) -> None:
    path.write_text("[" * 5000 + "]" * 5000)
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_config(path, {})


@pytest.mark.parametrize("section", [{}, {"burst_messages": 5}, {"bytes": "1MB", "burst_messages": 5}])
def test_a_rate_without_a_rate_is_a_mistake(path: Path, section: dict[str, Any]) -> None:
    (problem,) = problems(path, {"limits": {"namespaces": {"t/n": {"publish": section}}}})
    assert without_line(problem, path).startswith(f"{path}: limits.namespaces.t/n.publish: ")


TERMINATE = {"mode": "terminate", "basic": {"htpasswd": "users"}, "broker": {"token_file": "own"}}


@pytest.mark.parametrize(
    ("more", "is_fine"),
    [
        ({}, False),
        ({"allowed_broker_networks": ["10.0.0.0/8"]}, True),
        ({"broker": "pulsar+ssl://broker:6651"}, True),
        ({"broker": "pulsar+ssl://broker:6651", "broker_tls": {"verify_hostname": False}}, False),
    ],
)
def test_credentials_for_brokers_go_to_no_stranger(more: dict[str, object], is_fine: bool) -> None:  # noqa: FBT001
    given = {"authentication": TERMINATE, "allowed_brokers": ["broker-*:6651"]} | more
    if is_fine:
        Config.model_validate(given)
    else:
        with pytest.raises(ValidationError, match=r"broker-\* in allowed_brokers may be any host"):
            Config.model_validate(given)
    without_pattern = Config.model_validate(given | {"allowed_brokers": ["broker-7:6651"]})
    assert without_pattern.dials_brokers_of_members == is_fine
    assert Config.model_validate(more).dials_brokers_of_members


def test_a_fleet_shares_something(path: Path) -> None:
    (problem,) = problems(path, {"fleet": {"name": "f", "shared": []}})
    assert without_line(problem, path).startswith(
        f"{path}: fleet.shared: []: an empty list would share nothing: name levels, leave the key out to share all"
    )
