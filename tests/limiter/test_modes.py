"""The modes of a limit: entries that `reject` refuses, and waiting streams, tokens and debts when a mode changes."""

import pytest

from limiter.levels import Setting
from limiter.limiter import Entry, Limiter, Stream, rejecting
from limiter.token_bucket import Limit, Mode, rate
from tests.limiter.emptied import emptied
from tests.limiter.fitting import fits
from tests.limiter.world import Governed, World, limiter

SECOND = 1_000_000_000
EACH_TOPIC = (Setting.TOPIC_OF_NAMESPACE, "t/n")
TOTAL = (Setting.NAMESPACE, "t/n")


def strict(per_s: int, name: str = "r") -> Limiter:
    enforced = limiter(per_s, name=name)
    return Limiter(enforced.scope, Limit(enforced.limit.messages, mode="reject"), "test", 0)


def offer(world: World, stream: Stream, messages: int) -> str:
    """Offer an entry as the relay does, and return its fate."""
    now = world.clock.now
    world.scheduler.count_offered(stream, 1, messages, 1)
    if world.scheduler.pass_entry(stream, messages, 1, now):
        world.note(stream, messages, 1)
        return "passed"
    over = rejecting(stream, now)
    if over is not None:
        world.scheduler.count_rejected(stream, over, messages, 1)
        return "refused"
    world.scheduler.hold(stream, Entry(b"", messages, 1, 1, now), now)
    return "held"


def governed(per_s: int = 10, mode: Mode = "enforce") -> Governed:
    world = Governed()
    world.put(EACH_TOPIC, Limit(rate(per_s), mode=mode))
    return world


def to(world: Governed, mode: Mode, per_s: int = 10) -> None:
    world.put(EACH_TOPIC, Limit(rate(per_s), mode=mode))
    world.apply()


def test_entries_over_a_rejecting_limit_are_refused_not_held() -> None:
    world, strict_limit = World(), strict(10)
    stream = world.stream(strict_limit)
    assert [offer(world, stream, each) for each in (5, 1, 1)] == ["passed", "refused", "refused"]
    world.run(0.5)
    assert [offer(world, stream, each) for each in (1, 1)] == ["passed", "refused"]
    assert not world.alarms.due


def test_a_refused_entry_costs_no_tokens_and_is_counted_once() -> None:
    world, total, strict_limit = World(), limiter(1000, name="total"), strict(10)
    stream = world.stream(total, strict_limit)
    assert [offer(world, stream, each) for each in (1, 70, 8)] == ["passed", "refused", "refused"]
    assert fits(total, 99, 1, 0)
    assert fits(strict_limit, 1, 1, SECOND // 10)
    assert (stream.usage.rejected_messages, stream.usage.rejected_size) == (78, 2)
    assert (strict_limit.usage.rejected_messages, strict_limit.usage.rejected_size) == (78, 2)
    assert total.usage.rejected_messages == 0
    assert (stream.usage.offered_messages, stream.usage.passed_messages, stream.usage.held_messages) == (79, 1, 0)
    assert stream.last_reason == strict_limit.scope.level
    assert emptied(world.journal) == ([stream], [total, strict_limit])


def test_an_entry_within_the_rejecting_limit_that_another_limit_stops_waits() -> None:
    world, slow, strict_limit = World(), limiter(1, name="slow"), strict(10)
    stream = world.stream(slow, strict_limit)
    assert [offer(world, stream, 1) for _ in range(3)] == ["passed", "refused", "refused"], "over both: refused"
    world.run(0.1)
    assert offer(world, stream, 1) == "held"


def test_held_entries_are_not_refused_later_but_newcomers_are() -> None:
    """Within the rejecting limit when it came, it waits there like anywhere; so P2 holds."""
    world, slow, strict_limit = World(), limiter(10, name="slow"), strict(10)
    holding, quick = world.stream(slow, strict_limit), world.stream(strict_limit)
    slow.charge(5, 1, 0)
    assert offer(world, holding, 1) == "held"
    world.run(0.45)
    assert offer(world, quick, 5) == "passed"
    world.run(0.1)
    assert holding.waits_on is strict_limit
    assert offer(world, quick, 1) == "refused"
    world.run(0.5)
    assert world.messages_of(holding) == 1


def test_many_entries_held_before_the_limit_is_used_up_stay_within_it() -> None:
    world, slow, strict_limit = World(), limiter(100, name="slow"), strict(10)
    stream = world.stream(slow, strict_limit)
    slow.charge(10, 1, 0)
    assert [offer(world, stream, 1) for _ in range(30)] == ["held"] * 30
    world.run(1)
    assert world.messages_of(stream) == 11  # the burst of 1, and 10 in the second
    assert offer(world, stream, 1) == "held", (
        "after others of its stream it waits: its answer could not overtake theirs"
    )


def test_held_entries_pass_when_their_limit_is_only_observed() -> None:
    world = governed()
    stream = world.open("x")
    assert [offer(world, stream, 1) for _ in range(6)] == ["passed"] + ["held"] * 5
    to(world, "observe")
    assert world.messages_of(stream) == 6
    assert stream.observed is not None
    usage = stream.observed.usage
    assert (usage.offered_messages, usage.passed_messages, usage.held_messages) == (5, 0, 5)
    world.run(0.3)
    assert (usage.passed_messages, usage.held_messages) == (3, 2)


def test_a_debt_made_while_enforced_or_observed_is_owed_when_it_is_enforced_again() -> None:
    world = governed()
    stream = world.open("x")
    offer(world, stream, 11)
    to(world, "observe")
    assert offer(world, stream, 1000) == "passed"
    assert stream.observed is not None
    assert stream.observed.is_holding
    to(world, "enforce")
    assert world.observer.room == Governed().observer.room
    assert offer(world, stream, 1) == "held"
    assert stream.chain[0].wait_ns(world.clock.now) == 11 * SECOND // 10
    to(world, "observe")
    world.run(1.1)
    to(world, "enforce")
    assert stream.chain[0].wait_ns(world.clock.now) == SECOND // 10, "what was held had its token meanwhile"


@pytest.mark.parametrize("mode", ["enforce", "reject"])
def test_a_mode_there_and_back_gives_no_token(mode: Mode) -> None:
    world = governed(mode=mode)
    stream = world.open("x")
    offer(world, stream, 101)
    for _ in range(20):
        to(world, "observe")
        to(world, "reject")
        to(world, mode)
    assert stream.chain[0].wait_ns(world.clock.now) == 101 * SECOND // 10


def test_waiting_entries_pass_when_their_limit_begins_to_reject() -> None:
    world = governed()
    first, other = world.open("x"), world.open("x")
    assert [offer(world, first, 1) for _ in range(3)] == ["passed", "held", "held"]
    to(world, "reject")
    assert [offer(world, first, 1), offer(world, other, 1)] == ["held", "refused"]
    world.run(0.2)
    assert world.messages_of(first) == 3
    world.run(0.1)
    assert world.messages_of(first) == 4


def test_while_others_wait_newcomers_are_refused_even_if_tokens_have_just_come() -> None:
    """Nobody overtakes: the tokens are theirs, whose alarm has not rung yet."""
    world = governed()
    waiting, newcomer = world.open("x"), world.open("x")
    assert [offer(world, waiting, 1) for _ in range(2)] == ["passed", "held"]
    to(world, "reject")
    world.clock.now += SECOND
    assert newcomer.chain[0].is_open(world.clock.now)
    assert offer(world, newcomer, 1) == "refused"
    world.run(0)
    assert [passed.stream for passed in world.log] == [waiting, waiting]


def test_a_changed_mode_strands_nobody_who_also_waits_elsewhere() -> None:
    world = governed(1000)
    world.put(TOTAL, Limit(rate(10)))
    streams = [world.open("x"), world.open("y")]
    for stream in streams * 5:
        offer(world, stream, 1)
    to(world, "observe", 1000)
    world.put(TOTAL, Limit(rate(10), mode="observe"))
    world.apply()
    assert [world.messages_of(stream) for stream in streams] == [5, 5]
    world.put(TOTAL, Limit(rate(10)))
    world.apply()
    assert [offer(world, stream, 1) for stream in streams] == ["held", "held"]
    world.run(5)
    assert [world.messages_of(stream) for stream in streams] == [6, 6]


def test_a_raised_limit_that_is_only_observed_lets_play_go_on_at_once() -> None:
    world = governed(1, "observe")
    stream = world.open("x")
    for _ in range(301):
        assert offer(world, stream, 1) == "passed"
    to(world, "observe", 1000)
    world.run(0.31)
    assert stream.observed is not None
    assert stream.observed.usage.passed_messages == 301


def test_an_observed_limit_stops_no_stream_beside_other_modes() -> None:
    world = Governed()
    world.put(EACH_TOPIC, Limit(rate(1), mode="observe"))
    world.put(TOTAL, Limit(rate(10), mode="reject"))
    stream = world.open("x")
    assert [offer(world, stream, 1) for _ in range(2)] == ["passed", "refused"]
    assert stream.observed is not None
    assert stream.observed.usage.offered_messages == 1, "what is refused never comes to it"
