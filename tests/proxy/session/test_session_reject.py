"""A limit in mode `reject` answers what is over it at once, in the order in which the client awaits answers."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, Mode, rate
from protocol.commands import body_of, encode, split
from protocol.pulsar_pb2 import (
    ChecksumError,
    CommandCloseProducer,
    CommandSendError,
    CommandSendReceipt,
    NotAllowedError,
    ServerError,
)
from proxy.budgets import ENTRY_OVERHEAD
from proxy.session import responses
from proxy.slices import Work
from tests.proxy.conversation import NOTHING, World, publisher
from tests.proxy.wire import (
    TOPIC,
    close_producer,
    producer,
    producer_success,
    receipt,
    send,
    sends,
    success,
)

Make = Callable[..., World]


def rejecting(messages: int = 1, **more: Any) -> dict[str, Any]:
    return {"topics": {TOPIC: {"publish": {"messages": messages, "mode": "reject"}}}, **more}


def refused(sequence_id: int, messages: int = 1, error: ServerError = NotAllowedError) -> CommandSendError:
    return CommandSendError(
        producer_id=1,
        sequence_id=sequence_id,
        error=error,
        message=f"over the publish limit of topic {TOPIC}: {messages} messages per 1 s",
    )


def test_what_is_over_the_limit_is_refused_behind_the_receipt_of_what_passed(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world)
    client >> sends(3)
    broker << send(0)
    client << NOTHING
    broker >> receipt(0)
    client << [receipt(0), refused(1), refused(2)]
    world.advance(1)
    client >> send(3)
    broker << send(3)


def test_receipts_in_one_chunk_have_the_refusals_between_them(make_world: Make) -> None:
    world = make_world(limits=rejecting(20))
    client, broker = publisher(world)
    client >> sends(3)
    broker << sends(2)
    world.advance(0.1)
    client >> send(3)
    broker << send(3)
    broker >> [receipt(0), receipt(1), receipt(3)]
    client << [receipt(0), receipt(1), refused(2, 20), receipt(3)]


@pytest.mark.parametrize("ends", ["broker's close", "client's close", "lost"])
def test_receipts_of_a_busy_turn_come_before_the_end(make_world: Make, ends: str) -> None:
    """Other work fills the turn in which the errors behind a receipt would go."""
    world = make_world(limits=rejecting(20))
    client, broker = publisher(world)
    client >> sends(4)
    broker << sends(2)
    world.advance(0.1)
    client >> send(4)
    broker << send(4)
    answers = [receipt(0), receipt(1), receipt(4)]
    closed = [encode(CommandCloseProducer(producer_id=1, request_id=0))] if ends == "broker's close" else []
    if ends == "client's close":
        client >> close_producer()
        broker << close_producer()
        closed = [success(201)]

    def come() -> None:
        for work in (Work.ENDINGS, Work.LINES, Work.RELEASES):
            world.engine.slices.run(work, itertools.repeat(None, 4000))
        broker.transport.receive(b"".join(answers + closed))
        if ends == "lost":
            broker.transport.break_off(None)

    world.loop.run(come)
    heard = [body_of(split(frame)[0]) for frame in client.heard()]
    sequence_ids = [each.sequence_id for each in heard if isinstance(each, CommandSendReceipt | CommandSendError)]
    assert sequence_ids == [0, 1, 2, 3, 4]


def test_errors_wait_for_what_passed_while_a_limit_held(make_world: Make) -> None:
    """The limit refuses, then holds, then refuses again: what passed meanwhile has no receipts yet."""
    world = make_world(limits=rejecting(20))

    def put(mode: Mode) -> None:
        value = Value(Limit(rate(20), mode=mode), "file")
        world.engine.registry.policies.put("publish", Setting.TOPIC, TOPIC, value)
        world.loop.run(world.engine.policies_changed)

    client, broker = publisher(world)
    client >> send(0)
    broker << send(0)
    broker >> receipt(0)
    client << receipt(0)
    put("enforce")
    world.advance(1)
    client >> [send(1), send(2)]
    broker << [send(1), send(2)]
    put("reject")
    client >> sends(3, start=3)
    client << NOTHING
    world.advance(1)
    broker << sends(3, start=3)
    client >> sends(30, start=6)
    passed = [body_of(split(frame)[0]).sequence_id for frame in broker.heard()]
    client << NOTHING
    broker >> [receipt(number) for number in (1, 2, 3, 4, 5, *passed)]
    heard = [body_of(split(frame)[0]) for frame in client.heard()]
    assert [each.sequence_id for each in heard] == list(range(1, 36))
    assert [each.sequence_id for each in heard if isinstance(each, CommandSendReceipt)] == [1, 2, 3, 4, 5, *passed]
    assert len(passed) < 30


def test_nothing_is_held_and_the_connection_is_read_on(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world)
    client >> sends(500)
    broker << send(0)
    assert client.is_read
    (stream,) = world.engine.registry.live()
    assert (stream.usage.held_messages, stream.usage.rejected_messages) == (0, 499)
    assert stream.chain[0].usage.rejected_messages == 499


def test_client_is_paused_while_its_errors_wait_for_receipts(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MOST_WAITING", 4)
    world = make_world(limits=rejecting())
    client, broker = publisher(world)
    client >> sends(10)
    broker << send(0)
    assert not client.is_read
    (stream,) = world.engine.registry.live()
    assert stream.usage.rejected_messages == 4, "a pause begins at the next frame"
    assert world.engine.held.used > 4 * ENTRY_OVERHEAD
    client << NOTHING
    broker >> receipt(0)
    client << [receipt(0), *map(refused, range(1, 10))]
    assert client.is_read
    assert world.engine.held.used == 0


def test_neighbours_on_the_connection_notice_nothing(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world)
    client >> producer(2, "free/space/x")
    broker.heard()
    broker >> producer_success(2)
    client.heard()
    client >> [*sends(3), *sends(3, producer_id=2)]
    broker << [send(0), *sends(3, producer_id=2)]
    broker >> [receipt(0, producer_id=2), receipt(1, producer_id=2)]
    client << [receipt(0, producer_id=2), receipt(1, producer_id=2)]
    broker >> [receipt(0), receipt(2, producer_id=2)]
    client << [receipt(0), refused(1), refused(2), receipt(2, producer_id=2)]


def test_a_refused_frame_that_comes_in_parts_goes_nowhere(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world)
    client >> send(0)
    broker << send(0)
    broker >> receipt(0)
    client << receipt(0)
    frame = send(1, size=1000)
    client.send_bytes(frame[:60])
    client.send_bytes(frame[60:])
    client << refused(1)
    broker << NOTHING
    world.advance(1)
    client >> send(2)
    broker << send(2)


def test_what_another_limit_holds_waits_and_is_answered_in_its_turn(make_world: Make) -> None:
    world = make_world(limits=rejecting(30, tenants={"acme": {"publish": {"messages": 10}}}))
    client, broker = publisher(world)
    client >> sends(5)
    broker << send(0)
    broker >> receipt(0)
    client << receipt(0)
    assert world.engine.held.used > 0, "the tenant's limit holds: the topic's was open when these came"
    world.advance(0.5)
    broker << sends(4, start=1)


def test_reopened_producer_is_refused_from_its_first_message(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world)
    client >> sends(2)
    broker << send(0)
    client >> close_producer()
    broker << close_producer()
    broker >> success(201)
    client << success(201)
    client >> producer()
    broker << producer()
    broker >> producer_success()
    client << producer_success()
    client >> send(0)
    client << refused(0)
    broker << NOTHING


def test_a_broker_that_refuses_itself_is_an_answer_too(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world)
    client >> sends(2)
    broker << send(0)
    own = CommandSendError(producer_id=1, sequence_id=0, error=NotAllowedError, message="the broker's")
    broker >> own
    client << [own, refused(1)]


def test_java_batch_gets_receipts_by_lowest_errors_by_highest_id(
    make_world: Make,
) -> None:
    world = make_world(limits=rejecting(10))
    client, broker = publisher(world, client_version="Pulsar-Java-v4.0.8")
    batches = [send(first, messages=10, highest_sequence_id=first + 9) for first in (0, 10, 20)]
    client >> batches
    broker << batches[0]
    broker >> receipt(0)
    client << [receipt(0), refused(19, 10), refused(29, 10)]


def test_a_cpp_client_hears_the_one_error_for_which_it_goes_on(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world, client_version="Pulsar-CPP-v4.2.0")
    client >> sends(2)
    broker << send(0)
    broker >> receipt(0)
    client << [receipt(0), refused(1, error=ChecksumError)]


def test_of_a_go_client_what_is_over_the_limit_is_held(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world, client_version="Pulsar-Go-v0.19.0")
    client >> sends(3)
    broker << send(0)
    broker >> receipt(0)
    client << receipt(0)
    for passed in (1, 2):
        world.advance(1)
        broker << send(passed)
    client << NOTHING


def test_while_a_limit_holds_what_it_may_not_refuse_it_refuses_all_of_others(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    waiting, broker = publisher(world, client_version="Pulsar-Go-v0.19.0")
    other, beside = publisher(world)
    waiting >> sends(3)
    broker << send(0)
    other >> send(0)
    other << refused(0)
    world.advance(1.5)
    other >> send(1)
    other << refused(1)
    world.advance(1.5)
    broker << sends(2, start=1)
    other >> send(2)
    beside << send(2)


def test_chunks_are_held_and_so_is_what_comes_behind_them_in_its_order(make_world: Make) -> None:
    world = make_world(limits=rejecting())
    client, broker = publisher(world)
    chunks = [send(0, is_chunk=True, size=size) for size in (20, 30, 40)]
    client >> [*chunks, send(1)]
    broker << chunks[0]
    for passed in (*chunks[1:], send(1)):
        world.advance(1)
        broker << passed
    client << NOTHING
    client >> send(2)
    client << NOTHING
    broker >> [receipt(0), receipt(0), receipt(0)]
    client << [receipt(0), receipt(0), receipt(0)]
    broker >> receipt(1)
    client << [receipt(1), refused(2)]
