"""What one consumer has under way, as limits count it."""

import pytest

from limiter.permits import DispatchRules, InFlight

PRECISE, PLAIN = DispatchRules(), DispatchRules(is_precise=False)
BY_ENTRY = DispatchRules(is_precise=False, by_entry=True)


def after_batches_of_ten(rules: DispatchRules) -> InFlight:
    """Two batches of ten, 500 bytes each, have passed; five permits are at the broker."""
    under_way = InFlight(rules)
    under_way.at_broker = 5
    under_way.learn(2, 20, 1000)
    return under_way


@pytest.mark.parametrize(("rules", "messages"), [(PRECISE, 50), (PLAIN, 5), (BY_ENTRY, 5)])
def test_a_permit_at_the_broker_stands_for_an_entry(rules: DispatchRules, messages: int) -> None:
    under_way = after_batches_of_ten(rules)
    assert (under_way.amount("messages"), under_way.amount("bytes")) == (messages, 2500)


@pytest.mark.parametrize(("rules", "messages"), [(PRECISE, 60), (PLAIN, 15), (BY_ENTRY, 6)])
def test_what_is_held_counts_as_what_it_is(rules: DispatchRules, messages: int) -> None:
    under_way = after_batches_of_ten(rules)
    under_way.hold(1, 10, 500)
    assert (under_way.amount("messages"), under_way.amount("bytes")) == (messages, 3000)
    under_way.hold(-1, -10, -500)
    assert not under_way.is_nothing


@pytest.mark.parametrize(("rules", "permits"), [(PRECISE, 2), (PLAIN, 11), (BY_ENTRY, 11)])
def test_permits_for_a_share_reach_to_the_next_whole_entry(rules: DispatchRules, permits: int) -> None:
    under_way = after_batches_of_ten(rules)
    assert under_way.permits_for(11, "messages") == permits
    assert under_way.permits_for(501, "bytes") == 2


def test_one_entry_is_asked_for_before_the_first_comes() -> None:
    under_way = InFlight(PRECISE)
    assert under_way.permits_for(1000, "messages") == under_way.permits_for(10**6, "bytes") == 1
    under_way.at_broker = 1
    assert under_way.permits_for(1000, "messages") == under_way.permits_for(10**6, "bytes") == 0


def test_where_a_permit_is_one_message_nothing_needs_to_be_known() -> None:
    assert InFlight(PLAIN).permits_for(1000, "messages") == 1000
    assert InFlight(BY_ENTRY).permits_for(1000, "messages") == 1000


def test_an_overdrawn_consumer_may_have_nothing_under_way() -> None:
    under_way = InFlight(PRECISE)
    under_way.at_broker = 1 - 50
    under_way.hold(1, 50, 5000)
    under_way.learn(1, 50, 5000)
    assert under_way.overdrawn == 49
    assert not under_way.is_nothing
    under_way.hold(-1, -50, -5000)
    assert under_way.is_nothing
    assert under_way.amount("messages") == under_way.amount("bytes") == 0


def test_a_consumer_waiting_for_the_broker_has_permits_there() -> None:
    under_way = InFlight(PLAIN)
    assert not under_way.waits_for_broker
    under_way.at_broker = 2
    assert under_way.waits_for_broker
    under_way.hold(1, 1, 100)
    assert not under_way.waits_for_broker


@pytest.mark.parametrize(("rules", "messages"), [(PRECISE, 12), (PLAIN, 12), (BY_ENTRY, 3)])
def test_a_delivery_is_to_limits_what_they_count(rules: DispatchRules, messages: int) -> None:
    under_way = InFlight(rules)
    assert under_way.counted(3, 12, 500, "messages") == messages
    assert under_way.counted(3, 12, 500, "bytes") == 500
