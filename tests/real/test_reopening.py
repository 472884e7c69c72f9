"""Producers and consumers that are opened once more under their open id, at a broker and through Sluice."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.adversary import Said
from tests.real.pulsar_rest import PulsarRest
from tests.real.raw_client import RawClient
from tests.real.sluice_process import SluiceProcess

pytestmark = pytest.mark.real

TOPIC, ANOTHER = "TOPIC", "TOPIC-another"
PRODUCER: dict[int, Any] = {1: TOPIC, 2: 1, 3: 1, 4: "mine"}
SUBSCRIBE: dict[int, Any] = {1: TOPIC, 2: "sub", 3: 1, 4: 1, 5: 1, 6: "mine"}
"""Fields by their numbers. 3 and 5 are the request ids; the subscription is Shared."""


@pytest.fixture
def direct(real_broker: StandaloneBroker) -> Iterator[RawClient]:
    with RawClient(real_broker.service_url) as client:
        yield client


@pytest.fixture
def proxied(sluice_proxy: SluiceProcess, real_broker: StandaloneBroker, needs_limits: None) -> Iterator[RawClient]:
    where = urlsplit(real_broker.service_url)
    with RawClient(sluice_proxy.service_url, f"{where.hostname}:{where.port}") as client:
        yield client


def opening(topic: str, fields: dict[int, Any], changed: dict[int, Any]) -> bytes:
    """A PRODUCER or SUBSCRIBE with some fields changed; None leaves one out."""
    name = "SUBSCRIBE" if len(fields) == len(SUBSCRIBE) else "PRODUCER"
    merged = {number: value for number, value in {**fields, **changed}.items() if value is not None}
    return Said(
        name,
        tuple(
            (number, str(value).replace(TOPIC, topic) if number == 1 else value)
            for number, value in sorted(merged.items())
        ),
    ).encoded()


def asked_twice(client: RawClient, topic: str, fields: dict[int, Any], changed: dict[int, Any]) -> tuple[int, ...]:
    """The types of both answers."""
    request = 5 if len(fields) == len(SUBSCRIBE) else 3
    client.say(opening(topic, fields, {}))
    first = client.hear(1)
    client.say(opening(topic, fields, {**changed, request: 2}))
    return tuple(kind for kind, _ in [*first, *client.hear(1)])


def owners(rest: PulsarRest, topic: str) -> list[str]:
    """Names of the producers and consumers on a topic."""
    stats = rest.stats(topic)
    consumers = [consumer for each in stats["subscriptions"].values() for consumer in each["consumers"]]
    return [publisher["producerName"] for publisher in stats["publishers"]] + [
        consumer["consumerName"] for consumer in consumers
    ]


SAME: dict[str, tuple[dict[int, Any], dict[int, Any]]] = {
    "producer": (PRODUCER, {}),
    "next-epoch": (PRODUCER, {8: 1}),
    "unnamed": (PRODUCER, {4: None}),
    "another-access-mode": (PRODUCER, {10: 1}),
    "consumer": (SUBSCRIBE, {}),
    "next-consumer-epoch": (SUBSCRIBE, {19: 1}),
    "another-type": (SUBSCRIBE, {3: 0}),
}
OTHERS: dict[str, tuple[dict[int, Any], dict[int, Any]]] = {
    "topic": (PRODUCER, {1: ANOTHER}),
    "producer-name": (PRODUCER, {4: "another"}),
    "topic-of-consumer": (SUBSCRIBE, {1: ANOTHER}),
    "subscription": (SUBSCRIBE, {2: "another"}),
    "consumer-name": (SUBSCRIBE, {6: "another"}),
}


@pytest.mark.parametrize("case", [*SAME, *OTHERS])
def test_a_broker_accepts_any_opening_of_an_open_id(direct: RawClient, rest: PulsarRest, topic: str, case: str) -> None:
    fields, changed = {**SAME, **OTHERS}[case]
    success = c.SUCCESS if fields is SUBSCRIBE else c.PRODUCER_SUCCESS
    assert asked_twice(direct, topic, fields, changed) == (success, success)
    assert owners(rest, topic) == ["mine"]


@pytest.mark.parametrize("case", [*SAME, *OTHERS])
def test_sluice_accepts_an_opening_of_the_same_stream(
    proxied: RawClient, rest: PulsarRest, topic: str, case: str, sluice_proxy: SluiceProcess
) -> None:
    fields, changed = {**SAME, **OTHERS}[case]
    success = c.SUCCESS if fields is SUBSCRIBE else c.PRODUCER_SUCCESS
    assert asked_twice(proxied, topic, fields, changed) == (success, success if case in SAME else c.ERROR)
    assert owners(rest, topic) == ["mine"]
    assert len(sluice_proxy.streams(topic)) == 1


@pytest.mark.parametrize("fields", [PRODUCER, SUBSCRIBE], ids=["producer", "consumer"])
def test_a_topic_is_unloaded_while_its_stream_is_reopened(
    proxied: RawClient, rest: PulsarRest, topic: str, fields: dict[int, Any], sluice_proxy: SluiceProcess
) -> None:
    """The broker closes a stream while it is opened once more: Sluice has it afterwards if the broker has it."""
    closed = c.CLOSE_PRODUCER if fields is PRODUCER else c.CLOSE_CONSUMER
    request = 3 if fields is PRODUCER else 5
    proxied.say(opening(topic, fields, {}))
    proxied.hear(1)
    proxied.say(opening(topic, fields, {request: 2}))
    rest.unload(topic)
    for number in range(3, 200):
        proxied.say(opening(topic, fields, {request: number}))
    heard = proxied.hear_all()
    while more := proxied.hear(1, 1):
        heard += more
    assert closed in {kind for kind, _ in heard}
    assert owners(rest, topic) == ["mine"] * len(sluice_proxy.streams(topic))
