"""A broker that answers what nobody asked, with wrong ids and wrong types, by the half million.

The client that it serves may lose its connection by that. Its neighbours notice nothing, an answer that nobody awaits
goes nowhere, and nothing is kept of it.
"""

from random import Random
from typing import Any

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandSuccess
from tests.proxy.conversation import NOTHING, Peer, World, consumer, publisher
from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids import product_view as view
from tests.proxy.session.ids.forms import FORMS
from tests.proxy.session.ids.lightproto import FieldList, command, frame, message
from tests.proxy.wire import NO_REQUEST, OTHER_TOPIC, body, lookup, producer, send, success
from tests.proxy.wire import message as delivery

SEEDS, STEPS = 150, 60
_METADATA = b"\x00\x00\x00\x07" + message([(1, "p"), (2, 1), (3, 1)])
KINDS = [*range(2, 41), *range(50, 69), 45, 75, 90]
NUMBERS = (0, 1, 2, 3, 7, 101, 2**61, 2**62, 2**63 - 1, 2**63, NO_REQUEST - 1, NO_REQUEST)


def anything(random: Random, known: list[int]) -> bytes:
    """A frame of any type; mostly with the fields that belong to it, and numbers some of which were seen."""
    kind = random.choice(KINDS)
    schema = (c.OTHERS | c.SCHEMAS).get(kind)
    numbers = [*NUMBERS, *known[-3:], *known[-3:]]
    if schema is None or random.random() < 0.05:
        places = range(1, random.randrange(2, 7))
        fields: FieldList = [(place, random.choice([*numbers, "x", [(1, 1), (2, 1)]])) for place in places]
    else:
        fields = [(place, _value(random, of.kind, numbers)) for place, of in schema.items()]
    form = random.choice(list(FORMS.values())) if random.random() < 0.03 else None
    envelope = form(kind, fields, fields[:1]) if form else message([(1, kind), (kind, fields)])
    return frame(envelope, _METADATA if kind == c.MESSAGE else b"")


def _value(random: Random, kind: str, numbers: list[int]) -> Any:
    match kind:
        case "text":
            return random.choice(("", "p", "persistent://a/b/c", "pulsar://127.0.0.1:6651", "\x00"))
        case "many":
            return [(1, 1), (2, random.choice(numbers) % 2**63)]
        case "enum" | "bool":
            return random.randrange(3)
    return random.choice(numbers)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_whatever_a_broker_says_nobody_else_has_to_do_with_it(make_world, first: int) -> None:
    """Beside it another client goes on, and what was not accepted passes nothing."""
    sessions = 0
    for seed in range(first, first + 50):
        random, world = Random(seed), make_world()
        neighbour, their_broker = publisher(world)
        client, broker = world.pair()
        known: list[int] = []
        for step in range(STEPS):
            if client.is_gone or broker.is_gone:
                sessions += 1
                client, broker = world.pair()
            if random.random() < 0.4:
                client >> random.choice((producer(random.choice((1, 2))), lookup(), send(0), producer(1, OTHER_TOPIC)))
                known += _requests(broker)
            if not broker.is_gone:
                broker.send_bytes(anything(random, known))
            neighbour >> send(step)
            their_broker << send(step)
            for stream in view.live(world, world.sessions[-1]):
                assert view.passed(stream)[0] == 0 or stream.is_accepted
        neighbour << NOTHING
        assert not world.loop.trouble
    assert sessions < 50 * STEPS / 10, "sessions outlive more than the first words"


def _found(request: int) -> bytes:
    return command(c.LOOKUP_RESPONSE, [(1, "pulsar://127.0.0.1:6651"), (3, 1), (4, request)])


def _requests(broker: Peer) -> list[int]:
    """Of what it was asked since the last time."""
    return [body(request).request_id for request in broker.heard() if request[9] in (c.PRODUCER, c.LOOKUP)]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (command(c.LOOKUP_RESPONSE, [(3, 1), (4, 0)]), "unexpected_answer"),
        (command(c.SUCCESS, [(1, 0)]), "unexpected_answer"),
        (command(c.PARTITIONED_METADATA_RESPONSE, [(1, 1), (2, 0)]), "unexpected_answer"),
        (command(c.PRODUCER_SUCCESS, [(1, 0), (2, "n" * 100_000)]), "name_too_long"),
    ],
    ids=["lookup", "success", "partitions", "a name without end"],
)
def test_an_answer_that_a_producer_cannot_have_ends_the_connection(world: World, answer: bytes, cause: str) -> None:
    client, broker = world.pair()
    client >> producer()
    (asked,) = _requests(broker)
    answered = body(answer)
    answered.request_id = asked
    broker >> encode(answered)
    assert client.is_gone
    assert world.counters.frame_errors == {f"broker {cause}": 1}


def test_an_answer_to_nobody_goes_nowhere_and_is_counted(world: World) -> None:
    client, broker = world.pair()
    client >> producer()
    (asked,) = _requests(broker)
    never = [asked + 1, asked - 1, 5, 2**63, NO_REQUEST]
    broker >> [_found(request_id) for request_id in never]
    client << NOTHING
    assert not client.is_gone
    assert world.counters.answers_ignored == len(never)


def test_an_answer_is_taken_once(world: World) -> None:
    client, broker = world.pair()
    client >> lookup()
    (asked,) = _requests(broker)
    answer = _found(asked)
    broker >> [answer, answer, encode(CommandSuccess(request_id=asked))]
    client << "LOOKUP_RESPONSE"
    assert world.counters.answers_ignored == 2


def test_deliveries_to_nobody_go_nowhere(world: World) -> None:
    client, broker = consumer(world, permits=10)
    broker >> [delivery(0, 8), delivery(1, 99), delivery(2)]
    client << delivery(2)
    assert world.counters.entries_ignored == 2


@pytest.mark.parametrize("kind", [c.SEND_RECEIPT, c.SEND_ERROR])
def test_answers_to_a_producer_that_is_gone_end_nothing(world: World, kind: int) -> None:
    """A broker writes some behind its CLOSE (`tests/real/test_broker_model.py`); others' clients give them no heed."""
    client, broker = publisher(world)
    client >> send(0)
    broker << send(0)
    broker >> command(c.CLOSE_PRODUCER, [(1, 1), (2, NO_REQUEST)])
    client << "CLOSE_PRODUCER"
    late = [
        command(kind, [(1, number), (2, 0), (3, 1), (4, "gone")][: 2 if kind == c.SEND_RECEIPT else 4])
        for number in (1, 9)
    ]
    broker >> late
    client << late
    client >> producer(request_id=7)
    assert not client.is_gone


@pytest.mark.slow
def test_half_a_million_small_answers_are_taken_as_they_come(world: World) -> None:
    """Nothing of them is kept, whoever they are for, and the client hears those that may be its own."""
    client, broker = world.pair()
    client >> producer()
    (asked,) = _requests(broker)
    nobodys, clients = _found(asked - 1), success(5)
    kept = world.engine.held.memory
    for _ in range(50):
        broker.send_bytes(nobodys * 5000 + clients * 5000)
        assert client.transport.written == clients * 5000
        client.transport.written.clear()
    assert world.counters.answers_ignored == 250_000
    assert world.engine.held.memory == kept
    assert not client.is_gone


def test_a_close_of_everything_that_there_is_and_is_not_ends_nobody_elses(world: World) -> None:
    neighbour, their_broker = publisher(world)
    client, broker = publisher(world)
    for kind in (c.CLOSE_PRODUCER, c.CLOSE_CONSUMER):
        broker >> [command(kind, [(1, number), (2, NO_REQUEST)]) for number in range(2000)]
    client.heard()
    client >> send(0)
    broker << NOTHING
    neighbour >> send(0)
    their_broker << send(0)
    assert world.counters.entries_ignored == 1
