"""Lookups: the proxy follows redirects itself and answers so that the client comes back through it."""

import asyncio
from dataclasses import dataclass, replace

from protocol.commands import body_of, encode, split, text
from protocol.errors import ProtocolError
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    ServiceNotReady,
)
from proxy.brokers.targets import LONGEST, TargetRefusedError, Targets
from proxy.refusals import lookup_refused

MOST_REDIRECTS = 10
_PATIENCE_S = 10.0
MOST_ANSWER = 64 * 1024
"""Bytes of a broker's answer on the way: a CONNECTED, some addresses, a reason."""


def through_proxy(answer: CommandLookupTopicResponse) -> CommandLookupTopicResponse:
    """The broker's Connect, so that the client connects to the proxy and names that broker to it.

    Source: org.apache.pulsar.proxy.server.LookupProxyHandler
    """
    url = text(answer.broker_service_url or answer.broker_service_url_tls)
    answer.broker_service_url = url
    answer.broker_service_url_tls = url
    answer.authoritative = True
    answer.proxy_through_service_url = True
    return answer


def address_in(answer: CommandLookupTopicResponse) -> str:
    """The broker that an answer names. What is too long for an address is cut, and still too long for one."""
    return text(answer.broker_service_url or answer.broker_service_url_tls)[: LONGEST + 1]


@dataclass(frozen=True, slots=True)
class Redirected:
    """A lookup that a broker sent elsewhere.

    Args:
        request_id: The client's.
        request: As it was written: read, it takes up to ten times as much.
        url: Where it is sent.
        authoritative: Whether that broker is to answer for it.
    """

    request_id: int
    request: bytes
    url: str
    authoritative: bool


async def follow(redirected: Redirected, connect: bytes, targets: Targets) -> bytes:
    """Ask one broker after the other until one says Connect or Failed.

    Args:
        redirected: The lookup and where it was sent.
        connect: The client's CONNECT frame, used to greet those brokers in its name.
        targets: The allow-list; it learns the addresses that brokers name.

    Returns:
        The frame to answer the client with.
    """
    request_id = redirected.request_id
    for _ in range(MOST_REDIRECTS):
        try:
            answer = await asyncio.wait_for(_ask_in_turn(redirected, connect, targets), _PATIENCE_S)
        except (OSError, TimeoutError, ProtocolError, TargetRefusedError) as error:
            reason = str(error) or "no answer in time"
            return lookup_refused(request_id, ServiceNotReady, f"lookup at {redirected.url}: {reason}")
        if answer.response != CommandLookupTopicResponse.Redirect:
            targets.learn(address_in(answer))
            is_found = answer.response == CommandLookupTopicResponse.Connect
            answer.request_id = request_id
            return encode(through_proxy(answer) if is_found else answer)
        redirected = replace(redirected, url=address_in(answer), authoritative=answer.authoritative)
        targets.learn(redirected.url)
    return lookup_refused(request_id, ServiceNotReady, f"the lookup was redirected {MOST_REDIRECTS} times")


async def _ask_in_turn(redirected: Redirected, connect: bytes, targets: Targets) -> CommandLookupTopicResponse:
    async with targets.followed:
        request = CommandLookupTopic.FromString(redirected.request)
        request.authoritative = redirected.authoritative
        return await _ask(request, redirected.url, connect, targets)


async def _ask(request: CommandLookupTopic, url: str, connect: bytes, targets: Targets) -> CommandLookupTopicResponse:
    reader, writer = await targets.connect(url, asyncio.open_connection, _PATIENCE_S)
    try:
        cutter = FrameCutter(MOST_ANSWER)
        writer.write(connect)
        await _await_answer(reader, cutter, BaseCommand.CONNECTED)
        writer.write(encode(request))
        answer = await _await_answer(reader, cutter, BaseCommand.LOOKUP_RESPONSE)
    finally:
        writer.close()
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
