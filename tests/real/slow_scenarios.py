"""What takes a minute or more, begun early so that it goes on beside the other tests.

All of it runs on the clients' own threads; nothing here waits.
"""

import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pulsar

from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import Sender, open_sender, payload, quiet_client

NAMESPACE = "slow"
MINUTE = topic_name(NAMESPACE, "minute")
PAUSED = topic_name(NAMESPACE, "paused")
CONFIG = {"limits": {"topics": {topic: {"publish": {"messages": "1/min"}} for topic in (MINUTE, PAUSED)}}}


@dataclass(frozen=True)
class Session:
    """Who a producer is to the broker, and to Sluice: all of it changes when the client reconnects."""

    to_broker: dict[str, Any]
    to_sluice: list[int]


@dataclass
class Scenario:
    """A producer that has more to send than its limit lets through for minutes."""

    sender: Sender
    begun: float
    at_begin: Session


class SlowScenarios:
    """Begins all scenarios.

    Args:
        sluice: Started with CONFIG.
        rest: The broker's.
        clients: Closes the clients in the end.
    """

    def __init__(self, sluice: SluiceProcess, rest: PulsarRest, clients: ExitStack) -> None:
        self.sluice = sluice
        self._rest = rest
        self._clients = clients
        rest.ensure_namespace(NAMESPACE)
        self.minute = self._begin(MINUTE, messages=3, size=100)
        # Too much to hold: reading from this client has to pause, its keep-alive goes unread.
        self.paused = self._begin(PAUSED, messages=60, size=1_000_000)
        self.found_by_pattern, self.new_sender = self._begin_discovery()

    def session(self, topic: str) -> Session:
        """Of the topic's one producer, as it is now."""
        (publisher,) = self._rest.stats(topic)["publishers"]
        to_broker = {key: publisher[key] for key in ("address", "connectedSince", "producerName")}
        streams = [] if self.sluice.is_direct else self.sluice.streams(topic)
        return Session(to_broker, [stream["connection_id"] for stream in streams])

    def _client(self) -> pulsar.Client:
        client = quiet_client(self.sluice.service_url)
        self._clients.callback(client.close)
        return client

    def _begin(self, topic: str, messages: int, size: int) -> Scenario:
        sender = open_sender(self._client(), topic, "patient", send_timeout_millis=0)
        for index in range(messages):
            sender.send_async(payload("patient", index, size))
        return Scenario(sender, time.monotonic(), self.session(topic))

    def _begin_discovery(self) -> tuple[pulsar.Consumer, Sender]:
        """The Python client looks for new topics every 60 s, whatever it is told (pulsar-client-python #171)."""
        client = self._client()
        self._rest.create_topic(topic_name(NAMESPACE, "pattern-old"))
        pattern = re.compile(topic_name(NAMESPACE, "pattern-.*"))
        consumer = client.subscribe(pattern, "s", initial_position=pulsar.InitialPosition.Earliest)
        sender = open_sender(client, topic_name(NAMESPACE, "pattern-new"), "new")
        sender.send_all([payload("new", index) for index in range(50)])
        return consumer, sender
