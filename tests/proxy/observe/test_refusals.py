"""What clients are refused, in the access log."""

from accesslog.record import HeartbeatLine, RejectLine
from proxy.observe.connection import MOST_LINES, MOST_TEXT, Connection, Refusals
from tests.proxy.conversation import World
from tests.proxy.wire import TOPIC, lookup, producer


def test_refusals_of_one_connection_for_one_reason_are_one_line():
    refusals, connection = Refusals(), Connection(1)
    for number in range(3):
        refusals.note(connection, "blocked", f"topic-{number}", "no")
    refusals.note(connection, "lookup_rate_per_address", "", "too often")
    assert [(each.reason, each.topic, each.refused) for each in refusals.take()] == [
        ("blocked", "topic-2", 3),
        ("lookup_rate_per_address", "", 1),
    ]
    assert refusals.take() == []


def test_what_is_too_much_for_lines_of_its_own_is_summed_up():
    refusals = Refusals()
    for number in range(MOST_LINES + 5):
        refusals.note(Connection(number + 1), "blocked", "t", "no")
    taken = refusals.take()
    assert len(taken) == MOST_LINES + 1
    assert (taken[-1].connection.connection_id, taken[-1].refused) == (0, 5)
    assert sum(each.refused for each in taken) == MOST_LINES + 5


def test_of_long_names_and_reasons_as_much_is_kept_as_is_written():
    refusals = Refusals()
    refusals.note(Connection(1), "blocked", "t" * 1_000_000, "d" * 1_000_000)
    (reject,) = refusals.take()
    assert (len(reject.topic), len(reject.detail)) == (MOST_TEXT + 1, MOST_TEXT + 1)


def test_a_bound_and_a_block_leave_their_lines_before_the_next_heartbeat(make_world):
    world: World = make_world(
        admission={"lookup_rate_per_address": "1/min"}, blocks=[{"topic": TOPIC, "reason": "no more"}]
    )
    client, _ = world.pair()
    for request in range(3):
        client >> lookup(request)
    client >> producer()
    world.advance(31)
    blocked, bound = sorted(world.lines(RejectLine), key=lambda line: line.reason)
    assert (blocked.reason, blocked.topic, blocked.rejected) == ("blocked", TOPIC, 1)
    assert "no more" in blocked.detail
    assert (bound.reason, bound.topic, bound.rejected) == ("lookup_rate_per_address", "", 2)
    assert bound.client_address == "192.0.2.7:40001"
    beats = world.lines(HeartbeatLine)
    assert beats[-1].start <= bound.start < bound.end <= beats[-1].end
