"""TLS on both legs, before a real broker that asks who comes: what works, and what is said of what does not."""

import contextlib
import itertools
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from protocol.pulsar_pb2 import CommandError
from tests.proxy.identity.keys import OTHER_SECRET, SECRET, signed
from tests.proxy.identity.test_passwords import HASHES
from tests.proxy.wire import body, connect
from tests.real.java_programs import java_program
from tests.real.metrics import counted
from tests.real.publishers import go_program, rust_program
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.traffic import PATIENCE_MS, quiet_client
from tests.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]

NAMESPACE = "tls"
ROLE = "sluice"
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderTls"
_ANYBODY = "anybody"
_PROXY = "proxy"


class Files:
    """An authority of all servers, one of Sluice as a client, and a stranger; their files are in a folder.

    Args:
        folder: Where they are made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers, self.peers, self.stranger = trustme.CA(), trustme.CA(), trustme.CA()
        for name in ("servers", "peers", "stranger"):
            getattr(self, name).cert_pem.write_to_path(self.path(name))
        self.write("broker", self.servers.issue_cert("127.0.0.1"))
        self.write("sluice", self.peers.issue_cert("sluice.example", common_name=ROLE))
        self.write("proxy", self.peers.issue_cert("sluice.example", common_name=_PROXY))
        self.write("both", self.servers.issue_cert("127.0.0.1", "localhost"))
        self.write("carol", self.peers.issue_cert("client.example", common_name="carol"))
        self.write("mallory", self.stranger.issue_cert("client.example", common_name="carol"))
        self.mount(1)

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.pem")

    def write(self, name: str, leaf: trustme.LeafCert, folder: Path | None = None) -> None:
        """A certificate, and its key in the only form that Java reads."""
        folder = folder or self.folder
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        secret = folder / f"{name}.key"
        secret.touch(0o600)
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        leaf.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")

    def mount(self, version: int) -> None:
        """A new certificate of Sluice's port, as Kubernetes mounts a secret: behind one link, which is swapped."""
        leaf = self.servers.issue_cert("127.0.0.1")
        mounted, of_version = self.folder / "secret", self.folder / "secret" / f"..{version}"
        of_version.mkdir(parents=True)
        self.write("tls", leaf, of_version)
        (mounted / "..new").symlink_to(of_version.name)
        (mounted / "..new").rename(mounted / "..data")
        for name in ("tls.pem", "tls.key"):
            with contextlib.suppress(FileExistsError):
                (mounted / name).symlink_to(f"..data/{name}")

    @property
    def front(self) -> dict[str, str]:
        """The section `tls`."""
        return {"certificate": str(self.folder / "secret/tls.pem"), "key": str(self.folder / "secret/tls.key")}

    def to_broker(self, **more: Any) -> dict[str, Any]:
        """The section `broker_tls`."""
        return {
            "ca": self.path("servers"),
            "certificate": self.path("sluice"),
            "key": str(self.folder / "sluice.key"),
            **more,
        }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneBroker]:
    """One that lets in by TLS only whom `peers` has signed; roles have no rights that were not given to them."""
    properties = {
        "tlsCertificateFilePath": files.path("broker"),
        "tlsKeyFilePath": str(files.folder / "broker.key"),
        "tlsTrustCertsFilePath": files.path("peers"),
        "tlsRequireTrustedClientCertOnConnect": "true",
        "haProxyProtocolEnabled": "true",
        "tlsCertRefreshCheckDurationSec": "1",
        "authenticationEnabled": "true",
        "authenticationProviders": _PROVIDER,
        "anonymousUserRole": _ANYBODY,
        "authorizationEnabled": "true",
        "superUserRoles": f"{_ANYBODY},{_PROXY}",
        "proxyRoles": _PROXY,
    }
    with StandaloneBroker(tmp_path_factory.mktemp("broker"), BrokerSettings(tls=True, properties=properties)) as broker:
        PulsarRest(broker.admin_url).ensure_namespace(NAMESPACE)
        yield broker


@contextlib.contextmanager
def serving(folder: Path, broker_url: str, config: dict[str, Any], **more: Any) -> Iterator[SluiceProcess]:
    sluice = start_sluice(folder, broker_url, config, **more)
    try:
        yield sluice
    finally:
        sluice.stop()


@pytest.fixture(scope="module")
def sluice(files: Files, broker: StandaloneBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    """With TLS on both sides, and a plain port."""
    config = {"tls": files.front, "broker_tls": files.to_broker()}
    with serving(tmp_path_factory.mktemp("sluice"), broker.tls_url, config) as sluice:
        yield sluice


@contextlib.contextmanager
def client_of(url: str, files: Files, **options: Any) -> Iterator[pulsar.Client]:
    client = quiet_client(url, tls_trust_certs_file_path=files.path("servers"), tls_validate_hostname=True, **options)
    try:
        yield client
    finally:
        client.close()


def send_and_read(client: pulsar.Client, topic: str, count: int = 20) -> None:
    """Through lookups, a producer and a consumer: each has its way through Sluice."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    sent = [os.urandom(100_000) for _ in range(count)]
    for content in sent:
        producer.send_async(content, lambda *_: None)
    producer.flush()
    assert [consumer.receive(PATIENCE_MS).data() for _ in sent] == sent


@pytest.mark.parametrize("by", ["plain", "tls"])
def test_clients_with_and_without_tls_are_served_by_a_broker_with_tls(
    sluice: SluiceProcess, files: Files, by: str
) -> None:
    url = sluice.tls_url if by == "tls" else sluice.service_url
    with client_of(url, files) as client:
        send_and_read(client, topic_name(NAMESPACE, f"from-{by}"))
    assert counted(sluice, "sluice_tls_failures_total") == 0


def test_clients_with_tls_are_served_by_a_plain_broker(files: Files, broker: StandaloneBroker, tmp_path: Path) -> None:
    with (
        serving(tmp_path, broker.service_url, {"tls": files.front}) as sluice,
        client_of(sluice.tls_url, files) as client,
    ):
        send_and_read(client, topic_name(NAMESPACE, "to-plain"))


def test_no_client_borrows_the_certificate_that_sluice_shows(
    sluice: SluiceProcess, files: Files, broker: StandaloneBroker
) -> None:
    """The broker would let in who says "tls" by the name in that certificate, which may produce here."""
    topic, rest = topic_name("tls-roles", "t"), PulsarRest(broker.admin_url)
    rest.ensure_namespace("tls-roles")
    rest.call("POST", f"/admin/v2/namespaces/{TENANT}/tls-roles/permissions/{ROLE}", ["produce"])
    shown = pulsar.AuthenticationTLS(files.path("sluice"), str(files.folder / "sluice.key"))
    with client_of(broker.tls_url, files, authentication=shown) as client:
        client.create_producer(topic).send(b"x")
    stranger = pulsar.AuthenticationTLS(files.path("carol"), str(files.folder / "carol.key"))
    brief = {"authentication": stranger, "operation_timeout_seconds": 3}
    with client_of(sluice.tls_url, files, **brief) as client, pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    wait_for(lambda: logged(sluice, cause="authentication_failed"))
    assert "the broker would take Sluice's certificate" in logged(sluice, cause="authentication_failed")[0]["detail"]


def test_a_broker_with_tls_is_told_where_a_client_is(files: Files, broker: StandaloneBroker, tmp_path: Path) -> None:
    """Of the header: behind TLS, where brokers read it. Without a client it names none: `start_sluice` was ready."""
    topic = topic_name(NAMESPACE, "named")
    config = {"tls": files.front, "broker_tls": files.to_broker(), "broker_proxy_protocol": True}
    with (
        serving(tmp_path, broker.tls_url, config) as sluice,
        client_of(sluice.tls_url, files) as client,
    ):
        send_and_read(client, topic)
        own = {stream["client_address"] for stream in sluice.streams(topic)}
        assert len(own) == 1
        assert PulsarRest(broker.admin_url).client_addresses(topic) == own


def refusal(sluice: SluiceProcess) -> str:
    """What a client is told in place of CONNECTED; empty if it is let in."""
    where = urlsplit(sluice.service_url)
    with socket.create_connection((where.hostname, where.port), 10) as connection:
        connection.sendall(connect())
        answer = body(connection.recv(65536))
    return answer.message if isinstance(answer, CommandError) else ""


def logged(sluice: SluiceProcess, **fields: str) -> list[dict[str, Any]]:
    """The lines of the operator's log that have these values."""
    assert sluice.process is not None
    lines = [json.loads(line) for line in sluice.process.log_path.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if fields.items() <= line.items()]


@pytest.mark.parametrize(
    ("url", "section", "failure", "remedy"),
    [
        (
            "{tls}",
            {"ca": "stranger"},
            "certificate_untrusted",
            "name the authority that has signed it in broker_tls.ca",
        ),
        ("{tls_by_name}", {}, "certificate_wrong_name", "set broker_tls.server_name to one"),
        ("{tls}", {"certificate": None, "key": None}, "own_certificate_refused", "broker_tls.certificate must be one"),
        ("{plain}", {}, "left", "name its TLS port (brokerServicePortTls)"),
    ],
)
def test_what_is_wrong_between_sluice_and_broker_is_in_the_log_and_counted(
    files: Files,
    broker: StandaloneBroker,
    tmp_path: Path,
    url: str,
    section: dict[str, str | None],
    failure: str,
    remedy: str,
) -> None:
    urls = {
        "tls": broker.tls_url,
        "tls_by_name": broker.tls_url.replace("127.0.0.1", "localhost"),
        "plain": broker.service_url.replace("pulsar://", "pulsar+ssl://"),
    }
    more = {key: files.path(value) if value else None for key, value in section.items()}
    config = {"broker_tls": {key: value for key, value in files.to_broker(**more).items() if value is not None}}
    with serving(tmp_path, url.format(**urls), config, ready_at="/healthz") as sluice:
        message = refusal(sluice)
        assert message.startswith("broker_unreachable: pulsar+ssl://")
        assert remedy in message
        wait_for(lambda: logged(sluice, cause="broker_unreachable"))
        assert remedy in logged(sluice, cause="broker_unreachable")[0]["detail"]
        assert counted(sluice, "sluice_tls_failures_total", side="broker", failure=failure) >= 1


def shown_by(url: str, files: Files) -> int:
    """The serial number of the certificate that new connections see."""
    where = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    files.servers.configure_trust(context)
    with (
        socket.create_connection((where.hostname, where.port), 10) as connection,
        context.wrap_socket(connection, server_hostname=where.hostname) as tls,
    ):
        certificate = tls.getpeercert()
        assert certificate is not None
        return int(str(certificate["serialNumber"]), 16)


def test_new_connections_see_swapped_secret_and_open_ones_go_on(sluice: SluiceProcess, files: Files) -> None:
    before = shown_by(sluice.tls_url, files)
    with client_of(sluice.tls_url, files) as client:
        producer = client.create_producer(topic_name(NAMESPACE, "swapped"))
        producer.send(b"before")
        files.mount(2)
        wait_for(lambda: before not in {shown_by(sluice.tls_url, files) for _ in range(10)})
        producer.send(b"after")
    wait_for(lambda: logged(sluice, event="certificate taken for new connections"))
    expiry = counted(sluice, "sluice_certificate_expiry_timestamp_seconds", key="tls.certificate")
    assert expiry > datetime.now(UTC).timestamp()
    now = shown_by(sluice.tls_url, files)
    Path(files.front["key"]).resolve().write_text("half of a key")
    wait_for(lambda: logged(sluice, event="configuration not reloaded"))
    assert files.front["key"] in logged(sluice, event="configuration not reloaded")[0]["problem"]
    assert counted(sluice, "sluice_config_reloads_total", outcome="refused") >= 1
    assert {shown_by(sluice.tls_url, files) for _ in range(10)} == {now}
    files.mount(3)


@pytest.fixture(scope="module")
def proving(
    files: Files, broker: StandaloneBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SluiceProcess]:
    """Verifies clients by token, password or certificate, and passes on their roles."""
    folder = tmp_path_factory.mktemp("proving")
    for name, content in (("secret.key", SECRET), ("htpasswd", f"bob:{HASHES['apr1']}\n".encode())):
        (folder / name).touch(0o600)
        (folder / name).write_bytes(content)
    shown = {"certificate": files.path("proxy"), "key": str(files.folder / "proxy.key")}
    config = {
        "tls": {
            "certificate": files.path("both"),
            "key": str(files.folder / "both.key"),
            "client_ca": files.path("peers"),
            "client_auth": "optional",
        },
        "broker_tls": files.to_broker(**shown),
        "authentication": {
            "mode": "terminate",
            "token": {"secret_key": str(folder / "secret.key")},
            "basic": {"htpasswd": str(folder / "htpasswd")},
            "tls": True,
        },
    }
    rest = PulsarRest(broker.admin_url)
    rest.ensure_namespace("proved")
    for role in ("alice", "bob", "carol"):
        rest.call("POST", f"/admin/v2/namespaces/{TENANT}/proved/permissions/{role}", ["produce", "consume"])
    with serving(folder, broker.tls_url, config) as sluice:
        yield sluice


def java_command() -> list[str]:
    return java_program("SecureClients")


def go_command() -> list[str]:
    return [str(go_program("attempts"))]


def rust_command() -> list[str]:
    return [str(rust_program())]


_NO_GO = pytest.mark.skipif(shutil.which("go") is None, reason="no Go client here: install Go")
CLIENTS = [
    pytest.param(
        java_command,
        "broken",
        ["unable to find valid certification path", "No name matching localhost found", "AuthorizationException"],
        marks=pytest.mark.jdk,
        id="java",
    ),
    pytest.param(
        go_command,
        "own_certificate_refused",
        [
            "x509: certificate signed by unknown authority",
            "not valid for any names, but wanted to match localhost",
            "unknown certificate authority",
            "AuthorizationError",
        ],
        marks=_NO_GO,
        id="go",
    ),
]
if os.environ.get("SLUICE_TEST_RUST"):
    errors = ["certificate verify failed", "AuthorizationError"]
    CLIENTS.append(pytest.param(rust_command, "own_certificate_refused", errors, id="rust"))


@pytest.mark.parametrize(("command", "unliked", "said_by_client"), CLIENTS)
def test_official_clients_are_served_by_tls_and_told_what_is_wrong(
    proving: SluiceProcess,
    sluice: SluiceProcess,
    files: Files,
    request: pytest.FixtureRequest,
    command: Callable[[], list[str]],
    unliked: str,
    said_by_client: list[str],
) -> None:
    """Each as another client of one process.

    Java looks for an address's name, localhost, which `proving` shows and `sluice` does not. A certificate that is not
    liked is an internal error to the Java client, which says so in its alert. The Rust client, which is built where
    SLUICE_TEST_RUST=1 says so, shows no certificates.
    """
    tls, own = proving.tls_url, files.path("servers")
    token = f"token {signed({'sub': 'alice'}).decode()}"
    certificate, strange = (f"tls {files.path(role)} {files.folder}/{role}.key" for role in ("carol", "mallory"))
    tries = {
        "token": (tls, own, token),
        "password": (tls, own, "basic bob geheim"),
        "certificate": (tls, own, certificate),
        "another role": (tls, own, f"token {signed({'sub': 'mallory'}).decode()}"),
        "forged token": (tls, own, f"token {signed({'sub': 'alice'}, OTHER_SECRET).decode()}"),
        "wrong password": (tls, own, "basic bob wrong"),
        "nothing": (tls, own, ""),
        "strange certificate": (tls, own, strange),
        "wrong authority": (tls, files.path("stranger"), token),
        "wrong name": (sluice.tls_url.replace("127.0.0.1", "localhost"), own, token),
        "plain on tls": (tls.replace("+ssl", ""), own, token),
        "tls on plain": (proving.service_url.replace("pulsar:", "pulsar+ssl:"), own, token),
    }
    if command is rust_command:
        tries = {name: rest for name, rest in tries.items() if not rest[2].startswith("tls ")}
    arguments: list[str] = []
    for number, (name, rest) in enumerate(tries.items()):
        arguments += [name, *rest, topic_name("proved", f"{request.node.callspec.id}-{number}")]
    before = refusals(proving, sluice, unliked)
    done = subprocess.run([*command(), *arguments], capture_output=True, text=True, timeout=120, check=True)
    fates = {name: re.findall(rf"^{name}: (.*)", done.stdout, re.MULTILINE) for name in tries}
    served = {name for name, fate in fates.items() if fate == ["served"]}
    assert served == {"token", "password", "certificate"} & tries.keys()
    for words in (*said_by_client, "signature fits no key", "the password is wrong", "takes token, basic, tls"):
        assert words in done.stdout + done.stderr
    after = refusals(proving, sluice, unliked)
    unseen = {failure for failure, count in after.items() if count <= before[failure]}
    assert unseen == ({"certificate_untrusted"} if command is rust_command else set())

    def is_logged(words: str) -> bool:
        return any(words in line["detail"] for line in logged(proving, event="connection closed"))

    for words in ("use pulsar+ssl://, not pulsar://", "use pulsar://, not pulsar+ssl://"):
        wait_for(partial(is_logged, words))


def refusals(proving: SluiceProcess, sluice: SluiceProcess, unliked: str) -> dict[str, float]:
    """What both have counted of clients that they did not serve, if this is how clients say that they like it not."""
    failures = ("plain_bytes", "certificate_untrusted", unliked)
    return {
        **{name: counted(proving, "sluice_tls_failures_total", side="client", failure=name) for name in failures},
        "wrong name": counted(sluice, "sluice_tls_failures_total", failure=unliked),
        "tls_hello": counted(proving, "sluice_frame_errors_total", cause="tls_hello"),
        "authentication": counted(proving, "sluice_connections_ended_total", cause="authentication_failed"),
    }


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command here: install openssl")
def test_a_client_that_would_renegotiate_is_refused(sluice: SluiceProcess) -> None:
    """By TLS 1.2, as `openssl s_client` does when it is told "R".

    The operator's log has a line of one cause each ten seconds at most: it is asked for until its turn has come.
    """
    where = sluice.tls_url.rpartition("/")[2]
    command = ["openssl", "s_client", "-connect", where, "-tls1_2"]
    before, times = counted(sluice, "sluice_tls_failures_total", failure="renegotiation"), itertools.count(1)

    def is_told() -> bool:
        done = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=60, check=False)
        assert "RENEGOTIATING" in done.stdout + done.stderr
        assert "no renegotiation" in done.stderr
        assert counted(sluice, "sluice_tls_failures_total", failure="renegotiation") == before + next(times)
        return any("would renegotiate TLS" in line["detail"] for line in logged(sluice, cause="tls_failed"))

    wait_for(is_told, pause_s=1)


def test_a_broker_s_certificate_that_expires_is_told_until_it_has_a_new_one(
    sluice: SluiceProcess, files: Files, broker: StandaloneBroker
) -> None:
    """Last: the broker shows another certificate now."""
    yesterday = datetime.now(UTC) - timedelta(days=1)
    files.write("broker", files.servers.issue_cert("127.0.0.1", not_after=yesterday))
    wait_for(lambda: "shows a certificate that has expired" in refusal(sluice))
    assert "give the broker a new one" in refusal(sluice)
    assert counted(sluice, "sluice_tls_failures_total", side="broker", failure="certificate_expired") > 1
    files.write("broker", files.servers.issue_cert("127.0.0.1"))
    wait_for(lambda: not refusal(sluice))
