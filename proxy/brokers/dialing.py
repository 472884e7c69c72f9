"""Connections of Sluice's own to brokers: how they are dialled, and why TLS with a broker failed.

With such connections the proxy follows a lookup that a broker sends elsewhere (`follow`), and answers so that the
client comes back through the proxy.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from protocol.commands import body_of, encode, split, text
from protocol.endpoint import BROKERS, PLAIN, TLS, Endpoint, EndpointError
from protocol.frames import FrameCutter, ProtocolError
from protocol.proxy_protocol import write_header
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    ServiceNotReady,
)
from proxy.brokers.targets import TargetRefusedError, Targets
from proxy.counters import Counters
from proxy.refusals import lookup_refused
from proxy.tls.certificates import Certificates
from proxy.tls.transport import TlsFailure, why_it_failed

_PLAIN_PORT = "name its TLS port (brokerServicePortTls), or write broker as pulsar:// for its plain one"
_REMEDIES = {
    TlsFailure.CERTIFICATE_UNTRUSTED: "name the authority that has signed it in broker_tls.ca",
    TlsFailure.CERTIFICATE_WRONG_NAME: "reach the broker by a name in it, or set broker_tls.server_name to one",
    TlsFailure.CERTIFICATE_EXPIRED: "give the broker a new one",
    TlsFailure.OWN_CERTIFICATE_REFUSED: "broker_tls.certificate must be one that the broker's "
    "tlsTrustCertsFilePath has signed",
    TlsFailure.NO_SHARED_CIPHER: "or else it wants a certificate: set broker_tls.certificate",
    TlsFailure.PLAIN_BYTES: _PLAIN_PORT,
    TlsFailure.LEFT: _PLAIN_PORT,
}

LEFT = "ends the connection when it is greeted by TLS"
"""The error of a broker's port without TLS, where a greeting is the beginning of a frame that is too large."""


class BrokerTlsError(OSError):
    """TLS with a broker failed; the text says what the broker does, and the remedy.

    Each failure of TLS with a broker raises this error, which counts it.

    Args:
        failure: The kind of failure.
        detail: The broker's behaviour in words.
        counters: Count it.
    """

    def __init__(self, failure: TlsFailure, detail: str, counters: Counters) -> None:
        problem = "speaks no TLS" if failure is TlsFailure.PLAIN_BYTES else detail
        remedy = _REMEDIES.get(failure)
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        counters.tls_failures[f"broker {failure}"] += 1


class NoneAnswersError(OSError):
    """No configured broker answers; the text has the problem of each."""


def write_to(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write to a broker. uvloop's own transport raises a `RuntimeError` where the broker has reset the connection.

    Raises:
        ConnectionResetError: If the connection has ended.
    """
    if writer.is_closing():
        raise ConnectionResetError("the broker ended the connection")
    writer.write(data)


class BrokerDialer:
    """Opens streams to allowed brokers, with TLS where the configured brokers have it.

    Args:
        targets: The allow-list.
        tls: The contexts in force.
        counters: Count TLS that failed.
        sends_proxy_header: Each connection begins with a PROXY protocol header.
    """

    def __init__(self, targets: Targets, tls: Certificates, counters: Counters, *, sends_proxy_header: bool) -> None:
        self.targets = targets
        self._tls = tls
        self._counters = counters
        self._own_header = write_header(None) if sends_proxy_header else b""

    @asynccontextmanager
    async def connection(
        self, broker: Endpoint, patience: float, header: bytes = b""
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect to a broker within `patience` seconds; the connection is closed at the end of the block.

        By TLS 1.3 a broker refuses Sluice's certificate after the handshake. So errors of TLS inside the block are also
        raised as the broker's.

        Args:
            broker: The broker's endpoint.
            patience: Seconds, for all its addresses together.
            header: The PROXY protocol header that names the client; empty for a connection of Sluice's own.

        Raises:
            TargetRefusedError: If the broker is not allowed, or its name leads nowhere.
            OSError: If it does not answer, or TLS fails.
        """
        try:
            reader, writer = await self._open(broker, patience)
            try:
                write_to(writer, header or self._own_header)
                yield reader, writer
            finally:
                writer.close()
        except ssl.SSLError as error:
            raise BrokerTlsError(*why_it_failed(error), self._counters) from None

    async def open(self, broker: Endpoint, patience: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as `connection` does, for a connection of Sluice itself that the caller closes."""
        try:
            reader, writer = await self._open(broker, patience)
        except ssl.SSLError as error:
            raise BrokerTlsError(*why_it_failed(error), self._counters) from None
        write_to(writer, self._own_header)
        return reader, writer

    async def _open(self, broker: Endpoint, patience: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connect = asyncio.open_connection
        if broker.scheme != TLS:
            return await self.targets.connect(broker, connect, patience)
        connect = partial(connect, ssl=self._tls.broker(), server_hostname=self._tls.server_name(broker))
        try:
            return await self.targets.connect(broker, connect, patience)
        except ConnectionResetError:
            raise BrokerTlsError(TlsFailure.LEFT, LEFT, self._counters) from None


MOST_REDIRECTS = 10
_PATIENCE_S = 10.0
_MISSING = {
    TLS: "set brokerServicePortTls there, or reach brokers by pulsar://",
    PLAIN: "set brokerServicePort there, or reach brokers by pulsar+ssl://",
}
"""The remedy where a broker has no such address."""
MOST_ANSWER = 64 * 1024
"""Bytes of a broker's answer on the way: a CONNECTED, some addresses, a reason."""


def through_proxy(answer: CommandLookupTopicResponse, broker: Endpoint, *, is_tls: bool) -> CommandLookupTopicResponse:
    """Return the broker's Connect, so that the client connects to the proxy and names `broker` to it.

    The scheme is the one by which this client reaches the proxy, whichever field it reads: none is led from TLS to
    plain text, nor to TLS where it speaks none.

    Source: org.apache.pulsar.proxy.server.LookupProxyHandler
    """
    url = str(broker._replace(scheme=TLS if is_tls else PLAIN))
    answer.broker_service_url = answer.broker_service_url_tls = url
    answer.authoritative = True
    answer.proxy_through_service_url = True
    return answer


def broker_in(answer: CommandLookupTopicResponse, scheme: str) -> Endpoint:
    """Return the broker that an answer (Connect or Redirect) names, as it is reached by `scheme`.

    Raises:
        EndpointError: If it names none that can be reached so.
    """
    plain, tls = text(answer.broker_service_url), text(answer.broker_service_url_tls)
    url, other = (tls, plain) if scheme == TLS else (plain, tls)
    if not url and other:
        raise EndpointError(other, f"no {scheme}:// address is named, by which `broker` is reached; {_MISSING[scheme]}")
    broker = BROKERS.parse(url)
    if broker.scheme != scheme and "://" in url:
        raise EndpointError(url, f"is no {scheme}:// address, by which `broker` is reached; {_MISSING[scheme]}")
    return broker._replace(scheme=scheme)


def no_broker_found(request_id: int, error: EndpointError) -> CommandLookupTopicResponse:
    """Return the client's answer where the broker named none that can be reached."""
    answer = CommandLookupTopicResponse(request_id=request_id, response=CommandLookupTopicResponse.Failed)
    answer.error, answer.message = ServiceNotReady, f"the broker answers the lookup with {error}"
    return answer


@dataclass(frozen=True, slots=True)
class Redirected:
    """A lookup that a broker redirected to another broker.

    Args:
        request_id: The client's.
        request: The request's bytes: parsed, it takes up to ten times as much.
        broker: The other broker.
        authoritative: Whether that broker must answer for the topic itself.
        is_tls: Whether the client reaches the proxy by TLS.
        header: The PROXY protocol header that names the client; empty where brokers want none.
    """

    request_id: int
    request: bytes
    broker: Endpoint
    authoritative: bool
    is_tls: bool
    header: bytes


async def follow(redirected: Redirected, connect: bytes, brokers: BrokerDialer) -> bytes:
    """Ask one broker after the other until one answers Connect or Failed.

    Args:
        redirected: The lookup and where it was sent.
        connect: The client's CONNECT frame, used to greet those brokers in its name.
        brokers: Connects to them; the allow-list learns the addresses that they name.

    Returns:
        The frame to answer the client with.
    """
    request_id = redirected.request_id
    for _ in range(MOST_REDIRECTS):
        try:
            answer = await asyncio.wait_for(_ask_in_turn(redirected, connect, brokers), _PATIENCE_S)
        except (OSError, TimeoutError, ProtocolError, TargetRefusedError) as error:
            reason = str(error) or "no answer in time"
            return lookup_refused(request_id, ServiceNotReady, f"lookup at {redirected.broker}: {reason}")
        answer.request_id = request_id
        if answer.response == CommandLookupTopicResponse.Failed:
            return encode(answer)
        try:
            broker = broker_in(answer, redirected.broker.scheme)
        except EndpointError as error:
            return encode(no_broker_found(request_id, error))
        brokers.targets.learn(broker)
        if answer.response == CommandLookupTopicResponse.Connect:
            return encode(through_proxy(answer, broker, is_tls=redirected.is_tls))
        redirected = replace(redirected, broker=broker, authoritative=answer.authoritative)
    return lookup_refused(request_id, ServiceNotReady, f"the lookup was redirected {MOST_REDIRECTS} times")


async def _ask_in_turn(redirected: Redirected, connect: bytes, brokers: BrokerDialer) -> CommandLookupTopicResponse:
    async with brokers.targets.followed:
        request = CommandLookupTopic.FromString(redirected.request)
        request.authoritative = redirected.authoritative
        return await _ask(request, redirected, connect, brokers)


async def _ask(
    request: CommandLookupTopic, redirected: Redirected, connect: bytes, brokers: BrokerDialer
) -> CommandLookupTopicResponse:
    async with brokers.connection(redirected.broker, _PATIENCE_S, redirected.header) as (reader, writer):
        cutter = FrameCutter(MOST_ANSWER)
        write_to(writer, connect)
        await _await_answer(reader, cutter, BaseCommand.CONNECTED)
        write_to(writer, encode(request))
        answer = await _await_answer(reader, cutter, BaseCommand.LOOKUP_RESPONSE)
    response: CommandLookupTopicResponse = body_of(answer)
    return response


async def _await_answer(reader: asyncio.StreamReader, cutter: FrameCutter, awaited: int) -> BaseCommand:
    while True:
        chunk = await reader.read(65536)
        if not chunk:
            raise OSError("the broker closed the connection")
        for frame in cutter.feed(chunk):
            envelope, _ = split(frame)
            if envelope.type == awaited:
                return envelope
            if envelope.type == BaseCommand.ERROR:
                raise OSError(f"the broker refuses: {envelope.error.message}")
            if envelope.type == BaseCommand.AUTH_CHALLENGE:
                raise OSError("the broker wants several rounds of authentication, which a redirected lookup cannot do")
