"""With the official client, against the stand-in broker."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pulsar
import pytest
import trustme

from loadgen.load.clients import ClientError, Clients, Record, SharedConsumer, read_service_url
from protocol.endpoint import EndpointError

WAIT_S = 20


@contextlib.contextmanager
def standin_broker(scheme: str = "pulsar", *options: str) -> Iterator[str]:
    """The service URL of one."""
    command = [sys.executable, "-m", "sluice", "broker", "--listen", f"{scheme}://127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            yield f"{scheme}://{broker.stdout.readline().split()[-1]}"
        finally:
            broker.terminate()


@pytest.fixture(scope="module")
def service_url() -> Iterator[str]:
    with standin_broker() as url:
        yield url


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{token_hex(4)}"


def test_what_is_sent_is_receipted_and_received_in_order(service_url: str, topic: str) -> None:
    sent = [b"message %d" % number for number in range(100)]
    received: list[bytes] = []
    errors: list[str] = []
    settled, arrived = threading.Semaphore(0), threading.Semaphore(0)

    def record(payload: bytes) -> None:
        received.append(payload)
        arrived.release()

    def settle(error: str) -> None:
        errors.append(error)
        settled.release()

    with Clients(service_url) as receiver, Clients(service_url) as senders:
        receiver.subscribe({topic: record})
        sender = senders.sender("one", topic, 100)
        for payload in sent:
            sender.send(payload, settle)
        assert all(each.acquire(timeout=WAIT_S) for _ in sent for each in (settled, arrived))
    assert (received, errors) == (sent, [""] * 100)


@pytest.mark.slow
def test_next_host_of_the_service_url_is_taken(service_url: str, topic: str) -> None:
    scheme, _, address = service_url.partition("://")
    settled = threading.Semaphore(0)
    for hosts in (f"127.0.0.1:1,{address}", f"{address},127.0.0.1:1"):
        with Clients(f"{scheme}://{hosts}") as clients:
            clients.sender("one", topic, 1).send(b"a", lambda _error: settled.release())
            assert settled.acquire(timeout=WAIT_S)


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("pulsar://a:1", "pulsar://a:1"),
        ("pulsar://a:1,b:2", "pulsar://a:1,b:2"),
        ("pulsar+ssl://a:1,[2001:db8::1]:2/", "pulsar+ssl://a:1,[2001:db8::1]:2"),
    ],
)
def test_service_url_may_have_several_hosts(url: str, read: str) -> None:
    assert read_service_url(url) == read


@pytest.mark.parametrize(
    "url", ["a:1,b:2", "pulsar://a:1,", "pulsar://a:1,b", "http://a:1,b:2", "pulsar://a:1,pulsar://b:2"]
)
def test_each_host_of_a_service_url_is_checked(url: str) -> None:
    with pytest.raises(EndpointError, match="write it as pulsar://HOST:PORT"):
        read_service_url(url)


def test_topics_subscribed_together_are_recorded_apart(service_url: str) -> None:
    names = [f"persistent://public/default/{token_hex(4)}" for _ in range(2)]
    received: dict[str, list[bytes]] = {name: [] for name in names}
    arrived = threading.Semaphore(0)

    def recorder(name: str) -> Record:
        def record(payload: bytes) -> None:
            received[name].append(payload)
            arrived.release()

        return record

    with Clients(service_url) as clients:
        clients.subscribe({name: recorder(name) for name in names})
        for name in names:
            clients.sender("one", name, 10).send(name.encode(), lambda _error: None)
        assert all(arrived.acquire(timeout=WAIT_S) for _ in names)
    assert received == {name: [name.encode()] for name in names}


def test_senders_of_one_name_share_a_connection(service_url: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    client = pulsar.Client

    def counted(url: str, **options: Any) -> Any:
        made.append(url)
        return client(url, **options)

    monkeypatch.setattr(pulsar, "Client", counted)
    with Clients(service_url) as clients:
        for connection in ("a", "a", "b"):
            clients.sender(connection, topic, 10)
    assert len(made) == 2


def test_by_tls_it_is_verified_and_lookups_lead_back_to_tls(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, certificate = trustme.CA(), tmp_path / "broker.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    received, settled = threading.Semaphore(0), threading.Semaphore(0)
    with standin_broker("pulsar+ssl", "--certificate", str(certificate)) as url:
        with Clients(url, tmp_path / "ca.pem") as clients:
            clients.subscribe({topic: lambda _: received.release()})
            clients.sender("one", topic, 10).send(b"x", lambda _: settled.release())
            assert received.acquire(timeout=WAIT_S)
            assert settled.acquire(timeout=WAIT_S)
        monkeypatch.setattr("loadgen.load.clients.TIMEOUT_S", 1)
        with Clients(url) as strangers, pytest.raises(ClientError, match=r"pulsar\+ssl://.*does --ca name who"):
            strangers.sender("one", topic, 10)


def test_an_address_that_is_none_is_told_with_its_remedy() -> None:
    with (
        Clients("nonsense") as clients,
        pytest.raises(ClientError, match=r"'nonsense': .*write it as pulsar://HOST:PORT"),
    ):
        clients.sender("one", "persistent://public/default/x", 10)


def test_a_broker_that_refuses_is_named(service_url: str) -> None:
    with Clients(service_url) as clients, contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(ClientError, match=rf"{service_url}: cannot publish to .*tenant"))
        clients.sender("one", "not a scheme://x", 10)


@pytest.mark.parametrize(("batch", "places"), [(5, [0, 1, 2, 3, 4]), (1, [-1] * 5)])
def test_a_full_batch_is_one_entry_and_without_batching_each_message_is(
    service_url: str, topic: str, batch: int, places: list[int]
) -> None:
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with Clients(service_url) as clients, contextlib.closing(client):
        consumer = client.subscribe(topic, "s")
        sender = clients.sender("one", topic, 10, batch)
        for _ in range(5):
            sender.send(b"x", lambda _error: None)
        messages = [consumer.receive(WAIT_S * 1000) for _ in range(5)]
    assert [message.message_id().batch_index() for message in messages] == places


def test_a_subscription_keeps_what_comes_before_its_consumers_who_share_it(service_url: str, topic: str) -> None:
    received: dict[str, list[bytes]] = {"one": [], "other": []}
    arrived, settled = threading.Semaphore(0), threading.Semaphore(0)

    def recorder(name: str) -> Record:
        def record(payload: bytes) -> None:
            received[name].append(payload)
            arrived.release()

        return record

    with Clients(service_url) as clients:
        clients.make_subscription(topic, "kept")
        sender = clients.sender("sending", topic, 20)
        for number in range(20):
            sender.send(b"%d" % number, lambda _error: settled.release())
        assert all(settled.acquire(timeout=WAIT_S) for _ in range(20))
        for name in received:
            clients.consume(SharedConsumer(name, topic, "kept", queue=1), recorder(name))
        assert all(arrived.acquire(timeout=WAIT_S) for _ in range(20))
        # looked at while both are there: what one has not acknowledged when it leaves goes to the other
        assert sorted(map(int, [*received["one"], *received["other"]])) == list(range(20))
