"""relativeToPublishRate behind a real broker: a backlog drains by what is configured, however much is published."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pulsar
import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Watcher
from tests.real.conftest import IS_DIRECT
from tests.real.demand import publishing
from tests.real.metrics import counted
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.steadiness import assert_used
from tests.real.traffic import open_sender, payload, quiet_client

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself measures each minute only")]

PUBLISHED = 100
MORE = 50
BACKLOG = 3000
KNOWN_S = 11.5
"""From then on the publish rate is the mean of ten whole seconds."""
LOOK_S = 4
WINDOW_S = 10
READ_S = 1
"""Sluice reads so often what was published; the mean that is in force is as old as that."""
TOPIC = topic_name("relative-dispatch", "catching-up")
CONFIG = {"limits": {"topics": {TOPIC: {"dispatch": {"messages": MORE, "relativeToPublishRate": True}}}}}


@dataclass(frozen=True)
class Seen:
    """What Sluice said again and again, and by how much it may have read late what was published."""

    views: list["View"]
    late_s: float

    def published_before(self, at_s: float) -> int:
        """How much was published at the last view until then, by Sluice's clock."""
        return max((view.published for view in self.views if view.at_s <= at_s), default=0)

    def published_after(self, at_s: float) -> int:
        """How much was published at the first view since then."""
        return min(view.published for view in self.views if view.at_s >= at_s)


@dataclass(frozen=True)
class View:
    """What Sluice says: when, by its own clock, how much was published, the limit, and the rate that it measured."""

    at_s: float
    published: int
    limit: float
    measured: float


@pytest.fixture(scope="module")
def seen(sluice_proxy: SluiceProcess, rest: PulsarRest, real_broker: StandaloneBroker) -> Iterator[Seen]:
    rest.ensure_namespace("relative-dispatch")
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
    stack.enter_context(publishing(now, per_s=PUBLISHED))
    watcher = stack.enter_context(Watcher(client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)))
    watcher.wait_first()
    begin, views = time.monotonic() + KNOWN_S, list[View]()
    while time.monotonic() < begin + LOOK_S:
        views.append(_view(sluice))
        time.sleep(0.25)
    return Seen(views, 1 + counted(sluice, "sluice_loop_lag_seconds_total"))


def _view(sluice: SluiceProcess) -> View:
    answer = sluice.get("/sluice/streams")
    own = {stream["direction"]: stream for stream in answer["streams"] if stream["topic"] == TOPIC}
    (limit,) = own["dispatch"]["limits"]
    assert limit["relative_to_publish_rate"] is True
    published = own["publish"]["passed_messages"]
    return View(answer["monotonic_ms"] / 1000, published, limit["messages_per_s"], limit["published_messages_per_s"])


def test_what_is_measured_is_what_is_published(seen: Seen) -> None:
    """The mean of ten seconds lies between what eight of them had and what twelve had."""
    known = [view for view in seen.views if view.at_s > seen.views[0].at_s + KNOWN_S]
    assert known
    for view in known:
        begin, read = view.at_s - WINDOW_S, view.at_s - READ_S - seen.late_s
        least = seen.published_before(read) - seen.published_after(begin)
        most = view.published - seen.published_before(begin - READ_S - seen.late_s)
        assert least <= view.measured * WINDOW_S <= most
        assert view.limit == pytest.approx(MORE + view.measured)


def test_backlog_drains_at_the_publish_rate_plus_the_limit(seen: Seen, sluice_proxy: SluiceProcess) -> None:
    """Neither more nor less passes than each limit in force says."""
    assert_used(sluice_proxy, "dispatch", "topic", TOPIC)
