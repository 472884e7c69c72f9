"""Publishes that the broker has not answered yet."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pulsar_pb2 import BaseCommand
from protocol.scanner import Tally
from proxy.session.data_path import PendingPublishes
from tests.proxy.conversation import NOTHING, Peer, World, publisher
from tests.proxy.party import traffic_of
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    PONG,
    TOPIC,
    close_producer,
    producer,
    receipt,
    send,
    send_error,
    sends,
    success,
    unknown_command,
)

Make = Callable[..., World]


def at_most(most: int, **settings: Any) -> dict[str, Any]:
    return {"publish": {"max_pending": most}, **settings}


def pending(world: World) -> int:
    sent = traffic_of(world.sessions[0]).to_broker._sent
    assert sent is not None
    return sent.count


# ---- the count alone


def tallies(*entries: tuple[int, int]) -> list[Tally]:
    made = [Tally(owner) for owner, _ in entries]
    for tally, (_, count) in zip(made, entries, strict=True):
        tally.entries = count
    return made


def test_it_turns_at_its_bound_and_back_at_half() -> None:
    turns: list[bool] = []
    count = PendingPublishes(4, turns.append)
    count.passed(1, 3)
    assert turns == []
    count.passed(2, 1)
    count.answered(1, 1)
    assert turns == [True]
    count.answered(2, 1)
    assert turns == [True, False]


def test_an_entry_under_way_counts_at_its_end() -> None:
    count = PendingPublishes(1, lambda _is_full: None)
    count.passing(1, whole=False)
    assert count.count == 0
    count.ended()
    count.ended()
    assert count.count == 1


def test_a_producer_that_closes_takes_what_is_its_own_with_it() -> None:
    count = PendingPublishes(10, lambda _is_full: None)
    count.passed(1, 3)
    count.passed(2, 4)
    count.passing(1, whole=False)
    count.closed(1)
    count.ended()
    assert count.count == 4
    count.answered(1, 1)
    assert count.count == 4, "an answer that comes late is nobody's"


def test_answers_nobody_waits_for_never_make_the_count_negative() -> None:
    count = PendingPublishes(2, lambda _is_full: None)
    count.answered(1, 5)
    count.passed(1, 1)
    count.answered(1, 5)
    assert count.count == 0
    count.passed(1, 1)
    assert count.count == 1


@pytest.mark.parametrize(
    ("entries", "ends_mid_frame", "has_room"),
    [(2, False, True), (3, False, False), (1, True, True), (2, True, False), (0, True, True)],
)
def test_a_chunk_has_room_if_reading_need_not_stop_inside_of_a_frame(
    entries: int, *, ends_mid_frame: bool, has_room: bool
) -> None:
    count = PendingPublishes(5, lambda _is_full: None)
    count.passed(1, 3)
    assert count.has_room(tallies((1, entries)), ends_mid_frame=ends_mid_frame) is has_room


@given(st.lists(st.tuples(st.sampled_from(["pass", "answer", "close"]), st.integers(1, 3), st.integers(1, 4))))
def test_it_is_what_a_plain_count_by_producer_says(steps: list[tuple[str, int, int]]) -> None:
    turns: list[bool] = []
    count = PendingPublishes(6, turns.append)
    plain = dict.fromkeys((1, 2, 3), 0)
    for event, producer_id, entries in steps:
        if event == "pass":
            count.passed(producer_id, entries)
            plain[producer_id] += entries
        elif event == "answer":
            count.answered(producer_id, entries)
            plain[producer_id] = max(0, plain[producer_id] - entries)
        else:
            count.closed(producer_id)
            plain[producer_id] = 0
        assert count.count == sum(plain.values())
        is_paused = bool(turns) and turns[-1]
        assert is_paused or count.count < 6
        assert not is_paused or count.count > 3
    assert turns == [True, False] * (len(turns) // 2) + [True] * (len(turns) % 2)


# ---- in a session


def test_reading_pauses_exactly_at_the_bound_also_within_a_chunk(make_world: Make) -> None:
    world = make_world(**at_most(4))
    client, broker = publisher(world)
    client >> [*sends(10), PING]
    broker << sends(4)
    assert not client.is_read
    assert +world.counters.throttled == {"client pending_publishes": 1}


def test_reading_goes_on_when_half_of_them_are_answered(make_world: Make) -> None:
    world = make_world(**at_most(4))
    client, broker = publisher(world)
    client >> [*sends(10), PING]
    broker << sends(4)
    broker >> receipt(0)
    broker << NOTHING
    broker >> receipt(1)
    broker << sends(2, start=4)
    broker >> [receipt(2), receipt(3)]
    broker << sends(2, start=6)
    broker >> [receipt(number) for number in range(4, 8)]
    broker << [*sends(2, start=8), PING]
    assert client.is_read
    client << [receipt(number) for number in range(8)]
    assert world.counters.pauses == world.counters.resumes == {"client pending_publishes": 3}


def test_a_chunk_that_fills_it_passes_as_it_came_and_the_next_one_waits(make_world: Make) -> None:
    world = make_world(**at_most(3))
    client, broker = publisher(world)
    client >> sends(3)
    broker << sends(3)
    assert not client.is_read
    client >> PING
    broker << NOTHING
    assert client.transport.unread == 1


@pytest.mark.parametrize("most", [1, 2, 3, 5])
@pytest.mark.parametrize("cut", [1, 5, 9, 20, 33])
def test_reading_never_stops_inside_of_a_frame_and_the_bound_holds_for_any_cut(
    make_world: Make, most: int, cut: int
) -> None:
    """The broker cannot answer half an entry: to stop there would be to stop for ever."""
    world = make_world(**at_most(most))
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    frames = [send(number, 1 + number % 2) for number in range(12)]
    stream = b"".join(frames)
    for at in range(0, len(stream), cut):
        client.send_bytes(stream[at : at + cut])
    came: list[bytes] = []
    while new := broker.heard():
        came += new
        assert len(new) <= most
        assert pending(world) == len(new)
        for frame in new:
            broker >> receipt(0, 1 + frames.index(frame) % 2)
    assert came == frames
    assert client.is_read


def test_errors_are_answers_too(make_world: Make) -> None:
    world = make_world(**at_most(2))
    client, broker = publisher(world)
    client >> sends(4)
    broker << sends(2)
    broker >> send_error(0)
    broker << send(2)
    client << send_error(0)


def test_receipts_are_counted_among_commands_too(make_world: Make) -> None:
    """Then the chunk is cut, and each receipt passes the handler."""
    world = make_world(**at_most(2))
    client, broker = publisher(world)
    client >> sends(4)
    broker << sends(2)
    broker >> [receipt(0), unknown_command(), receipt(1)]
    assert pending(world) == 2
    broker << sends(2, start=2)
    client << [receipt(0), unknown_command(), receipt(1)]


@pytest.mark.parametrize("cut", range(1, len(receipt(0)), 3))
def test_a_receipt_that_comes_in_parts_counts_once(make_world: Make, cut: int) -> None:
    world = make_world(**at_most(8))
    client, broker = publisher(world)
    client >> sends(5)
    broker.send_bytes(receipt(0)[:cut])
    broker.send_bytes(receipt(0)[cut:] + receipt(1))
    assert pending(world) == 3


def filled_by_two(world: World) -> tuple[Peer, Peer]:
    """Three of producer 1 and one of producer 2 are pending, and no more may be."""
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> [*sends(3), send(0, 2), PING]
    broker << [*sends(3), send(0, 2)]
    assert not client.is_read
    return client, broker


def test_a_producer_that_the_broker_closes_leaves_nothing_pending(make_world: Make) -> None:
    """For publishes to a topic that it unloads the broker sends no answer."""
    world = make_world(**at_most(4))
    client, broker = filled_by_two(world)
    closing = close_producer()
    broker >> closing
    assert pending(world) == 1
    assert client.is_read
    broker << PING
    broker >> receipt(0)
    assert pending(world) == 1, "a late answer to the closed producer is not one to the other"


def test_a_producer_that_the_client_closes_leaves_nothing_pending(make_world: Make) -> None:
    world = make_world(**at_most(4))
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> [*sends(2), send(0, 2), close_producer()]
    broker >> success(201)
    assert pending(world) == 1


def test_what_is_held_counts_when_it_passes_and_may_go_over_the_bound(make_world: Make) -> None:
    world = make_world(**at_most(2, limits={"topics": {TOPIC: {"publish": {"messages": 1}}}}))
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> [*sends(4), send(0, 2)]
    broker << [send(0), send(0, 2)]
    assert +world.counters.throttled == {"client pending_publishes": 1}
    world.advance(1)
    broker << send(1)
    assert pending(world) == 3
    broker >> [receipt(0), receipt(1)]
    assert pending(world) == 1
    assert client.is_read


def test_a_command_that_waited_behind_what_is_held_is_no_publish(make_world: Make) -> None:
    world = make_world(**at_most(9, limits={"topics": {TOPIC: {"publish": {"messages": 1}}}}))
    client, broker = publisher(world)
    client >> [*sends(2), close_producer()]
    broker << send(0)
    world.advance(1)
    broker << [send(1), close_producer()]
    assert pending(world) == 2


def test_while_paused_the_broker_hears_at_once_that_the_client_lives(make_world: Make) -> None:
    world = make_world(**at_most(1))
    client, broker = publisher(world)
    client >> sends(3)
    broker << send(0)
    broker >> PING
    broker << PONG
    client << NOTHING


def test_without_a_bound_nothing_is_counted(world: World) -> None:
    client, broker = publisher(world)
    client >> sends(5000)
    assert len(broker.heard()) == 5000
    assert client.is_read
    broker >> [receipt(sequence) for sequence in range(3)]
    assert traffic_of(world.sessions[0]).to_client.scanner.receipts == []


def test_the_answers_types_are_the_brokers() -> None:
    assert (BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR) == (7, 8)
