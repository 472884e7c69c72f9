"""What happens in the tests with the numbers of Pulsar's own publish tests."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pulsar

from tests.real.flows import Flow, Load, Receipts
from tests.real.metrics import counted
from tests.real.pulsar_rest import TENANT, topic_name
from tests.real.stages import Stage
from tests.real.traffic import Sender, open_sender, payload
from tests.waiting import PATIENCE_S, wait_for

LOOK_S = 6.6
"""Six seconds that are looked at, and what lies before them."""
FREE = 1_000_000
MANY = 800
"""At ten a second more than a minute's worth is left when the limit goes."""

NAMESPACES = ("numbers", "numbers-messages", "numbers-bytes", "numbers-raised", "numbers-start", "numbers-group")
MEGABYTE = 1_000_000


def topic(local: str, namespace: str = "numbers") -> str:
    return topic_name(namespace, local)


CONFIGS: dict[str, dict[str, Any]] = {
    "topics": {
        "limits": {
            "each_topic": {"publish": {"messages": 10}},
            "topics": {
                topic("blocked"): {"publish": {"messages": 1, "bytes": 10}},
                topic("closed"): {"publish": {"messages": 1}},
            },
            "resource_groups": {
                "small": {"publish": {"messages": 1, "bytes": 41}, "namespaces": [f"{TENANT}/numbers-group"]}
            },
        }
    },
    "broker-500": {"limits": {"proxy": {"publish": {"messages": 500}}}},
    "broker-10": {"limits": {"proxy": {"publish": {"messages": 10}}}},
    "broker-800-bytes": {
        "limits": {"proxy": {"publish": {"bytes": 800}}, "each_topic": {"publish": {"bytes": 400}}},
    },
    "buffer-1-mb": {
        "publish": {"hold_total": "1MB"},
        "limits": {"topics": {topic("tight"): {"publish": {"bytes": "2MB"}}}},
    },
    "buffer-enough": {
        "publish": {"hold_connection": "64MB", "hold_total": "256MB"},
        "limits": {"topics": {topic("roomy"): {"publish": {"bytes": "2MB"}}}},
    },
}
"""By name: a Sluice for each."""


def set_rate(stage: Stage, namespace: str, messages: int = -1, size: int = -1) -> None:
    body = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": size}
    stage.sluice.send("POST", f"/admin/v2/namespaces/{TENANT}/{namespace}/publishRate", body)


@dataclass
class Play:
    """A flow, what is done in the middle of it, and what it leaves for the test to judge."""

    flow: Flow
    then: Callable[[], object] | None = None
    after_s: float = LOOK_S

    def __call__(self) -> Flow:
        self.flow.run(self.then, self.after_s)
        return self.flow


def five_clients(stage: Stage) -> Play:
    """PublishRateLimiterOverconsumingTest; it sends 600 each."""
    batches = {"batching_enabled": True, "batching_max_messages": 6, "batching_max_publish_delay_ms": 100}
    load = Load((topic("five"),), count=720, clients=5, consumers=5, options=batches)
    return Play(Flow(stage, load))


def namespace_messages(stage: Stage) -> Play:
    set_rate(stage, "numbers-messages", messages=10)
    flow = Flow(stage, Load((topic("t", "numbers-messages"),), count=MANY, size=80))
    return Play(flow, lambda: set_rate(stage, "numbers-messages", messages=FREE))


def namespace_bytes(stage: Stage) -> Play:
    set_rate(stage, "numbers-bytes", size=400)
    flow = Flow(stage, Load((topic("t", "numbers-bytes"),), count=125, size=1, clients=10)).metered()
    return Play(flow, lambda: set_rate(stage, "numbers-bytes", size=FREE))


def broker_messages(stage: Stage) -> Play:
    return Play(Flow(stage, Load((topic("one-by-one"),), count=65, size=80, pending=1)))


def broker_and_topic_bytes(stage: Stage) -> Callable[[], tuple[Flow, Flow]]:
    """One topic reaches its own limit; three reach the broker's."""
    topic_flow = Flow(stage, Load((topic("bytes-0"),), count=13, size=80))
    three = Flow(stage, Load(tuple(topic(f"bytes-{number}") for number in (1, 2, 3)), count=13, size=80)).metered()

    def play() -> tuple[Flow, Flow]:
        topic_flow.run()
        three.run()
        return topic_flow, three

    return play


def limit_raised(stage: Stage) -> Play:
    """TopicPublishRateThrottleTest: 10, then 20."""
    set_rate(stage, "numbers-raised", messages=10)
    flow = Flow(stage, Load((topic("t", "numbers-raised"),), count=110, size=80))
    return Play(flow, lambda: set_rate(stage, "numbers-raised", messages=20), after_s=5)


def limit_from_the_start(stage: Stage) -> Play:
    flow = Flow(stage, Load((topic("t", "numbers-start"),), count=MANY, size=80))
    return Play(flow, lambda: set_rate(stage, "numbers-start", messages=FREE))


def single(client: pulsar.Client, name: str) -> Receipts:
    """For one message after the other."""
    return Receipts(client.create_producer(name, "p", send_timeout_millis=0))


def blocked(stage: Stage) -> Callable[[], tuple[Receipts, int]]:
    """1 message and 10 bytes a second; also returns how large the second message was to the limit."""
    stage.warm_up(topic("blocked"))
    before, _ = stage.counters(topic("blocked"))
    receipts = single(stage.client(), topic("blocked"))

    def play() -> tuple[Receipts, int]:
        for wait_s in (0, PATIENCE_S):
            receipts.send(b"0123456789", wait_s)
        return receipts, (stage.counters(topic("blocked"))[0] - before) // 2

    return play


def resumed_though_closed(stage: Stage) -> Callable[[], tuple[Receipts, Receipts]]:
    """testResumeEvenProducerClosed; 1 message a second."""
    stage.warm_up(topic("closed"))
    client = stage.client()
    first = single(client, topic("closed"))

    def play() -> tuple[Receipts, Receipts]:
        for _ in range(2):
            first.send(b"0123456789")
        wait_for(lambda: first.came)
        first.producer.close()
        time.sleep(3)
        second = single(client, topic("closed"))
        second.send(b"01", wait_s=PATIENCE_S)
        return first, second

    return play


def group(stage: Stage) -> Callable[[], Receipts]:
    """1 message and 41 bytes a second: the second message is given up, and 2 s after its receipt the third is sent."""
    name = topic("t", "numbers-group")
    stage.warm_up(name)
    receipts = single(stage.client(), name)

    def play() -> Receipts:
        for _ in range(2):
            receipts.send(b"0123456789")
        wait_for(lambda: len(receipts.came) == 2)
        time.sleep(2)
        receipts.send(b"0123456789", wait_s=PATIENCE_S)
        return receipts

    return play


def unlimited(stage: Stage) -> Callable[[], tuple[Receipts, Flow, list[dict[str, Any]]]]:
    """PublishRateLimiterDisableTest, and what follows in ResourceGroupRateLimiterTest once a group is left.

    Single messages, then many, and Sluice's account of both streams.
    """
    stage.warm_up(topic("single"))
    receipts = single(stage.client(), topic("single"))
    flow = Flow(stage, Load((topic("unlimited"),), count=2000))

    def play() -> tuple[Receipts, Flow, list[dict[str, Any]]]:
        for _ in range(5):
            receipts.send(b"0123456789", wait_s=PATIENCE_S)
        flow.run()
        streams = [stream for name in ("single", "unlimited") for stream in stage.sluice.streams(topic(name))]
        return receipts, flow, streams

    return play


@dataclass
class Buffered:
    """Pauses and resumes of a Sluice when 10 MB had gone through a limit."""

    sender: Sender
    pauses: dict[str, tuple[float, float]] = field(default_factory=dict)


def buffered(stage: Stage, name: str) -> Callable[[], Buffered]:
    """MessagePublishBufferThrottleTest."""
    stage.warm_up(topic(name))
    seen = Buffered(open_sender(stage.client(), topic(name), "p"))
    contents = [payload("p", index, MEGABYTE) for index in range(10)]

    def play() -> Buffered:
        seen.sender.send_all(contents)
        for cause in ("hold_process", "hold_connection"):
            counts = [counted(stage.sluice, f"sluice_{event}_total", cause=cause) for event in ("pauses", "resumes")]
            seen.pauses[cause] = (counts[0], counts[1])
        return seen

    return play
