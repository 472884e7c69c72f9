"""A real broker is told where clients are: `topics stats` shows their addresses, not Sluice's."""

from contextlib import closing
from typing import Any

import pytest

from protocol.proxy_protocol import write_header
from tests.proxy.wire import producer
from tests.real.pulsar_rest import PulsarRest
from tests.real.raw_client import RawClient
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import PATIENCE_MS, quiet_client

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]

CONFIG: dict[str, Any] = {
    "broker_proxy_protocol": True,
    "proxy_protocol": {"mode": "optional", "from": ["127.0.0.1"]},
}


def test_stats_of_a_topic_show_the_address_of_each_client(
    sluice_proxy: SluiceProcess, rest: PulsarRest, topic: str
) -> None:
    with closing(quiet_client(sluice_proxy.service_url)) as client:
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(b"x")
        consumer.receive(PATIENCE_MS)
        own = {stream["client_address"] for stream in sluice_proxy.streams(topic)}
        assert len(own) == 1
        assert rest.client_addresses(topic) == own


def test_stats_show_the_address_behind_the_balancer_that_sent_a_header(
    sluice_proxy: SluiceProcess, rest: PulsarRest, topic: str
) -> None:
    header = write_header(("203.0.113.9", 4242), ("203.0.113.1", 6650))
    with RawClient(sluice_proxy.service_url, header=header) as client:
        client.say(producer(topic=topic))
        assert client.hear(1)
        assert rest.client_addresses(topic) == {"203.0.113.9:4242"}
        assert {stream["client_address"] for stream in sluice_proxy.streams(topic)} == {"203.0.113.9:4242"}
