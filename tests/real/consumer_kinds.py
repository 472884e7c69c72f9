"""Ways to consume, and kinds of messages, while deliveries are held."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pulsar

from tests.real.flows import Receipts
from tests.real.intake import SUBSCRIPTION, Act, Taken
from tests.real.stages import Stage
from tests.real.traffic import PATIENCE_MS
from tests.waiting import wait_for

PARTS = 3
FROM_PART = 250
EARLIEST = pulsar.InitialPosition.Earliest
FREE_S = 5
FREE_EACH_S = 0.02
BATCH = 25


def filled(play: Callable[..., Any], topic: str, count: int, stage: Stage, **options: Any) -> Callable[[], Any]:
    """A way to consume, with a topic that has a backlog."""
    return partial(play, Act(stage, topic).fill(count, **options))


def batched(compression: pulsar.CompressionType) -> dict[str, Any]:
    """Options of a producer."""
    size = {"batching_max_messages": BATCH, "batching_max_publish_delay_ms": 1000}
    return {"batching_enabled": True, "compression_type": compression, **size}


def drain(act: Act, **options: Any) -> Act:
    """By one Exclusive consumer."""
    with act.taking(act.consumer(**options)):
        return act.finish()


def read_to_the_end(act: Act) -> Act:
    """As far as the reader itself says that there is more."""
    reader = act.stage.client().create_reader(act.topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(PATIENCE_MS)
        act.log.append(Taken(time.monotonic(), message, "reader"))
    return act


def take_singly(act: Act, consumer: pulsar.Consumer, count: int) -> None:
    """One who has no receiver queue asks for one message at a time."""
    for _ in range(count):
        message = consumer.receive()
        act.log.append(Taken(time.monotonic(), message, consumer.consumer_name()))
        consumer.acknowledge(message)


def zero_queue(act: Act) -> Act:
    take_singly(act, act.consumer(receiver_queue_size=0), len(act.sent))
    return act.finish()


def zero_queues(act: Act) -> Act:
    """Two, of which one ends before the other."""
    shares = len(act.sent) // 3, len(act.sent) - len(act.sent) // 3
    consumers = [act.consumer(consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=0) for _ in shares]
    threads = [threading.Thread(target=take_singly, args=(act, *pair)) for pair in zip(consumers, shares, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return act.finish()


def pattern(act: Act) -> Act:
    return from_parts(act, [f"{act.topic}-{number}" for number in range(PARTS)], re.compile(f"{act.topic}-.*"))


def partitions(act: Act) -> Act:
    act.stage.rest.create_partitioned_topic(act.topic, PARTS)
    return from_parts(act, [f"{act.topic}-partition-{number}" for number in range(PARTS)], act.topic)


def from_parts(act: Act, topics: list[str], subscribed: Any) -> Act:
    """One consumer of several topics, each with a backlog; `act.parts` have what was taken of each."""
    act.parts = [Act(act.stage, topic).fill(FROM_PART) for topic in topics]
    act.sent = [mark for part in act.parts for mark in part.sent]
    consumer = act.stage.client().subscribe(subscribed, SUBSCRIPTION, initial_position=EARLIEST)
    with act.taking(consumer):
        act.wait(len(act.sent))
        time.sleep(0.3)
    for part in act.parts:
        part.log = [taken for taken in act.log if taken.message.topic_name() == part.topic]
    return act


@dataclass
class Beside:
    """A held consumer, and on the same connection a producer and a consumer that nothing limits.

    Attributes:
        held: Of the one that is limited; what it has not got yet is its backlog.
        receipts: Of the producer.
        delays: Of each of its messages, until the consumer has it.
    """

    held: Act
    receipts: Receipts
    delays: list[float] = field(default_factory=list)


def beside_a_held_one(act: Act, free: str) -> Beside:
    client = act.stage.client()
    act.stage.warm_up(free)
    consumer = client.subscribe(free, SUBSCRIPTION)
    beside = Beside(act, Receipts(client.create_producer(free, send_timeout_millis=0)))
    free_act = Act(act.stage, free)

    def note(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        beside.delays.append(time.monotonic() - float(message.data()))
        consumer.acknowledge(message)

    with free_act.taking(consumer, note), act.taking(act.consumer(client)):
        act.wait(1)
        due = time.monotonic()
        for number in range(int(FREE_S / FREE_EACH_S)):
            time.sleep(max(0.0, due + number * FREE_EACH_S - time.monotonic()))
            beside.receipts.send(str(time.monotonic()).encode())
        wait_for(lambda: len(beside.delays) == len(beside.receipts.came) == len(beside.receipts.sent))
    act.finish(lambda: act.count_confirmed() == len(act.log))
    return beside
