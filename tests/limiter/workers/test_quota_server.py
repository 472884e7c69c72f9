"""The quota server of one worker; what must be true of several at any delay, is in test_machine.py."""

from collections.abc import Sequence

from limiter.levels import Client, Setting
from limiter.limiter import Stream, StreamName
from limiter.token_bucket import Limit, rate
from limiter.workers.messages import Answer, Batch, Lent, Recalled, Released, Spent, Wired
from protocol.topic_name import parse_topic
from tests.limiter.workers.together import Workers


def kinds(messages: Sequence[object]) -> list[type]:
    return [type(message) for message in messages]


def opened(limit: Limit | None) -> Workers:
    world = Workers(2)
    world.limit(Setting.TOPIC_OF_NAMESPACE, "t/n", limit)
    world.apply()
    stream = Stream(StreamName("publish", "t", "n", "x", 1), (), lambda _stream, _entry: None)
    world.workers[0].quota_server.open(5, stream, parse_topic("t/n/x"), Client(), 0)
    return world


def test_a_new_stream_is_told_its_limits() -> None:
    (wired,) = opened(Limit(rate(100))).workers[0].quota_server.take()
    assert isinstance(wired, Wired)
    assert (wired.stream, wired.limiters, wired.by_queue) == (5, [1], False)


def test_one_without_limits_is_told_so() -> None:
    (wired,) = opened(None).workers[0].quota_server.take()
    assert isinstance(wired, Wired)
    assert wired.limiters == []


def test_what_is_observed_goes_entry_by_entry() -> None:
    (wired,) = opened(Limit(rate(100), mode="observe")).workers[0].quota_server.take()
    assert isinstance(wired, Wired)
    assert wired.by_queue


def test_an_entry_that_may_pass_is_released_and_more_is_lent_for_the_next() -> None:
    quota_server = opened(Limit(rate(1000))).workers[0].quota_server
    quota_server.take()
    quota_server.offered(5, 1, 100, (0, 0))
    assert kinds(quota_server.take()) == [Lent, Released, Batch]


def test_what_was_let_go_before_all_was_withdrawn_still_goes() -> None:
    quota_server = opened(Limit(rate(10))).workers[0].quota_server
    quota_server.take()
    for _ in range(3):
        quota_server.offered(5, 1, 100, (0, 0))
    quota_server.withdrawn(5, 0, 0)
    quota_server.asked_about(1)
    messages = quota_server.take()
    assert [message for message in messages if isinstance(message, Released | Answer)] == [Released(5, 1), Answer(1)]
    stream = quota_server.stream(5)
    assert stream is not None
    assert (stream.usage.passed_messages, stream.usage.dropped_messages) == (1, 2)


def test_a_question_is_answered_behind_what_may_go() -> None:
    quota_server = opened(Limit(rate(1000))).workers[0].quota_server
    quota_server.take()
    quota_server.offered(5, 1, 100, (0, 0))
    quota_server.asked_about(7)
    quota_server.offered(5, 1, 100, (0, 0))
    *_, answer = quota_server.take()
    assert answer == Answer(7)
    assert quota_server.take() == []


def test_what_is_released_counts_as_lent_until_it_is_confirmed() -> None:
    world = opened(Limit(rate(10)))
    quota_server, (limiter,) = world.workers[0].quota_server, world.registry.limiters.values()
    quota_server.offered(5, 1, 100, (0, 0))
    *_, batch = quota_server.take()
    assert isinstance(batch, Batch)
    assert limiter._buckets[0] is not None
    assert limiter._buckets[0].lent == 1
    quota_server.confirmed(batch.number, 0)
    assert limiter._buckets[0].lent == 0


def test_where_somebody_waits_loans_are_recalled() -> None:
    quota_server = opened(Limit(rate(100, burst=40))).workers[0].quota_server
    quota_server.offered(5, 1, 100, (0, 0))
    quota_server.take()
    quota_server.offered(5, 100, 100, (0, 0))
    quota_server.offered(5, 1, 100, (0, 0))
    assert Recalled in kinds(quota_server.take())
    quota_server.spent(Spent(1, 0, 0, 9, 0, wants_more=False, is_answer=True), 0)
    assert not quota_server.lending.loans


def test_messages_about_streams_that_are_over_do_nothing() -> None:
    quota_server = opened(Limit(rate(100))).workers[0].quota_server
    quota_server.close(5, 0)
    quota_server.take()
    quota_server.offered(5, 1, 1, (0, 0))
    quota_server.passed(5, (1, 1, 1), (1, 1), [])
    quota_server.withdrawn(5, 3, 0)
    quota_server.discarded(5, (1, 1, 1))
    quota_server.asked(5, 3, is_granted=False)
    quota_server.overdrawn(5, 3)
    quota_server.forgone(5)
    quota_server.named(5, "p", 0)
    quota_server.close(5, 0)
    assert quota_server.take() == []
    assert quota_server.is_at_rest


def test_what_passed_by_itself_is_counted_here() -> None:
    world = opened(Limit(rate(1000)))
    world.workers[0].quota_server.passed(5, (3, 30, 300), (20, 200), [1])
    stream = world.workers[0].quota_server.stream(5)
    assert stream is not None
    assert stream.usage.passed == (3, 30, 300)
    (limiter,) = world.registry.limiters.values()
    assert (limiter.usage.entries, limiter.usage.messages, limiter.usage.largest_messages) == (3, 30, 20)


def test_what_waits_of_a_lost_worker_waits_no_longer_and_others_go_on() -> None:
    world = opened(Limit(rate(10)))
    for _ in range(5):
        world.workers[0].quota_server.offered(5, 1, 1, (0, 0))
    (limiter,) = world.registry.limiters.values()
    assert limiter.waiters
    world.workers[0].quota_server.lose(0)
    assert not limiter.waiters
    assert limiter._buckets[0] is not None
    assert limiter._buckets[0].lent == 0


def shared(used: int = 30) -> Workers:
    """Worker 0 has been lent 9 of 40; worker 1 has a stream, 6, and used so many: by default all else."""
    world = opened(Limit(rate(100, burst=40)))
    world.workers[0].quota_server.offered(5, 1, 1, (0, 0))
    assert Lent(1, 9, None) in world.workers[0].quota_server.take()
    world.workers[0].quota_server.confirmed(1, 0)
    stream = Stream(StreamName("publish", "t", "n", "x", 2), (), lambda _stream, _entry: None)
    world.workers[1].quota_server.open(6, stream, parse_topic("t/n/x"), Client(), 0)
    world.workers[1].quota_server.offered(6, used, 1, (0, 0))
    world.workers[1].quota_server.take()
    return world


def test_what_one_worker_gives_back_others_who_wait_have_at_once() -> None:
    world = shared()
    world.workers[1].quota_server.offered(6, 1, 1, (0, 0))
    assert Released(6, 2) not in world.workers[1].quota_server.take()
    assert Recalled(1) in world.workers[0].quota_server.take()
    world.workers[0].quota_server.spent(Spent(1, 0, 0, 9, 0, is_answer=True), 0)
    assert Released(6, 2) in world.workers[1].quota_server.take()


def test_whose_turn_at_one_limit_shows_that_he_must_wait_at_another_has_loans_recalled_there() -> None:
    """He begins to wait there when an alarm rings: no message says so."""
    world = shared(used=1)
    borrower, quota_server = world.workers[0].quota_server, world.workers[1].quota_server
    world.limit(Setting.PRODUCER, "p", Limit(rate(10, burst=1)))
    world.apply()
    quota_server.named(6, "p", 0)
    for _ in range(2):
        quota_server.offered(6, 1, 1, (0, 0))
    quota_server.take()
    quota_server.confirmed(2, 0)
    stream = Stream(StreamName("publish", "t", "n", "x", 3), (), lambda _stream, _entry: None)
    quota_server.open(7, stream, parse_topic("t/n/x"), Client(), 0)
    quota_server.offered(7, 100, 1, (0, 0))
    assert Recalled(1) not in borrower.take(), "who waits, waits for the producer's limit; the topic's was open"
    world.run_until(110_000_000)
    assert Recalled(1) in borrower.take()


def test_what_a_lost_worker_had_not_confirmed_is_free_for_others() -> None:
    world = opened(Limit(rate(100, burst=40)))
    quota_server, (limiter,) = world.workers[0].quota_server, world.registry.limiters.values()
    quota_server.offered(5, 20, 1, (0, 0))
    assert kinds(quota_server.take())[-1] == Batch
    quota_server.offered(5, 1, 1, (0, 0))
    assert limiter._buckets[0] is not None
    assert limiter._buckets[0].lent > 20
    quota_server.lose(0)
    assert limiter._buckets[0].lent == 0
    assert quota_server.is_at_rest


def test_a_limit_is_known_by_number_as_long_as_a_stream_is_within_or_something_is_lent() -> None:
    world = shared()
    quota_server, other = world.workers[0].quota_server, world.workers[1].quota_server
    quota_server.close(5, 0)
    quota_server.spent(Spent(1, 4, 0, 5, 0), 0)
    other.close(6, 0)
    other.confirmed(1, 0)
    for one in (quota_server, other):
        assert one.is_at_rest
        assert (one._numbers, one._limiters, one._used_by) == ({}, {}, {})


def test_what_waited_on_its_way_was_delayed() -> None:
    quota_server = opened(Limit(rate(1000))).workers[0].quota_server
    stream = quota_server.stream(5)
    assert stream is not None
    quota_server.offered(5, 1, 1, (0, 4_000_000))
    assert stream.usage.delay_max_ns == 0
    quota_server.offered(5, 1, 1, (0, 6_000_000))
    assert stream.usage.delay_max_ns == 6_000_000


def test_what_is_dropped_behind_those_with_queued_entries_is_counted_once() -> None:
    quota_server = opened(Limit(rate(10))).workers[0].quota_server
    stream = quota_server.stream(5)
    assert stream is not None
    for _ in range(4):
        quota_server.offered(5, 1, 1, (0, 0))
    quota_server.behind(5, (3, 3, 30))
    assert (stream.usage.held_messages, stream.usage.held_size) == (6, 33)
    quota_server.withdrawn(5, 0, 0)
    quota_server.discarded(5, (3, 3, 30))
    quota_server.behind(5, (0, 0, 0))
    assert (stream.usage.held_messages, stream.usage.held_size) == (0, 0)
    assert (stream.usage.offered_messages, stream.usage.passed[1], stream.usage.dropped_messages) == (7, 1, 6)


def test_what_an_entry_is_to_limits_is_what_is_released() -> None:
    world = opened(Limit(rate(10, burst=1)))
    quota_server, (limiter,) = world.workers[0].quota_server, world.registry.limiters.values()
    stream = quota_server.stream(5)
    assert stream is not None
    assert limiter._buckets[0] is not None
    stream.by_entry = True
    quota_server.offered(5, 7, 1, (0, 0))
    assert limiter._buckets[0].lent == 1
    quota_server.take()
    quota_server.confirmed(1, 0)
    quota_server.offered(5, 7, 1, (0, 0))
    assert limiter._buckets[0].lent == 0
    world.run_until(200_000_000)
    assert limiter._buckets[0].lent == 1


def test_who_waits_has_loans_recalled_wherever_they_are_in_his_way() -> None:
    world = opened(Limit(rate(100, burst=40)))
    world.limit(Setting.NAMESPACE, "t/n", Limit(rate(100, burst=40)))
    world.apply()
    quota_server = world.workers[0].quota_server
    quota_server.offered(5, 1, 100, (0, 0))
    assert kinds(quota_server.take()).count(Lent) == 2
    quota_server.offered(5, 40, 100, (0, 0))
    quota_server.offered(5, 1, 100, (0, 0))
    assert kinds(quota_server.take()).count(Recalled) == 2
