"""The model of a broker's connection, held against a broker: each command, and what it is answered with."""

import copy
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from adminrest.client import AdminError
from loadgen.real.standalone import StandaloneBroker
from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.adversary import Said, Words, said
from tests.proxy.session.ids.broker_model import ModelBroker
from tests.proxy.session.ids.lightproto import read_command, taken_apart
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.raw_client import RawClient

pytestmark = pytest.mark.real

CONNECTIONS, COMMANDS, PIPELINES, AT_ONCE = 12, 120, 40, 8
SILENT_S, LATE_S = 0.15, 60
NAMES = (
    *["PRODUCER"] * 6,
    *["SUBSCRIBE"] * 6,
    *["CLOSE_PRODUCER"] * 4,
    *["CLOSE_CONSUMER"] * 3,
    *["SEND"] * 6,
    *("UNSUBSCRIBE", "UNSUBSCRIBE", "SEEK", "SEEK", "GET_LAST_MESSAGE_ID", "GET_LAST_MESSAGE_ID"),
    *("LOOKUP", "PARTITIONED_METADATA", "GET_TOPICS", "WATCH_CLOSE", "PING"),
)
NOT_COMPARED = {c.MESSAGE, 31}
"""What the broker says by itself: deliveries, and who of several consumers is active."""


@pytest.fixture(scope="module")
def words(namespace: str) -> Words:
    topics = tuple(topic_name(namespace, name) for name in "ab")
    return Words(topics, topics[0].removeprefix("persistent://").rpartition("/")[0], names=("",), odd=0, exclusive=0)


@pytest.fixture
def client(real_broker: StandaloneBroker) -> Iterator[RawClient]:
    with RawClient(real_broker.service_url) as client:
        yield client


@pytest.mark.parametrize("seed", range(CONNECTIONS))
def test_one_command_after_the_other_is_answered_alike(
    client: RawClient, words: Words, rest: PulsarRest, seed: int
) -> None:
    """Ids that are there, gone, or never were; each command when the one before is done."""
    random, model = Random(seed), ModelBroker()
    for number in range(COMMANDS):
        command = said(random, random.choice(NAMES), words)
        if command.name == "SUBSCRIBE":
            command = _of_its_own(command, seed)
        if command.name == "SEND" and command.fields[0][1] not in model.producers and number < COMMANDS // 2:
            continue  # it ends the connection
        model.take(command.encoded())
        while model.tasks:
            model.complete(model.tasks[0], 0)
        expected = _told(model)
        client.say(command.encoded())
        came = client.hear(1)[:1] if len(expected) == 1 and expected[0][0] == c.PONG else _heard(client, len(expected))
        assert _plain(came) == Counter(expected), f"command {number}: {command}"
        assert client.is_over == bool(model.closed_for), f"command {number}: {command}"
        if client.is_over:
            return
    at_broker = {name: rest.stats(name)["publishers"] for name in words.topics}
    assert {(name, publisher["producerId"]) for name, publishers in at_broker.items() for publisher in publishers} == {
        (held.place[0], number) for number, held in model.producers.items()
    }


def _of_its_own(command: Said, seed: int) -> Said:
    """With a subscription that no other consumer has, so that it may be unsubscribed from."""
    number = dict(command.fields)[4]
    return Said(
        command.name, tuple((place, f"sub-{seed}-{number}" if place == 2 else value) for place, value in command.fields)
    )


def _told(model: ModelBroker) -> list[tuple[int, Any]]:
    known = c.OTHERS | c.SCHEMAS
    answers = [read_command(taken_apart(frame)[0], known) for frame in model.out]
    model.out.clear()
    return [(kind, fields.get("request")) for kind, fields in answers]


def _heard(client: RawClient, count: int) -> list[tuple[int, dict[str, Any]]]:
    """So many, and what else there is when a PING has been answered."""
    heard: list[tuple[int, dict[str, Any]]] = []
    while len(heard) < count and (answers := client.hear(1)):
        heard += [each for each in answers if each[0] not in NOT_COMPARED]
    return heard + [each for each in client.hear_all() if each[0] not in NOT_COMPARED]


def _plain(heard: list[tuple[int, dict[str, Any]]]) -> Counter[tuple[int, Any]]:
    return Counter((kind, fields.get("request")) for kind, fields in heard)


@pytest.mark.parametrize("opens", ["PRODUCER", "SUBSCRIBE"])
def test_commands_in_one_write_are_answered_in_one_of_the_ways_of_the_model(
    real_broker: StandaloneBroker, namespace: str, rest: PulsarRest, opens: str
) -> None:
    """Ids in creation, closed in creation, asked for again: what the broker does depends on how long each takes it."""
    closes, random = f"CLOSE_{'PRODUCER' if opens == 'PRODUCER' else 'CONSUMER'}", Random(7)
    pipelines = []
    for trial in range(PIPELINES):
        topics = [topic_name(namespace, f"pipelined-{opens.lower()}-{trial}-{name}") for name in "ab"]
        names = [opens, *(random.choice((opens, closes)) for _ in range(3))]
        commands = [_command(name, random.choice(topics), request) for request, name in enumerate(names, start=1)]
        pipelines.append((topics, commands))

    def answered(topics: list[str], commands: list[Said]) -> tuple[tuple[tuple[int, Any], ...], frozenset[str]]:
        with RawClient(real_broker.service_url) as client:
            client.say(b"".join(command.encoded() for command in commands))
            heard, ways, late = client.hear_all(), _ways(commands), time.monotonic() + LATE_S
            while True:
                while more := client.hear(1, SILENT_S):
                    heard += more
                came = tuple(sorted((kind, fields["request"]) for kind, fields in heard if kind not in NOT_COMPARED))
                way = came, frozenset(topic for topic in topics if _is_on(rest, topic))
                if way in ways or time.monotonic() > late:
                    return way

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(answered, *zip(*pipelines, strict=True))
        for (_, commands), way in zip(pipelines, outcomes, strict=True):
            assert way in _ways(commands), [str(command) for command in commands]


def _command(name: str, topic: str, request: int) -> Said:
    if name == "PRODUCER":
        return Said(name, ((1, topic), (2, 1), (3, request)))
    if name == "SUBSCRIBE":
        return Said(name, ((1, topic), (2, "sub"), (3, 1), (4, 1), (5, request)))
    return Said(name, ((1, 1), (2, request)))


def _is_on(rest: PulsarRest, topic: str) -> bool:
    try:
        stats = rest.stats(topic)
    except AdminError:
        return False
    return bool(stats["publishers"]) or any(
        subscription["consumers"] for subscription in stats["subscriptions"].values()
    )


def _ways(pipeline: list[Said]) -> set[tuple[tuple[tuple[int, Any], ...], frozenset[str]]]:
    """Every way in which the model may deal with these commands: its answers, and the topics that are left."""
    ways, open_ways = set(), [ModelBroker()]
    for command in [*pipeline, None]:
        reached: list[ModelBroker] = []
        while open_ways:
            model = open_ways.pop()
            if command is not None or not model.tasks:
                reached.append(model)
            for place in range(len(model.tasks)):
                other = copy.deepcopy(model)
                other.complete(other.tasks[place], 0)
                open_ways.append(other)
        for model in reached:
            if command is not None:
                model.take(command.encoded())
        open_ways = reached
    for model in open_ways:
        there = frozenset(held.place[0] for held in (*model.producers.values(), *model.consumers.values()))
        ways.add((tuple(sorted(_told(model))), there))
    return ways


FEWEST_TRIALS, MOST_TRIALS, SENDS = 4, 100, 500


def test_what_a_broker_writes_behind_a_close(real_broker: StandaloneBroker, namespace: str, rest: PulsarRest) -> None:
    """Answers to publishes behind its own CLOSE of the producer, and deliveries behind the SUCCESS of the client's.

    So neither says that Sluice and the broker differ. A client's CLOSE of a producer waits for all of its answers.
    """
    behind: Counter[tuple[str, int]] = Counter()
    sends = b"".join(Said("SEND", ((1, 1), (2, number)), payload=10).encoded() for number in range(SENDS))

    def both_were_seen() -> bool:
        answers = behind["the broker's", c.SEND_RECEIPT] + behind["the broker's", c.SEND_ERROR]
        return behind["the client's", c.MESSAGE] > 0 and answers > 0

    for trial in range(MOST_TRIALS):  # how much is behind depends on how fast the broker is just now
        if trial >= FEWEST_TRIALS and both_were_seen():
            break
        topic = topic_name(namespace, f"closed-{trial}")
        rest.create_topic(topic)
        with RawClient(real_broker.service_url) as publisher, RawClient(real_broker.service_url) as consumer:
            consumer.say(_command("SUBSCRIBE", topic, 1).encoded())
            consumer.hear(1)
            publisher.say(_command("PRODUCER", topic, 1).encoded())
            publisher.hear(1)
            publisher.say(sends + _command("CLOSE_PRODUCER", topic, 2).encoded())
            behind.update(_behind("the client's", publisher, c.SUCCESS))
            consumer.say(Said("FLOW", ((1, 1), (2, 1000))).encoded())
            consumer.hear(1 + 5 * (trial % 10))
            consumer.say(_command("CLOSE_CONSUMER", topic, 2).encoded())
            behind.update(_behind("the client's", consumer, c.SUCCESS))
            publisher.say(_command("PRODUCER", topic, 3).encoded())
            publisher.hear(1)
            publisher.say(sends * 10)
            rest.unload(topic)
            publisher.say(sends)
            behind.update(_behind("the broker's", publisher, c.CLOSE_PRODUCER))
    assert behind["the client's", c.SEND_RECEIPT] == 0
    assert both_were_seen()


def _behind(side: str, client: RawClient, close: int) -> Counter[Any]:
    """What comes behind an answer of this type, by type."""
    kinds = [kind for kind, _fields in (*client.hear_all(), *client.hear(20_000, 0.5))]
    return Counter((side, kind) for kind in kinds[kinds.index(close) :])


@pytest.mark.parametrize("number", c.FUTURE)
def test_a_command_of_the_future_ends_the_connection(client: RawClient, number: int) -> None:
    client.say(Said("FUTURE_1" if number == c.FUTURE[0] else "FUTURE_2", ((1, 1),)).encoded())
    assert client.hear(1) == []
    assert client.is_over
