"""Watchers of topic lists, in conversation: each is a question for topics, and of one connection there are so many."""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import (
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicListSuccess,
    InvalidTopicName,
    NotAllowedError,
    ServiceNotReady,
    TooManyRequests,
)
from proxy.admission_control import BoundName
from proxy.session import lookups
from proxy.session.lookups import WATCHER_MEMORY
from tests.proxy.blocks import block
from tests.proxy.conversation import NOTHING, Peer, World
from tests.proxy.wire import TOPIC, body, connect, error, success

Make = Callable[..., World]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many watchers are allowed."""
    monkeypatch.setattr(lookups, "MOST_WATCHERS", 3)
    return 3


def watch(watcher_id: int, request_id: int = 0, namespace: str = "acme/shop", **more: Any) -> bytes:
    request = CommandWatchTopicList(watcher_id=watcher_id, request_id=request_id or 100 + watcher_id)
    request.namespace, request.topics_pattern = namespace, "persistent://acme/shop/.*"
    return encode(request)


def watching(watcher_id: int, request_id: int = 0, topics: tuple[str, ...] = (TOPIC,)) -> bytes:
    answer = CommandWatchTopicListSuccess(watcher_id=watcher_id, request_id=request_id or 100 + watcher_id)
    answer.topics_hash = "h"
    answer.topic.extend(topics)
    return encode(answer)


def close(watcher_id: int) -> bytes:
    return encode(CommandWatchTopicListClose(watcher_id=watcher_id, request_id=200 + watcher_id))


def opened(client: Peer, broker: Peer, *watcher_ids: int) -> None:
    for watcher_id in watcher_ids:
        client >> watch(watcher_id)
        broker << watch(watcher_id)
        broker >> watching(watcher_id)
        client << watching(watcher_id)


def closed(client: Peer, broker: Peer, watcher_id: int) -> None:
    client >> close(watcher_id)
    broker << close(watcher_id)
    broker >> success(200 + watcher_id)
    client << success(200 + watcher_id)


def errors(client: Peer) -> list[int]:
    return [body(frame).error for frame in client.heard()]


def test_they_are_answered_under_the_clients_own_id_as_the_broker_wrote_it(world: World) -> None:
    client, broker = world.pair()
    client >> watch(1)
    assert world.engine.lookups.used == 1
    broker << watch(1)
    many = watching(1, topics=tuple(f"{TOPIC}-{number:060}" for number in range(30_000)))
    broker >> many
    client << many
    assert world.engine.lookups.used == 0
    closed(client, broker, 1)


def test_they_count_as_lookups_of_their_address(make_world: Make) -> None:
    world = make_world(admission={"lookup_rate_per_address": "3/min"})
    client, broker = world.pair()
    opened(client, broker, 1, 2, 3)
    client >> watch(4)
    broker << NOTHING
    why = "lookups of one address: at most 3 per 60 s (admission.lookup_rate_per_address)"
    client << error(104, TooManyRequests, why)
    assert world.counters.not_admitted == {BoundName.LOOKUP_RATE: 1}


def test_they_count_as_lookups_without_an_answer(make_world: Make) -> None:
    world = make_world(max_lookups_in_flight_per_connection=2)
    client, broker = world.pair()
    client >> [watch(number) for number in (1, 2, 3)]
    broker << [watch(1), watch(2)]
    assert errors(client) == [TooManyRequests]
    broker >> [watching(1), error(102, NotAllowedError)]
    client << [watching(1), error(102, NotAllowedError)]
    opened(client, broker, 3)


def test_of_one_connection_there_are_no_more_than_allowed_until_one_is_closed(world: World, few: int) -> None:
    client, broker = world.pair()
    opened(client, broker, *range(few))
    used = world.engine.memory.used
    client >> [watch(number) for number in range(few, 100)]
    broker << NOTHING
    assert errors(client) == [TooManyRequests] * (100 - few)
    assert world.engine.memory.used == used >= few * WATCHER_MEMORY
    closed(client, broker, 1)
    opened(client, broker, few)
    client >> watch(99)
    assert errors(client) == [TooManyRequests]
    other, its_broker = world.pair(address="192.0.2.8")
    opened(other, its_broker, *range(few))


def test_one_that_the_broker_refuses_is_not_counted(world: World, few: int) -> None:
    client, broker = world.pair()
    for number in range(10):
        client >> watch(number)
        broker << watch(number)
        broker >> error(100 + number, NotAllowedError)
        client << error(100 + number, NotAllowedError)
    opened(client, broker, *range(few))


def test_an_id_that_is_being_opened_is_in_use_and_no_close_makes_it_free(world: World, few: int) -> None:
    """A broker may handle the CLOSE first, and make the watcher afterwards."""
    client, broker = world.pair()
    client >> [frame for number in range(50) for frame in (watch(number), close(number), watch(number, 900 + number))]
    heard = broker.heard_names()
    assert heard.count("WATCH_TOPIC_LIST") == few
    assert errors(client) == [ServiceNotReady] * few + [TooManyRequests] * 2 * (50 - few)
    broker >> [watching(number) for number in range(few)]
    client.heard()
    client >> watch(99)
    assert errors(client) == [TooManyRequests]


def test_one_that_is_asked_for_again_is_counted_once_and_stays_if_that_is_refused(world: World, few: int) -> None:
    client, broker = world.pair()
    opened(client, broker, 1, 1, 2)
    client >> watch(1)
    broker.heard()
    broker >> error(101, NotAllowedError)
    client.heard()
    opened(client, broker, 3)
    client >> watch(4)
    assert errors(client) == [TooManyRequests]
    closed(client, broker, 1)
    closed(client, broker, 1)
    opened(client, broker, 4)


def test_what_names_too_long_a_namespace_is_refused_and_not_counted(world: World, few: int) -> None:
    client, broker = world.pair()
    client >> [watch(number, namespace="n" * 4097) for number in range(10)]
    broker << NOTHING
    assert errors(client) == [InvalidTopicName] * 10
    opened(client, broker, *range(few))


def test_a_client_that_may_keep_nothing_more_is_refused_and_keeps_nothing_of_it(make_world: Make) -> None:
    world = make_world(client_memory={"connection": "64KiB", "total": "256KiB"})
    client, broker = world.pair()
    client >> [watch(number) for number in range(300)]
    asked = len(broker.heard())
    assert 0 < asked < 300
    assert errors(client) == [TooManyRequests] * (300 - asked)


def test_a_blocked_client_is_told_why(world: World) -> None:
    block(world, "address", "192.0.2.7")
    client = world.client()
    client >> [connect(), watch(1)]
    answers = [body(frame) for frame in client.heard()]
    assert (answers[-1].request_id, answers[-1].error) == (101, NotAllowedError)


def test_an_answer_that_nobody_asked_for_goes_nowhere(world: World) -> None:
    client, broker = world.pair()
    broker >> watching(1)
    client << NOTHING
    assert world.counters.answers_ignored == 1
