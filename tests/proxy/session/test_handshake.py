"""The first frame of a client."""

import struct

import pytest

from protocol.frames import FrameTooLarge, ProtocolError
from protocol.pulsar_pb2 import CommandConnect, FeatureFlags
from proxy.session.handshake import MOST_GREETING, MOST_SAID, read_greeting
from tests.proxy.wire import PING, body, connect, send, unknown_command, varint


def test_all_other_fields_that_are_known_go_on() -> None:
    fields = {
        "auth_method_name": "token",
        "auth_data": bytes(range(256)),
        "original_principal": "me",
        "proxy_version": "another-proxy",
        "feature_flags": FeatureFlags(supports_auth_refresh=True, supports_topic_watchers=True),
    }
    known = connect("broker:6650", **fields)
    command = known[8:]
    future = varint(99 << 3 | 2) + b"\x03new"
    inner = CommandConnect.FromString(body(known).SerializeToString() + future).SerializeToString()
    command = b"\x08\x02\x12" + varint(len(inner)) + inner
    greeting = read_greeting(struct.pack(">II", len(command) + 4, len(command)) + command)
    assert greeting is not None
    sent = body(greeting.frame)
    for name, value in fields.items():
        assert getattr(sent, name) == value
    assert future not in sent.SerializeToString()
    assert not sent.HasField("proxy_to_broker_url")


def test_long_names_are_cut_here_and_reach_the_broker_whole() -> None:
    """They come back in each line of the access log about the client's streams."""
    frame = connect("x" * 100_000 + ":6650", client_version="v" * 100_000)
    greeting = read_greeting(frame)
    assert greeting is not None
    assert greeting.client_version == "v" * MOST_SAID
    assert greeting.target is None
    assert greeting.refusal.startswith("'xxx")
    assert len(greeting.refusal) < MOST_SAID
    assert body(greeting.frame).client_version == "v" * 100_000


def test_equal_connects_share_a_greeting_unless_they_are_long() -> None:
    first = read_greeting(connect("broker-9:6650"))
    assert first is read_greeting(connect("broker-9:6650") + PING)
    assert first is not read_greeting(connect("broker-8:6650"))
    long = connect(auth_data=b"x" * 4096)
    assert read_greeting(long) is not read_greeting(long)


def test_who_no_longer_is_among_the_latest_is_forgotten() -> None:
    first = read_greeting(connect("broker-9:6650"))
    for number in range(1000):
        read_greeting(connect(f"other-{number}:6650"))
    assert first is not read_greeting(connect("broker-9:6650"))


@pytest.mark.parametrize(
    ("first_bytes", "cause"),
    [
        (bytes.fromhex("16030102000100") + bytes(20), "tls_hello"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "http_request"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "proxy_protocol"),
        (b"\r\n\r\n\x00\r\nQUIT\n" + bytes(16), "proxy_protocol"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "too_large"),
        (struct.pack(">II", MOST_GREETING - 3, 10), "too_large"),
        (struct.pack(">II", 20, 17), "malformed"),
        (struct.pack(">II", 0, 0), "malformed"),
        (struct.pack(">II", 7, 3) + b"\xff\xff\xff", "malformed"),
        (struct.pack(">II", 10, 6) + b"\x08\x02\x12\x02\x20\x14", "malformed"),  # names no version
        (PING, "no_connect"),
        (send(0), "no_connect"),
        (unknown_command(), "no_connect"),
        (struct.pack(">II", 6, 2) + b"\x08\x02", "no_connect"),
    ],
)
def test_what_is_no_connect_is_refused_and_called_by_its_name(first_bytes: bytes, cause: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        read_greeting(first_bytes)
    assert refused.value.cause == cause


def test_a_lying_length_is_refused_from_its_first_bytes() -> None:
    with pytest.raises(FrameTooLarge):
        read_greeting(struct.pack(">II", 2**31, 10))


def test_a_greeting_may_be_as_long_as_any_ticket() -> None:
    assert read_greeting(struct.pack(">II", MOST_GREETING - 4, 10)) is None


def test_a_broker_name_that_is_no_text_is_one_that_no_broker_has() -> None:
    command = CommandConnect.FromString(CommandConnect(client_version="c").SerializeToString() + b"\x32\x02\xff\xfe")
    inner = command.SerializeToString()
    envelope = b"\x08\x02\x12" + varint(len(inner)) + inner
    greeting = read_greeting(struct.pack(">II", len(envelope) + 4, len(envelope)) + envelope)
    assert greeting is not None
    assert greeting.refusal.startswith("'\ufffd\ufffd': is not host:port")
