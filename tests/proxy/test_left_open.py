"""What a test leaves open makes it fail, and never hang."""

import asyncio
import socket

import pytest

from tests.proxy.conftest import ClosingLoop


def test_a_loop_ends_though_something_is_left_open_in_it_and_says_what() -> None:
    loop = ClosingLoop()
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    loop.run_until_complete(loop.create_server(asyncio.Protocol, sock=listening))
    with pytest.raises(ResourceWarning, match="unclosed resource <TCPServer"):
        loop.close()
    assert loop.is_closed()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
