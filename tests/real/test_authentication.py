"""A broker that authenticates and authorizes, and Sluice in front of it: verifying clients itself, and not."""

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pulsar
import pytest

from adminrest.client import AdminCredentials
from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from tests.proxy.identity.keys import OTHER_SECRET, SECRET, signed
from tests.proxy.identity.test_passwords import HASHES
from tests.real.metrics import counted
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.traffic import PATIENCE_MS, quiet_client
from tests.waiting import wait_for

pytestmark = pytest.mark.real

_TOPICS = itertools.count()


def token_of(role: str, lives_s: float | None = None, secret: bytes = SECRET) -> str:
    claims: dict[str, Any] = {"sub": role} | ({} if lives_s is None else {"exp": time.time() + lives_s})
    return signed(claims, secret).decode()


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "secret.key"
    path.touch(mode=0o600)
    path.write_bytes(SECRET)
    return path


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "htpasswd"
    path.touch(mode=0o600)
    path.write_text(f"alice:{HASHES['apr1']}\n")
    return path


@pytest.fixture(scope="module")
def broker(secret: Path, users: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneBroker]:
    properties = {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken,"
        "org.apache.pulsar.broker.authentication.AuthenticationProviderBasic",
        "basicAuthConf": str(users),
        "authenticateOriginalAuthData": "true",
        "tokenSecretKey": f"file://{secret}",
        "authorizationEnabled": "true",
        "superUserRoles": "admin,sluice",
        "proxyRoles": "sluice",
        "authenticationRefreshCheckSeconds": "2",  # so long a client has to show a newer token
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token_of('admin')}",
    }
    settings = BrokerSettings(properties=properties, token=token_of("admin"))
    with StandaloneBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
        rest = PulsarRest(broker.admin_url, AdminCredentials(token_of("admin")))
        rest.ensure_namespace("auth")
        rest.call("POST", f"/admin/v2/namespaces/{TENANT}/auth/permissions/alice", ["produce", "consume"])
        yield broker


@pytest.fixture(scope="module")
def terminating(
    broker: StandaloneBroker, secret: Path, users: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SluiceProcess]:
    """The broker verifies what clients have shown once more."""
    folder = tmp_path_factory.mktemp("terminate")
    own = folder / "sluice.token"
    own.touch(mode=0o600)
    own.write_text(token_of("sluice"))
    section = {
        "mode": "terminate",
        "token": {"secret_key": f"file://{secret}"},
        "basic": {"htpasswd": str(users)},
        "forward_credentials": True,
        "broker": {"token_file": str(own)},
    }
    sluice = start_sluice(folder, broker.service_url, {"authentication": section})
    yield sluice
    sluice.stop()


@pytest.fixture(scope="module")
def passing(broker: StandaloneBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    sluice = start_sluice(tmp_path_factory.mktemp("pass"), broker.service_url, {})
    yield sluice
    sluice.stop()


@pytest.fixture(params=["terminating", "passing"])
def sluice(request: pytest.FixtureRequest) -> SluiceProcess:
    sluice: SluiceProcess = request.getfixturevalue(request.param)
    return sluice


def client_of(sluice: SluiceProcess, token: Any) -> pulsar.Client:
    authentication = pulsar.AuthenticationToken(token)
    return quiet_client(sluice.service_url, authentication=authentication, operation_timeout_seconds=3)


def a_topic() -> str:
    return topic_name("auth", f"topic-{next(_TOPICS)}")


def test_a_client_with_a_permission_has_its_messages(sluice: SluiceProcess) -> None:
    with closing(client_of(sluice, token_of("alice"))) as client:
        topic = a_topic()
        consumer = client.subscribe(topic, "sub")
        producer = client.create_producer(topic)
        sent = [b"%d" % number for number in range(20)]
        for content in sent:
            producer.send(content)
        assert [consumer.receive(PATIENCE_MS).data() for _ in sent] == sent
        roles = {(stream["client_role"]) for stream in sluice.streams(topic)}
        assert roles == {"alice"}


def test_the_permissions_are_the_clients_own_and_not_sluices(sluice: SluiceProcess) -> None:
    """Sluice's own role may do everything at that broker."""
    with closing(client_of(sluice, token_of("bob"))) as client:
        with pytest.raises((pulsar.AuthorizationError, pulsar.ConnectError, pulsar.Timeout)):
            client.create_producer(a_topic())
        with pytest.raises((pulsar.AuthorizationError, pulsar.ConnectError, pulsar.Timeout)):
            client.subscribe(a_topic(), "sub")
    with closing(client_of(sluice, token_of("alice"))) as client, pytest.raises(pulsar.PulsarException):
        client.create_producer(f"persistent://public/default/topic-{next(_TOPICS)}")


def test_who_proves_nothing_comes_nowhere(terminating: SluiceProcess, passing: SluiceProcess) -> None:
    """All at once: each client tries for three seconds."""

    def fails(sluice: SluiceProcess, token: str) -> str:
        with closing(client_of(sluice, token)) as client, pytest.raises(pulsar.PulsarException) as failure:
            client.create_producer(a_topic())
        return type(failure.value).__name__

    tokens = (token_of("alice", secret=OTHER_SECRET), token_of("alice", -5), "x")
    with ThreadPoolExecutor(2 * len(tokens)) as threads:
        failures = [threads.submit(fails, sluice, token) for sluice in (terminating, passing) for token in tokens]
    assert all(failure.result() for failure in failures)


ENDS = ("authentication_failed", "authentication_expired", "broker_closed", "broker_reset", "client_closed")


def ended(sluice: SluiceProcess) -> dict[str, float]:
    return {cause: counted(sluice, "sluice_connections_ended_total", cause=cause) for cause in ENDS}


def test_a_client_with_ever_newer_tokens_stays_connected(terminating: SluiceProcess, passing: SluiceProcess) -> None:
    """By each of the two, beside each other. The broker drops fractions of `exp`: it sees a token live 2 to 3 s."""
    both = (terminating, passing)
    with ExitStack() as clients:
        there = [clients.enter_context(closing(client_of(sluice, lambda: token_of("alice", 3)))) for sluice in both]
        producers = [client.create_producer(a_topic()) for client in there]
        before = [ended(sluice) for sluice in both]
        for number in range(14):
            for producer in producers:
                producer.send(b"%d" % number)
            time.sleep(0.5)
        assert [ended(sluice) for sluice in both] == before


def test_a_session_ends_with_its_token(terminating: SluiceProcess) -> None:
    """The client has a connection for lookups and one for messages: one of them may end up to a second later."""
    token = token_of("alice", 4)
    with closing(client_of(terminating, lambda: token)) as client:
        producer = client.create_producer(a_topic(), send_timeout_millis=3000)
        producer.send(b"in time")
        before = counted(terminating, "sluice_connections_ended_total", cause="authentication_expired")
        wait_for(
            lambda: counted(terminating, "sluice_connections_ended_total", cause="authentication_expired") > before, 15
        )

        def is_refused() -> bool:
            try:
                producer.send(b"too late")
            except pulsar.PulsarException:
                return True
            return False

        wait_for(is_refused)
    assert counted(terminating, "sluice_authentications_total", method="token", result="refused") > 0


def test_a_user_with_a_password_is_believed_by_broker_and_sluice(sluice: SluiceProcess) -> None:
    authentication = pulsar.AuthenticationBasic("alice", "geheim")
    with closing(quiet_client(sluice.service_url, authentication=authentication)) as client:
        topic = a_topic()
        consumer = client.subscribe(topic, "sub")
        client.create_producer(topic).send(b"x")
        assert consumer.receive(PATIENCE_MS).data() == b"x"
        assert {stream["client_role"] for stream in sluice.streams(topic)} == {"alice"}


def test_verifying_broker_refuses_a_proxy_keeping_credentials(
    broker: StandaloneBroker, secret: Path, tmp_path: Path
) -> None:
    """So what `terminating` does is done by the credentials that it forwards, and by nothing else."""
    own = tmp_path / "sluice.token"
    own.touch(mode=0o600)
    own.write_text(token_of("sluice"))
    section = {"mode": "terminate", "token": {"secret_key": str(secret)}, "broker": {"token_file": str(own)}}
    sluice = start_sluice(tmp_path, broker.service_url, {"authentication": section}, ready_at="/healthz")
    try:
        with closing(client_of(sluice, token_of("alice"))) as client, pytest.raises(pulsar.PulsarException):
            client.create_producer(a_topic())
        assert counted(sluice, "sluice_authentications_total", method="token", result="accepted") > 0
    finally:
        sluice.stop()
