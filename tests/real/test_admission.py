"""What is not let in, as applications with the official client meet it."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pulsar
import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.conftest import sluice_or_broker
from tests.real.metrics import counted
from tests.real.pulsar_rest import PulsarRest
from tests.real.sluice_process import SluiceProcess
from tests.real.test_blocking import refused_at_once
from tests.real.traffic import quiet_client, receive
from tests.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]

CONFIG = {
    "admission": {
        "max_producers_per_topic": 2,
        "max_consumers_per_subscription": 2,
        "max_consumers_per_topic": 3,
        "subscribe_rate_per_consumer": "5/30s",
    }
}
RATES = {"admission": {"subscribe_rate_per_consumer": "2/4s", "lookup_rate_per_address": "10/4s"}}
CONNECTIONS = {"admission": {"max_connections_per_address": 4}}
"""Two clients: each has one connection for lookups and one for data."""


def refused(sluice: SluiceProcess, bound: str) -> float:
    return counted(sluice, "sluice_admission_refused_total", what=bound)


@contextmanager
def sluice_with(config: dict[str, Any], broker: StandaloneBroker, folder: Any) -> Iterator[SluiceProcess]:
    sluice = sluice_or_broker(folder, broker, config)
    try:
        yield sluice
    finally:
        sluice.stop()


def is_refused_once_more(sluice: SluiceProcess, bound: str, before: float, rest: PulsarRest, topic: str) -> bool:
    """Let the broker close the topic's producers and consumers, which come again by themselves."""
    rest.call("PUT", f"/admin/v2/{topic.replace('://', '/', 1)}/unload")
    time.sleep(0.25)
    return refused(sluice, bound) > before


def outcome(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except pulsar.PulsarException as error:
        return type(error).__name__
    return "in"


def test_a_producer_too_many_is_refused_until_one_closes(
    sluice_proxy: SluiceProcess, client: pulsar.Client, topic: str
) -> None:
    before = refused(sluice_proxy, "max_producers_per_topic")
    first, second = client.create_producer(topic), client.create_producer(topic)
    with refused_at_once(pulsar.ProducerBusy):
        client.create_producer(topic)
    assert refused(sluice_proxy, "max_producers_per_topic") == before + 1
    client.create_producer(f"{topic}-other").send(b"another topic")
    first.close()
    client.create_producer(topic).send(b"in its place")
    second.send(b"undisturbed")


def test_a_producer_whose_client_died_leaves_its_place(sluice_proxy: SluiceProcess, topic: str) -> None:
    for _ in range(5):
        client = quiet_client(sluice_proxy.service_url)
        for _ in range(2):
            client.create_producer(topic)
        client.close()


@pytest.mark.parametrize(("subscriptions", "most"), [("ss", 2), ("stu", 3)])
def test_a_consumer_too_many_is_refused_until_one_closes(
    client: pulsar.Client, topic: str, subscriptions: str, most: int
) -> None:
    shared = {"consumer_type": pulsar.ConsumerType.Shared}
    consumers = [client.subscribe(topic, name, **shared) for name in subscriptions]
    assert len(consumers) == most
    with refused_at_once(pulsar.ConsumerBusy):
        client.subscribe(topic, subscriptions[-1] if most == 2 else "v", **shared)
    consumers.pop().close()
    client.subscribe(topic, subscriptions[-1], **shared)


def test_of_hundred_subscribes_of_one_consumer_five_are_let_in(sluice_proxy: SluiceProcess, topic: str) -> None:
    """The same name and id on the same host: a client that is started again and again."""
    began, outcomes = time.monotonic(), Counter[str]()
    for _ in range(100):
        client = quiet_client(sluice_proxy.service_url)
        outcomes[outcome(lambda: client.subscribe(topic, "s", consumer_name="c"))] += 1  # noqa: B023 - called at once
        client.close()
    later = int((time.monotonic() - began) / 6)
    assert 5 <= outcomes["in"] <= 5 + later
    assert outcomes == {"in": outcomes["in"], "NotAllowedError": 100 - outcomes["in"]}


def test_a_subscribe_rate_set_by_rest_holds_until_it_is_removed(sluice_proxy: SluiceProcess, topic: str) -> None:
    path = f"/admin/v2/{topic.replace('://', '/', 1)}/subscribeRate"
    sluice_proxy.send("POST", path, {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 600})
    came = [subscribed_anew(sluice_proxy, topic, "c") for _ in range(5)]
    assert came == ["in", "in", "NotAllowedError", "NotAllowedError", "NotAllowedError"]
    assert subscribed_anew(sluice_proxy, topic, "another") == "in"
    assert subscribed_anew(sluice_proxy, f"{topic}-other", "c") == "in"
    sluice_proxy.send("POST", path, {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 600})
    assert [subscribed_anew(sluice_proxy, topic, "c") for _ in range(2)] == ["in", "NotAllowedError"]
    sluice_proxy.send("DELETE", path)
    assert subscribed_anew(sluice_proxy, topic, "c") == "in", "the file's 5/30s hold again"


def subscribed_anew(sluice: SluiceProcess, topic: str, consumer: str) -> str:
    """What becomes of a consumer of that name in a program that is started again."""
    with closing(quiet_client(sluice.service_url)) as client:
        return outcome(lambda: client.subscribe(topic, "s", consumer_name=consumer))


@pytest.fixture(scope="module")
def rates(real_broker: StandaloneBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    with sluice_with(RATES, real_broker, tmp_path_factory.mktemp("rates")) as sluice:
        yield sluice


def test_consumer_over_its_subscribe_rate_goes_on_later(
    rates: SluiceProcess, direct_client: pulsar.Client, rest: PulsarRest, topic: str
) -> None:
    client, before = quiet_client(rates.service_url), refused(rates, "subscribe_rate_per_consumer")
    with closing(client):
        consumer = client.subscribe(topic, "s", consumer_name="c")
        wait_for(lambda: is_refused_once_more(rates, "subscribe_rate_per_consumer", before, rest, topic))
        direct_client.create_producer(topic).send(b"waits for it")
        receive(consumer, 1)


def test_lookups_over_the_rate_fail_at_once_and_what_runs_goes_on(
    rates: SluiceProcess, rest: PulsarRest, topic: str
) -> None:
    client = quiet_client(rates.service_url)
    with closing(client):
        running = client.create_producer(topic)
        began = time.monotonic()
        outcomes = [outcome(lambda: client.create_producer(f"{topic}-{number}")) for number in range(20)]  # noqa: B023
        took = time.monotonic() - began
        most = (10 + 10 * took / 4) / 2
        assert 1 <= outcomes.count("in") <= most, "each producer asks twice: how many partitions, and where"
        assert set(outcomes) == {"in", "TooManyLookupRequestException"}
        running.send(b"undisturbed")
        before = refused(rates, "lookup_rate_per_address")
        wait_for(lambda: is_refused_once_more(rates, "lookup_rate_per_address", before, rest, topic))
        running.send(b"and it finds its topic again")


def test_a_client_over_the_connections_of_its_address_gets_in_when_another_closes(
    real_broker: StandaloneBroker, tmp_path_factory: pytest.TempPathFactory, topic: str
) -> None:
    with sluice_with(CONNECTIONS, real_broker, tmp_path_factory.mktemp("connections")) as sluice:
        first, second, late = (quiet_client(sluice.service_url) for _ in range(3))
        with closing(second), closing(late):
            for client in (first, second):
                client.create_producer(topic).send(b"in")
            is_in = threading.Event()

            def come_late() -> None:
                late.create_producer(topic).send(b"late")
                is_in.set()

            threading.Thread(target=come_late).start()
            wait_for(lambda: refused(sluice, "max_connections_per_address") >= 2)
            second.create_producer(topic).send(b"who is in is not disturbed")
            assert not is_in.is_set()
            first.close()
            assert is_in.wait(PATIENCE_S), "it comes again by itself, at intervals that double"
        assert counted(sluice, "sluice_connections_ended_total", cause="too_many_connections") >= 2
