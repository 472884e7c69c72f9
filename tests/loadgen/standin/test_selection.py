from loadgen.standin.consumer import Consumer
from loadgen.standin.entry import KEY_SLOTS, Entry
from loadgen.standin.selection import KeyHash, RoundRobin, SingleActive
from tests.loadgen.standin.doubles import RecordingOutlet, payload


def consumers(count, permits=100):
    return [Consumer(number, RecordingOutlet(), permits=permits) for number in range(count)]


def entry(entry_id=0, key="k"):
    return Entry(entry_id, 1, payload(partition_key=key))


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
    one, two = consumers(2)
    selection = KeyHash()
    selection.begin([one])
    moving = next(key for key in map(str, range(100)) if entry(key=key).slot >= KEY_SLOTS // 2)
    selection.delivered(entry(0, moving), one)
    selection.delivered(entry(1, moving), one)
    selection.begin([one, two])
    assert selection.pick(entry(2, moving)) is None
    assert not selection.released(0)
    selection.begin([one, two])
    assert selection.pick(entry(2, moving)) is None
    assert selection.released(1)
    selection.begin([one, two])
    assert selection.pick(entry(2, moving)) is two


def test_within_a_round_a_key_that_was_passed_over_stays_passed_over():
    """Permits that come in between must not let a later entry overtake an earlier one."""
    (one,) = consumers(1, permits=0)
    selection = KeyHash()
    selection.begin([one])
    assert not selection.waits_for(one)
    assert selection.pick(entry(0)) is None
    assert selection.waits_for(one)
    one.permits = 5
    assert selection.pick(entry(1)) is None
    selection.begin([one])
    assert selection.pick(entry(0)) is one


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
