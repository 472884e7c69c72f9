"""Key_Shared: keys stay with their consumers, and a slow one holds up only its own."""

from loadgen.standin.subscription import LOOK_AHEAD
from tests.loadgen.standin.bench import Bench, KeyShared
from tests.loadgen.standin.doubles import payload


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
