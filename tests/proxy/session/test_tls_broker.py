"""Brokers that are reached by TLS, on real sockets: what is wrong with one is said, counted, and told to the client."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandError, CommandLookupTopic, CommandLookupTopicResponse, ServiceNotReady
from proxy.admin.readiness import BrokerHealth
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.access_log import AccessLog
from proxy.observe.intervals import Intervals
from proxy.observe.log_lines import Writer
from proxy.observe.totals import NamespaceTotals
from proxy.server import Server
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from tests.proxy.file_limits import policies_of
from tests.proxy.tcp import TcpPeer, broker_on_loopback, connect_to
from tests.proxy.wire import PING, body, connect, connected, lookup, unknown_command
from tests.waiting import PATIENCE_S

CONNECT, REDIRECT = CommandLookupTopicResponse.Connect, CommandLookupTopicResponse.Redirect


class Cluster:
    """An authority for brokers, one for those who come to them, and files of both.

    Args:
        folder: Where the files are made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.brokers, self.peers = trustme.CA(), trustme.CA()
        self.brokers.cert_pem.write_to_path(folder / "ca.pem")
        own = self.peers.issue_cert("sluice.example", common_name="sluice")
        own.private_key_pem.write_to_path(folder / "sluice.key")
        own.cert_chain_pems[0].write_to_path(folder / "sluice.pem")

    def context(self, *names: str, asks: bool = False, **more: Any) -> ssl.SSLContext:
        """What a broker has."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.brokers.issue_cert(*(names or ("127.0.0.1",)), **more).configure_cert(context)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            self.peers.configure_trust(context)
        return context

    def tls(self, **more: Any) -> dict[str, Any]:
        """The section `broker_tls` of who trusts these brokers."""
        return {"ca": str(self.folder / "ca.pem"), **more}

    def shown(self) -> dict[str, str]:
        """The keys of a certificate that these brokers accept."""
        return {"certificate": str(self.folder / "sluice.pem"), "key": str(self.folder / "sluice.key")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def stranger() -> trustme.CA:
    return trustme.CA()


class Proxy:
    """One that serves on loopback, and what it counts."""

    def __init__(self, **settings: Any) -> None:
        config = Config.model_validate({"listen": "127.0.0.1:0", "connect_timeout": "5s", "linger": "1s", **settings})
        self.counters, access = Counters(), AccessLog(Writer("p", "boot"), None)
        self.engine = Engine(config, policies_of(config.limits), self.counters)
        intervals = Intervals(access, NamespaceTotals(), self.engine, interval_s=1, steady_s=0)
        self.server = Server(self.engine, SessionLog(self.counters, intervals, access))
        self.address = ""

    async def refusal(self, target: str = "", then: bytes = b"") -> str:
        """What a client is told instead of CONNECTED."""
        client = await connect_to(self.address)
        client.send(connect(target), then)
        frame = await client.hear()
        assert frame is not None
        error = body(frame)
        assert isinstance(error, CommandError)
        assert error.error == ServiceNotReady
        assert await client.hear() is None
        client.writer.close()
        return str(error.message)


@asynccontextmanager
async def proxy_of(broker: str | list[str], **settings: Any) -> AsyncIterator[Proxy]:
    proxy = Proxy(broker=broker, **settings)
    proxy.address = await proxy.server.start()
    try:
        yield proxy
    finally:
        await proxy.server.stop(1)


@pytest.mark.parametrize("asks", [False, True])
async def test_a_client_is_served_by_a_broker_with_tls_that_perhaps_asks_who_comes(
    cluster: Cluster, *, asks: bool
) -> None:
    shown = cluster.shown() if asks else {}
    async with (
        broker_on_loopback(tls=cluster.context(asks=asks)) as broker,
        proxy_of(f"pulsar+ssl://{broker}", broker_tls=cluster.tls(**shown)) as proxy,
    ):
        client = await connect_to(proxy.address)
        client.send(connect(), PING, unknown_command())
        assert [await client.hear() for _ in range(3)] == [connected(), PING, unknown_command()]
        client.writer.close()
        assert not proxy.counters.tls_failures


def past(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


@pytest.mark.parametrize(
    ("make", "failure", "remedy"),
    [
        (lambda c: c.context("another.example"), "certificate_wrong_name", "set broker_tls.server_name"),
        (lambda c: c.context(not_after=past(1)), "certificate_expired", "give the broker a new one"),
    ],
)
async def test_what_is_wrong_with_a_broker_s_tls_is_told_counted_and_has_a_remedy(
    cluster: Cluster, make: Callable[[Cluster], ssl.SSLContext | None], failure: str, remedy: str
) -> None:
    async with (
        broker_on_loopback(tls=make(cluster)) as broker,
        proxy_of(f"pulsar+ssl://{broker}", broker_tls=cluster.tls()) as proxy,
    ):
        message = await proxy.refusal()
        assert message.startswith(f"broker_unreachable: pulsar+ssl://{broker}: ")
        assert remedy in message
        assert dict(proxy.counters.tls_failures) == {f"broker {failure}": 1}
        assert proxy.engine.connector.under_way == 0


@asynccontextmanager
async def plain_port() -> AsyncIterator[str]:
    """A broker's, when it is greeted by TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(1) == b"\x16", "to a broker it is the beginning of a frame that is too large"
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_broker_s_plain_port_ends_the_connection_and_is_told(cluster: Cluster) -> None:
    async with plain_port() as broker, proxy_of(f"pulsar+ssl://{broker}", broker_tls=cluster.tls()) as proxy:
        message = await proxy.refusal()
        assert message.startswith(f"broker_unreachable: pulsar+ssl://{broker}: ")
        assert "ends the connection when it is greeted by TLS; name its TLS port (brokerServicePortTls)" in message
        assert dict(proxy.counters.tls_failures) == {"broker left": 1}


@contextmanager
def careful_broker(context: ssl.SSLContext) -> Iterator[str]:
    """A broker that asks for certificates: as Netty, and not as uvloop, it sends the alert before it closes."""

    def serve() -> None:
        accepted, _ = listening.accept()
        with accepted:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(accepted.dup(), server_side=True)
            accepted.settimeout(PATIENCE_S)
            accepted.shutdown(socket.SHUT_WR)
            while accepted.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as thread:
        serving = thread.submit(serve)
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        serving.result(5)


@pytest.mark.parametrize(
    ("version", "failure", "remedy"),
    [
        (ssl.TLSVersion.TLSv1_2, "no_shared_cipher", "or else it wants a certificate: set broker_tls.certificate"),
        (ssl.TLSVersion.TLSv1_3, "own_certificate_refused", "broker_tls.certificate must be one that the broker's"),
    ],
)
async def test_a_broker_that_wants_a_certificate_and_sees_none_says_so(
    cluster: Cluster, version: ssl.TLSVersion, failure: str, remedy: str
) -> None:
    """By TLS 1.3 it does when the handshake is done on this side, and CONNECT is sent."""
    context = cluster.context(asks=True)
    context.maximum_version = version
    with careful_broker(context) as broker:
        async with proxy_of(f"pulsar+ssl://{broker}", broker_tls=cluster.tls()) as proxy:
            message = await proxy.refusal()
            assert message.startswith(f"broker_unreachable: pulsar+ssl://{broker}: ")
            assert remedy in message
            assert dict(proxy.counters.tls_failures) == {f"broker {failure}": 1}
            assert proxy.engine.connector.under_way == 0


async def test_broker_that_refuses_the_certificate_late_is_passed_over(
    cluster: Cluster,
) -> None:
    with careful_broker(cluster.context(asks=True)) as careful, capture_logs() as lines:
        async with (
            broker_on_loopback(tls=cluster.context()) as right,
            proxy_of([f"pulsar+ssl://{careful}", f"pulsar+ssl://{right}"], broker_tls=cluster.tls()) as proxy,
        ):
            for _ in range(4):
                client = await connect_to(proxy.address)
                client.send(connect())
                assert await client.hear() == connected()
                client.send(unknown_command())
                assert await client.hear() == unknown_command()
                client.writer.close()
            assert dict(proxy.counters.tls_failures) == {"broker own_certificate_refused": 1}
            assert dict(proxy.counters.brokers_passed_over) == {f"pulsar+ssl://{careful}": 1}
            assert proxy.engine.connector.under_way == 0
    [line] = [each for each in lines if each["event"] == "broker passed over"]
    assert line["broker"] == f"pulsar+ssl://{careful}"
    assert "broker_tls.certificate must be one" in line["problem"]
    assert not [each for each in lines if each["event"] == "connection closed"]


async def test_error_names_each_broker_if_all_refuse_the_certificate(
    cluster: Cluster,
) -> None:
    with careful_broker(cluster.context(asks=True)) as broker, careful_broker(cluster.context(asks=True)) as other:
        brokers = [f"pulsar+ssl://{broker}", f"pulsar+ssl://{other}"]
        async with proxy_of(brokers, broker_tls=cluster.tls()) as proxy:
            message = await proxy.refusal()
            assert [message.count(f"{each}: does not accept the certificate") for each in brokers] == [1, 1]
            assert dict(proxy.counters.tls_failures) == {"broker own_certificate_refused": 2}
            assert proxy.engine.connector.under_way == 0


async def test_a_client_that_has_said_more_than_connect_is_not_led_to_another_broker(cluster: Cluster) -> None:
    """What it said is gone with the first one."""
    with careful_broker(cluster.context(asks=True)) as careful:
        async with (
            broker_on_loopback(tls=cluster.context()) as right,
            proxy_of([f"pulsar+ssl://{careful}", f"pulsar+ssl://{right}"], broker_tls=cluster.tls()) as proxy,
        ):
            message = await proxy.refusal(then=unknown_command())
            assert f"pulsar+ssl://{careful}: does not accept the certificate" in message
            assert proxy.engine.connector.under_way == 0


async def test_ready_says_that_a_broker_refuses_the_certificate_behind_the_handshake(cluster: Cluster) -> None:
    with careful_broker(cluster.context(asks=True)) as careful:
        async with proxy_of(f"pulsar+ssl://{careful}", broker_tls=cluster.tls()) as proxy:
            brokers = BrokerHealth(proxy.engine)
            await brokers.fresh()
            problem = brokers.problem
            assert problem is not None
            assert "does not accept the certificate that it is shown" in problem
            assert "broker_tls.certificate must be one that the broker's" in problem
            assert dict(proxy.counters.tls_failures) == {"broker own_certificate_refused": 1}


async def test_a_broker_that_a_stranger_has_signed_is_not_trusted(cluster: Cluster, stranger: trustme.CA) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    stranger.issue_cert("127.0.0.1").configure_cert(context)
    async with (
        broker_on_loopback(tls=context) as broker,
        proxy_of(f"pulsar+ssl://{broker}", broker_tls=cluster.tls()) as proxy,
        proxy_of(f"pulsar+ssl://{broker}") as of_the_system,
    ):
        for each in (proxy, of_the_system):
            message = await each.refusal()
            assert "shows a certificate that is not trusted" in message
            assert "name the authority that has signed it in broker_tls.ca" in message
            assert dict(each.counters.tls_failures) == {"broker certificate_untrusted": 1}


@pytest.mark.parametrize("more", [{"server_name": "Another.Example"}, {"verify_hostname": False}])
async def test_another_name_is_taken_where_that_is_configured(cluster: Cluster, more: dict[str, Any]) -> None:
    async with (
        broker_on_loopback(tls=cluster.context("another.example")) as broker,
        proxy_of(f"pulsar+ssl://{broker}", broker_tls=cluster.tls(**more)) as proxy,
    ):
        client = await connect_to(proxy.address)
        client.send(connect())
        assert await client.hear() == connected()
        client.writer.close()


async def test_a_broker_that_is_silent_when_it_is_greeted_by_tls_is_given_up(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = f"pulsar+ssl://127.0.0.1:{silent.getsockname()[1]}"
        async with proxy_of(broker, broker_tls=cluster.tls(), connect_timeout="200ms") as proxy:
            assert await proxy.refusal() == f"broker_unreachable: {broker}: no connection within 0.2 s"
            accepted, _ = silent.accept()
            with accepted:
                accepted.settimeout(PATIENCE_S)
                while accepted.recv(65536):
                    pass


async def test_a_broker_whose_tls_is_wrong_is_passed_over_for_another(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        wrong = await stack.enter_async_context(broker_on_loopback(tls=cluster.context("another.example")))
        right = await stack.enter_async_context(broker_on_loopback(tls=cluster.context()))
        brokers = [f"pulsar+ssl://{wrong}", f"pulsar+ssl://{right}"]
        proxy = await stack.enter_async_context(proxy_of(brokers, broker_tls=cluster.tls()))
        for _ in range(4):
            client = await connect_to(proxy.address)
            client.send(connect())
            assert await client.hear() == connected()
            client.writer.close()
        assert dict(proxy.counters.tls_failures) == {"broker certificate_wrong_name": 1}


async def test_ready_is_who_reaches_one_of_the_brokers_by_tls(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(plain_port())
        wrong = await stack.enter_async_context(broker_on_loopback(tls=cluster.context("another.example")))
        right = await stack.enter_async_context(broker_on_loopback(tls=cluster.context()))
        both = [f"pulsar+ssl://{wrong}", f"pulsar+ssl://{right}"]
        problems = []
        for brokers in (both, both[:1], f"pulsar+ssl://{plain}"):
            proxy = await stack.enter_async_context(proxy_of(brokers, broker_tls=cluster.tls()))
            health = BrokerHealth(proxy.engine)
            await health.fresh()
            problems.append(health.problem or "")
        assert problems[0] == ""
        assert problems[1].startswith(f"broker pulsar+ssl://{wrong} does not answer: shows a certificate for another")
        assert "name its TLS port (brokerServicePortTls)" in problems[2]


@asynccontextmanager
async def directory(tls: ssl.SSLContext | None, answer: Callable[[], bytes]) -> AsyncIterator[str]:
    """A broker that answers every lookup with `answer`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = TcpPeer(reader, writer)
        while (frame := await peer.hear()) is not None:
            command = body(frame)
            if isinstance(command, CommandLookupTopic):
                response = CommandLookupTopicResponse.FromString(answer())
                response.request_id = command.request_id
                peer.send(encode(response))
            else:
                peer.send(connected())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def found(kind: Any, plain: str, tls: str) -> bytes:
    answer = CommandLookupTopicResponse(request_id=1, response=kind, broker_service_url_tls=tls)
    answer.broker_service_url = plain
    return answer.SerializeToString()


@pytest.mark.parametrize("broker_has_tls", [False, True])
@pytest.mark.parametrize("client_has_tls", [False, True])
async def test_lookups_are_followed_as_brokers_are_reached_and_answered_as_the_client_came(
    cluster: Cluster, *, broker_has_tls: bool, client_has_tls: bool
) -> None:
    context = cluster.context() if broker_has_tls else None
    scheme = "pulsar+ssl" if broker_has_tls else "pulsar"
    last = found(CONNECT, "pulsar://192.0.2.1:6650", "pulsar+ssl://192.0.2.1:6651")
    front = cluster.brokers.issue_cert("127.0.0.1")
    front.private_key_pem.write_to_path(cluster.folder / "front.key")
    front.cert_chain_pems[0].write_to_path(cluster.folder / "front.pem")
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(directory(context, lambda: last))
        urls = ("pulsar://127.0.0.1:1", f"pulsar+ssl://{second}") if broker_has_tls else (f"pulsar://{second}", "")
        first = await stack.enter_async_context(directory(context, lambda: found(REDIRECT, *urls)))
        settings: dict[str, Any] = {"broker_tls": cluster.tls()} if broker_has_tls else {}
        if client_has_tls:
            settings["tls"] = {
                key: str(cluster.folder / f"front.{end}") for key, end in (("certificate", "pem"), ("key", "key"))
            }
            settings["listen"] = "pulsar+ssl://127.0.0.1:0"
        proxy = await stack.enter_async_context(proxy_of(f"{scheme}://{first}", **settings))
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        cluster.brokers.configure_trust(trusting)
        client = await connect_to(proxy.address, tls=trusting if client_has_tls else None)
        client.send(connect(), lookup())
        assert await client.hear() == connected()
        frame = await client.hear()
        assert frame is not None
        answer = body(frame)
        assert isinstance(answer, CommandLookupTopicResponse)
        port = 6651 if broker_has_tls else 6650
        ours = "pulsar+ssl" if client_has_tls else "pulsar"
        assert answer.broker_service_url == answer.broker_service_url_tls == f"{ours}://192.0.2.1:{port}"
        assert answer.proxy_through_service_url
        client.writer.close()
