"""What brokers do with ids, one fact each; `tests/real/test_broker_model.py` holds the same against a broker."""

from typing import Any

import pytest

from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.broker_model import NO_REQUEST, ModelBroker
from tests.proxy.session.ids.lightproto import FieldList, command, read_command, taken_apart

A, B = "persistent://t/n/a", "persistent://t/n/b"


@pytest.fixture
def broker() -> ModelBroker:
    return ModelBroker()


def producer(topic: str, request: int, *more: tuple[int, Any]) -> bytes:
    return command(c.PRODUCER, [(1, topic), (2, 1), (3, request), *more])


def subscribe(topic: str, request: int) -> bytes:
    return command(c.SUBSCRIBE, [(1, topic), (2, "sub"), (3, 1), (4, 1), (5, request)])


def close(kind: int, request: int) -> bytes:
    return command(kind, [(1, 1), (2, request)])


def tell(broker: ModelBroker, *frames: bytes) -> list[tuple[int, Any]]:
    """The answers' types and request ids."""
    for frame in frames:
        broker.take(frame)
    return said(broker)


def settle(broker: ModelBroker, outcome: int = 0) -> list[tuple[int, Any]]:
    while broker.tasks:
        broker.complete(broker.tasks[0], outcome)
    return said(broker)


def said(broker: ModelBroker) -> list[tuple[int, Any]]:
    answers = [read_command(taken_apart(frame)[0], c.OTHERS | c.SCHEMAS) for frame in broker.out]
    broker.out.clear()
    return [(kind, fields.get("request", fields.get("id"))) for kind, fields in answers]


def topic_of(broker: ModelBroker) -> str | None:
    held = broker.producers.get(1) or broker.consumers.get(1)
    return held.place[0] if held else None


@pytest.mark.parametrize(("ask", "answer"), [(producer, c.PRODUCER_SUCCESS), (subscribe, c.SUCCESS)])
def test_an_id_that_is_there_is_kept_whatever_else_is_asked_for(broker: ModelBroker, ask: Any, answer: int) -> None:
    tell(broker, ask(A, 1))
    assert settle(broker) == [(answer, 1)]
    assert tell(broker, ask(B, 2)) == [(answer, 2)]
    assert topic_of(broker) == A


@pytest.mark.parametrize("ask", [producer, subscribe])
def test_an_id_in_creation_is_refused(broker: ModelBroker, ask: Any) -> None:
    assert tell(broker, ask(A, 1), ask(B, 2)) == [(c.ERROR, 2)]


def test_a_close_in_creation_frees_a_producer_id_at_once_and_answers_for_both(broker: ModelBroker) -> None:
    assert tell(broker, producer(A, 1), close(c.CLOSE_PRODUCER, 2), producer(B, 3)) == [(c.SUCCESS, 2)]
    assert settle(broker) == [(c.PRODUCER_SUCCESS, 3)]
    assert topic_of(broker) == B


def test_a_close_in_creation_leaves_a_consumer_id_claimed_until_it_ends(broker: ModelBroker) -> None:
    answers = tell(broker, subscribe(A, 1), close(c.CLOSE_CONSUMER, 2), subscribe(B, 3))
    assert answers == [(c.SUCCESS, 2), (c.ERROR, 3)]
    assert settle(broker) == []
    assert broker.consumers == {}


def test_a_closing_producer_keeps_its_id_until_that_is_answered(broker: ModelBroker) -> None:
    tell(broker, producer(A, 1))
    settle(broker)
    assert tell(broker, close(c.CLOSE_PRODUCER, 2), producer(B, 3)) == [(c.PRODUCER_SUCCESS, 3)]
    assert settle(broker) == [(c.SUCCESS, 2)]
    assert broker.producers == {}


def test_a_producer_is_authorized_before_its_id_is_claimed(broker: ModelBroker) -> None:
    broker.authorizes_slowly = True
    assert tell(broker, producer(A, 1), close(c.CLOSE_PRODUCER, 2)) == [(c.SUCCESS, 2)]
    assert settle(broker) == [(c.PRODUCER_SUCCESS, 1)]
    assert topic_of(broker) == A


def test_a_send_of_nobody_ends_the_connection_unless_the_broker_has_just_closed_it(broker: ModelBroker) -> None:
    tell(broker, producer(A, 1))
    settle(broker)
    send: FieldList = [(1, 1), (2, 0)]
    assert tell(broker, command(c.SEND, send)) == [(c.SEND_RECEIPT, 0)]
    broker.close(broker.producers[1])
    assert tell(broker, command(c.SEND, send)) == [(c.CLOSE_PRODUCER, NO_REQUEST)]
    assert not broker.closed_for
    tell(broker, command(c.SEND, [(1, 2), (2, 0)]))
    assert broker.closed_for
    assert broker.persisted == {(A, "entries"): 1, (A, "messages"): 1, (A, "bytes"): 0}


@pytest.mark.parametrize("first", ["the close", "the creation"])
def test_a_stale_close_comes_when_another_has_the_id(broker: ModelBroker, first: str) -> None:
    tell(broker, producer(A, 1))
    settle(broker)
    tell(broker, close(c.CLOSE_PRODUCER, 2))
    broker.complete(broker.tasks[0], 0)
    assert said(broker) == [(c.SUCCESS, 2)]
    tell(broker, producer(B, 3))
    order = broker.tasks if first == "the close" else broker.tasks[::-1]
    for task in list(order):
        broker.complete(task, 3)
    came = [(c.CLOSE_PRODUCER, NO_REQUEST), (c.PRODUCER_SUCCESS, 3)]
    assert said(broker) == (came if first == "the close" else came[::-1])
    assert topic_of(broker) == B


def test_who_waits_for_exclusive_access_is_answered_twice(broker: ModelBroker) -> None:
    tell(broker, producer(A, 1, (10, 2)))
    broker.complete(broker.tasks[0], 1)
    broker.complete(broker.tasks[0], 0)
    assert said(broker) == [(c.PRODUCER_SUCCESS, 1)] * 2


@pytest.mark.parametrize("kind", [c.UNSUBSCRIBE, c.SEEK, c.GET_LAST_MESSAGE_ID])
def test_an_unknown_consumer_is_an_error(broker: ModelBroker, kind: int) -> None:
    assert tell(broker, close(kind, 4)) == [(c.ERROR, 4)]


def test_a_seek_closes_the_consumer_before_it_is_answered(broker: ModelBroker) -> None:
    tell(broker, subscribe(A, 1))
    settle(broker)
    tell(broker, close(c.SEEK, 2))
    assert settle(broker) == [(c.CLOSE_CONSUMER, NO_REQUEST), (c.SUCCESS, 2)]
    assert broker.consumers == {}


def test_what_it_cannot_read_ends_the_connection(broker: ModelBroker) -> None:
    tell(broker, command(c.PRODUCER, [(1, A)]))
    assert broker.closed_for.startswith("unreadable")
