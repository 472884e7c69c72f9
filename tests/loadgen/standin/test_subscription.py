"""Deliveries, type by type; in the end hypothesis against a model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.standin.entry_log import KEY_SLOTS, StandinRefusal, StoredEntry
from loadgen.standin.subscription import LOOK_AHEAD, Consumer, KeyHash, RoundRobin, SingleActive
from protocol.pulsar_pb2 import ServerError
from tests.loadgen.standin.bench import Bench, Exclusive, Failover, KeyShared, Shared
from tests.loadgen.standin.doubles import RecordingOutlet, payload


def consumers(count, permits=100):
    return [Consumer(number, RecordingOutlet(), permits=permits) for number in range(count)]


def entry(entry_id=0, key="k"):
    return StoredEntry(entry_id, 1, payload(partition_key=key))


def test_one_consumer_is_active_and_the_partitions_spread_over_them():
    three = consumers(3)
    assert [SingleActive(partition).active(three) for partition in (-1, 0, 1, 2, 3)] == [
        three[0],
        three[0],
        three[1],
        three[2],
        three[0],
    ]
    assert SingleActive(0).active([]) is None


def test_nobody_stands_in_for_an_active_consumer_that_is_not_ready():
    two = consumers(2)
    selection = SingleActive(-1)
    selection.begin(two)
    assert selection.pick(entry()) == two[0]
    two[0].permits = 0
    assert selection.pick(entry()) is None


def test_round_robin_takes_turns_and_leaves_out_who_is_not_ready():
    three = consumers(3)
    three[1].permits = 0
    selection = RoundRobin()
    selection.begin(three)
    assert [selection.pick(entry()) for _ in range(4)] == [three[0], three[2], three[0], three[2]]
    for consumer in three:
        consumer.permits = 0
    assert selection.pick(entry()) is None


def test_a_key_has_one_consumer_and_all_consumers_have_keys():
    three = consumers(3)
    selection = KeyHash()
    selection.begin(three)
    picked = {key: selection.pick(entry(key=key)) for key in map(str, range(100))}
    assert set(picked.values()) == set(three)
    assert all(selection.pick(entry(key=key)) is consumer for key, consumer in picked.items())


def test_a_key_that_changes_hands_waits_for_its_former_consumer():
    """Else the new consumer could overtake what the former one has not acknowledged."""
    consumer, other = consumers(2)
    selection = KeyHash()
    selection.begin([consumer])
    moving = next(key for key in map(str, range(100)) if entry(key=key).slot >= KEY_SLOTS // 2)
    selection.delivered(entry(0, moving), consumer)
    selection.delivered(entry(1, moving), consumer)
    selection.begin([consumer, other])
    assert selection.pick(entry(2, moving)) is None
    assert not selection.released(0)
    selection.begin([consumer, other])
    assert selection.pick(entry(2, moving)) is None
    assert selection.released(1)
    selection.begin([consumer, other])
    assert selection.pick(entry(2, moving)) is other


def test_within_a_round_a_key_that_was_passed_over_stays_passed_over():
    """Permits that come in between must not let a later entry overtake an earlier one."""
    (consumer,) = consumers(1, permits=0)
    selection = KeyHash()
    selection.begin([consumer])
    assert not selection.waits_for(consumer)
    assert selection.pick(entry(0)) is None
    assert selection.waits_for(consumer)
    consumer.permits = 5
    assert selection.pick(entry(1)) is None
    selection.begin([consumer])
    assert selection.pick(entry(0)) is consumer


def test_a_sticky_consumer_gets_the_slots_that_it_claimed():
    claimed = entry().slot
    sticky = Consumer(1, RecordingOutlet(), key_ranges=((claimed, claimed),), permits=1)
    (sharing,) = consumers(1)
    selection = KeyHash()
    selection.begin([sharing, sticky])
    assert selection.pick(entry()) is sticky
    assert selection.pick(entry(key="another")) is sharing
    selection.begin([sticky])
    assert selection.pick(entry(key="another")) is None


def test_entries_go_out_in_order_and_only_once():
    bench = Bench()
    bench.publish(3)
    bench.join()
    bench.publish(2)
    assert bench.outlet.entry_ids() == [0, 1, 2, 3, 4]


def test_nothing_goes_out_without_permits():
    bench = Bench()
    consumer = bench.join(permits=0)
    bench.publish(5)
    assert bench.outlet.entry_ids() == []
    bench.flow(consumer, 2)
    assert bench.outlet.entry_ids() == [0, 1]


def test_a_batch_may_overdraw_the_permits_and_the_debt_is_paid_first():
    bench = Bench()
    consumer = bench.join(permits=1)
    bench.publish(2, messages=10)
    assert bench.outlet.entry_ids() == [0]
    assert consumer.permits == -9
    bench.flow(consumer, 9)
    assert bench.outlet.entry_ids() == []
    bench.flow(consumer, 1)
    assert bench.outlet.entry_ids() == [1]


@given(st.lists(st.tuples(st.sampled_from(["publish", "flow 1", "flow 2"]), st.integers(1, 7)), max_size=60))
def test_no_consumer_ever_gets_more_than_its_permits_and_one_batch(steps):
    bench = Bench()
    consumers = [bench.join(1, permits=0), bench.join(2, permits=0)]
    published = 0
    for step, number in steps:
        if step == "publish":
            bench.publish(messages=number)
            published += 1
        else:
            bench.flow(consumers[int(step[-1]) - 1], number)
        assert all(consumer.permits > -7 for consumer in consumers)
    delivered = bench.outlet.entry_ids()
    assert delivered == list(range(len(delivered)))
    assert len(delivered) == published or all(consumer.permits <= 0 for consumer in consumers)


def test_a_connection_that_takes_no_more_gets_no_more():
    bench = Bench()
    bench.join()
    bench.outlet.writable = False
    bench.publish(3)
    assert bench.outlet.entry_ids() == []
    bench.outlet.writable = True
    bench.subscription.dispatch()
    assert bench.outlet.entry_ids() == [0, 1, 2]


def test_shared_consumers_take_turns():
    bench = Bench()
    bench.join(1)
    bench.join(2)
    bench.publish(6)
    assert sorted(bench.outlet.entry_ids(1) + bench.outlet.entry_ids(2)) == list(range(6))


def test_an_exclusive_subscription_has_one_consumer():
    bench = Bench(Exclusive)
    bench.join(1)
    with pytest.raises(StandinRefusal) as refused:
        bench.join(2)
    assert refused.value.error == ServerError.ConsumerBusy


def test_a_subscription_changes_its_type_only_while_nobody_is_there():
    bench = Bench(Exclusive)
    consumer = bench.join()
    bench.sub_type = Shared
    with pytest.raises(StandinRefusal) as refused:
        bench.join(2)
    assert refused.value.error == ServerError.ConsumerBusy
    bench.leave(consumer)
    bench.join(2)
    bench.join(3)
    assert len(bench.subscription.consumers) == 2


def test_failover_tells_who_is_active_and_the_next_one_gets_what_was_pending():
    bench = Bench(Failover)
    first = bench.join(1)
    bench.join(2)
    assert bench.outlet.told == [(1, True), (2, False)]
    bench.publish(3)
    assert bench.outlet.entry_ids(1) == [0, 1, 2]
    bench.subscription.acknowledge(0)
    bench.leave(first)
    assert bench.outlet.told == [(1, True), (2, False), (2, True)]
    assert bench.outlet.entry_ids(2) == [1, 2]


def test_a_consumer_that_becomes_active_takes_over_what_was_pending():
    """Partition 1 of a topic goes to the second consumer as soon as there are two."""
    bench = Bench(Failover, partition=1)
    bench.join(1)
    bench.publish(2)
    assert bench.outlet.entry_ids(1) == [0, 1]
    bench.join(2)
    assert bench.outlet.told == [(1, True), (1, False), (2, True)]
    assert bench.outlet.entry_ids(2) == [0, 1]


def test_exclusive_consumers_are_not_told_that_they_are_active():
    bench = Bench(Exclusive)
    bench.join()
    assert bench.outlet.told == []


def test_entries_of_a_consumer_that_leaves_come_before_new_ones():
    bench = Bench()
    leaving = bench.join(1, permits=3)
    bench.publish(5)
    assert bench.outlet.entry_ids(1) == [0, 1, 2]
    bench.subscription.acknowledge(1)
    bench.leave(leaving)
    bench.join(2)
    assert bench.outlet.entry_ids(2) == [0, 2, 3, 4]


def test_named_entries_come_again_to_shared_consumers_and_are_counted():
    bench = Bench()
    consumer = bench.join()
    bench.publish(4)
    bench.outlet.entry_ids()
    bench.redeliver(consumer, 1, 2)
    bench.redeliver(consumer, 2)
    assert bench.redelivery_counts() == [(1, 1), (2, 1), (2, 2)]


def test_naming_nothing_means_all():
    bench = Bench()
    consumer = bench.join()
    bench.publish(3)
    bench.outlet.entry_ids()
    bench.redeliver(consumer)
    assert bench.redelivery_counts() == [(0, 1), (1, 1), (2, 1)]


def test_an_exclusive_consumer_gets_all_again_in_order_whichever_it_names():
    bench = Bench(Exclusive)
    consumer = bench.join()
    bench.publish(4)
    bench.outlet.entry_ids()
    bench.redeliver(consumer, 2)
    assert bench.redelivery_counts() == [(0, 0), (1, 0), (2, 1), (3, 0)]


@pytest.mark.parametrize("sub_type", [Exclusive, Shared])
def test_naming_what_is_not_pending_brings_nothing(sub_type):
    bench = Bench(sub_type)
    consumer = bench.join()
    bench.publish(2)
    bench.outlet.entry_ids()
    bench.subscription.acknowledge(1)
    bench.redeliver(consumer, 1, 77)
    assert bench.outlet.entry_ids() == []


def test_an_entry_of_another_consumer_cannot_be_asked_for():
    bench = Bench()
    bench.join(1, permits=1)
    other = bench.join(2, permits=1)
    bench.publish(1)
    bench.outlet.entry_ids()
    bench.redeliver(other, 0)
    assert bench.outlet.entry_ids() == []


def test_acknowledged_entries_do_not_come_again():
    bench = Bench()
    consumer = bench.join()
    bench.publish(4)
    bench.outlet.entry_ids()
    bench.subscription.acknowledge(2)
    bench.subscription.acknowledge_up_to(0)
    bench.redeliver(consumer)
    assert bench.outlet.entry_ids() == [1, 3]


def test_acknowledging_what_does_not_exist_changes_nothing():
    bench = Bench()
    bench.join()
    bench.publish(2)
    bench.subscription.acknowledge(9)
    bench.subscription.acknowledge_up_to(2**64 - 1)
    bench.publish(1)
    assert bench.outlet.entry_ids() == [0, 1, 2]
    assert bench.subscription.cursor.position == 2


def test_a_batch_acknowledged_in_part_comes_again_with_what_is_open():
    bench = Bench()
    consumer = bench.join()
    bench.publish(1, messages=3)
    bench.subscription.acknowledge(0, [0b110])
    bench.outlet.entry_ids()
    bench.redeliver(consumer)
    ((_, delivery),) = bench.outlet.deliveries
    assert delivery.ack_set == (0b110,)


def test_a_cumulative_ack_set_acknowledges_all_before_the_batch_and_part_of_it():
    bench = Bench()
    bench.join()
    bench.publish(3, messages=2)
    bench.subscription.acknowledge_up_to(1, [0b10])
    assert bench.subscription.cursor.position == 1
    bench.subscription.acknowledge_up_to(1)
    assert bench.subscription.cursor.position == 2


def test_a_reset_delivers_again_from_there_as_if_for_the_first_time():
    bench = Bench()
    consumer = bench.join()
    bench.publish(5)
    bench.redeliver(consumer)
    bench.subscription.acknowledge_up_to(3)
    bench.outlet.entry_ids()
    bench.subscription.reset(1)
    bench.subscription.dispatch()
    assert bench.redelivery_counts() == [(1, 0), (2, 0), (3, 0), (4, 0)]


def key_of_consumer(bench, consumer_id):
    """A key that goes to this consumer; what it published is acknowledged again."""
    for key in map(str, range(100)):
        bench.publish(key=key)
        bench.subscription.acknowledge(bench.log.next_id - 1)
        if bench.outlet.entry_ids(consumer_id):
            return key
    raise AssertionError(f"no key for consumer {consumer_id}")


def test_a_key_without_a_ready_consumer_holds_up_no_other_key():
    bench = Bench(KeyShared)
    slow, quick = bench.join(1), bench.join(2)
    slow_key, quick_key = key_of_consumer(bench, 1), key_of_consumer(bench, 2)
    slow.permits, quick.permits = 0, 100
    bench.outlet.entry_ids()
    start = bench.log.next_id
    for key in (slow_key, quick_key, slow_key, quick_key):
        bench.publish(key=key)
    assert bench.outlet.entry_ids() == [start + 1, start + 3]
    bench.flow(slow, 10)
    assert bench.outlet.entry_ids(1) == [start, start + 2]


def test_looking_ahead_has_an_end():
    """Else one slow consumer would make each round walk through the whole backlog."""
    bench = Bench(KeyShared)
    slow, quick = bench.join(1), bench.join(2)
    slow_key, quick_key = key_of_consumer(bench, 1), key_of_consumer(bench, 2)
    slow.permits, quick.permits = 0, 10
    bench.outlet.entry_ids()
    for _ in range(LOOK_AHEAD):
        bench.log.append(1, payload(partition_key=slow_key))
    bench.publish(key=quick_key)
    assert bench.outlet.entry_ids() == []
    bench.flow(slow, 1)
    bench.subscription.dispatch()
    assert bench.outlet.entry_ids(2) == [bench.log.next_id - 1]


def test_a_reset_forgets_what_was_passed_over():
    bench = Bench(KeyShared)
    slow, quick = bench.join(1), bench.join(2)
    slow_key = key_of_consumer(bench, 1)
    slow.permits = 0
    bench.outlet.entry_ids()
    bench.publish(3, key=slow_key)
    assert bench.outlet.entry_ids() == []
    bench.subscription.reset(0)
    for consumer in (slow, quick):
        bench.flow(consumer, 1000)
    assert sorted(bench.outlet.entry_ids()) == list(range(bench.log.next_id))


def test_what_was_passed_over_is_not_looked_at_again_without_a_reason():
    """Else each new entry would cost a walk through all that wait for a slow consumer."""
    bench = Bench(KeyShared)
    slow, quick = bench.join(1), bench.join(2)
    slow_key, quick_key = key_of_consumer(bench, 1), key_of_consumer(bench, 2)
    slow.permits = 0
    bench.outlet.entry_ids()
    bench.publish(50, key=slow_key)
    before = bench.log.looks
    bench.publish(key=quick_key)
    bench.subscription.acknowledge(bench.log.next_id - 1)
    bench.flow(quick, 10)
    assert bench.log.looks - before < 10
    bench.flow(slow, 100)
    assert len(bench.outlet.entry_ids(1)) == 50


def test_an_acknowledgement_wakes_a_subscription_whose_keys_wait_for_it():
    bench = Bench(KeyShared)
    bench.join(1)
    for key in map(str, range(20)):
        bench.publish(key=key)
    bench.join(2)
    for key in map(str, range(20)):
        bench.publish(key=key)
    waiting = 40 - len(bench.outlet.entry_ids())
    assert waiting > 0
    before = bench.wakes
    bench.subscription.acknowledge_up_to(19)
    assert bench.wakes > before
    bench.subscription.dispatch()
    assert len(bench.outlet.entry_ids(2)) == waiting


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "flow", "join", "leave", "acknowledge", "redeliver", "block", "unblock"]),
        st.integers(0, 5),
    ),
    max_size=80,
)


class Drill:
    """Takes random steps and keeps its own book of where each entry is."""

    def __init__(self, sub_type):
        self.bench = Bench(sub_type)
        self.most = 1 if sub_type == Exclusive else 3
        self.consumers = []
        self.joined = 0
        self.key_of = []
        self.pending = {}
        self.acknowledged = set()
        self.delivered_by_key = {}

    def step(self, action, number):
        getattr(self, action)(number)
        self.observe()

    def observe(self):
        deliveries, self.bench.outlet.deliveries = self.bench.outlet.deliveries, []
        for consumer_id, delivery in deliveries:
            entry_id = delivery.entry.entry_id
            assert entry_id not in self.acknowledged
            assert self.pending.get(entry_id) is None
            self.pending[entry_id] = consumer_id
            self.delivered_by_key.setdefault(self.key_of[entry_id], []).append(entry_id)

    def publish(self, number):
        self.key_of.append(str(number))
        self.bench.publish(key=str(number))

    def flow(self, number):
        if self.consumers:
            self.bench.flow(self.consumers[number % len(self.consumers)], number)

    def join(self, number):
        if len(self.consumers) < self.most:
            self.joined += 1
            self.consumers.append(self.bench.join(self.joined, permits=number))

    def leave(self, number):
        if self.consumers:
            consumer = self.consumers.pop(number % len(self.consumers))
            self.forget_pending(consumer.consumer_id)
            self.bench.leave(consumer)

    def acknowledge(self, number):
        if self.pending:
            entry_id = sorted(self.pending)[number % len(self.pending)]
            del self.pending[entry_id]
            self.acknowledged.add(entry_id)
            self.bench.subscription.acknowledge(entry_id)
            self.bench.subscription.dispatch()

    def redeliver(self, number):
        if self.consumers:
            consumer = self.consumers[number % len(self.consumers)]
            self.forget_pending(consumer.consumer_id)
            self.bench.redeliver(consumer)

    def block(self, _):
        self.bench.outlet.writable = False

    def unblock(self, _):
        self.bench.outlet.writable = True
        for consumer in self.consumers:
            self.bench.subscription.resume(consumer)
        self.bench.subscription.dispatch()

    def forget_pending(self, consumer_id):
        self.pending = {entry_id: holder for entry_id, holder in self.pending.items() if holder != consumer_id}

    def finish(self):
        """Give everybody permits and acknowledge everything, until nothing moves any more."""
        self.step("unblock", 0)
        if not self.consumers:
            self.step("join", 5)
        for consumer in self.consumers:
            self.bench.flow(consumer, 10_000)
            self.observe()
        while self.pending:
            self.step("acknowledge", 0)


@pytest.mark.parametrize(
    "sub_type", [Exclusive, Shared, Failover, KeyShared], ids=["excl", "shared", "failover", "key"]
)
@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_every_entry_is_delivered_until_it_is_acknowledged(sub_type, steps):
    drill = Drill(sub_type)
    for action, number in steps:
        drill.step(action, number)
    drill.finish()
    assert drill.acknowledged == set(range(drill.bench.log.next_id))
    assert drill.bench.subscription.cursor.position == drill.bench.log.next_id


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_a_key_is_with_one_consumer_at_a_time_and_in_order(steps):
    drill = Drill(KeyShared)
    for action, number in steps:
        if action in {"redeliver", "leave"}:
            continue  # what comes again is out of order by nature
        drill.step(action, number)
        holders: dict[str, int] = {}
        for entry_id, holder in drill.pending.items():
            assert holders.setdefault(drill.key_of[entry_id], holder) == holder
    drill.finish()
    for entry_ids in drill.delivered_by_key.values():
        assert entry_ids == sorted(entry_ids)
