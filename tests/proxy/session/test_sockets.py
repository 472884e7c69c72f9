"""What a transport's socket tells."""

import asyncio
import socket
import ssl
import time

import pytest

from proxy.session.transport import address_of, descriptor_of, has_left
from tests.waiting import PATIENCE_S

"""Until the kernel has told one end what happened at the other."""


@pytest.mark.parametrize(
    ("peername", "address"),
    [
        (("192.0.2.1", 1), "192.0.2.1:1"),
        (("2001:db8::1", 1, 0, 0), "[2001:db8::1]:1"),
        (None, ""),
        ("/run/socket", ""),
    ],
)
def test_addresses_are_written_as_people_write_them(peername: object, address: str) -> None:
    assert address_of(peername) == address


def test_bytes_go_by_the_descriptor_where_they_go_as_they_are() -> None:
    with socket.socket() as connection:
        assert descriptor_of(asyncio.Transport({"socket": connection})) == connection.fileno()
        assert (
            descriptor_of(asyncio.Transport({"socket": connection, "sslcontext": ssl.create_default_context()})) == -1
        )
    assert descriptor_of(asyncio.Transport()) == -1


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="Linux tells of a connection's state")
def test_a_peer_that_has_left_is_known_though_nothing_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    with there:
        transport = asyncio.Transport({"socket": there})
        assert not has_left(transport)
        here.close()
        until = time.monotonic() + PATIENCE_S
        while not has_left(transport):
            assert time.monotonic() < until
            time.sleep(0.001)
    assert not has_left(asyncio.Transport())
