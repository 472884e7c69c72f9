"""What happens in the tests with the numbers of Pulsar's own dispatch tests, and of its page on dispatch throttling."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pulsar

from tests.real.arrivals import Arrival, Watcher
from tests.real.backlogs import Backlog, Drained
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.stages import Stage
from tests.real.traffic import digest, open_sender, payload
from tests.waiting import PATIENCE_S, wait_for

LOOK_S = 8
"""Seven seconds that are looked at, what lies before them, and what the machine may add to them."""
CHANGED_AFTER_S = 4

_PREFIX = "dispatch-numbers"
NAMESPACES = (_PREFIX, *(f"{_PREFIX}-{name}" for name in ("100", "10", "250-bytes", "100-bytes", "changed")))
GROUPED = tuple(f"{_PREFIX}-group-{name}" for name in ("1", "2", "bytes-1", "bytes-2"))
PARTITIONED = ("per-topic", "per-subscription")
LEVELS = {"broker": (1000, 5000, 10_000), "topic": (10_000, 1000, 5000), "subscription": (10_000, 5000, 1000)}
"""Bytes a second of the broker, the topic and the subscription, by which of them is the least."""
LEAST = {"broker": "broker-1000-bytes", "topic": "broker-10000-bytes", "subscription": "broker-10000-bytes"}
"""The Sluice of each."""


def topic(local: str, namespace: str = _PREFIX) -> str:
    return topic_name(namespace, local)


def dispatch(**rate: int) -> dict[str, Any]:
    return {"dispatch": rate}


def per_subscription(**rate: int) -> dict[str, Any]:
    return {"subscription_dispatch": rate}


def multi_level(*levels: str) -> dict[str, Any]:
    """The limits of the topics of these levels, within that of their broker."""
    topics = {
        topic(f"least-{level}"): {**dispatch(bytes=LEVELS[level][1]), **per_subscription(bytes=LEVELS[level][2])}
        for level in levels
    }
    return {"limits": {"proxy": dispatch(bytes=LEVELS[levels[0]][0]), "topics": topics}}


CONFIGS: dict[str, dict[str, Any]] = {
    "topics": {
        "limits": {
            "each_topic": dispatch(messages=10),
            "topics": {
                **{topic(name): dispatch(messages=10, bytes=1024) for name in ("small", "large")},
                topic("eleven"): dispatch(messages=10, burst_messages=10),
                topic("closing"): dispatch(messages=20),
                **{topic(name): dispatch(messages=100_000) for name in ("of-subscription", "of-subscription-bytes")},
                topic("of-subscription"): {**dispatch(messages=100_000), **per_subscription(messages=10)},
                topic("of-subscription-bytes"): {**dispatch(messages=100_000), **per_subscription(bytes=1000)},
                topic("per-subscription"): {**dispatch(messages=100_000), **per_subscription(messages=10)},
            },
            "namespaces": {f"{TENANT}/{name}": dispatch(messages=100_000) for name in GROUPED},
            "resource_groups": {
                "messages": {**dispatch(messages=50), "namespaces": [f"{TENANT}/{name}" for name in GROUPED[:2]]},
                "bytes": {**dispatch(bytes=4000), "namespaces": [f"{TENANT}/{name}" for name in GROUPED[2:]]},
            },
        }
    },
    "imprecise": {
        "dispatch": {"preciseDispatcherFlowControl": False},
        "limits": {"each_topic": dispatch(messages=10)},
    },
    "broker-50": {"limits": {"proxy": dispatch(messages=50)}},
    "broker-10-1024": {"limits": {"proxy": dispatch(messages=10, bytes=1024)}},
    LEAST["broker"]: multi_level("broker"),
    LEAST["topic"]: multi_level("topic", "subscription"),
}
"""By name: a Sluice for each."""


def set_rate(stage: Stage, namespace: str, messages: int = -1, size: int = -1) -> None:
    """As pulsar-admin does it."""
    body = {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": size}
    stage.sluice.send("POST", f"/admin/v2/namespaces/{TENANT}/{namespace}/dispatchRate", body)


@dataclass
class Delivered:
    """What some consumers received.

    Attributes:
        watchers: One of each consumer.
        sent: Digests of all messages, in order.
        begun: Before the first of them could pass.
        changed_at: When what was to change had changed.
        streams: What Sluice said of the consumers in the end.
    """

    watchers: list[Watcher]
    sent: list[str]
    begun: float = 0
    changed_at: float = 0
    streams: list[dict[str, Any]] = field(default_factory=list)

    @property
    def arrivals(self) -> list[Arrival]:
        return sorted(arrival for watcher in self.watchers for arrival in watcher.arrivals)

    def arrivals_on(self, name: str) -> list[Arrival]:
        """Those on one topic or partition."""
        return [
            arrival
            for watcher in self.watchers
            for arrival, message in zip(watcher.arrivals, watcher.messages, strict=True)
            if message.topic_name() == name
        ]

    def assert_in_order(self) -> None:
        """Each consumer, the only one of its subscription, received what was sent: nothing twice, no gap."""
        for watcher in self.watchers:
            marks = [digest(message.data()) for message in watcher.messages]
            assert marks == self.sent[: len(marks)]


class Scene:
    """Consumers of a topic behind Sluice for a while.

    Args:
        stage: Where.
        backlog: Made at once; if it is `live`, published when its consumers are there.
        then: Done after CHANGED_AFTER_S, if there is something to do.
    """

    def __init__(
        self, stage: Stage, backlog: Backlog, *, live: bool = False, then: Callable[[], None] | None = None
    ) -> None:
        self._stage = stage
        self._backlog = backlog
        self._then = then
        self._client = stage.client()
        self._sent = [] if live else backlog.fill(stage.at_broker)

    def __call__(self) -> Delivered:
        begun = time.monotonic()
        with ExitStack() as watching:
            consumers = (self._backlog.consumer(self._client, name) for name in self._backlog.subscriptions)
            watchers = [watching.enter_context(Watcher(consumer)) for consumer in consumers]
            sent = self._sent or self._backlog.publish(self._stage.at_broker)
            begin = watchers[0].wait_first()
            changed_at = self._change(begin)
            time.sleep(max(0.0, begin + self._backlog.look_s - time.monotonic()))
        streams = self._stage.sluice.streams(self._backlog.topic)
        return Delivered(watchers, sent, begun, changed_at, streams)

    def _change(self, begin: float) -> float:
        if self._then is not None:
            time.sleep(max(0.0, begin + CHANGED_AFTER_S - time.monotonic()))
            self._then()
        return time.monotonic()


def entry_bytes(stage: Stage, name: str) -> int:
    """What a message of the topic is to a limit in bytes, the longest if they differ by one: what the broker counts."""
    size, messages = stage.counters(name)
    return -(-size // messages)


def batches_of(count: int) -> dict[str, Any]:
    """Options of a producer whose entries hold so many messages each."""
    return {"batching_enabled": True, "batching_max_messages": count, "batching_max_publish_delay_ms": 10_000}


backlog = partial(Backlog, look_s=LOOK_S)


def of_pages(stages: dict[str, Stage], rest: PulsarRest) -> dict[str, Callable[[], Any]]:
    """The examples of the page on dispatch throttling, all at 10 a second."""
    stage = stages["topics"]
    for name in PARTITIONED:
        rest.create_partitioned_topic(topic(name), 2)
    round_robin = {"message_routing_mode": pulsar.PartitionsRoutingMode.RoundRobinDistribution}
    six = partial(backlog, count=252, options=batches_of(6))
    return {
        **{name: Scene(stage, backlog(topic(name), 280, options=round_robin)) for name in PARTITIONED},
        "shared quota": Scene(stage, backlog(topic("shared-quota"), 135, "st")),
        "six": Scene(stage, six(topic("six"))),
        "six, imprecise": Scene(stages["imprecise"], six(topic("six-imprecise"))),
        "thirty": Scene(stage, backlog(topic("thirty"), 180, options=batches_of(30))),
        "eleven": eleven_at_once(stage),
        "seek": sought(stage),
        "small": Scene(stage, backlog(topic("small"), 135, size=10)),
        "large": Scene(stage, backlog(topic("large"), 60, size=300)),
    }


def of_tests(stages: dict[str, Stage]) -> dict[str, Callable[[], Any]]:
    """The scenarios of Pulsar's tests."""
    stage = stages["topics"]
    return {
        "twenty": twenty(stages["broker-50"]),
        **of_namespaces(stage),
        "subscription messages": Scene(stage, backlog(topic("of-subscription"), 135)),
        "subscription bytes": Scene(stage, backlog(topic("of-subscription-bytes"), 110)),
        **{f"least of {level}": Scene(stages[LEAST[level]], backlog(topic(f"least-{level}"), 110)) for level in LEVELS},
        "closing": closing(stage),
        "broker 1": Scene(stages["broker-10-1024"], backlog(topic("broker-1"), 100, size=10)),
        "broker 2": Scene(stages["broker-10-1024"], backlog(topic("broker-2"), 100, size=10)),
        **{name: Scene(stage, backlog(topic("t", name), 400)) for name in GROUPED[:2]},
        **{name: Scene(stage, backlog(topic("t", name), 100, size=300)) for name in GROUPED[2:]},
    }


def of_namespaces(stage: Stage) -> dict[str, Callable[[], Any]]:
    """MessageDispatchThrottlingTest: the values of namespaces, set as pulsar-admin does."""

    def scene(name: str, count: int, size: int = 100, **options: Any) -> Scene:
        return Scene(stage, backlog(topic("t", f"{_PREFIX}-{name}"), count, size=size), **options)

    set_rate(stage, f"{_PREFIX}-100", messages=100)
    set_rate(stage, f"{_PREFIX}-10", messages=10)
    set_rate(stage, f"{_PREFIX}-250-bytes", size=250)
    set_rate(stage, f"{_PREFIX}-100-bytes", size=100)
    set_rate(stage, f"{_PREFIX}-changed", messages=100)
    return {
        "100": scene("100", 900, live=True),
        "10": scene("10", 135),
        "250 bytes": scene("250-bytes", 60, size=25),
        "100 bytes": scene("100-bytes", 30, size=10),
        "changed": scene("changed", 850, then=lambda: set_rate(stage, f"{_PREFIX}-changed", size=500)),
    }


def twenty(stage: Stage) -> Callable[[], Drained]:
    """DispatchRateLimiterOverconsumingTest; it has a backlog of 250, too few to look at ten seconds."""
    crowd = backlog(topic("twenty"), 800, "s" * 20, queue=10)
    crowd.fill(stage.at_broker)
    return partial(crowd.drained, stage.sluice)


def closing(stage: Stage) -> Callable[[], Delivered]:
    """testClosingRateLimiter: a consumer that closes and comes back each second, until it has everything."""
    client, all_of_it = stage.client(), backlog(topic("closing"), 100)
    sent = all_of_it.fill(stage.at_broker)

    def backlog_at_broker() -> int:
        """What is acknowledged while a consumer closes may be too late."""
        left: int = stage.rest.stats(all_of_it.topic)["subscriptions"]["s"]["msgBacklog"]
        return left

    def play() -> Delivered:
        watchers: list[Watcher] = []
        deadline, taken = time.monotonic() + PATIENCE_S, 0
        while taken < len(sent) and time.monotonic() < deadline:
            consumer = all_of_it.consumer(client, "s")
            with Watcher(consumer) as watcher:
                time.sleep(1)
            watchers.append(watcher)
            taken = sum(len(watcher.messages) for watcher in watchers)
            wait_for(lambda taken=taken: backlog_at_broker() == len(sent) - taken)  # type: ignore[misc]
            consumer.close()
        return Delivered(watchers, sent)

    return play


def sought(stage: Stage) -> Callable[[], Delivered]:
    """After 20 messages everything is to come again, and 30 of it come."""
    client, all_of_it = stage.client(), backlog(topic("seek"), 100)
    sent = all_of_it.fill(stage.at_broker)

    def play() -> Delivered:
        consumer = all_of_it.consumer(client, "s")
        with Watcher(consumer) as before:
            before.wait_for(20)
        consumer.seek(pulsar.MessageId.earliest)
        with Watcher(consumer) as after:
            after.wait_for(30)
        return Delivered([before, after], sent)

    return play


def eleven_at_once(stage: Stage) -> Callable[[], Delivered]:
    """An entry of 11 messages, and after a second ten single ones; `changed_at` is when those were sent."""
    client, later = stage.client(), backlog(topic("eleven"), 10)
    senders = [open_sender(stage.at_broker, topic("eleven"), "batch", **batches_of(11))]

    def play() -> Delivered:
        with Watcher(later.consumer(client, "s")) as watcher:
            begun = time.monotonic()
            senders[0].send_all([payload("batch", index) for index in range(11)])
            time.sleep(max(0.0, watcher.wait_first() + 1 - time.monotonic()))
            sent_at = time.monotonic()
            sent = senders[0].sent + later.publish(stage.at_broker)
            watcher.wait_for(len(sent))
        return Delivered([watcher], sent, begun, changed_at=sent_at)

    return play
