import pytest

from loadgen.standin.broker import Broker
from loadgen.standin.options import BrokerOptions
from protocol.pulsar_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    Schema,
    ServerError,
)
from tests.loadgen.standin.doubles import Peer

NO_TOPIC = "persistent://no"
JSON = Schema(name="a", schema_data=b"{}", type=Schema.Json)


@pytest.fixture
def peer():
    return Peer(Broker(BrokerOptions(partitions={"persistent://public/default/four": 4})))


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
