"""The numbers of Pulsar's own publish tests, judged by what Sluice promises.

Each test names the class that its numbers are from. Where Pulsar's tests let a rate be off by 40 to 55 %, here nothing
may be above burst + rate * time + one entry in any interval from the first message on, and by the access log nothing
is kept back.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real import publish_scenes as scenes
from tests.real.arrivals import Line
from tests.real.conftest import IS_DIRECT
from tests.real.flows import Flow, Played, Receipts
from tests.real.publish_scenes import topic
from tests.real.pulsar_rest import PulsarRest
from tests.real.stages import Stage, open_stages
from tests.real.steadiness import SURPLUS_S, assert_never_above, assert_used, evenness, held_messages, in_bytes
from tests.real.traffic import read_all

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def stages(
    real_broker: StandaloneBroker, rest: PulsarRest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Stage]]:
    """A Sluice for each configuration."""
    if IS_DIRECT:
        pytest.skip("the broker itself has not the limits of Sluice (SLUICE_TEST_DIRECT)")
    for namespace in scenes.NAMESPACES:
        rest.ensure_namespace(namespace)
    with open_stages(real_broker, scenes.CONFIGS, tmp_path_factory.mktemp("sluices")) as stages:
        yield stages


@pytest.fixture(scope="module")
def played(stages: dict[str, Stage]) -> Played[Any]:
    """All scenes at once; they share nothing but the machine and the broker."""
    topics = stages["topics"]
    opened: dict[str, Callable[[], Any]] = {
        "five clients": scenes.five_clients(stages["broker-500"]),
        "namespace messages": scenes.namespace_messages(topics),
        "namespace bytes": scenes.namespace_bytes(topics),
        "broker messages": scenes.broker_messages(stages["broker-10"]),
        "broker and topic bytes": scenes.broker_and_topic_bytes(stages["broker-800-bytes"]),
        "raised": scenes.limit_raised(topics),
        "from the start": scenes.limit_from_the_start(topics),
        "blocked": scenes.blocked(topics),
        "closed": scenes.resumed_though_closed(topics),
        "group": scenes.group(topics),
        "unlimited": scenes.unlimited(stages["buffer-enough"]),
        "tight": scenes.buffered(stages["buffer-1-mb"], "tight"),
        "roomy": scenes.buffered(stages["buffer-enough"], "roomy"),
    }
    return Played(opened)


def test_five_producers_share_500_a_second_from_the_first_on(played: Played[Any], stages: dict[str, Stage]) -> None:
    """PublishRateLimiterOverconsumingTest."""
    flow: Flow = played["five clients"]
    flow.assert_whole()
    assert_never_above(flow.arrivals, Line(500, burst=50, entry=6), played.begun["five clients"])
    assert_used(stages["broker-500"].sluice, "publish", "proxy")
    assert evenness(stages["broker-500"].sluice, "publish", topic("five")) >= 0.99


@pytest.mark.parametrize("name", ["namespace messages", "from the start"])
def test_10_messages_a_second_are_kept_until_the_limit_is_gone(
    played: Played[Any], stages: dict[str, Stage], name: str
) -> None:
    """MessagePublishThrottlingTest; TopicPublishThrottlingInitTest."""
    flow: Flow = played[name]
    flow.assert_whole()
    held, freed = flow.before_and_after()
    assert_never_above(held, Line(10, burst=1), played.begun[name])
    namespace = {"namespace messages": "numbers-messages", "from the start": "numbers-start"}[name]
    assert_used(stages["topics"].sluice, "publish", "topic", topic("t", namespace))
    assert freed[-1][0] - flow.then_at < len(freed) / 10 / 2, "half of what the limit would take"


def test_400_bytes_a_second_are_kept_until_the_limit_is_gone(played: Played[Any], stages: dict[str, Stage]) -> None:
    """MessagePublishThrottlingTest."""
    flow: Flow = played["namespace bytes"]
    flow.assert_whole()
    entry = flow.entry_bytes(topic("t", "numbers-bytes"))
    held, freed = flow.before_and_after()
    assert_never_above(in_bytes(held, entry), Line(400, burst=40, entry=entry), played.begun["namespace bytes"])
    assert_used(stages["topics"].sluice, "publish", "topic", topic("t", "numbers-bytes"))
    assert freed[-1][0] - flow.then_at < len(freed) * entry / 400 / 2, "half of what the limit would take"


def test_sends_one_by_one_get_all_10_messages_a_second(played: Played[Any], stages: dict[str, Stage]) -> None:
    """MessagePublishThrottlingTest."""
    flow: Flow = played["broker messages"]
    flow.assert_whole()
    assert_never_above(flow.arrivals, Line(10, burst=1), played.begun["broker messages"])
    assert_used(stages["broker-10"].sluice, "publish", "proxy")


def test_a_topics_byte_limit_holds_within_the_brokers(played: Played[Any], stages: dict[str, Stage]) -> None:
    """MessagePublishThrottlingTest."""
    topic_flow, three = played["broker and topic bytes"]
    entry = three.entry_bytes(topic("bytes-1"))
    for flow, rate in ((topic_flow, 400), (three, 800)):
        flow.assert_whole()
        line = Line(rate, burst=rate / 10, entry=entry)
        assert_never_above(in_bytes(flow.arrivals, entry), line, flow.begun)
    assert_used(stages["broker-800-bytes"].sluice, "publish", "topic", topic("bytes-0"))
    assert_used(stages["broker-800-bytes"].sluice, "publish", "proxy")
    for number in (1, 2, 3):
        arrivals = in_bytes(three.arrivals_on(topic(f"bytes-{number}")), entry)
        assert_never_above(arrivals, Line(400, burst=40, entry=entry), three.begun)


def test_a_limit_raised_from_10_to_20_acts_at_once_and_exactly(played: Played[Any], stages: dict[str, Stage]) -> None:
    """TopicPublishRateThrottleTest."""
    flow: Flow = played["raised"]
    flow.assert_whole()
    assert_never_above(flow.arrivals, Line(10, burst=2), played.begun["raised"], (flow.then_at, 20))
    assert_used(stages["topics"].sluice, "publish", "topic", topic("t", "numbers-raised"))


def test_a_second_message_waits_for_its_bytes(played: Played[Any], stages: dict[str, Stage]) -> None:
    """TopicPublishRateThrottleTest."""
    receipts, entry_bytes = played["blocked"]
    # One byte is the burst; the next entry goes on credit as soon as there is a byte again.
    assert receipts.came[1] - receipts.sent[0] >= entry_bytes / 10 - 0.1
    sluice = stages["topics"].sluice
    assert held_messages(sluice, topic("blocked"), passed=2) == 1
    assert_used(sluice, "publish", "topic", topic("blocked"))


def test_closed_producer_loses_no_held_message_and_blocks_none(played: Played[Any], stages: dict[str, Stage]) -> None:
    """TopicPublishRateThrottleTest.testResumeEvenProducerClosed."""
    assert held_messages(stages["topics"].sluice, topic("closed"), passed=3) == 1
    stored = [message.data() for message in read_all(stages["topics"].at_broker, topic("closed"))]
    assert stored == [b"", b"0123456789", b"0123456789", b"01"]


def test_second_message_of_a_resource_group_waits_a_second(played: Played[Any], stages: dict[str, Stage]) -> None:
    """ResourceGroupRateLimiterTest."""
    receipts: Receipts = played["group"]
    assert receipts.came[1] - receipts.sent[0] >= 1 - SURPLUS_S
    assert held_messages(stages["topics"].sluice, topic("t", "numbers-group"), passed=3) == 1


def test_without_a_limit_nothing_waits(played: Played[Any]) -> None:
    """PublishRateLimiterDisableTest, ResourceGroupRateLimiterTest."""
    receipts, flow, streams = played["unlimited"]
    assert len(receipts.latencies) == 5
    flow.assert_whole()
    for stream, passed in zip(streams, (5, 2000), strict=True):
        assert stream["passed_messages"] == passed
        assert (stream["throttled_ms"], stream["limits"]) == (0, [])


def test_a_full_publish_buffer_pauses_and_each_pause_ends(played: Played[Any]) -> None:
    """MessagePublishBufferThrottleTest."""
    tight, roomy = played["tight"], played["roomy"]
    assert len(tight.sender.sent) == len(roomy.sender.sent) == 10
    pauses, resumes = tight.pauses["hold_process"]
    assert pauses == resumes >= 1
    assert roomy.pauses == {"hold_process": (0, 0), "hold_connection": (0, 0)}
