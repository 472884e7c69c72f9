"""A real client, a real HAProxy that says where it is, Sluice, and the stand-in broker.

HAProxy connects from an address of its own, so that what Sluice has of the client came in a header.
"""

import contextlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pulsar
import pytest
import trustme

from adminrest.client import AdminClient
from bench.data_path.proxies import haproxy_command
from bench.harness import BenchError
from loadgen.real.process import TetheredProcess, free_port, is_listening, wait_until
from tests.loadgen.standin.conftest import running_broker
from tests.proxy.identity.keys import signed, token_files
from tests.proxy.tls import Authorities
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.traffic import quiet_client

pytestmark = pytest.mark.haproxy

_HAPROXY, _CLIENT = "127.0.0.9", "127.0.0.1"
_TOPIC = "persistent://public/default/behind-haproxy"
_CONFIG = """\
global
    maxconn 100
    nbthread 1
defaults
    mode tcp
    timeout connect 10s
    timeout client 1m
    timeout server 1m
listen pulsar
    bind 127.0.0.1:{port} {bind}
    server sluice {sluice} source {source} {send}
"""
_SENDS = {"version 1": "send-proxy", "version 2": "send-proxy-v2"}


class Stage:
    """The proxies before the stand-in broker; they end with the block.

    Args:
        folder: For files of all.
        broker: Its host:port.
        open_: Ends what is started.
    """

    def __init__(self, folder: Path, broker: str, open_: ExitStack) -> None:
        self._folder = folder
        self._open = open_
        self._broker = broker

    def sluice(self, **config: Any) -> SluiceProcess:
        behind = {"proxy_protocol": {"mode": "required", "from": [_HAPROXY]}}
        sluice = start_sluice(self._folder / "sluice", f"pulsar://{self._broker}", behind | config)
        self._open.callback(sluice.stop)
        return sluice

    def haproxy(self, sluice: SluiceProcess, send: str, bind: str = "") -> str:
        """Start one in front; returns its host:port."""
        port = free_port()
        file = self._folder / "haproxy.cfg"
        address = (sluice.tls_url or sluice.service_url).rpartition("/")[2]
        file.write_text(_CONFIG.format(port=port, bind=bind, sluice=address, source=_HAPROXY, send=send))
        try:
            command = haproxy_command(file)
        except BenchError as error:
            pytest.skip(f"no real HAProxy here: {error}")
        process = TetheredProcess(command.line, self._folder / "haproxy.log", command.env)
        self._open.callback(process.stop)
        assert wait_until(lambda: process.exit_code is not None or is_listening(port), 30), process.last_lines()
        process.check_running()
        return f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with running_broker() as (_, address):
        yield address


@pytest.fixture
def stage(tmp_path: Path, broker: str) -> Iterator[Stage]:
    with ExitStack() as open_:
        yield Stage(tmp_path, broker, open_)


def counted(sluice: SluiceProcess, metric: str) -> dict[str, int]:
    """The values of a metric by its label, but for those that are 0."""
    page = AdminClient(sluice.admin_url).get("/metrics").decode()
    samples = re.findall(rf'^{metric}_total{{\w+="(\w+)"}} (\d+)', page, re.MULTILINE)
    return {label: int(value) for label, value in samples if int(value)}


def look(client: pulsar.Client, sluice: SluiceProcess) -> set[str]:
    """Send and receive some messages; returns the hosts of the streams that Sluice has meanwhile."""
    consumer = client.subscribe(_TOPIC, "s")
    producer = client.create_producer(_TOPIC)
    for number in range(20):
        producer.send(bytes([number]) * 1000)
    assert [consumer.receive(60_000).data()[0] for _ in range(20)] == list(range(20))
    streams = sluice.streams(_TOPIC)
    assert sorted(stream["direction"] for stream in streams) == ["dispatch", "publish"]
    consumer.unsubscribe()
    return {stream["client_address"].rpartition(":")[0] for stream in streams}


@pytest.mark.parametrize(("version", "send"), _SENDS.items())
def test_the_client_is_known_by_its_own_address(stage: Stage, version: str, send: str) -> None:
    sluice = stage.sluice()
    address = stage.haproxy(sluice, send)
    with contextlib.closing(quiet_client(f"pulsar://{address}")) as client:
        assert look(client, sluice) == {_CLIENT}
    assert counted(sluice, "sluice_proxy_headers").keys() == {version.replace("version ", "v")}


def test_a_client_that_comes_past_haproxy_is_refused(stage: Stage) -> None:
    sluice = stage.sluice()
    client = quiet_client(sluice.service_url, operation_timeout_seconds=2)
    with contextlib.closing(client), pytest.raises(pulsar.PulsarException):
        client.create_producer(_TOPIC)
    refused = counted(sluice, "sluice_proxy_headers")
    assert refused.keys() == {"not_believed"}
    assert counted(sluice, "sluice_connections_ended") == {"proxy_header": refused["not_believed"]}


def test_a_haproxy_that_sends_no_header_is_refused(stage: Stage) -> None:
    sluice = stage.sluice()
    address = stage.haproxy(sluice, "")
    client = quiet_client(f"pulsar://{address}", operation_timeout_seconds=2)
    with contextlib.closing(client), pytest.raises(pulsar.PulsarException):
        client.create_producer(_TOPIC)
    assert counted(sluice, "sluice_proxy_headers").keys() == {"missing"}


def test_checks_of_haproxy_take_no_place_that_lasts_and_are_no_trouble(stage: Stage) -> None:
    """It resets each as soon as it is connected: many are gone before they are let in."""
    sluice = stage.sluice(admission={"max_connections_per_address": 2})
    address = stage.haproxy(sluice, "send-proxy-v2 check inter 20ms check-send-proxy")
    resets = "client_reset"
    assert wait_until(lambda: counted(sluice, "sluice_connections_ended").get(resets, 0) >= 20, 60)
    with contextlib.closing(quiet_client(f"pulsar://{address}")) as client:
        assert look(client, sluice) == {_CLIENT}
    assert counted(sluice, "sluice_connections_ended").keys() <= {resets, "client_closed"}
    assert counted(sluice, "sluice_proxy_headers").keys() <= {"local", "v2"}


def test_haproxy_ends_tls_and_says_so_in_tlvs(stage: Stage, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "haproxy.pem")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    sluice = stage.sluice()
    address = stage.haproxy(sluice, "send-proxy-v2-ssl-cn", f"ssl crt {tmp_path / 'haproxy.pem'}")
    trust = {"tls_trust_certs_file_path": str(tmp_path / "ca.pem")}
    with contextlib.closing(quiet_client(f"pulsar+ssl://{address}", **trust)) as client:
        assert look(client, sluice) == {_CLIENT}
    assert counted(sluice, "sluice_proxy_headers").keys() == {"v2"}


@pytest.mark.parametrize("send", _SENDS.values(), ids=_SENDS)
def test_sluice_ends_tls_behind_the_header(stage: Stage, tmp_path: Path, send: str) -> None:
    authorities = Authorities(tmp_path)
    authorities.front.cert_pem.write_to_path(tmp_path / "ca.pem")
    sluice = stage.sluice(tls=authorities.tls())
    address = stage.haproxy(sluice, send)
    trust = {"tls_trust_certs_file_path": str(tmp_path / "ca.pem")}
    with contextlib.closing(quiet_client(f"pulsar+ssl://{address}", **trust)) as client:
        assert look(client, sluice) == {_CLIENT}


def test_clients_behind_haproxy_have_their_proved_roles(stage: Stage, tmp_path: Path) -> None:
    section = token_files(tmp_path)
    sluice = stage.sluice(authentication=section)
    address = stage.haproxy(sluice, "send-proxy-v2")
    shown = pulsar.AuthenticationToken(signed({"sub": "alice"}).decode())
    for _ in range(4):
        with contextlib.closing(quiet_client(f"pulsar://{address}", authentication=shown)) as client:
            assert look(client, sluice) == {_CLIENT}
            assert {stream["client_role"] for stream in sluice.streams(_TOPIC)} == {"alice"}
    stranger = quiet_client(f"pulsar://{address}", operation_timeout_seconds=2)
    with contextlib.closing(stranger), pytest.raises(pulsar.PulsarException):
        stranger.create_producer(_TOPIC)
    assert counted(sluice, "sluice_proxy_headers").keys() == {"v2"}
    assert counted(sluice, "sluice_connections_ended").keys() == {"client_closed", "authentication_failed"}
