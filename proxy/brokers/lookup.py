"""Lookups: the proxy follows redirects itself and answers so that the client comes back through it."""

import asyncio
from dataclasses import dataclass, replace

from protocol.commands import body_of, encode, split, text
from protocol.endpoint import Endpoint, EndpointError
from protocol.errors import ProtocolError
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    ServiceNotReady,
)
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import BROKERS, PLAIN, TLS, TargetRefusedError
from proxy.refusals import lookup_refused

MOST_REDIRECTS = 10
_PATIENCE_S = 10.0
_MISSING = {
    TLS: "set brokerServicePortTls there, or reach brokers by pulsar://",
    PLAIN: "set brokerServicePort there, or reach brokers by pulsar+ssl://",
}
"""What to do where a broker has no such address."""
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
    wanted, other = (tls, plain) if scheme == TLS else (plain, tls)
    if not wanted and other:
        raise EndpointError(other, f"no {scheme}:// address is named, by which `broker` is reached; {_MISSING[scheme]}")
    found = BROKERS.parse(wanted)
    if found.scheme != scheme and "://" in wanted:
        raise EndpointError(wanted, f"is no {scheme}:// address, by which `broker` is reached; {_MISSING[scheme]}")
    return found._replace(scheme=scheme)


def no_broker_found(request_id: int, error: EndpointError) -> CommandLookupTopicResponse:
    """Return the client's answer where the broker named none that can be reached."""
    answer = CommandLookupTopicResponse(request_id=request_id, response=CommandLookupTopicResponse.Failed)
    answer.error, answer.message = ServiceNotReady, f"the broker answers the lookup with {error}"
    return answer


@dataclass(frozen=True, slots=True)
class Redirected:
    """A lookup that a broker sent elsewhere.

    Args:
        request_id: The client's.
        request: As it was written: read, it takes up to ten times as much.
        broker: Where it is sent.
        authoritative: Whether that broker is to answer for it.
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
    """Ask one broker after the other until one says Connect or Failed.

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
        writer.write(connect)
        await _await_answer(reader, cutter, BaseCommand.CONNECTED)
        writer.write(encode(request))
        answer = await _await_answer(reader, cutter, BaseCommand.LOOKUP_RESPONSE)
    found: CommandLookupTopicResponse = body_of(answer)
    return found


async def _await_answer(reader: asyncio.StreamReader, cutter: FrameCutter, wanted: int) -> BaseCommand:
    while True:
        chunk = await reader.read(65536)
        if not chunk:
            raise OSError("the broker closed the connection")
        for frame in cutter.feed(chunk):
            envelope, _ = split(frame)
            if envelope.type == wanted:
                return envelope
            if envelope.type == BaseCommand.ERROR:
                raise OSError(f"the broker refuses: {envelope.error.message}")
            if envelope.type == BaseCommand.AUTH_CHALLENGE:
                raise OSError("the broker wants several rounds of authentication, which a redirected lookup cannot do")
