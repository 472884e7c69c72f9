"""One consumer's permits: never more than it asked for, never fewer than it needs."""

from collections import OrderedDict
from itertools import product

import pytest

from limiter.permits import MOST_ASKED, RULES, CreditWindow, DispatchRules, InFlight, Permits
from limiter.usage import StreamUsage
from tests.limiter.asking import PLAIN, Asking
from tests.manual_clock import ManualClock


class Turns(OrderedDict[Permits, None]):
    """A line of those who ask, which notes whose turn it was."""

    def __init__(self, turns: list[Permits]) -> None:
        super().__init__()
        self._turns = turns

    def move_to_end(self, key: Permits, last: bool = True) -> None:  # noqa: FBT001, FBT002 - as its base has it
        self._turns.append(key)
        super().move_to_end(key, last)


BY_ENTRY = DispatchRules(is_precise=False, by_entry=True)


def test_a_consumer_without_limits_gets_all_it_asks_for() -> None:
    consumer = Asking()
    consumer.ask(1000)
    assert consumer.granted == 1000


def test_what_entries_hold_is_learnt_once_a_consumer_is_limited() -> None:
    """A consumer without limits costs a count of its permits, and nothing else."""
    consumer = Asking(rules=RULES)
    consumer.ask(1000)
    consumer.receive(50, 5000)
    consumer.arrive(50, 5000)
    consumer.pass_one()
    learnt = consumer.permits._under_way._mean
    assert (learnt.messages, learnt.size, consumer.permits.at_broker) == (0, 0, 900)
    consumer.permits.rewire((CreditWindow(200),))
    consumer.receive(50, 5000)
    assert (learnt.messages, learnt.size, consumer.permits.at_broker) == (50, 5000, 850)


def test_a_receiver_queue_comes_in_portions_as_messages_leave() -> None:
    consumer = Asking(CreditWindow(20))
    consumer.ask(1000)
    assert consumer.granted == 20
    consumer.receive(4)
    assert consumer.granted == 20, "portions are worth a frame: a quarter of the horizon"
    consumer.receive(1)
    assert consumer.granted == 25


def test_permits_asked_for_are_bounded_as_the_broker_counts() -> None:
    """Without an end it would be written in ever more FLOWs, all at once, when its limit goes."""
    consumer = Asking(CreditWindow(20))
    for _ in range(3):
        consumer.ask(2**31)
    assert consumer.permits.asked == MOST_ASKED
    consumer.permits.ask_again(2**31)
    consumer.permits.rewire(())
    assert consumer.permits.asked == 0
    assert consumer.granted == MOST_ASKED + 20


def test_idle_consumers_sitting_on_permits_starve_nobody() -> None:
    window = CreditWindow(10)
    for _ in range(50):
        Asking(window).ask(1000)
    late = Asking(window)
    late.ask(5)
    assert late.granted == 1
    for _ in range(4):
        late.receive_all()
    assert late.granted == 5


def test_messages_of_one_consumer_are_room_for_another_that_asks() -> None:
    """It waited for messages of its own, though it was the other who had asked for no more."""
    window = CreditWindow(100)
    done, waiting = Asking(window), Asking(window)
    done.ask(100)
    waiting.ask(1000)
    assert waiting.granted == 50
    done.receive(100)
    assert waiting.granted == 100


def test_of_two_limits_the_one_without_room_decides() -> None:
    wide, narrow = CreditWindow(100), CreditWindow(10)
    Asking(narrow).ask(10)
    both, other = Asking(wide, narrow), Asking(wide)
    both.ask(1000)
    assert (both.granted, narrow.under_way) == (5, 15), "its share, as it had nothing under way"
    other.ask(40)
    other.receive_all()
    assert (both.granted, narrow.under_way) == (5, 15)


def test_a_consumer_waits_at_the_window_without_room_alone() -> None:
    wide, narrow = CreditWindow(100), CreditWindow(10)
    blocks, both = Asking(narrow), Asking(wide, narrow)
    blocks.ask(10)
    both.ask(1000)
    assert (list(wide.asking), list(narrow.asking)) == ([], [both.permits])
    filling = Asking(wide)
    filling.ask(1000)
    assert wide.room() < 1
    blocks.receive(10)
    assert (list(wide.asking), list(narrow.asking)) == ([filling.permits, both.permits], [])
    before = both.granted
    filling.receive(50)
    assert both.granted == before + 5, "all that is left of the narrow one, when its turn at the wide one comes"
    assert narrow.room() == 0


@pytest.mark.parametrize("consumers", [20, 200])
def test_a_delivery_asks_few_consumers_however_many_wait(
    consumers: int,
) -> None:
    """A wide limit for all, where there is always room, and a narrow one for each."""
    wide = CreditWindow(200_000)
    narrow = [CreditWindow(4) for _ in range(consumers)]
    turns: list[Permits] = []
    for window in (wide, *narrow):
        window.asking = Turns(turns)
    all_of_them = [Asking(wide, own, rules=RULES) for own in narrow]
    for consumer in all_of_them:
        consumer.ask(1000)
        consumer.receive(1)
    for _, consumer in product(range(10), all_of_them):
        consumer.receive(1)
    deliveries = 10 * consumers
    assert deliveries <= len(turns) <= 3 * deliveries


def test_a_consumer_that_leaves_a_window_frees_its_room() -> None:
    window, other = CreditWindow(100), CreditWindow(100)
    leaves, stays = Asking(window), Asking(window)
    leaves.ask(100)
    stays.ask(1000)
    leaves.permits.rewire((other,))
    assert (stays.granted, window.under_way, other.under_way) == (100, 100, 100)


def test_an_overdrawn_consumer_is_granted_its_overdraft() -> None:
    """Ten permits, a batch of thirty: the broker's counter is -20, and it delivers again only above 0."""
    consumer = Asking(CreditWindow(10))
    consumer.ask(10)
    consumer.receive(30)
    consumer.ask(100)
    assert consumer.granted == 10 + 20 + 10
    assert consumer.permits.at_broker == 10


def test_dropped_deliveries_are_asked_for_again_on_request_only() -> None:
    for again, expected in ((True, 30), (False, 20)):
        consumer = Asking(CreditWindow(20))
        consumer.ask(20)
        consumer.arrive(10)
        consumer.drop(again=again)
        assert consumer.granted == expected


def test_the_permits_of_a_consumer_that_ends_are_free_for_others() -> None:
    window = CreditWindow(100)
    ends, stays = Asking(window), Asking(window)
    ends.ask(100)
    stays.ask(1000)
    ends.permits.close()
    assert stays.granted == 100
    assert window.under_way == 100


def test_of_a_consumer_that_ends_nothing_is_withheld_any_more() -> None:
    consumer = Asking(CreditWindow(10))
    consumer.ask(1000)
    assert (consumer.permits.asked, consumer.usage.withheld.is_running) == (990, True)
    consumer.permits.close()
    assert (consumer.permits.asked, consumer.usage.withheld.is_running) == (0, False)


def test_equal_consumers_get_equal_permits() -> None:
    window = CreditWindow(40)
    consumers = [Asking(window) for _ in range(4)]
    for consumer in consumers:
        consumer.ask(1000)
    for _, consumer in product(range(50), consumers):
        consumer.receive_all()
    granted = [consumer.granted for consumer in consumers]
    assert max(granted) - min(granted) <= 40
    assert min(granted) >= 400


def test_what_arrived_and_is_held_is_still_under_way() -> None:
    window = CreditWindow(20)
    consumer = Asking(window)
    consumer.ask(1000)
    for _ in range(20):
        consumer.arrive(1)
    assert (consumer.granted, window.room(), consumer.permits.at_broker) == (20, 0, 0)
    consumer.pass_one()
    assert consumer.granted == 20, "a portion is worth a frame"
    for _ in range(4):
        consumer.pass_one()
    assert consumer.granted == 25


def test_the_first_permit_shows_the_size_of_entries() -> None:
    """A broker may send an entry for each permit: twenty of fifty each would be five times what the limit can pass."""
    consumer = Asking(CreditWindow(200), rules=RULES)
    consumer.ask(1000)
    assert consumer.granted == 1
    consumer.receive(50)
    assert (consumer.granted, consumer.permits.at_broker) == (1 + 49 + 4, 4)


def test_a_held_consumer_rises_above_zero_only_as_room_comes() -> None:
    window = CreditWindow(20)
    consumer = Asking(window, rules=RULES)
    consumer.ask(1000)
    consumer.arrive(50)
    assert (consumer.granted, consumer.permits.at_broker, window.room()) == (1, -49, -30)
    consumer.pass_one()
    assert (consumer.granted, consumer.permits.at_broker, window.room()) == (51, 1, -30)


def test_a_zero_receiver_queue_goes_permit_by_permit() -> None:
    consumer = Asking(CreditWindow(2), rules=RULES)
    for number in range(1, 6):
        consumer.ask(1)
        assert (consumer.granted, consumer.permits.at_broker) == (number, 1)
        consumer.receive(1)


def test_a_zero_receiver_queue_pays_for_a_batch_permit_by_permit() -> None:
    consumer = Asking(CreditWindow(2), rules=RULES)
    consumer.ask(1)
    consumer.receive(5)
    for number in range(1, 6):
        consumer.ask(1)
        assert (consumer.granted, consumer.permits.at_broker) == (1 + number, number - 4)


def test_bytes_are_metered_by_the_size_of_entries() -> None:
    consumer = Asking(CreditWindow(10_000, "bytes"), rules=RULES)
    consumer.ask(1000)
    assert consumer.granted == 1, "as long as nothing is known, one entry"
    consumer.receive(1, 1000)
    assert consumer.permits.at_broker == 10


def test_the_narrower_of_messages_and_bytes_decides() -> None:
    both = CreditWindow(40), CreditWindow(10_000, "bytes")
    for size, expected in ((100, 40), (1000, 10)):
        consumer = Asking(*both, rules=RULES)
        consumer.ask(1000)
        consumer.receive(1, size)
        assert consumer.permits.at_broker == expected
        consumer.permits.close()


def test_where_an_entry_counts_as_one_a_permit_is_one() -> None:
    window = CreditWindow(10)
    consumer = Asking(window, rules=BY_ENTRY)
    consumer.ask(1000)
    assert consumer.granted == 10
    consumer.arrive(50)
    assert (consumer.granted, consumer.permits.at_broker, window.under_way) == (10 + 40 + 9, 9, 10)


def test_bytes_that_have_passed_are_room_again() -> None:
    window = CreditWindow(10_000, "bytes")
    consumer = Asking(window, rules=RULES)
    consumer.ask(1000)
    consumer.arrive(1, 1000)
    assert (consumer.permits.at_broker, window.room()) == (9, 0)
    consumer.pass_one()
    assert (consumer.permits.at_broker, window.room()) == (9, 1000)


def test_the_time_of_withheld_permits_is_measured() -> None:
    clock = ManualClock()
    usage = StreamUsage()
    permits = Permits(usage, lambda permits: None, lambda: None, PLAIN, clock)
    permits.rewire((CreditWindow(10),))
    permits.ask(10)
    assert not usage.withheld.is_running
    clock.now = 5
    permits.ask(4)
    clock.now = 7
    permits.ask(4)
    clock.now = 9
    assert (permits.asked, usage.withheld.running_ns(9)) == (8, 4)
    permits.crossed(10, 10, 0)
    assert (permits.asked, usage.withheld.is_running) == (0, False)


def test_partly_acked_batches_leave_at_most_a_receiver_queue() -> None:
    """The broker takes permits for the rest of such a batch only, and the client asks again for the rest only."""
    batch, rest, queue = 10, 4, 100
    consumer = Asking(CreditWindow(20), rules=RULES)
    consumer.ask(queue)
    received = 0
    for _ in range(1000):
        assert 0 < consumer.granted - received <= queue, "nor is it ever stuck"
        consumer.receive(batch)
        received += rest
        consumer.ask(rest)


def test_no_more_is_withheld_than_a_broker_can_count() -> None:
    """Else who asks a million times for all there is gets a million FLOWs at once when its limit goes."""
    consumer = Asking(CreditWindow(20))
    for _ in range(10):
        consumer.ask(2**32 - 1)
        consumer.permits.ask_again(2**31)
    assert consumer.permits.asked == MOST_ASKED
    consumer.permits.rewire(())
    assert consumer.granted == 20 + MOST_ASKED


def test_a_consumer_waiting_for_the_broker_has_permits_there() -> None:
    under_way = InFlight(PLAIN)
    assert not under_way.waits_for_broker
    under_way.at_broker = 2
    assert under_way.waits_for_broker
    under_way.hold(1, 1, 100)
    assert not under_way.waits_for_broker
