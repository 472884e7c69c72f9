import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.standin.refusal import Refused
from protocol.pulsar_pb2 import ServerError
from tests.loadgen.standin.bench import Bench, Exclusive, Failover, Shared


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
    with pytest.raises(Refused) as refused:
        bench.join(2)
    assert refused.value.error == ServerError.ConsumerBusy


def test_a_subscription_changes_its_type_only_while_nobody_is_there():
    bench = Bench(Exclusive)
    consumer = bench.join()
    bench.sub_type = Shared
    with pytest.raises(Refused) as refused:
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


def test_what_is_pending_with_a_consumer_that_leaves_goes_to_the_others_before_anything_new():
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
