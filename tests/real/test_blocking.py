"""Blocking at run time, as applications with the official client meet it."""

import base64
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pulsar
import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import BaseCommand, CommandGetOrCreateSchema, CommandGetSchema, Schema
from tests.real.pulsar_rest import PulsarRest
from tests.real.raw_client import Heard, RawClient
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import assert_silent, digest, open_sender, payload, quiet_client, read_all, receive
from tests.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]

SOON_S = 60.0
"""Half of the client's own timeout (`OPERATION_S`)."""
CLAIMS = base64.urlsafe_b64encode(b'{"sub": "billing"}').decode().rstrip("=")
TOKEN = f"e30.{CLAIMS}.c2ln"
"""The broker of these tests does not authenticate, so it takes this claim as Sluice does: unverified."""

Refusal = type[Exception]


@dataclass
class Blocks:
    """The blocks of the module's Sluice."""

    sluice: SluiceProcess

    def put(self, kind: str, name: str, **where: str) -> dict[str, int]:
        """Block; gives what that ended."""
        body = {"kind": kind, "name": name, "reason": "too loud", **where}
        ended: dict[str, int] = self.sluice.send("POST", "/sluice/blocks", body)["ended"]
        return ended

    def remove_all(self) -> None:
        for rule in self.sluice.get("/sluice/blocks")["blocks"]:
            query = urllib.parse.urlencode({key: rule[key] for key in ("kind", "name", "topic", "namespace")})
            assert self.sluice.send("DELETE", f"/sluice/blocks?{query}")["unblocked"]


@pytest.fixture
def blocks(sluice_proxy: SluiceProcess) -> Iterator[Blocks]:
    """At the end nothing is blocked any more."""
    blocks = Blocks(sluice_proxy)
    yield blocks
    blocks.remove_all()


@contextmanager
def refused_at_once(error: Refusal) -> Iterator[None]:
    """Not after the client's own timeout."""
    began = time.monotonic()
    with pytest.raises(error):
        yield
    assert time.monotonic() - began < SOON_S


def send_until_refused(producer: pulsar.Producer) -> Exception:
    errors: list[Exception] = []

    def is_refused() -> bool:
        try:
            producer.send(b"more")
        except Exception as error:  # noqa: BLE001 - which one, the test judges
            errors.append(error)
        return bool(errors)

    wait_for(is_refused)
    return errors[0]


def test_a_producer_blocked_while_it_sends_is_fenced_off_and_its_neighbour_goes_on(
    client: pulsar.Client,
    direct_client: pulsar.Client,
    rest: PulsarRest,
    topic: str,
    blocks: Blocks,
) -> None:
    loud, neighbour = open_sender(client, topic, "loud"), client.create_producer(f"{topic}-neighbour")
    contents = [payload("loud", index) for index in range(500)]
    loud.send_all(contents[:100])
    for content in contents[100:]:
        loud.send_async(content)
    assert blocks.put("producer", "loud", topic=topic) == {"connections": 0, "streams": 1}
    neighbour.send(b"undisturbed")
    assert isinstance(send_until_refused(loud.producer), pulsar.ProducerFenced)
    wait_for(lambda: not rest.stats(topic)["publishers"])  # the broker closes it, too
    neighbour.send(b"still undisturbed")
    (publisher,) = rest.stats(f"{topic}-neighbour")["publishers"]
    with refused_at_once(pulsar.NotAllowedError):
        client.create_producer(topic, producer_name="loud")
    blocks.remove_all()
    client.create_producer(topic, producer_name="loud").send(b"back", properties={"producer": "loud"})
    (again,) = rest.stats(topic)["publishers"]
    assert again["address"] == publisher["address"], "all on the connection of the beginning"
    arrived = [digest(message.data()) for message in read_all(direct_client, topic)]
    assert arrived[: len(loud.sent)] == loud.sent, "what has a receipt is there, in order"
    assert arrived[-1] == digest(b"back")


def test_a_blocked_subscription_gets_nothing_its_neighbour_all(
    client: pulsar.Client,
    direct_client: pulsar.Client,
    rest: PulsarRest,
    topic: str,
    blocks: Blocks,
) -> None:
    consumer, neighbour = client.subscribe(topic, "s"), client.subscribe(topic, "other")
    sender = open_sender(direct_client, topic, "p")
    sender.send_all([payload("p", index) for index in range(5)])
    receive(consumer, 5)
    assert blocks.put("subscription", "s", topic=topic) == {"connections": 0, "streams": 1}
    wait_for(lambda: not rest.stats(topic)["subscriptions"]["s"]["consumers"])
    sender.send_all([payload("p", index) for index in range(5, 10)])
    receive(neighbour, 10)
    assert_silent(consumer)
    with refused_at_once(pulsar.NotAllowedError):
        client.subscribe(topic, "s")
    blocks.remove_all()
    receive(consumer, 5)


@pytest.mark.parametrize(("kind", "name"), [("role", "billing"), ("address", "127.0.0.0/8")])
def test_a_blocked_client_is_told_at_once_and_let_in_again_at_once(
    sluice_proxy: SluiceProcess, topic: str, blocks: Blocks, kind: str, name: str
) -> None:
    authentication = pulsar.AuthenticationToken(TOKEN)
    client = quiet_client(sluice_proxy.service_url, authentication=authentication)
    producer = client.create_producer(topic)
    producer.send(b"fine")
    assert blocks.put(kind, name)["connections"] >= 1
    assert isinstance(send_until_refused(producer), pulsar.ProducerFenced)
    with refused_at_once(pulsar.NotAllowedError):
        client.create_producer(topic)
    with refused_at_once(pulsar.NotAllowedError):
        client.subscribe(topic, "s")
    other = quiet_client(sluice_proxy.service_url, authentication=authentication)
    with refused_at_once(pulsar.NotAllowedError):
        other.create_producer(topic)
    blocks.remove_all()
    began = time.monotonic()
    for blocked_client in (client, other):
        blocked_client.create_producer(topic).send(b"back")
        blocked_client.close()
    assert time.monotonic() - began < SOON_S


def test_a_blocked_topic_gets_no_schema_either(
    rest: PulsarRest, sluice_proxy: SluiceProcess, blocks: Blocks, topic: str
) -> None:
    """A broker stores it without any producer: seen by what it tells who asks."""
    rest.create_topic(topic)
    schema = Schema(name="s", schema_data=b'{"type": "string"}', type=Schema.Avro)

    def creates(client: RawClient, request: int) -> list[Heard]:
        client.say(encode(CommandGetOrCreateSchema(topic=topic, request_id=request, schema=schema)))
        created = client.hear(1)
        client.say(encode(CommandGetSchema(topic=topic, request_id=request + 1)))
        return created + client.hear(1)

    with RawClient(sluice_proxy.service_url) as client:
        blocks.put("topic", topic)
        refused, unknown = creates(client, 1)
        blocks.remove_all()
        created, known = creates(client, 3)
    assert refused[0] == created[0] == BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE
    assert unknown == (BaseCommand.GET_SCHEMA_RESPONSE, {"request": 2})
    assert known[1]["request"] == 4
    assert "schema" in known[1]
