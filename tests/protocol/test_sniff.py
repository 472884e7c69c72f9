"""A peer that speaks another protocol gets an error that names the remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.commands import encode
from protocol.frames import (
    DEFAULT_MAX_MESSAGE_SIZE,
    SEND,
    FrameTooLarge,
    ProtocolError,
    foreign_protocol,
    max_frame_size,
)
from protocol.pulsar_pb2 import CommandConnect
from protocol.scanner import FrameScanner

GREETINGS = {
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20): "tls_hello",
    b"\x16\x03\x03\x00\xa5\x01\x00\x00\xa1": "tls_hello",
    b"GET /metrics HTTP/1.1\r\nHost: sluice\r\n\r\n": "http_request",
    b"POST /admin/v2/namespaces/a/b/publishRate HTTP/1.1\r\n": "http_request",
    b"DELETE / HTTP/1.1\r\n": "http_request",
    b"OPTIONS * HTTP/1.1\r\n": "http_request",
    b"CONNECT broker:6650 HTTP/1.1\r\n": "http_request",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": "http_request",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 6650\r\n": "proxy_protocol",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12): "proxy_protocol",
}


@pytest.mark.parametrize(("greeting", "cause"), GREETINGS.items(), ids=GREETINGS.values())
def test_a_greeting_is_known_and_answered_with_a_remedy(greeting: bytes, cause: str) -> None:
    error = foreign_protocol(greeting)
    assert isinstance(error, ProtocolError)
    assert error.cause == cause
    assert ":" in str(error), "what it is: what to do"


@pytest.mark.parametrize("greeting", GREETINGS)
def test_a_greeting_read_as_a_frame_is_too_large(greeting: bytes) -> None:
    """So it is enough to inspect the first bytes when a frame is too large."""
    with pytest.raises(FrameTooLarge):
        FrameScanner(SEND, 200_000_000).scan(greeting)


@given(st.binary(min_size=4, max_size=12))
def test_a_frame_of_allowed_size_is_no_foreign_protocol(first_bytes: bytes) -> None:
    if int.from_bytes(first_bytes[:4]) <= max_frame_size(DEFAULT_MAX_MESSAGE_SIZE):
        assert foreign_protocol(first_bytes) is None


def test_a_pulsar_client_is_no_foreign_protocol() -> None:
    hello = encode(CommandConnect(client_version="any", protocol_version=20))
    assert foreign_protocol(hello) is None


@pytest.mark.parametrize("first_bytes", [b"", b"\x16", b"G", b"\r\n\r", b"PROX", b"SSH-2.0-x\r\n"])
def test_too_few_or_unknown_bytes_are_no_foreign_protocol(first_bytes: bytes) -> None:
    assert foreign_protocol(first_bytes) is None
