"""Frames and lookups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.standin.broker import BrokerOptions, StandinBroker
from loadgen.standin.server import is_unlisted, request_id_of
from protocol.commands import SIZES, decode, encode, encode_with_payload
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandPing,
    CommandPong,
    CommandProducer,
    CommandSend,
    CommandSuccess,
    Schema,
    ServerError,
)
from tests.loadgen.standin.doubles import TOPIC, Peer, payload, varint


def envelope(number, body):
    return decode(b"\x08" + varint(number) + varint(number << 3 | 2) + varint(len(body)) + body)


@pytest.mark.parametrize("name", ["NEW_TXN", "TC_CLIENT_CONNECT_REQUEST", "WATCH_TOPIC_LIST", "CONSUMER_STATS"])
def test_a_requests_id_is_found_in_a_command_that_is_not_known(name):
    body = CommandSuccess(request_id=300).SerializeToString() + b"\x10\x05"
    assert request_id_of(envelope(BaseCommand.Type.Value(name), body)) == 300


def test_what_is_no_request_has_no_id():
    assert request_id_of(envelope(BaseCommand.SCALABLE_TOPIC_UPDATE, b"\x08\x05")) is None


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x12\x00"])
def test_a_request_without_a_readable_id_has_none(body):
    assert request_id_of(envelope(BaseCommand.NEW_TXN, body)) is None


def test_a_command_without_its_body_has_no_id():
    assert request_id_of(BaseCommand(type=BaseCommand.NEW_TXN)) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [(b"\x08\x63", True), (b"\x08\xac\x02", True), (b"\x08\x12", False), (b"", False), (b"\x92\x01\x00", False)],
    ids=["99", "300", "18", "nothing", "no type"],
)
def test_types_that_the_protocol_file_does_not_list_are_told_apart(command, expected):
    assert is_unlisted(decode(command)) is expected


NO_TOPIC = "persistent://no"
JSON = Schema(name="a", schema_data=b"{}", type=Schema.Json)


@pytest.fixture
def peer():
    return Peer(StandinBroker(BrokerOptions(partitions={"persistent://public/default/four": 4})))


@pytest.mark.parametrize(("topic", "partitions"), [("four", 4), ("persistent://public/default/one", 0)])
def test_partitions_are_as_configured(peer, topic, partitions):
    answer = peer.ask(CommandPartitionedTopicMetadata(topic=topic, request_id=5))
    assert (answer.request_id, answer.partitions) == (5, partitions)
    assert answer.response == CommandPartitionedTopicMetadataResponse.Success


def test_every_topic_is_served_here_by_the_address_that_the_client_used(peer):
    answer = peer.ask(CommandLookupTopic(topic="t", request_id=6))
    assert answer.response == CommandLookupTopicResponse.Connect
    assert (answer.request_id, answer.broker_service_url) == (6, "pulsar://127.0.0.1:6650")
    assert answer.authoritative
    assert answer.proxy_through_service_url


@pytest.mark.parametrize("command", [CommandPartitionedTopicMetadata, CommandLookupTopic])
def test_what_is_no_topic_is_answered_with_the_error_in_the_answers_own_field(peer, command):
    answer = peer.ask(command(topic=NO_TOPIC, request_id=7))
    assert (answer.request_id, answer.error) == (7, ServerError.InvalidTopicName)
    assert NO_TOPIC in answer.message


@pytest.mark.parametrize(("mode", "count"), [("PERSISTENT", 5), ("NON_PERSISTENT", 1), ("ALL", 6)])
def test_topics_of_a_namespace_are_listed_by_domain(peer, mode, count):
    peer.open_producer(1, "persistent://public/default/t")
    peer.open_producer(2, "non-persistent://public/default/t")
    peer.open_producer(3, "persistent://public/elsewhere/t")
    request = CommandGetTopicsOfNamespace(request_id=8, namespace="public/default", mode=mode)
    answer = peer.ask(request)
    assert answer.request_id == 8
    assert len(answer.topics) == count
    assert not answer.filtered


def test_a_schema_is_registered_and_found(peer):
    version = peer.ask(CommandGetOrCreateSchema(request_id=1, topic="t", schema=JSON)).schema_version
    answer = peer.ask(CommandGetSchema(request_id=2, topic="t"))
    assert (answer.schema, answer.schema_version) == (JSON, version)


def test_a_missing_schema_is_an_error_in_the_answer(peer):
    assert peer.ask(CommandGetSchema(request_id=2, topic="t")).error_code == ServerError.TopicNotFound
    failed = peer.ask(CommandGetOrCreateSchema(request_id=3, topic=NO_TOPIC, schema=JSON))
    assert failed.error_code == ServerError.InvalidTopicName


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
