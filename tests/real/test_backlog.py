"""A backlog of 12,000 messages, drained by several consumers under a limit: each message once, and none is left."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulsar
import pytest

from loadgen.real.process import wait_until
from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Watcher
from tests.real.backlogs import Backlog
from tests.real.conftest import IS_DIRECT
from tests.real.flows import Played
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.steadiness import assert_used
from tests.real.traffic import QUIET_MS, digest, quiet_client
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself has not Sluice's limits")]

COUNT = 12_000
LIMIT = 3000
BATCH = 50
CONSUMERS = "ssss"
DRAIN_S = COUNT / LIMIT + PATIENCE_S


def topic(name: str) -> str:
    return topic_name("backlog", name)


CONFIG = {"limits": {"each_topic": {"dispatch": {"messages": LIMIT}}}}
BACKLOGS = {
    "unbatched": Backlog(topic("unbatched"), COUNT, CONSUMERS),
    "batched": Backlog(
        topic("batched"), COUNT, CONSUMERS, options={"batching_enabled": True, "batching_max_messages": BATCH}
    ),
}
ENTRIES = {"unbatched": 1, "batched": BATCH}


@dataclass
class Emptied:
    """A backlog that was drained.

    Attributes:
        sent: Digests of all messages.
        begun: Monotonic seconds, before the first consumer subscribed.
        watchers: One of each consumer.
        subscription: What the broker says of it when the acknowledgements have arrived.
    """

    sent: list[str]
    begun: float
    watchers: list[Watcher]
    subscription: dict[str, Any]

    @property
    def messages(self) -> list[pulsar.Message]:
        return [message for watcher in self.watchers for message in watcher.messages]


def emptied(backlog: Backlog, sent: list[str], sluice: SluiceProcess, rest: PulsarRest) -> Emptied:
    """Receive until everything is there, and then until nothing more comes."""
    client = quiet_client(sluice.service_url)
    # It connects now: what begins then is the limit's time alone.
    client.get_topic_partitions(backlog.topic)
    begun = time.monotonic()
    try:
        with ExitStack() as watching:
            consumers = [backlog.consumer(client, name) for name in backlog.subscriptions]
            watchers = [watching.enter_context(Watcher(consumer)) for consumer in consumers]
            wait_until(lambda: sum(len(watcher.arrivals) for watcher in watchers) >= len(sent), DRAIN_S, 0.05)
            time.sleep(QUIET_MS / 1000)
            return Emptied(sent, begun, watchers, settled(rest, backlog.topic))
    finally:
        client.shutdown()


def settled(rest: PulsarRest, name: str) -> dict[str, Any]:
    """The subscription at the broker, once it has no backlog or that takes too long."""

    def subscription() -> dict[str, Any]:
        stats: dict[str, Any] = rest.stats(name)["subscriptions"]["s"]
        return stats

    wait_until(lambda: not subscription()["msgBacklog"], PATIENCE_S, 0.1)
    return subscription()


@pytest.fixture(scope="module")
def played(sluice_proxy: SluiceProcess, real_broker: StandaloneBroker, rest: PulsarRest) -> Played[Emptied]:
    """Both at once."""
    rest.ensure_namespace("backlog")
    at_broker = quiet_client(real_broker.service_url)
    try:
        scenes: dict[str, Callable[[], Emptied]] = {
            name: partial(emptied, backlog, backlog.fill(at_broker), sluice_proxy, rest)
            for name, backlog in BACKLOGS.items()
        }
        return Played(scenes)
    finally:
        at_broker.close()


@pytest.mark.parametrize("name", BACKLOGS)
def test_each_message_arrives_once(played: Played[Emptied], name: str) -> None:
    drained = played[name]
    ids = [message.message_id() for message in drained.messages]
    assert (
        len({(message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()) for message_id in ids})
        == len(ids)
        == COUNT
    )
    assert sorted(digest(message.data()) for message in drained.messages) == sorted(drained.sent)
    assert min(len(watcher.messages) for watcher in drained.watchers) >= COUNT / len(CONSUMERS) / 2


@pytest.mark.parametrize("name", BACKLOGS)
def test_nothing_of_it_is_left_at_the_broker(played: Played[Emptied], name: str) -> None:
    """All permits that it was given and made no use of are still there: nobody is stuck."""
    subscription = played[name].subscription
    assert subscription["msgBacklog"] == subscription["unackedMessages"] == subscription["msgRateRedeliver"] == 0
    assert subscription["msgOutCounter"] == COUNT
    assert all(consumer["availablePermits"] > 0 for consumer in subscription["consumers"])


@pytest.mark.parametrize("name", BACKLOGS)
def test_it_took_the_time_that_the_limit_wants(played: Played[Emptied], sluice_proxy: SluiceProcess, name: str) -> None:
    """As a whole: receiving so many a second, this process is too coarse a clock for single intervals.

    From before the first permits were given until the last message was seen: however late it is seen, that is no less
    than the limit took.
    """
    drained = played[name]
    at = sorted(at for watcher in drained.watchers for at, _ in watcher.arrivals)
    assert at[-1] - drained.begun >= (COUNT - LIMIT / 10 - ENTRIES[name]) / LIMIT
    assert_used(sluice_proxy, "dispatch", "topic", topic(name))
