"""The configuration of the admin address's doors."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from proxy.config.model import Config, ConfigError, load_config
from proxy.config.sections import AdminAccess, is_loopback, open_to_all
from tests.proxy.endpoints import web_at

TLS = {"certificate": "server.pem", "key": "server.key"}
ELSEWHERE = ["0.0.0.0:8080", "[::]:8080", "192.0.2.7:8080", "[2001:db8::1]:8080", "no-such-name.invalid:8080"]


@pytest.mark.parametrize("admin", ["127.0.0.1:8080", "127.8.0.1:0", "[::1]:8080", "localhost:8080"])
def test_on_loopback_the_doors_may_stand_open(admin: str) -> None:
    assert open_to_all(web_at(admin), AdminAccess()) is None


@pytest.mark.parametrize("admin", ELSEWHERE)
def test_elsewhere_they_may_not(admin: str) -> None:
    problem = open_to_all(web_at(admin), AdminAccess())
    assert problem is not None
    assert problem.startswith(f"admin: {admin!r}: ")
    assert "set admin_access.tokens or admin_access.tls.client_ca, or listen on 127.0.0.1" in problem


def test_tls_alone_hides_what_is_said_and_locks_nothing() -> None:
    assert open_to_all(web_at("0.0.0.0:8080"), AdminAccess.model_validate({"tls": TLS})) is not None


@pytest.mark.parametrize("lock", [{"tokens": "tokens.yaml"}, {"tls": {**TLS, "client_ca": "ca.pem"}}])
@pytest.mark.parametrize("admin", ELSEWHERE)
def test_with_a_lock_it_may_listen_anywhere(admin: str, lock: dict[str, object]) -> None:
    assert open_to_all(web_at(admin), AdminAccess.model_validate(lock)) is None


def test_the_whole_configuration_is_refused_with_file_key_value_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump({"admin": "0.0.0.0:8080"}))
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    (problem,) = refused.value.problems
    assert problem.startswith(f"{path}:1: admin: '0.0.0.0:8080': any host")


def test_a_flag_opens_no_door_either() -> None:
    with pytest.raises(ConfigError, match=r"^--admin: admin: '\[::\]:1': "):
        load_config(None, {"admin": "[::]:1"})


def test_an_address_for_metrics_alone_may_be_anywhere() -> None:
    assert load_config(None, {"metrics": "0.0.0.0:9100"}).metrics == web_at("0.0.0.0:9100")


def test_what_holds_by_default() -> None:
    access = Config().admin_access
    assert (access.tokens, access.tls, Config().metrics) == (None, None, None)
    assert (access.hosts, access.max_policies_body) == ((), 16 * 1024**2)
    assert (access.max_body, access.request_timeout, access.max_connections) == (65_536, 30.0, 256)
    assert (access.rate, access.burst) == ((200, 1_000_000_000), 400)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rate", "0/s"),
        ("rate", "10MB/s"),
        ("burst", 0),
        ("max_connections", 0),
        ("max_body", "0"),
        ("max_body", "1GiB"),
        ("request_timeout", "0s"),
        ("request_timeout", "2h"),
        ("tls", {"certificate": "server.pem"}),
        ("token", "x"),
    ],
)
def test_a_bound_that_bounds_nothing_or_everything_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=key):
        AdminAccess.model_validate({key: value})


def test_a_name_that_leads_elsewhere_too_is_not_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [(2, 1, 6, "", ("127.0.0.1", 0)), (2, 1, 6, "", ("192.0.2.7", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda _host, _port: addresses)
    assert not is_loopback("both")


def test_a_name_that_leads_nowhere_is_not_taken_for_loopback() -> None:
    assert not is_loopback("x" * 70)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"write": ["ops", "a"], "read_only": ["b", "a"], "client_ca": "ca"}, "'a' is in read_only and in write"),
        ({"write": []}, "write needs client_ca"),
    ],
)
def test_who_may_write_is_said_once_and_of_somebody(more: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        AdminAccess.model_validate({"tls": {**TLS, **more}})
