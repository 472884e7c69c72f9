import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.commands import SIZES, encode, encode_with_payload
from protocol.limits import DEFAULT_MAX_MESSAGE_SIZE, max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandPing,
    CommandPong,
    CommandProducer,
    CommandSend,
    CommandSuccess,
    ServerError,
)
from tests.loadgen.standin.doubles import TOPIC, Peer, payload


@pytest.mark.parametrize(("offered", "agreed"), [(20, 20), (21, 21), (99, 21), (0, 0)])
def test_connected_tells_the_largest_message_and_the_version_that_both_know(offered, agreed):
    peer = Peer(connect=False)
    connected = peer.ask(CommandConnect(client_version="c", protocol_version=offered))
    assert isinstance(connected, CommandConnected)
    assert (connected.protocol_version, connected.max_message_size) == (agreed, DEFAULT_MAX_MESSAGE_SIZE)
    assert not connected.feature_flags.supports_topic_watchers


def test_anything_before_connect_ends_the_connection():
    peer = Peer(connect=False)
    peer.say(CommandPing())
    assert peer.link.aborted


def test_a_ping_gets_a_pong():
    assert Peer().ask(CommandPing()) == CommandPong()


def test_who_says_anything_within_the_interval_is_kept_alive():
    peer = Peer()
    peer.connection.tick()
    assert peer.hear() == [CommandPing()]
    peer.say(CommandPong())
    peer.connection.tick()
    assert peer.hear() == [CommandPing()]
    assert not peer.link.aborted


def test_who_says_nothing_for_a_whole_interval_is_cut_off():
    peer = Peer()
    peer.connection.tick()
    peer.connection.tick()
    assert len(peer.link.aborted) == 1


def test_who_does_not_connect_within_the_interval_is_cut_off():
    peer = Peer(connect=False)
    peer.connection.receive(b"\0")
    peer.connection.tick()
    assert len(peer.link.aborted) == 1


def test_an_unknown_request_is_refused_and_counted():
    peer = Peer()
    peer.say_type(BaseCommand.NEW_TXN, CommandSuccess(request_id=12).SerializeToString())
    (refused,) = peer.hear()
    assert (refused.request_id, refused.error) == (12, ServerError.NotAllowedError)
    assert peer.broker.ignored_commands == {"NEW_TXN": 1}


@pytest.mark.parametrize(("number", "name"), [(BaseCommand.AUTH_RESPONSE, "AUTH_RESPONSE"), (99, "unlisted")])
def test_any_other_unknown_command_is_passed_over_and_counted(number, name):
    peer = Peer()
    peer.say_type(number, b"")
    assert peer.ask(CommandPing()) == CommandPong()
    assert peer.broker.ignored_commands == {name: 1}


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        SIZES.pack(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE) - 3, 4),
        b"\0\0\0\0",
        b"\0\0\0\x0a\0\0\0\x06garbag",
        SIZES.pack(6, 2) + b"\x08\x06",
        SIZES.pack(4, 0),
    ],
    ids=["http", "too large", "too short", "no command", "empty envelope", "no type"],
)
def test_what_is_no_frame_ends_the_connection(garbage):
    peer = Peer()
    peer.connection.receive(garbage)
    assert len(peer.link.aborted) == 1


@given(st.lists(st.integers(1, 60)))
def test_how_the_bytes_are_cut_never_matters(sizes):
    peer = Peer()
    stream = encode(CommandProducer(topic=TOPIC, producer_id=1, request_id=1)) + b"".join(
        encode_with_payload(CommandSend(producer_id=1, sequence_id=number), payload(b"x" * number))
        for number in range(5)
    )
    start = 0
    for size in [*sizes, len(stream)]:
        peer.connection.receive(stream[start : start + size])
        start += size
    assert [answer.message_id.entry_id for answer in peer.hear()[1:]] == list(range(5))
