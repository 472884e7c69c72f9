"""Clients that say anything, Sluice, and a real broker: what the one believes is what the other has."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.adversary import Said, Words, said
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.raw_client import RawClient
from tests.real.sluice_process import SluiceProcess
from tests.real.test_doctor import doctor
from tests.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]

NAMESPACE = "identity"
LIMITED, REFUSED, FREE = (topic_name(NAMESPACE, name) for name in ("limited", "refused", "free"))
LOOKALIKE = topic_name(NAMESPACE, "__change_events-partition-x")
LIMIT = 20
CONFIG: dict[str, Any] = {
    "limits": {
        "topics": {
            LIMITED: {"publish": {"messages": LIMIT}, "dispatch": {"messages": LIMIT}},
            LOOKALIKE: {"publish": {"messages": LIMIT}},
            REFUSED: {"publish": {"messages": LIMIT, "mode": "reject"}},
        }
    }
}
WORDS = Words(
    topics=(LIMITED, REFUSED, FREE, LOOKALIKE, LIMITED.removeprefix("persistent://")),
    namespace=f"{TENANT}/{NAMESPACE}",
    requests=tuple(range(500)),
    odd=0.002,
    exclusive=0,
)
ROUNDS, CLIENTS, WRITES = 4, 12, 40
ASKED = 1000
"""A request id that no client says by itself."""
DEADLY = {"FUTURE_1", "FUTURE_2"}
"""Brokers of today end the connection for these."""


@dataclass
class Crowd:
    """Clients that come again when their connection has ended."""

    sluice: SluiceProcess
    target: str
    random: Random
    clients: list[RawClient] = field(default_factory=list)
    said: int = 0

    def speak(self, open_: ExitStack) -> None:
        """Each says a hundred commands or more, some in each write."""
        for place in range(CLIENTS):
            for _ in range(WRITES):
                if place >= len(self.clients) or self.clients[place].is_over:
                    new = open_.enter_context(RawClient(self.sluice.service_url, self.target))
                    self.clients[place : place + 1] = [new]
                some = [self._one() for _ in range(self.random.choice((1, 1, 2, 4)))]
                self.clients[place].log += [f"said {command}" for command in some]
                self.clients[place].say(b"".join(command.encoded() for command in some))
                self.said += len(some)
                self.clients[place].hear(1, self.random.choice((0, 0.005, 0.02)))

    def _one(self) -> Said:
        while (command := said(self.random, words=WORDS)).name in DEADLY:
            pass
        return command

    def be_quiet(self) -> None:
        """Until each has the answer to a PING, and held publishes have gone or been refused."""
        for client in self.clients:
            client.hear_all()
        wait_for(lambda: not self.sluice.get("/sluice/streams?held=1")["totals"]["held_streams"], pause_s=0.1)

    def unaccounted(self, lines: list[str]) -> list[str]:
        """What differs, without consumers that the broker's connection has, and no topic.

        So it is with one that subscribed while its topic was being unloaded: the topic that it is on is gone.
        """
        streams = self.sluice.get("/sluice/streams")["streams"]
        return [line for line in lines if not any(self._has(stream) for stream in _only_here(streams, line))]

    def _has(self, consumer: dict[str, Any]) -> bool:
        """Whether the broker's own connection says that it has it."""
        (client,) = [speaker for speaker in self.clients if speaker.address == consumer["client_address"]]
        client.say(Said("GET_LAST_MESSAGE_ID", ((1, consumer["stream_id"]), (2, ASKED))).encoded())
        heard = [*client.hear_all(), *client.hear(100, 1)]
        return any(kind == c.GET_LAST_MESSAGE_ID_RESPONSE and fields["request"] == ASKED for kind, fields in heard)

    def explained(self, lines: list[str]) -> list[str]:
        """What was said and heard of the ids that differ."""
        explanation: list[str] = []
        for stream in self.sluice.get("/sluice/streams")["streams"]:
            if any(f"(connection {stream['connection_id']}" in line and stream["topic"] in line for line in lines):
                speakers = [speaker for speaker in self.clients if speaker.address == stream["client_address"]]
                explanation += [f"{stream['direction']} {stream['stream_id']} of {stream['topic']}:"]
                explanation += [line for speaker in speakers for line in speaker.log[-200:]]
        return explanation


def _only_here(streams: list[dict[str, Any]], line: str) -> list[dict[str, Any]]:
    """The consumers that a line may mean which says that only Sluice has one."""
    return [
        stream
        for stream in streams
        if line.startswith("only Sluice has consumer")
        and f"(connection {stream['connection_id']})" in line
        and f"{stream['subscription']!r} on {stream['topic']} " in line
    ]


@pytest.fixture(scope="module")
def crowd(sluice_proxy: SluiceProcess, real_broker: StandaloneBroker) -> Crowd:
    where = urlsplit(real_broker.service_url)
    return Crowd(sluice_proxy, f"{where.hostname}:{where.port}", Random(27))


def test_what_sluice_believes_is_what_a_real_broker_has(
    crowd: Crowd, sluice_proxy: SluiceProcess, real_broker: StandaloneBroker, rest: PulsarRest, namespace: str
) -> None:
    for topic in (LIMITED, LOOKALIKE, REFUSED):
        rest.create_topic(topic)
    began, seen = time.monotonic(), 0
    with ExitStack() as clients:
        for number in range(ROUNDS):
            crowd.speak(clients)
            if number % 2:
                rest.unload(REFUSED)
                sluice_proxy.send("POST", "/sluice/blocks", {"kind": "topic", "name": FREE, "reason": "a test"})
                sluice_proxy.send("DELETE", f"/sluice/blocks?kind=topic&name={FREE}")
            crowd.be_quiet()
            code, lines = doctor(sluice_proxy, real_broker, "--everywhere")
            assert code == 0 or not crowd.unaccounted(lines), [*lines, *crowd.explained(lines)]
            seen += sluice_proxy.get("/sluice/streams")["totals"]["streams"]
    assert crowd.said > 2000
    assert seen > ROUNDS * CLIENTS / 2, "there are producers and consumers to be compared"
    for topic in (LIMITED, LOOKALIKE):
        most = LIMIT * (time.monotonic() - began) + LIMIT / 10 + 1
        assert 0 < rest.entries(topic) <= most
