"""FLOWs that may pass as they came, because all of them would be granted at once."""

from limiter.permits import RULES, CreditWindow
from tests.limiter.asking import Asking


def test_what_there_is_room_for_may_pass() -> None:
    wide, narrow = CreditWindow(1000), CreditWindow(5000, "bytes")
    consumer = Asking(wide, narrow)
    assert not consumer.permits.may_pass(1), "what an entry holds is not known yet"
    consumer.ask(5)
    assert not consumer.permits.may_pass(1), "what an entry holds is not known yet"
    consumer.receive(1, 10)
    rest = narrow.room() // 10
    assert consumer.permits.may_pass(rest), "of 10 bytes each"
    assert not consumer.permits.may_pass(rest + 1)


def test_a_flow_passes_only_with_room_at_every_limit() -> None:
    wide, narrow = CreditWindow(1000), CreditWindow(100)
    for windows in ((wide, narrow), (narrow, wide)):
        consumer = Asking(*windows)
        consumer.ask(2)
        assert consumer.permits.may_pass(narrow.room())
        assert not consumer.permits.may_pass(narrow.room() + 1)
        consumer.permits.close()


def test_nothing_passes_by_who_waits_to_know_what_entries_hold() -> None:
    window = CreditWindow(100)
    consumer, other = Asking(window), Asking(window, rules=RULES)
    consumer.ask(10)
    assert consumer.permits.may_pass(10)
    other.ask(2)
    assert other.permits in window.unsure
    assert not consumer.permits.may_pass(10)
    other.receive(1)
    assert consumer.permits.may_pass(10)


def test_nothing_passes_by_who_stands_in_line() -> None:
    window = CreditWindow(100)
    consumer, other = Asking(window), Asking(window)
    consumer.ask(80)
    other.ask(1000)
    assert other.permits in window.asking
    consumer.receive(10)
    other.receive(10)
    assert other.permits in window.asking
    assert not consumer.permits.may_pass(1)


def test_a_flow_overtakes_no_waiting_consumer_during_changes() -> None:
    """They are tuned one after the other, and only then is the room handed out."""
    window = CreditWindow(100)
    consumer, other = Asking(window), Asking(window)
    consumer.ask(10)
    other.ask(1000)
    window.horizon = 1000
    assert window.room() > 800
    assert not consumer.permits.may_pass(800)
    consumer.ask(800)
    assert (consumer.permits.at_broker < 800, other.permits.at_broker > 100) == (True, True)


def test_who_has_nothing_under_way_passes_where_there_is_room() -> None:
    assert Asking(CreditWindow(1000)).permits.may_pass(1000)


def test_nothing_passes_by_what_the_consumer_asked_for_before() -> None:
    consumer = Asking(CreditWindow(100))
    consumer.ask(1000)
    consumer.receive(1)
    assert consumer.permits.asked > 0
    assert not consumer.permits.may_pass(1)


def test_too_little_room_for_a_portion_is_none() -> None:
    consumer = Asking(CreditWindow(100))
    consumer.ask(75)
    assert consumer.permits.may_pass(1)
    consumer.ask(1)
    assert not consumer.permits.may_pass(1), "portions are worth a frame: a quarter of the horizon"


def test_nothing_is_given_to_who_is_idle() -> None:
    window = CreditWindow(10)
    idle, busy = Asking(window), Asking(window)
    idle.ask(1)
    for _ in range(30):
        busy.ask(1)
        busy.receive(1)
    assert window.room() == window.horizon
    assert not idle.permits.may_pass(1)
