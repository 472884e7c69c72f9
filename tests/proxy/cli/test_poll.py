"""One look at a proxy, against the real admin application."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from limiter.limiter import Entry, Stream, StreamName
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.cli.admin_link import AdminLink
from proxy.cli.options import AdminLinkError, AdminOptions
from proxy.cli.top_view import fetch
from proxy.observe.connection import Connection
from tests.proxy.admin_client import Admin

TOPIC = "persistent://acme/shop/orders"


def link(address: str) -> AdminLink:
    return AdminLink(AdminOptions(address))


def hold_one(admin: Admin) -> None:
    """A producer of acme/shop that passed one message and holds another."""
    engine, now = admin.engine, admin.engine.clock()
    stream = Stream(
        StreamName("publish", "acme", "shop", TOPIC, 1, "p"), (), lambda _stream, _entry: None, Connection(3, "a:1")
    )
    engine.registry.open(stream, parse_topic(TOPIC), now)
    for _ in range(2):
        engine.scheduler.count_offered(stream, 1, 1, 100)
        if not engine.scheduler.pass_entry(stream, 1, 100, now):
            engine.scheduler.hold(stream, Entry(b"", 1, 100, 100, now), now)


async def test_the_admin_addresss_answer_is_read(make_admin) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"publish_total": {"messages": "1/h"}}}})
    hold_one(admin)
    poll = await asyncio.to_thread(fetch, link(f"127.0.0.1:{admin.client.port}"))
    (stream,) = poll.streams
    assert (stream.topic, stream.producer_name, stream.client_address) == (TOPIC, "p", "a:1")
    assert (stream.offered_messages, stream.passed_messages, stream.held_messages) == (2, 1, 1)
    assert stream.waits_on is not None
    assert (stream.waits_on.level, stream.waits_on.messages_per_s) == (
        "namespace",
        Limit(rate(1)).messages and 1 / 3600,
    )
    assert (poll.totals.streams, poll.totals.held_streams, poll.left_out) == (1, 1, 0)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that is no Sluice; answers whoever asks, once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"
        peer, _ = server.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(answer)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "this version of Sluice does not understand the answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff{", "this version of Sluice does not understand the answer"),
    ],
)
async def test_another_kind_of_server_is_said_so(answer: bytes, problem: str) -> None:
    with answering(answer) as address:
        asked = asyncio.get_running_loop().run_in_executor(None, fetch, link(address))
    with pytest.raises(AdminLinkError) as caught:
        await asked
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{address}: ")
