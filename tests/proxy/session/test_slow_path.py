"""What becomes of frames one by one: those of chunks that did not pass whole."""

from protocol.frames import MESSAGE
from proxy.budgets import ENTRY_OVERHEAD
from tests.proxy.relay_rig import RelayRig
from tests.proxy.wire import PING, PONG, close_producer, message, send, sends

FRAME = len(send(0))
HELD = FRAME + ENTRY_OVERHEAD


def test_a_held_entry_takes_memory_until_it_is_released() -> None:
    rig = RelayRig([1])
    rig.feed(b"".join(sends(3)))
    assert rig.budget.used == 2 * HELD
    rig.advance(1)
    assert rig.budget.used == HELD
    rig.advance(1)
    assert rig.budget.used == 0


def test_a_command_waits_behind_what_its_stream_holds() -> None:
    rig = RelayRig([1, None])
    rig.feed(b"".join([*sends(2), close_producer(1), PING]))
    assert rig.frames() == [send(0), PING]
    rig.advance(1)
    assert rig.frames() == [send(1), close_producer(1)]
    assert rig.budget.used == 0


def test_last_command_of_a_read_is_written_at_once() -> None:
    rig = RelayRig([])
    rig.sender.soon = []
    rig.feed(PING)
    assert (rig.writes, rig.frames()) == (1, [PING])
    rig.feed(PING + PONG + PING)
    assert (rig.writes, rig.frames()) == (2, [PING, PONG, PING])


def test_while_something_is_held_no_frame_goes_out_in_parts() -> None:
    """Else what is released meanwhile could leave only behind it: late, and at once, against the limit."""
    rig = RelayRig([1, None])
    rig.feed(b"".join(sends(2, 1)))
    large = send(0, 2, size=500)
    rig.feed(large[:100])
    rig.advance(1)
    assert rig.frames() == [send(0), send(1)]
    rig.feed(large[100:] + send(1, 2))
    assert rig.frames() == [large, send(1, 2)]


def test_what_nobody_was_let_in_for_goes_nowhere_with_all_its_parts() -> None:
    rig = RelayRig([None])
    strange = send(0, 4, size=500)
    rig.feed(strange[:100])
    assert rig.relay.keeps_the_rest
    rig.feed(strange[100:300])
    rig.feed(strange[300:] + send(1))
    assert not rig.relay.keeps_the_rest
    assert rig.frames() == [send(1)]
    assert rig.counters.entries_ignored == 1


def test_an_entry_that_must_wait_is_held_once_all_of_it_has_come() -> None:
    rig = RelayRig([1])
    large = send(1, size=500)
    rig.feed(send(0) + large[:100])
    rig.feed(large[100:300])
    (stream,) = rig.relay.streams.values()
    assert (len(stream.held), rig.budget.used) == (0, 0)
    rig.feed(large[300:])
    assert [entry.frame for entry in stream.held] == [large]
    assert rig.budget.used == len(large) + ENTRY_OVERHEAD
    rig.advance(1)
    assert rig.frames() == [send(0), large]


def test_of_a_frame_that_is_abandoned_nothing_goes_on_and_it_counts_as_dropped() -> None:
    rig = RelayRig([1])
    large = send(1, messages=3, size=500)
    rig.feed(send(0) + large[:100])
    rig.relay.abandon()
    rig.feed(large[100:] + PING)
    assert rig.frames() == [send(0), PING]
    (stream,) = rig.relay.streams.values()
    assert (stream.usage.dropped_messages, rig.held.used) == (3, 0)


def test_what_comes_for_a_stream_that_is_over_is_dropped() -> None:
    rig = RelayRig([1], kind=MESSAGE)
    (stream,) = rig.relay.streams.values()
    stream.is_open = False
    rig.feed(message(0, 1) + message(1, 1))
    assert rig.frames() == [message(0, 1)]
    assert (len(stream.held), stream.usage.dropped_messages, rig.budget.used) == (0, 1, 0)


def test_what_is_given_back_takes_no_memory_any_more() -> None:
    rig = RelayRig([1])
    rig.feed(b"".join(sends(3)))
    (stream,) = rig.relay.streams.values()
    rig.relay.give_back(stream, rig.scheduler.drop_held(stream, rig.clock()))
    assert (rig.relay.holds_any(), rig.budget.used) == (False, 0)
