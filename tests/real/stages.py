"""Several Sluices in front of one broker, each with limits of its own, for scenes that go on at once."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar

from loadgen.real.standalone import StandaloneBroker
from tests.real.pulsar_rest import PulsarRest
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.traffic import quiet_client

Configs = Mapping[str, dict[str, Any]]
"""What each Sluice is started with, by a name for it."""


@dataclass(frozen=True)
class Stage:
    """What a scene needs.

    Attributes:
        sluice: Where its publishers connect.
        at_broker: The client of the receiving end.
        rest: The broker's.
        closing: Closes what is opened.
    """

    sluice: SluiceProcess
    at_broker: pulsar.Client
    rest: PulsarRest
    closing: ExitStack

    def client(self, **options: object) -> pulsar.Client:
        """One more client of Sluice: a connection of its own."""
        client = quiet_client(self.sluice.service_url, **options)
        self.closing.callback(client.shutdown)
        return client

    def warm_up(self, topic: str) -> None:
        """The first message of a topic is slow at the broker: let it be over."""
        producer = self.at_broker.create_producer(topic)
        producer.send(b"")
        producer.close()

    def counters(self, topic: str) -> tuple[int, int]:
        """Bytes and messages that the broker took in; what is sent when a topic is warmed up as well."""
        stats = self.rest.stats(topic)
        return stats["bytesInCounter"], stats["msgInCounter"]


@contextmanager
def open_stages(broker: StandaloneBroker, configs: Configs, folder: Path) -> Iterator[dict[str, Stage]]:
    """Start a Sluice for each configuration; all are stopped at the end, and must have nothing to complain about."""

    def start(name: str) -> SluiceProcess:
        return start_sluice(folder / name, broker.service_url, configs[name])

    with ExitStack() as processes, ExitStack() as clients:
        # Open to the end: a tethered process ends with the thread that started it.
        pool = processes.enter_context(ThreadPoolExecutor(3))
        started = {name: pool.submit(start, name) for name in configs}
        for starting in started.values():
            processes.callback(_stop, starting)
        at_broker = quiet_client(broker.service_url)
        clients.callback(at_broker.close)
        rest = PulsarRest(broker.admin_url)
        yield {name: Stage(starting.result(), at_broker, rest, clients) for name, starting in started.items()}


def _stop(starting: Future[SluiceProcess]) -> None:
    if starting.exception() is None:
        starting.result().stop()
