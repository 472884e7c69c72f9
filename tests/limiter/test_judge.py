"""The judge of one worker; what must be true of several at any delay, is in test_workers_machine.py."""

from collections.abc import Sequence

from limiter.letters import Answer, Batch, Lent, Recalled, Released, Spent, Wired
from limiter.levels import Client, Setting
from limiter.rates import Limit, rate
from limiter.stream import Stream, StreamName
from protocol.topic_name import parse_topic
from tests.limiter.workers import Workers


def kinds(letters: Sequence[object]) -> list[type]:
    return [type(letter) for letter in letters]


def opened(limit: Limit | None) -> Workers:
    world = Workers(2)
    world.limit(Setting.TOPIC_OF_NAMESPACE, "t/n", limit)
    world.apply()
    stream = Stream(StreamName("publish", "t", "n", "x", 1), (), lambda entry: None)
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
    judge.passed(5, (1, 1, 1), (1, 1))
    judge.withdrawn(5, 3, 0)
    judge.discarded(5, (1, 1, 1))
    judge.asked(5, 3, is_granted=False)
    judge.forgone(5)
    judge.named(5, "p", 0)
    judge.close(5, 0)
    assert judge.take() == []
    assert judge.is_at_rest


def test_what_passed_by_itself_is_counted_here() -> None:
    world = opened(Limit(rate(1000)))
    world.workers[0].judge.passed(5, (3, 30, 300), (20, 200))
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
