"""The judge of one worker; what must be true of several at any delay, is in test_machine.py."""

from collections.abc import Sequence

from limiter.levels import Client, Setting
from limiter.limiter import Stream, StreamName
from limiter.rates import Limit, rate
from limiter.workers.messages import Answer, Batch, Lent, Recalled, Released, Spent, Wired
from protocol.topic_name import parse_topic
from tests.limiter.workers.together import Workers


def kinds(letters: Sequence[object]) -> list[type]:
    return [type(letter) for letter in letters]


def opened(limit: Limit | None) -> Workers:
    world = Workers(2)
    world.limit(Setting.TOPIC_OF_NAMESPACE, "t/n", limit)
    world.apply()
    stream = Stream(StreamName("publish", "t", "n", "x", 1), (), lambda _stream, _entry: None)
    world.workers[0].judge.open(5, stream, parse_topic("t/n/x"), Client(), 0)
    return world


def test_a_new_stream_is_told_its_limits() -> None:
    (wired,) = opened(Limit(rate(100))).workers[0].judge.take()
    assert isinstance(wired, Wired)
    assert (wired.stream, wired.limiters, wired.by_ticket) == (5, [1], False)


def test_one_without_limits_is_told_so() -> None:
    (wired,) = opened(None).workers[0].judge.take()
    assert isinstance(wired, Wired)
    assert wired.limiters == []


def test_what_is_observed_goes_entry_by_entry() -> None:
    (wired,) = opened(Limit(rate(100), mode="observe")).workers[0].judge.take()
    assert isinstance(wired, Wired)
    assert wired.by_ticket


def test_an_entry_that_may_pass_is_released_and_more_is_lent_for_the_next() -> None:
    judge = opened(Limit(rate(1000))).workers[0].judge
    judge.take()
    judge.offered(5, 1, 100, (0, 0))
    assert kinds(judge.take()) == [Lent, Released, Batch]


def test_what_was_let_go_before_all_was_withdrawn_still_goes() -> None:
    judge = opened(Limit(rate(10))).workers[0].judge
    judge.take()
    for _ in range(3):
        judge.offered(5, 1, 100, (0, 0))
    judge.withdrawn(5, 0, 0)
    judge.asked_about(1)
    letters = judge.take()
    assert [letter for letter in letters if isinstance(letter, Released | Answer)] == [Released(5, 1), Answer(1)]
    stream = judge.stream(5)
    assert stream is not None
    assert (stream.usage.passed_messages, stream.usage.dropped_messages) == (1, 2)


def test_a_question_is_answered_behind_what_may_go() -> None:
    judge = opened(Limit(rate(1000))).workers[0].judge
    judge.take()
    judge.offered(5, 1, 100, (0, 0))
    judge.asked_about(7)
    judge.offered(5, 1, 100, (0, 0))
    *_, answer = judge.take()
    assert answer == Answer(7)
    assert judge.take() == []


def test_what_is_released_counts_as_lent_until_it_is_confirmed() -> None:
    world = opened(Limit(rate(10)))
    judge, (limiter,) = world.workers[0].judge, world.registry.limiters.values()
    judge.offered(5, 1, 100, (0, 0))
    *_, batch = judge.take()
    assert isinstance(batch, Batch)
    assert limiter._buckets[0] is not None
    assert limiter._buckets[0].lent == 1
    judge.confirmed(batch.number, 0)
    assert limiter._buckets[0].lent == 0


def test_where_somebody_waits_loans_are_recalled() -> None:
    judge = opened(Limit(rate(100, burst=40))).workers[0].judge
    judge.offered(5, 1, 100, (0, 0))
    judge.take()
    judge.offered(5, 100, 100, (0, 0))
    judge.offered(5, 1, 100, (0, 0))
    assert Recalled in kinds(judge.take())
    judge.spent(Spent(1, 0, 0, 9, 0, wants_more=False, is_answer=True), 0)
    assert not judge.lending.loans


def test_letters_about_streams_that_are_over_do_nothing() -> None:
    judge = opened(Limit(rate(100))).workers[0].judge
    judge.close(5, 0)
    judge.take()
    judge.offered(5, 1, 1, (0, 0))
    judge.passed(5, (1, 1, 1), (1, 1), [])
    judge.withdrawn(5, 3, 0)
    judge.discarded(5, (1, 1, 1))
    judge.asked(5, 3, is_granted=False)
    judge.overdrawn(5, 3)
    judge.forgone(5)
    judge.named(5, "p", 0)
    judge.close(5, 0)
    assert judge.take() == []
    assert judge.is_at_rest


def test_what_passed_by_itself_is_counted_here() -> None:
    world = opened(Limit(rate(1000)))
    world.workers[0].judge.passed(5, (3, 30, 300), (20, 200), [1])
    stream = world.workers[0].judge.stream(5)
    assert stream is not None
    assert stream.usage.passed == (3, 30, 300)
    (limiter,) = world.registry.limiters.values()
    assert (limiter.usage.entries, limiter.usage.messages, limiter.usage.largest_messages) == (3, 30, 20)


def test_what_waits_of_a_lost_worker_waits_no_longer_and_others_go_on() -> None:
    world = opened(Limit(rate(10)))
    for _ in range(5):
        world.workers[0].judge.offered(5, 1, 1, (0, 0))
    (limiter,) = world.registry.limiters.values()
    assert limiter.waiters
    world.workers[0].judge.lose(0)
    assert not limiter.waiters
    assert limiter._buckets[0] is not None
    assert limiter._buckets[0].lent == 0


def shared(used: int = 30) -> Workers:
    """Worker 0 has been lent 9 of 40; worker 1 has a stream, 6, and used so many: by default all else."""
    world = opened(Limit(rate(100, burst=40)))
    world.workers[0].judge.offered(5, 1, 1, (0, 0))
    assert Lent(1, 9, None) in world.workers[0].judge.take()
    world.workers[0].judge.confirmed(1, 0)
    stream = Stream(StreamName("publish", "t", "n", "x", 2), (), lambda _stream, _entry: None)
    world.workers[1].judge.open(6, stream, parse_topic("t/n/x"), Client(), 0)
    world.workers[1].judge.offered(6, used, 1, (0, 0))
    world.workers[1].judge.take()
    return world


def test_what_one_worker_gives_back_others_who_wait_have_at_once() -> None:
    world = shared()
    world.workers[1].judge.offered(6, 1, 1, (0, 0))
    assert Released(6, 2) not in world.workers[1].judge.take()
    assert Recalled(1) in world.workers[0].judge.take()
    world.workers[0].judge.spent(Spent(1, 0, 0, 9, 0, is_answer=True), 0)
    assert Released(6, 2) in world.workers[1].judge.take()


def test_whose_turn_at_one_limit_shows_that_he_must_wait_at_another_has_loans_recalled_there() -> None:
    """He begins to wait there when an alarm rings: no letter says so."""
    world = shared(used=1)
    borrower, judge = world.workers[0].judge, world.workers[1].judge
    world.limit(Setting.PRODUCER, "p", Limit(rate(10, burst=1)))
    world.apply()
    judge.named(6, "p", 0)
    for _ in range(2):
        judge.offered(6, 1, 1, (0, 0))
    judge.take()
    judge.confirmed(2, 0)
    stream = Stream(StreamName("publish", "t", "n", "x", 3), (), lambda _stream, _entry: None)
    judge.open(7, stream, parse_topic("t/n/x"), Client(), 0)
    judge.offered(7, 100, 1, (0, 0))
    assert Recalled(1) not in borrower.take(), "who waits, waits for the producer's limit; the topic's was open"
    world.run_until(110_000_000)
    assert Recalled(1) in borrower.take()


def test_what_a_lost_worker_had_not_confirmed_is_free_for_others() -> None:
    world = opened(Limit(rate(100, burst=40)))
    judge, (limiter,) = world.workers[0].judge, world.registry.limiters.values()
    judge.offered(5, 20, 1, (0, 0))
    assert kinds(judge.take())[-1] == Batch
    judge.offered(5, 1, 1, (0, 0))
    assert limiter._buckets[0] is not None
    assert limiter._buckets[0].lent > 20
    judge.lose(0)
    assert limiter._buckets[0].lent == 0
    assert judge.is_at_rest


def test_a_limit_is_known_by_number_as_long_as_a_stream_is_within_or_something_is_lent() -> None:
    world = shared()
    judge, other = world.workers[0].judge, world.workers[1].judge
    judge.close(5, 0)
    judge.spent(Spent(1, 4, 0, 5, 0), 0)
    other.close(6, 0)
    other.confirmed(1, 0)
    for one in (judge, other):
        assert one.is_at_rest
        assert (one._numbers, one._limiters, one._used_by) == ({}, {}, {})


def test_what_waited_on_its_way_was_delayed() -> None:
    judge = opened(Limit(rate(1000))).workers[0].judge
    stream = judge.stream(5)
    assert stream is not None
    judge.offered(5, 1, 1, (0, 4_000_000))
    assert stream.usage.delay_max_ns == 0
    judge.offered(5, 1, 1, (0, 6_000_000))
    assert stream.usage.delay_max_ns == 6_000_000


def test_what_is_dropped_behind_those_with_tickets_is_counted_once() -> None:
    judge = opened(Limit(rate(10))).workers[0].judge
    stream = judge.stream(5)
    assert stream is not None
    for _ in range(4):
        judge.offered(5, 1, 1, (0, 0))
    judge.behind(5, (3, 3, 30))
    assert (stream.usage.held_messages, stream.usage.held_size) == (6, 33)
    judge.withdrawn(5, 0, 0)
    judge.discarded(5, (3, 3, 30))
    judge.behind(5, (0, 0, 0))
    assert (stream.usage.held_messages, stream.usage.held_size) == (0, 0)
    assert (stream.usage.offered_messages, stream.usage.passed[1], stream.usage.dropped_messages) == (7, 1, 6)


def test_what_an_entry_is_to_limits_is_what_is_released() -> None:
    world = opened(Limit(rate(10, burst=1)))
    judge, (limiter,) = world.workers[0].judge, world.registry.limiters.values()
    stream = judge.stream(5)
    assert stream is not None
    assert limiter._buckets[0] is not None
    stream.by_entry = True
    judge.offered(5, 7, 1, (0, 0))
    assert limiter._buckets[0].lent == 1
    judge.take()
    judge.confirmed(1, 0)
    judge.offered(5, 7, 1, (0, 0))
    assert limiter._buckets[0].lent == 0
    world.run_until(200_000_000)
    assert limiter._buckets[0].lent == 1


def test_who_waits_has_loans_recalled_wherever_they_are_in_his_way() -> None:
    world = opened(Limit(rate(100, burst=40)))
    world.limit(Setting.NAMESPACE, "t/n", Limit(rate(100, burst=40)))
    world.apply()
    judge = world.workers[0].judge
    judge.offered(5, 1, 100, (0, 0))
    assert kinds(judge.take()).count(Lent) == 2
    judge.offered(5, 40, 100, (0, 0))
    judge.offered(5, 1, 100, (0, 0))
    assert kinds(judge.take()).count(Recalled) == 2
