"""What may become of consumers and their subscription while deliveries are held and permits are withheld."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pulsar

from tests.real.intake import SUBSCRIPTION, Act, Treat

SHARED = pulsar.ConsumerType.Shared
FAILOVER = pulsar.ConsumerType.Failover
KEY_SHARED = pulsar.ConsumerType.KeyShared
UNACKED_TIMEOUT_S = 10
"""The shortest that the client takes."""
ACKNOWLEDGED = 40
"""So many messages are, before all others are asked for again."""
SOUGHT, LATE = 30, 100
"""The message that is sought by its id, and the one by its time."""


def put_off(act: Act, every: int, how: Callable[[pulsar.Consumer, pulsar.Message], None]) -> Treat:
    """What a consumer does that at first does not acknowledge each so-manieth message."""

    def treat(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        if act.index(message) % every == 0 and message.redelivery_count() == 0:
            how(consumer, message)
        else:
            consumer.acknowledge(message)

    return treat


def came_twice(act: Act, every: int) -> bool:
    """Whether all of those did, and all others came."""
    copies = Counter(act.indexes)
    return len(copies) == len(act.sent) and all(copies[index] > 1 for index in range(0, len(act.sent), every))


def negative_acks(act: Act) -> Act:
    consumer = act.consumer(consumer_type=SHARED, negative_ack_redelivery_delay_ms=300)
    with act.taking(consumer, put_off(act, 3, pulsar.Consumer.negative_acknowledge)):
        return act.finish(lambda: came_twice(act, 3))


def unacked_timeout(act: Act) -> Act:
    consumer = act.consumer(consumer_type=SHARED, unacked_messages_timeout_ms=UNACKED_TIMEOUT_S * 1000)
    with act.taking(consumer, put_off(act, 10, lambda *_: None)):
        return act.finish(lambda: came_twice(act, 10))


def redeliver_all(act: Act) -> Act:
    """Of an Exclusive consumer, as its negative acknowledgements and timeouts do as well.

    It asks while Sluice holds an entry and the broker is at rest: one that is just reading (Pulsar 4.0.8) goes back
    and reads on all the same, and what it sends then is in no order.
    """
    first_time, came_again = set[int](), threading.Event()

    def treat(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        index = act.index(message)
        if index in first_time:
            came_again.set()
        first_time.add(index)
        if index < ACKNOWLEDGED or came_again.is_set():
            consumer.acknowledge(message)

    consumer = act.consumer()
    with act.taking(consumer, treat):
        act.wait(60)
        time.sleep(0.3)
        consumer.redeliver_unacknowledged_messages()
        return act.finish_again(ACKNOWLEDGED)


def seek_by_id(act: Act) -> Act:
    consumer = act.consumer(start_message_id_inclusive=True)
    with act.taking(consumer):
        act.wait(60)
        consumer.seek(act.log[SOUGHT].message.message_id())
        return act.finish_again(SOUGHT)


def seek_by_time(act: Act) -> Act:
    """Back to the second half."""
    time.sleep(0.01)  # times are whole milliseconds
    act.fill(100)
    consumer = act.consumer()
    with act.taking(consumer):
        act.wait(130)
        consumer.seek(act.log[LATE].message.publish_timestamp())
        return act.finish_again(LATE)


def seek_to_end(act: Act) -> Act:
    """Nothing comes until something is sent."""
    consumer = act.consumer()
    with act.taking(consumer):
        act.wait(60)
        consumer.seek(pulsar.MessageId.latest)
        taken = len(act.log)
        time.sleep(0.5)
        act.fill(5)
        return act.finish(lambda: len(act.log) >= taken + 5)


def unsubscribe(act: Act) -> Act:
    """And subscribe by the same name at once: from the beginning."""
    consumer = act.consumer()
    with act.taking(consumer):
        act.wait(60)
        consumer.unsubscribe()
    assert SUBSCRIPTION not in act.stage.rest.stats(act.topic)["subscriptions"]
    all_again = len(act.log) + len(act.sent)
    with act.taking(act.consumer()):
        return act.finish(lambda: len(act.log) >= all_again)


def close_and_come_again(act: Act) -> Act:
    client = act.stage.client()
    for part in range(1, 4):
        consumer = act.consumer(client)
        with act.taking(consumer):
            act.wait(part * 40)
        consumer.close()  # by now nobody takes: what is acknowledged while it closes may come again
    with act.taking(act.consumer(client)):
        return act.finish()


def leave_to_others(act: Act) -> Act:
    """Of two consumers the first one's connection ends, with all its permits."""
    going = act.stage.client()
    with act.taking(act.consumer(consumer_type=SHARED)):
        with act.taking(act.consumer(going, consumer_type=SHARED)):
            act.wait(80)
            act.note_confirmed(40)
            going.shutdown()
        return act.finish()


def unload(act: Act) -> Act:
    """The broker closes the consumer, twice; the client comes again by itself."""
    with act.taking(act.consumer()):
        for count in (60, 150):
            act.wait(count)
            act.note_confirmed(count // 2)
            act.stage.rest.unload(act.topic)
        return act.finish()


def failover(act: Act) -> Act:
    """Whoever is active closes, and comes again; twice."""
    with ExitStack() as intakes:
        consumers = {}

        def enter(name: str) -> None:
            consumers[name] = act.consumer(consumer_type=FAILOVER, consumer_name=name)
            intakes.enter_context(act.taking(consumers[name]))

        for name in "abc":
            enter(name)
        for count in (100, 200):
            act.wait(count)
            act.note_confirmed(count // 2)
            active = act.log[-1].by
            consumers[active].close()
            act.wait(len(act.log) + 20)
            enter(active)
        return act.finish()


def key_shared_joined(act: Act) -> Act:
    """Two consumers are joined by a third."""
    return _key_shared(act, leaves=False)


def key_shared_left(act: Act) -> Act:
    """Two consumers are joined by a third, and then one of them leaves."""
    return _key_shared(act, leaves=True)


def _key_shared(act: Act, *, leaves: bool) -> Act:
    with ExitStack() as intakes:

        def enter(name: str) -> pulsar.Consumer:
            consumer = act.consumer(consumer_type=KEY_SHARED, consumer_name=name)
            intakes.enter_context(act.taking(consumer))
            return consumer

        enter("stays")
        going = enter("goes")
        act.wait(80)
        enter("joins")
        act.wait(160)
        if leaves:
            going.close()
        return act.finish()
