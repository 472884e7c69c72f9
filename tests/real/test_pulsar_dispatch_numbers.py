"""The numbers of Pulsar's own dispatch tests and of its page on dispatch throttling, judged by what Sluice promises.

Each test names the class, or the example, that its numbers are from. Where Pulsar's tests let a rate be off by 40 to
55 %, here nothing may be above burst + rate * time + one entry in any interval from the first message on, and by the
access log nothing is kept back. Limits of 100 a second with large batches, in plain bytes and of single subscriptions,
and what waits where: `test_dispatch_limits`; entries that count as one: `test_dispatch_rules`.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real import dispatch_scenes as scenes
from tests.real.arrivals import Arrival, Line
from tests.real.backlogs import Drained
from tests.real.conftest import IS_DIRECT
from tests.real.dispatch_scenes import LEAST, LEVELS, Delivered, entry_bytes, topic
from tests.real.flows import Played
from tests.real.metrics import counted
from tests.real.pulsar_rest import PulsarRest
from tests.real.stages import Stage, open_stages
from tests.real.steadiness import SURPLUS_S, assert_never_above, assert_used, evenness, held_messages, in_bytes
from tests.real.traffic import digest

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself has not Sluice's limits")]

HORIZON_S = 0.2
"""What Sluice lets be under way, in time of the limit; and an entry of each consumer."""


@pytest.fixture(scope="module")
def stages(
    real_broker: StandaloneBroker, rest: PulsarRest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Stage]]:
    """A Sluice for each configuration."""
    for namespace in (*scenes.NAMESPACES, *scenes.GROUPED):
        rest.ensure_namespace(namespace)
    with open_stages(real_broker, scenes.CONFIGS, tmp_path_factory.mktemp("sluices")) as stages:
        yield stages


@pytest.fixture(scope="module")
def played(stages: dict[str, Stage], rest: PulsarRest) -> Played[Any]:
    """All scenes at once; they share nothing but the machine and the broker."""
    opened = {**scenes.of_tests(stages), **scenes.of_pages(stages, rest)}
    return Played(opened)


def assert_within(begun: float, arrivals: list[Arrival], rate: float, entry: int = 1) -> None:
    assert_never_above(arrivals, Line(rate, burst=rate / 10, entry=entry), begun)


def assert_used_of_topic(stages: dict[str, Stage], name: str) -> None:
    """The limit of a topic of most scenes."""
    assert_used(stages["topics"].sluice, "dispatch", "topic", name)


@pytest.mark.parametrize(("name", "rate"), [("100", 100), ("10", 10)])
def test_messages_of_a_namespace_s_topic(played: Played[Any], stages: dict[str, Stage], name: str, rate: int) -> None:
    """MessageDispatchThrottlingTest: 500 sent to who waits for them; a backlog."""
    delivered: Delivered = played[name]
    delivered.assert_in_order()
    assert_within(played.begun[name], delivered.arrivals, rate)
    assert_used_of_topic(stages, topic("t", f"dispatch-numbers-{name}"))


@pytest.mark.parametrize("rate", [250, 100])
def test_bytes_of_a_namespace_s_topic(played: Played[Any], stages: dict[str, Stage], rate: int) -> None:
    """MessageDispatchThrottlingTest."""
    delivered: Delivered = played[f"{rate} bytes"]
    delivered.assert_in_order()
    name = topic("t", f"dispatch-numbers-{rate}-bytes")
    entry = entry_bytes(stages["topics"], name)
    assert_within(played.begun[f"{rate} bytes"], in_bytes(delivered.arrivals, entry), rate, entry)
    assert_used_of_topic(stages, name)


def test_100_messages_become_500_bytes_while_consumers_go_on(played: Played[Any], stages: dict[str, Stage]) -> None:
    """MessageDispatchThrottlingTest's dynamic change; the new limit holds from its first message on as well."""
    delivered: Delivered = played["changed"]
    delivered.assert_in_order()
    name = topic("t", "dispatch-numbers-changed")
    entry = entry_bytes(stages["topics"], name)
    line = Line(100 * entry, burst=10 * entry + 50, entry=entry)
    arrivals = in_bytes(delivered.arrivals, entry)
    assert_never_above(arrivals, line, played.begun["changed"], (delivered.changed_at, 500))
    assert arrivals[-1][0] > delivered.changed_at
    assert_used_of_topic(stages, name)


def test_10_messages_of_a_subscription(played: Played[Any], stages: dict[str, Stage]) -> None:
    """SubscriptionMessageDispatchThrottlingTest."""
    delivered: Delivered = played["subscription messages"]
    delivered.assert_in_order()
    assert_within(played.begun["subscription messages"], delivered.arrivals, 10)
    assert_used(stages["topics"].sluice, "dispatch", "subscription", f"s@{topic('of-subscription')}")


def test_1000_bytes_of_a_subscription(played: Played[Any], stages: dict[str, Stage]) -> None:
    """SubscriptionMessageDispatchThrottlingTest."""
    delivered: Delivered = played["subscription bytes"]
    delivered.assert_in_order()
    entry = entry_bytes(stages["topics"], topic("of-subscription-bytes"))
    assert_within(played.begun["subscription bytes"], in_bytes(delivered.arrivals, entry), 1000, entry)
    assert_used(stages["topics"].sluice, "dispatch", "subscription", f"s@{topic('of-subscription-bytes')}")


@pytest.mark.parametrize("level", LEVELS)
def test_of_broker_topic_and_subscription_the_least_decides(
    played: Played[Any], stages: dict[str, Stage], level: str
) -> None:
    """SubscriptionMessageDispatchThrottlingTest.testMultiLevelDispatch: 1000, 5000 and 10,000 bytes, each way round."""
    delivered: Delivered = played[f"least of {level}"]
    delivered.assert_in_order()
    name = topic(f"least-{level}")
    entry = entry_bytes(stages[LEAST[level]], name)
    assert_within(played.begun[f"least of {level}"], in_bytes(delivered.arrivals, entry), 1000, entry)
    limit = {"broker": ("proxy", ""), "topic": ("topic", name), "subscription": ("subscription", f"s@{name}")}
    assert_used(stages[LEAST[level]].sluice, "dispatch", *limit[level])


def test_who_closes_and_comes_back_gains_nothing_and_misses_nothing(played: Played[Any]) -> None:
    """SubscriptionMessageDispatchThrottlingTest.testClosingRateLimiter."""
    delivered: Delivered = played["closing"]
    assert len(delivered.watchers) >= 5
    assert_never_above(delivered.arrivals, Line(20, burst=2), played.begun["closing"])
    marks = [digest(message.data()) for watcher in delivered.watchers for message in watcher.messages]
    assert sorted(marks) == sorted(delivered.sent)


def test_twenty_consumers_share_50_a_second_from_the_first_on(played: Played[Any], stages: dict[str, Stage]) -> None:
    """DispatchRateLimiterOverconsumingTest; and the backlog waits in the broker."""
    drained: Drained = played["twenty"]
    assert_within(played.begun["twenty"], drained.arrivals, 50)
    assert_used(stages["broker-50"].sluice, "dispatch", "proxy")
    assert evenness(stages["broker-50"].sluice, "dispatch", topic("twenty")) >= 0.98
    assert 0 < drained.watched.most["held_messages"] <= HORIZON_S * 50 + 20
    waiting = drained.watched.sum_of("offered_messages") - drained.watched.sum_of("passed_messages")
    assert waiting <= HORIZON_S * 50 + 20


def test_topics_share_the_10_messages_and_1024_bytes_of_a_broker(played: Played[Any], stages: dict[str, Stage]) -> None:
    """BrokerDispatchRateLimiterTest."""
    pair: list[Delivered] = [played["broker 1"], played["broker 2"]]
    together = sorted(arrival for delivered in pair for arrival in delivered.arrivals)
    assert_within(played.begun["broker 1"], together, 10)
    assert_used(stages["broker-10-1024"].sluice, "dispatch", "proxy")
    sluice = stages["broker-10-1024"].sluice
    assert evenness(sluice, "dispatch", topic("broker-1"), topic("broker-2")) >= 0.98
    assert counted(sluice, "sluice_limiter_throttled_seconds_total", direction="dispatch", level="proxy") > 7


def test_small_messages_pass_10_a_second_within_1024_bytes(played: Played[Any], stages: dict[str, Stage]) -> None:
    """TopicDispatchRateLimiterTest; the two rates hold at once."""
    delivered: Delivered = played["small"]
    delivered.assert_in_order()
    assert_within(played.begun["small"], delivered.arrivals, 10)
    assert_used_of_topic(stages, topic("small"))


def test_of_10_messages_and_1024_bytes_the_bytes_decide_where_they_are_large(
    played: Played[Any], stages: dict[str, Stage]
) -> None:
    """TopicDispatchRateLimiterTest; the two rates hold at once."""
    delivered: Delivered = played["large"]
    delivered.assert_in_order()
    entry = entry_bytes(stages["topics"], topic("large"))
    assert_within(played.begun["large"], in_bytes(delivered.arrivals, entry), 1024, entry)
    assert_used_of_topic(stages, topic("large"))


def test_namespaces_of_a_resource_group_share_its_50_messages(played: Played[Any], stages: dict[str, Stage]) -> None:
    """Its dispatch rate, which Pulsar does not enforce."""
    pair: list[Delivered] = [played[name] for name in scenes.GROUPED[:2]]
    together = sorted(arrival for delivered in pair for arrival in delivered.arrivals)
    assert_within(played.begun[scenes.GROUPED[0]], together, 50)
    assert_used(stages["topics"].sluice, "dispatch", "resource_group", "messages")
    topics = [topic("t", name) for name in scenes.GROUPED[:2]]
    assert evenness(stages["topics"].sluice, "dispatch", *topics) >= 0.99


def test_a_resource_group_s_4000_bytes_are_those_of_both_its_namespaces(
    played: Played[Any], stages: dict[str, Stage]
) -> None:
    """ResourceGroupUsageAggregationTest's dispatch rate, which Pulsar does not enforce."""
    pair: list[Delivered] = [played[name] for name in scenes.GROUPED[2:]]
    together = sorted(arrival for delivered in pair for arrival in delivered.arrivals)
    entry = entry_bytes(stages["topics"], topic("t", scenes.GROUPED[2]))
    assert_within(played.begun[scenes.GROUPED[2]], in_bytes(together, entry), 4000, entry)
    assert_used(stages["topics"].sluice, "dispatch", "resource_group", "bytes")


@pytest.mark.parametrize("name", scenes.PARTITIONED)
def test_two_partitions_with_10_each_are_20_together(played: Played[Any], stages: dict[str, Stage], name: str) -> None:
    """The page's t0 and t1: the value is a topic's, or a subscription's."""
    delivered: Delivered = played[name]
    for partition in range(2):
        own = f"{topic(name)}-partition-{partition}"
        level, limited = ("topic", own) if name == "per-topic" else ("subscription", f"s@{own}")
        assert_within(played.begun[name], delivered.arrivals_on(own), 10)
        assert_used(stages["topics"].sluice, "dispatch", level, limited)


def test_subscriptions_of_a_topic_share_its_quota(played: Played[Any], stages: dict[str, Stage]) -> None:
    """The page: a quota can be shared among subscriptions."""
    delivered: Delivered = played["shared quota"]
    delivered.assert_in_order()
    assert_within(played.begun["shared quota"], delivered.arrivals, 10)
    assert_used_of_topic(stages, topic("shared-quota"))
    assert evenness(stages["topics"].sluice, "dispatch", topic("shared-quota")) >= 0.98


@pytest.mark.parametrize("name", ["six", "six, imprecise"])
def test_batches_of_6_messages_pass_10_messages_a_second(
    played: Played[Any], stages: dict[str, Stage], name: str
) -> None:
    """The page's example of preciseDispatcherFlowControl, where Pulsar delivers 12, or (imprecise) 60."""
    delivered: Delivered = played[name]
    delivered.assert_in_order()
    assert_within(played.begun[name], delivered.arrivals, 10, entry=6)
    stage = stages["imprecise" if name.endswith("imprecise") else "topics"]
    assert_used(stage.sluice, "dispatch", "topic", topic(name.replace(", ", "-")))


def test_6_messages_per_entry_wait_in_the_broker(played: Played[Any]) -> None:
    (stream,) = played["six"].streams
    assert stream["offered_messages"] - stream["passed_messages"] <= HORIZON_S * 10 + 6


def test_batch_of_30_uses_up_the_next_two_periods(played: Played[Any], stages: dict[str, Stage]) -> None:
    """The page's note on over-delivery."""
    delivered: Delivered = played["thirty"]
    delivered.assert_in_order()
    firsts = [at for at, _ in delivered.arrivals[::30]]
    assert len(firsts) >= 2
    for number, first in enumerate(firsts):
        assert first - delivered.begun >= 3 * number - 0.1
    assert_used_of_topic(stages, topic("thirty"))


def test_11_delivered_in_a_period_leave_9_for_the_next(played: Played[Any], stages: dict[str, Stage]) -> None:
    """The page's note on over-delivery, with Pulsar's burst of a whole period."""
    delivered: Delivered = played["eleven"]
    delivered.assert_in_order()
    at = [at for at, _ in delivered.arrivals]
    assert held_messages(stages["topics"].sluice, topic("eleven"), passed=21) <= 1, "9 more pass as they come"
    assert at[20] - delivered.begun >= 1.1 - SURPLUS_S, "and the tenth waits"


def test_what_is_sought_counts_again(played: Played[Any]) -> None:
    """The page: seek and redelivery deliver different messages, to the quota."""
    delivered: Delivered = played["seek"]
    delivered.assert_in_order()
    assert_never_above(delivered.arrivals, Line(10, burst=1), played.begun["seek"])
