"""Lookups in conversation: answers lead back to the proxy, redirects are followed here."""

from collections.abc import Callable
from functools import partial

import pytest
from google.protobuf.message import Message

from protocol.commands import encode
from protocol.pulsar_pb2 import (
    CommandAuthChallenge,
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    InvalidTopicName,
    KeyValue,
    Schema,
    ServiceNotReady,
    TooManyRequests,
    TopicNotFound,
)
from proxy.brokers.dialing import MOST_ANSWER
from proxy.brokers.targets import MOST_FOLLOWED
from tests.proxy.conversation import NOTHING, Peer, World
from tests.proxy.wire import NO_REQUEST, TOPIC, body, connect, connected, error, lookup, lookup_answer

Make = Callable[..., World]
REDIRECT, CONNECT, FAILED = (
    CommandLookupTopicResponse.Redirect,
    CommandLookupTopicResponse.Connect,
    CommandLookupTopicResponse.Failed,
)


def only_answer(client: Peer) -> CommandLookupTopicResponse:
    (answer,) = [body(frame) for frame in client.heard()]
    assert isinstance(answer, CommandLookupTopicResponse)
    return answer


def test_the_answer_leads_back_to_the_proxy_and_names_the_broker(world: World) -> None:
    client, broker = world.pair()
    client >> lookup()
    broker << lookup()
    broker >> lookup_answer(CONNECT, "pulsar://192.0.2.9:6650")
    client << lookup_answer(
        CONNECT,
        "pulsar://192.0.2.9:6650",
        broker_service_url_tls="pulsar://192.0.2.9:6650",
        authoritative=True,
        proxy_through_service_url=True,
    )


def test_a_broker_that_was_named_in_an_answer_may_be_connected_to(world: World) -> None:
    stranger = world.client()
    stranger >> connect("192.0.2.9:6650")
    assert stranger.is_gone
    client, broker = world.pair()
    client >> lookup()
    broker >> lookup_answer(CONNECT, "pulsar://192.0.2.9:6650")
    world.client() >> connect("192.0.2.9:6650")
    world.dialled() << connect()


@pytest.mark.parametrize("by_lie", ["pulsar://192.0.2.9:6650", "rubbish", ""])
def test_a_failed_answer_passes_as_it_came_and_teaches_nothing(world: World, by_lie: str) -> None:
    client, broker = world.pair()
    client >> lookup()
    frame = lookup_answer(FAILED, by_lie, error=TopicNotFound, message="no such topic")
    broker >> frame
    client << frame
    stranger = world.client()
    stranger >> connect("192.0.2.9:6650")
    assert stranger.is_gone


def test_a_question_is_kept_as_it_was_written(world: World) -> None:
    """Read, one with many small properties takes ten times as much as is counted for it."""
    client, _ = world.pair()
    client >> lookup(properties=[KeyValue(key="", value="")] * 1000)
    traffic = world.sessions[-1].forwarding
    assert traffic is not None
    (request,) = traffic._requests._under_way.values()
    assert isinstance(request.act, partial)
    kept = [argument for argument in request.act.args if isinstance(argument, bytes)]
    assert [len(argument) > 6000 for argument in kept] == [True]
    assert not any(isinstance(argument, Message) for argument in request.act.args)


def test_of_an_address_that_is_none_only_the_beginning_is_kept_and_told(world: World) -> None:
    client, broker = world.pair()
    client >> lookup()
    broker >> lookup_answer(REDIRECT, "pulsar://" + "x" * 100_000 + ":6650")
    assert len(only_answer(client).message) < 1000


def test_a_redirect_is_followed_with_every_field_of_the_request(world: World) -> None:
    """The official proxy forgets the listener's name and the properties."""
    client, broker = world.pair()
    request = CommandLookupTopic(
        topic=TOPIC,
        request_id=1,
        original_principal="me",
        advertised_listener_name="outside",
        properties=[KeyValue(key="k", value="v")],
    )
    client >> request
    broker << request
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.9:6650", authoritative=True)
    client << NOTHING
    other = world.dialled()
    assert other.transport.get_extra_info("peername") == ("192.0.2.9", 6650)
    other << connect()
    other >> connected()
    (asked,) = [body(frame) for frame in other.heard()]
    assert asked.authoritative
    asked.authoritative = request.authoritative
    asked.ClearField("authoritative")
    assert asked.SerializeToString() == request.SerializeToString()
    other >> lookup_answer(CONNECT, "pulsar://192.0.2.10:6650")
    answer = only_answer(client)
    assert (answer.request_id, answer.response) == (1, CONNECT)
    assert answer.broker_service_url == "pulsar://192.0.2.10:6650"
    assert answer.proxy_through_service_url
    assert other.is_gone


def test_a_request_is_kept_as_long_as_its_redirect_is_followed(world: World) -> None:
    client, broker = world.pair()
    before = world.engine.memory.used
    client >> lookup()
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.9:6650")
    other = world.dialled()
    assert world.engine.memory.used > before
    other >> connected()
    other >> lookup_answer(CONNECT, "pulsar://192.0.2.10:6650")
    assert only_answer(client).response == CONNECT
    assert world.engine.memory.used == before


def follow_redirects(world: World, count: int) -> None:
    """The brokers send the lookup on `count` times."""
    for number in range(count):
        other = world.dialled()
        other >> connected()
        other >> lookup_answer(REDIRECT, f"pulsar://192.0.2.{number + 1}:6650")


def test_ten_redirects_are_followed_and_no_more(world: World) -> None:
    client, broker = world.pair()
    client >> lookup()
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650")
    follow_redirects(world, 10)
    answer = only_answer(client)
    assert (answer.response, answer.error) == (FAILED, ServiceNotReady)
    assert "redirected 10 times" in answer.message
    assert len(world.dials) == 11


def test_the_tenth_broker_may_still_answer(world: World) -> None:
    client, broker = world.pair()
    client >> lookup()
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650")
    follow_redirects(world, 9)
    last = world.dialled()
    last >> connected()
    last >> lookup_answer(CONNECT, "pulsar://192.0.2.200:6650")
    assert only_answer(client).broker_service_url == "pulsar://192.0.2.200:6650"


def test_a_failure_behind_a_redirect_passes(world: World) -> None:
    client, broker = world.pair()
    client >> lookup()
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650")
    other = world.dialled()
    other >> connected()
    frame = lookup_answer(FAILED, error=TopicNotFound, message="no such topic")
    other >> frame
    client << frame


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (error(NO_REQUEST, text="who are you"), "the broker refuses: who are you"),
        (CommandAuthChallenge(), "several rounds of authentication"),
        (b"\xff" * 8, "announces"),
        (error(NO_REQUEST, text="x" * MOST_ANSWER), "announces"),
    ],
)
def test_a_broker_behind_a_redirect_that_cannot_be_asked_fails_the_lookup(
    world: World, reply: bytes, reason: str
) -> None:
    client, broker = world.pair()
    client >> lookup()
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650")
    world.dialled() >> reply
    answer = only_answer(client)
    assert (answer.response, answer.error, answer.request_id) == (FAILED, ServiceNotReady, 1)
    assert reason in answer.message


def test_a_broker_behind_a_redirect_that_closes_or_keeps_silent_fails_the_lookup(world: World) -> None:
    client, broker = world.pair()
    client >> [lookup(1), lookup(2), lookup(3)]
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650", 1)
    world.dialled().half_close()
    assert "closed the connection" in only_answer(client).message
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650", 2)
    world.advance(10.1)
    assert "no answer in time" in only_answer(client).message
    world.broker_answers = False
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650", 3)
    world.refuse(ConnectionRefusedError("nobody there"))
    assert "nobody there" in only_answer(client).message


def test_so_many_redirects_are_followed_at_once_and_the_others_in_their_turn(world: World) -> None:
    client, broker = world.pair()
    client >> [lookup(number) for number in range(MOST_FOLLOWED + 1)]
    broker >> [lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650", number) for number in range(MOST_FOLLOWED + 1)]
    others = [world.dialled() for _ in range(MOST_FOLLOWED)]
    assert len(world.dials) == 1 + MOST_FOLLOWED
    others[0].leave()
    world.advance(0)
    assert len(world.dials) == 2 + MOST_FOLLOWED


def test_a_redirect_to_nowhere_fails_the_lookup(world: World) -> None:
    client, broker = world.pair()
    client >> lookup()
    broker >> lookup_answer(REDIRECT)
    assert only_answer(client).response == FAILED


def test_a_client_that_leaves_ends_the_search(world: World) -> None:
    client, broker = world.pair()
    client >> lookup()
    broker >> lookup_answer(REDIRECT, "pulsar://192.0.2.100:6650")
    other = world.dialled()
    client.leave()
    assert other.is_gone
    assert world.engine.lookups.used == 0


def test_lookups_over_the_limit_are_refused_in_a_way_that_clients_retry(make_world: Make) -> None:
    world = make_world(max_lookups_in_flight_per_connection=2)
    client, broker = world.pair()
    client >> [lookup(1), lookup(2), lookup(3)]
    broker << [lookup(1), lookup(2)]
    answer = only_answer(client)
    assert (answer.request_id, answer.response, answer.error) == (3, FAILED, TooManyRequests)
    assert world.engine.lookups.refused == 1
    broker >> lookup_answer(FAILED, request_id=1)
    client.heard()
    client >> lookup(4)
    broker << lookup(4)


def test_one_address_gets_no_more_while_it_has_as_many_as_are_free(make_world: Make) -> None:
    world = make_world(max_lookups_in_flight=4)
    for greedy in (world.pair(), world.pair()):
        greedy[0] >> [lookup(1), lookup(2), lookup(3)]
    assert world.engine.lookups.used == 2
    other, broker = world.pair(address="192.0.2.8")
    other >> lookup(1)
    broker << lookup(1)


def test_questions_for_partitions_and_topics_count_as_well(make_world: Make) -> None:
    world = make_world(max_lookups_in_flight_per_connection=2)
    client, broker = world.pair()
    partitions = encode(CommandPartitionedTopicMetadata(topic=TOPIC, request_id=1))
    topics = encode(CommandGetTopicsOfNamespace(namespace="acme/shop", request_id=2))
    client >> [partitions, topics, lookup(3)]
    broker << [partitions, topics]
    assert only_answer(client).error == TooManyRequests
    broker >> [
        encode(CommandPartitionedTopicMetadataResponse(request_id=1, partitions=0)),
        encode(CommandGetTopicsOfNamespaceResponse(request_id=2, topics=[TOPIC])),
    ]
    assert client.heard_names() == ["PARTITIONED_METADATA_RESPONSE", "GET_TOPICS_OF_NAMESPACE_RESPONSE"]
    assert world.engine.lookups.used == 0


AVRO = Schema(name="s", schema_data=b"{}", type=Schema.Avro)


def test_questions_for_schemas_and_new_schemas_count_as_well(make_world: Make) -> None:
    """A broker bounds none of them: each is read from, or written to, its store."""
    world = make_world(max_lookups_in_flight_per_connection=2)
    client, broker = world.pair()
    asked = CommandGetSchema(topic=TOPIC, request_id=1, schema_version=b"v")
    created = CommandGetOrCreateSchema(topic=TOPIC, request_id=2, schema=AVRO, producer_name="p")
    client >> [encode(asked), encode(created), encode(CommandGetSchema(topic=TOPIC, request_id=3))]
    broker << [asked, created]
    (refused,) = [body(frame) for frame in client.heard()]
    assert isinstance(refused, CommandGetSchemaResponse)
    assert (refused.request_id, refused.error_code) == (3, TooManyRequests)
    client >> CommandGetOrCreateSchema(topic=TOPIC, request_id=4, schema=AVRO)
    (refused,) = [body(frame) for frame in client.heard()]
    assert isinstance(refused, CommandGetOrCreateSchemaResponse)
    assert (refused.request_id, refused.error_code) == (4, TooManyRequests)
    assert world.engine.lookups.used == 2
    answers = [
        encode(CommandGetSchemaResponse(request_id=1, schema=AVRO, schema_version=b"v")),
        encode(CommandGetOrCreateSchemaResponse(request_id=2, schema_version=b"v")),
    ]
    broker >> answers
    client << answers
    assert world.engine.lookups.used == 0


def test_a_schema_of_megabytes_goes_to_the_client_without_being_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, broker = world.pair()
    client >> CommandGetSchema(topic=TOPIC, request_id=1)
    large = CommandGetSchemaResponse(request_id=1, schema=Schema(name="s", schema_data=bytes(2**21), type=Schema.Avro))
    monkeypatch.setattr("proxy.session.commands.read", lambda _command: pytest.fail("2 MiB are read"))
    broker >> large
    client << large
    assert world.engine.lookups.used == 0


def test_a_new_schema_may_be_large_but_not_larger_than_is_read(world: World) -> None:
    client, broker = world.pair()
    large, too_large = (Schema(name="s", schema_data=bytes(size), type=Schema.Avro) for size in (2**19, 2**20))
    client >> CommandGetOrCreateSchema(topic=TOPIC, request_id=1, schema=large)
    broker << "GET_OR_CREATE_SCHEMA"
    client >> CommandGetOrCreateSchema(topic=TOPIC, request_id=2, schema=too_large)
    broker << NOTHING
    assert client.is_gone


@pytest.mark.parametrize("kind", [CommandGetSchemaResponse, CommandGetOrCreateSchemaResponse])
def test_a_schema_that_nobody_asked_for_goes_nowhere(world: World, kind: type[Message]) -> None:
    client, broker = world.pair()
    client >> CommandGetSchema(topic=TOPIC, request_id=1)
    broker >> encode(kind(request_id=7))
    client << NOTHING
    assert world.counters.answers_ignored == 1
    assert world.engine.lookups.used == 1


def test_an_error_is_an_answer_to_a_lookup_too(world: World) -> None:
    client, broker = world.pair()
    client >> lookup(1)
    broker >> error(1)
    client << error(1)
    assert world.engine.lookups.used == 0


def test_lookups_of_names_too_long_and_of_too_much_else_are_refused(world: World) -> None:
    client, broker = world.pair()
    client >> encode(CommandLookupTopic(topic="t" * 4097, request_id=1))
    assert only_answer(client).error == InvalidTopicName
    broker << NOTHING
    client >> encode(CommandLookupTopic(topic=TOPIC, request_id=2, original_auth_data="a" * 65536))
    assert client.is_gone
    assert world.counters.frame_errors == {"client too_large": 1}
    assert world.engine.lookups.used == 0


def test_an_answer_that_nobody_asked_for_goes_nowhere(world: World) -> None:
    client, broker = world.pair()
    broker >> lookup_answer(FAILED, request_id=99)
    client << NOTHING
    assert world.counters.answers_ignored == 1
