"""Which addresses may be asked."""

from pathlib import Path

import pytest
from yarl import URL

from proxy.admin.forwarding.broker import BrokerAdmin, allowed_targets, broker_token, endpoint_of
from proxy.brokers.targets import TargetRefusedError
from proxy.config.model import Config, ConfigError
from tests.proxy.endpoints import broker_at


def config(**more: object) -> Config:
    forward = {"url": "https://broker-1.example:8443", "brokers": ["*.admin.example:443", "[::1]:8443"]}
    hosts = {"broker": "pulsar://broker-2.example:6651", "allowed_brokers": ["broker-*.data.example:6651"]}
    return Config.model_validate({"admin_forward": forward, **hosts, **more})


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("broker-1.example:8443", True),
        ("BROKER-1.example:8443", True),
        ("broker-1.example:8080", False),
        ("broker-2.example:8443", True),
        ("broker-2.example:6651", False),
        ("broker-7.data.example:8443", True),
        ("broker-7.data.example:6651", False),
        ("a.admin.example:443", True),
        ("a.admin.example:8443", False),
        ("[::1]:8443", True),
        ("127.0.0.1:8443", False),
    ],
)
def test_the_url_and_what_the_operator_names_and_no_others(address: str, *, expected: bool) -> None:
    assert allowed_targets(config()).allows(broker_at(address)) is expected


def test_brokers_of_a_reload_may_be_asked() -> None:
    admin = BrokerAdmin(config())
    admin.take_brokers(config(broker="pulsar://broker-3.example:6651", admin_forward={}))
    hosts = (f"broker-{number}.example:8443" for number in (1, 2, 3))
    assert [admin._targets.allows(broker_at(host)) for host in hosts] == [True, False, True]


async def test_what_a_pattern_lets_in_must_lie_in_the_allowed_networks() -> None:
    targets = allowed_targets(config(allowed_broker_networks=["10.0.0.0/8"]))
    with pytest.raises(TargetRefusedError, match="outside of allowed_broker_networks"):
        await targets.resolve(broker_at("[::1]:8443"))


@pytest.mark.parametrize(
    ("url", "address"), [("http://a.example/x", "a.example:80"), ("https://[::1]:8443/", "[::1]:8443")]
)
def test_addresses_are_written_with_their_port(url: str, address: str) -> None:
    assert endpoint_of(URL(url)).address == address


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        ("x", "holds no certificate in PEM"),
        ("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "has a certificate that cannot be read"),
    ],
)
def test_an_authority_that_cannot_be_used_is_told(tmp_path: Path, content: str | None, problem: str) -> None:
    file = tmp_path / "ca.pem"
    if content:
        file.write_text(content)
    used = config(admin_forward={"url": "https://broker:8443", "ca": file})
    with pytest.raises(ConfigError) as raised:
        BrokerAdmin(used)
    [message] = raised.value.problems
    assert message.startswith(f"admin_forward.ca: {file}: {problem}")


def test_a_token_stands_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\ntwo")
    with pytest.raises(ConfigError, match="must hold one token in one line"):
        broker_token(tmp_path / "token")
