"""What Pulsar's keys for dispatch throttling change, behind a real broker."""

import time
from collections.abc import Iterator

import pulsar
import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Line, Watcher
from tests.real.backlogs import LOOK_S, Backlog
from tests.real.conftest import IS_DIRECT
from tests.real.probe import Probe
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.stages import Stage, open_stages
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
    for namespace in ("dispatch-rules", "probe"):
        rest.ensure_namespace(namespace)
    with open_stages(real_broker, CONFIGS, tmp_path_factory.mktemp("sluices")) as stages:
        yield stages


def test_an_entry_counts_as_one_message(stages: dict[str, Stage], probe: Probe) -> None:
    """Ten entries a second, of fifty messages each; the limit's burst is one."""
    backlog = Backlog(topic("batched"), 6000, options={"batching_enabled": True, "batching_max_messages": BATCH})
    backlog.fill(stages["by entry"].at_broker)
    drained = backlog.drained(stages["by entry"].sluice)
    line = Line(10 * BATCH, burst=BATCH, entry=BATCH)
    assert line.worst_excess(drained.arrivals, probe.stall_s) <= 0
    assert drained.mean(probe.stalled_s) >= 0.97 * line.rate - BATCH / LOOK_S


def test_who_has_no_backlog_is_not_limited(stages: dict[str, Stage], probe: Probe) -> None:
    """Nothing comes for a while; then two hundred messages within a second, and all of them arrive as they are sent."""
    stage, name = stages["sparing"], topic("live")
    watcher = Watcher(stage.client().subscribe(name, "s", pulsar.ConsumerType.Shared))
    sender = open_sender(stage.at_broker, name, "p")
    with watcher:
        time.sleep(1.5)
        for index in range(LIVE):
            sender.send_async(payload("p", index))
            time.sleep(1 / LIVE)
        sender.producer.flush()
        time.sleep(1)
    assert len(watcher.arrivals) == LIVE


def test_who_has_a_backlog_is_limited_all_the_same(stages: dict[str, Stage], probe: Probe) -> None:
    backlog = Backlog(topic("backlog"), 1500)
    backlog.fill(stages["sparing"].at_broker)
    drained = backlog.drained(stages["sparing"].sluice)
    assert Line(10, burst=1).worst_excess(drained.arrivals, probe.stall_s) <= 0
    assert drained.mean(probe.stalled_s) >= 9
