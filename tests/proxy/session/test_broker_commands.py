"""What a broker says and the client gets to see of it."""

from typing import Any

from protocol.pulsar_pb2 import CommandTopicMigrated
from tests.proxy.conversation import World
from tests.proxy.wire import (
    PING,
    close_consumer,
    close_producer,
    error,
    lookup_answer,
    producer,
    producer_success,
    send,
    subscribe,
    success,
)

ELSEWHERE: dict[str, Any] = {
    "assigned_broker_service_url": "pulsar://192.0.2.1:6650",
    "assigned_broker_service_url_tls": "pulsar+ssl://192.0.2.1:6651",
}


def test_a_closed_producer_is_not_told_where_its_topic_went(world: World) -> None:
    """It would go there itself, around the proxy; without the address it looks the topic up again."""
    client, broker = world.pair()
    client >> producer()
    broker >> [producer_success(), close_producer(**ELSEWHERE)]
    client << [producer_success(), close_producer()]
    assert world.counters.broker_urls_stripped == 1
    assert world.engine.registry.live() == []


def test_a_closed_consumer_is_not_told_where_its_topic_went(world: World) -> None:
    client, broker = world.pair()
    client >> subscribe()
    broker >> [success(307), close_consumer(assigned_broker_service_url_tls="pulsar+ssl://192.0.2.1:6651")]
    client << [success(307), close_consumer()]
    assert world.counters.broker_urls_stripped == 1


def test_a_close_without_an_address_passes_as_it_came(world: World) -> None:
    client, broker = world.pair()
    broker >> [close_producer(), close_consumer()]
    client << [close_producer(), close_consumer()]
    assert world.counters.broker_urls_stripped == 0


def test_a_migration_to_another_cluster_is_kept_from_the_client(world: World) -> None:
    client, broker = world.pair()
    migrated = CommandTopicMigrated(
        resource_id=1, resource_type=CommandTopicMigrated.Producer, broker_service_url="pulsar://192.0.2.1:6650"
    )
    broker >> migrated
    broker >> PING
    client << PING
    assert world.counters.broker_urls_stripped == 1


def test_the_name_that_the_broker_gives_a_producer_is_the_one_in_the_log(world: World) -> None:
    client, broker = world.pair()
    client >> producer()
    broker >> producer_success(name="given-by-broker")
    client >> send(0)
    world.advance(1)
    names = {line.producer_name for line in world.lines() if type(line).__name__ == "IntervalLine"}
    assert names == {"given-by-broker"}


def test_answers_pass_only_to_requests_that_were_made(world: World) -> None:
    client, broker = world.pair()
    broker >> [success(1), error(2), lookup_answer(2, request_id=4)]
    client << [success(1), error(2)]
    assert world.counters.answers_ignored == 1


def test_a_producer_that_nobody_asked_for_ends_the_connection(world: World) -> None:
    """The broker has one that is not metered."""
    client, broker = world.pair()
    broker >> producer_success(3)
    assert client.is_gone
    assert world.counters.frame_errors == {"broker producer_after_close": 1}


def test_an_answer_of_another_kind_ends_the_connection(world: World) -> None:
    client, broker = world.pair()
    client >> producer()
    broker << producer()
    broker >> success(101)
    assert client.is_gone
    assert world.counters.frame_errors == {"broker unexpected_answer": 1}
