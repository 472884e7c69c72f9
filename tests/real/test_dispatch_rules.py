"""What Pulsar's keys for dispatch throttling change, behind a real broker."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pulsar
import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Line, Watcher
from tests.real.backlogs import Backlog, Drained
from tests.real.conftest import IS_DIRECT
from tests.real.flows import Played
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.stages import Stage, open_stages
from tests.real.steadiness import assert_never_above, assert_used
from tests.real.traffic import open_sender, payload

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself has not Sluice's limits")]

BY_ENTRY = "dispatchThrottlingOnBatchMessageEnabled"
SPARING = "dispatchThrottlingOnNonBacklogConsumerEnabled"
LIMIT = {"limits": {"each_topic": {"dispatch": {"messages": 10}}}}
CONFIGS = {"by entry": {**LIMIT, "dispatch": {BY_ENTRY: True}}, "sparing": {**LIMIT, "dispatch": {SPARING: False}}}
BATCH = 50
LIVE = 200
"""Messages of a producer that sends twenty times what the limit lets pass."""


def topic(name: str) -> str:
    return topic_name("dispatch-rules", name)


@pytest.fixture(scope="module")
def stages(
    real_broker: StandaloneBroker, rest: PulsarRest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Stage]]:
    rest.ensure_namespace("dispatch-rules")
    with open_stages(real_broker, CONFIGS, tmp_path_factory.mktemp("sluices")) as stages:
        yield stages


@pytest.fixture(scope="module")
def played(stages: dict[str, Stage]) -> Played[Any]:
    """All at once."""
    by_entry, sparing = stages["by entry"], stages["sparing"]
    batched = Backlog(topic("batched"), 6000, options={"batching_enabled": True, "batching_max_messages": BATCH})
    single = Backlog(topic("backlog"), 1500)
    for backlog in (batched, single):
        backlog.fill(by_entry.at_broker)
    scenes: dict[str, Callable[[], Any]] = {
        "batched": partial(batched.drained, by_entry.sluice),
        "single": partial(single.drained, sparing.sluice),
        "live": live(sparing),
    }
    return Played(scenes)


def live(stage: Stage) -> Callable[[], Watcher]:
    """Nothing comes for a while; then two hundred messages within a second."""
    watcher = Watcher(stage.client().subscribe(topic("live"), "s", pulsar.ConsumerType.Shared))
    sender = open_sender(stage.at_broker, topic("live"), "p")

    def play() -> Watcher:
        with watcher:
            time.sleep(1.5)
            for index in range(LIVE):
                sender.send_async(payload("p", index))
                time.sleep(1 / LIVE)
            sender.producer.flush()
            watcher.wait_for(LIVE)
        return watcher

    return play


def test_an_entry_counts_as_one_message(played: Played[Any], stages: dict[str, Stage]) -> None:
    """Ten entries a second, of fifty messages each; the limit's burst is one."""
    drained: Drained = played["batched"]
    line = Line(10 * BATCH, burst=BATCH, entry=BATCH)
    assert_never_above(drained.arrivals, line, played.begun["batched"])
    assert_used(stages["by entry"].sluice, "dispatch", "topic", topic("batched"))


def test_who_has_no_backlog_is_not_limited(played: Played[Any], stages: dict[str, Stage]) -> None:
    """All of them arrive, and none was held."""
    assert len(played["live"].arrivals) == LIVE
    (stream,) = stages["sparing"].sluice.streams(topic("live"))
    assert (stream["passed_messages"], stream["throttled_ms"]) == (LIVE, 0)


def test_who_has_a_backlog_is_limited_all_the_same(played: Played[Any], stages: dict[str, Stage]) -> None:
    drained: Drained = played["single"]
    assert_never_above(drained.arrivals, Line(10, burst=1), played.begun["single"])
    assert_used(stages["sparing"].sluice, "dispatch", "topic", topic("backlog"))
