"""relativeToPublishRate behind a real broker: a backlog drains by what is configured, however much is published."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pulsar
import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Arrival, Line, Watcher, rate_over
from tests.real.conftest import IS_DIRECT
from tests.real.demand import publishing
from tests.real.probe import Probe
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import open_sender, payload, quiet_client

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself measures each minute only")]

PUBLISHED = 100
MORE = 50
BACKLOG = 3000
KNOWN_S = 11.5
"""From then on the publish rate is the mean of ten whole seconds."""
LOOK_S = 10
OFF_BY = 0.01
TOPIC = topic_name("relative-dispatch", "catching-up")
CONFIG = {"limits": {"topics": {TOPIC: {"dispatch": {"messages": MORE, "relativeToPublishRate": True}}}}}


@dataclass(frozen=True)
class Seen:
    """What came in the ten seconds, after how many standstills of the machine, and what limit Sluice told of."""

    arrivals: list[Arrival]
    begin: float
    stall_s: float
    stalled_s: float
    limits: list[float]
    measured: list[float]


@pytest.fixture(scope="module")
def seen(sluice_proxy: SluiceProcess, rest: PulsarRest, real_broker: StandaloneBroker) -> Iterator[Seen]:
    for name in ("relative-dispatch", "probe"):
        rest.ensure_namespace(name)
    at_broker = quiet_client(real_broker.service_url)
    client = quiet_client(sluice_proxy.service_url)
    with ExitStack() as stack:
        stack.callback(at_broker.close)
        stack.callback(client.shutdown)
        yield _play(sluice_proxy, at_broker, client, stack)


def _play(sluice: SluiceProcess, at_broker: pulsar.Client, client: pulsar.Client, stack: ExitStack) -> Seen:
    at_broker.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared).close()
    past = open_sender(at_broker, TOPIC, "past")
    past.send_all([payload("past", index) for index in range(BACKLOG)])
    now = open_sender(client, TOPIC, "now")
    probe = stack.enter_context(Probe(at_broker, topic_name("probe", "beside-relative")))
    stack.enter_context(publishing(now, per_s=PUBLISHED))
    watcher = stack.enter_context(Watcher(client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)))
    watcher.wait_first()
    time.sleep(KNOWN_S)
    begin, told = time.monotonic(), list[tuple[float, float]]()
    while time.monotonic() < begin + LOOK_S:
        told.append(_told(sluice))
        time.sleep(0.25)
    time.sleep(0.5)
    return Seen(
        list(watcher.arrivals),
        begin,
        probe.stall_s,
        probe.stalled_s,
        [limit for limit, _ in told],
        [rate for _, rate in told],
    )


def _told(sluice: SluiceProcess) -> tuple[float, float]:
    """The limit in force, and the publish rate that is a part of it."""
    (limit,) = [limit for stream in sluice.streams(TOPIC) for limit in stream["limits"]]
    assert limit["relative_to_publish_rate"] is True
    return limit["messages_per_s"], limit["published_messages_per_s"]


def test_what_is_measured_is_what_is_published(seen: Seen) -> None:
    assert min(seen.measured) >= PUBLISHED * (1 - OFF_BY)
    assert max(seen.measured) <= PUBLISHED * (1 + 2 * OFF_BY), "a hundredth more at most, of what may be off itself"
    assert seen.limits == [pytest.approx(MORE + measured) for measured in seen.measured]


def test_the_backlog_drains_at_the_publish_rate_and_what_is_configured(seen: Seen) -> None:
    """Over ten seconds, with one percent of tolerance."""
    in_force = sum(seen.limits) / len(seen.limits)
    assert rate_over(seen.arrivals, seen.begin, LOOK_S, seen.stalled_s) >= in_force * (1 - OFF_BY)
    assert rate_over(seen.arrivals, seen.begin, LOOK_S) <= in_force * (1 + OFF_BY + seen.stalled_s / LOOK_S)


def test_never_is_more_delivered_than_the_highest_limit_lets_pass(seen: Seen) -> None:
    highest = max(seen.limits)
    late = [(at, messages) for at, messages in seen.arrivals if at >= seen.begin]
    assert Line(highest, burst=highest / 10).worst_excess(late, seen.stall_s) <= 0
