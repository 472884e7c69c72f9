"""What a quota server refuses, and when it holds instead."""

from collections.abc import Sequence

from limiter.levels import Setting
from limiter.policies import Change
from limiter.token_bucket import Limit, rate
from limiter.workers.messages import Batch, Message, Rejected, Released, Wired
from tests.limiter.workers.test_quota_server import kinds, opened
from tests.limiter.workers.together import Workers

REASON = "over the publish limit of topic persistent://t/n/x: 10 messages per 1 s"


def decided(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if isinstance(message, Released | Rejected)]


def turn(world: Workers, limit: Limit) -> None:
    world.limit(Setting.TOPIC_OF_NAMESPACE, "t/n", limit)
    world.registry.change([Change("publish", Setting.TOPIC_OF_NAMESPACE, "t/n", only_tunes=True)], world.clock.now)


def test_what_is_over_a_limit_that_refuses_is_refused_and_counted() -> None:
    world = opened(Limit(rate(10, burst=2), mode="reject"))
    quota_server, (limiter,) = world.workers[0].quota_server, world.registry.limiters.values()
    (wired,) = quota_server.take()
    assert isinstance(wired, Wired)
    assert (wired.by_queue, wired.is_rejected) == (True, True)
    for _ in range(4):
        quota_server.offered(5, 1, 100, (0, 0))
    messages = quota_server.take()
    assert messages == [Released(5, 2), Rejected(5, 4, REASON), Batch(1)]
    stream = quota_server.stream(5)
    assert stream is not None
    assert (stream.usage.offered_messages, stream.usage.rejected_messages, stream.usage.held_messages) == (4, 2, 0)
    assert (limiter.usage.rejected_messages, limiter.usage.rejected_size, stream.last_reason) == (2, 200, "topic")


def test_what_no_client_would_give_up_is_held_and_what_comes_behind_it_is_too() -> None:
    world = opened(Limit(rate(10, burst=1), mode="reject"))
    quota_server = world.workers[0].quota_server
    quota_server.offered(5, 1, 100, (0, 0))
    quota_server.offered(5, 1, 100, (0, 0))
    quota_server.offered(5, 1, 100, (0, 0), must_wait=True)
    quota_server.offered(5, 1, 100, (0, 0))
    assert decided(quota_server.take()) == [Released(5, 1), Rejected(5, 2, REASON)]
    stream = quota_server.stream(5)
    assert stream is not None
    assert (stream.usage.rejected_messages, stream.usage.held_messages) == (1, 2)
    quota_server.confirmed(1, 0)
    world.run_until(110_000_000)
    assert decided(quota_server.take()) == [Released(5, 3)]


def test_nothing_is_lent_to_pass_what_each_entry_is_judged_for() -> None:
    world = opened(Limit(rate(1000), mode="reject"))
    world.limit(Setting.NAMESPACE, "t/n", Limit(rate(1000)))
    world.apply()
    quota_server = world.workers[0].quota_server
    quota_server.take()
    quota_server.offered(5, 1, 100, (0, 0))
    assert kinds(quota_server.take()) == [Released, Batch]


def test_who_was_within_a_limit_before_it_began_to_refuse_has_his_first_message_held() -> None:
    """Behind what was lent, the worker does not know the receipt behind which an error has its place."""
    world = opened(Limit(rate(10, burst=1)))
    quota_server = world.workers[0].quota_server
    quota_server.offered(5, 1, 100, (0, 0))
    turn(world, Limit(rate(10, burst=1), mode="reject"))
    quota_server.offered(5, 1, 100, (0, 0))
    quota_server.offered(5, 1, 100, (0, 0))
    assert decided(quota_server.take()) == [Released(5, 1)]
    for at in (1, 2):
        quota_server.confirmed(at, at * 110_000_000 - 110_000_000)
        world.run_until(at * 110_000_000)
        assert decided(quota_server.take()) == [Released(5, at + 1)]
    quota_server.offered(5, 1, 100, (world.clock.now, world.clock.now))
    assert decided(quota_server.take()) == [Rejected(5, 4, REASON)]


def test_what_came_before_a_limit_began_to_refuse_is_held_whenever_it_is_heard_of() -> None:
    world = opened(Limit(rate(10, burst=1)))
    quota_server = world.workers[0].quota_server
    quota_server.offered(5, 1, 100, (0, 0))
    world.clock.now = 1000
    turn(world, Limit(rate(10, burst=1), mode="reject"))
    quota_server.offered(5, 1, 100, (999, 1000))
    stream = quota_server.stream(5)
    assert stream is not None
    assert (stream.usage.held_messages, stream.usage.rejected_messages) == (1, 0)


def test_a_limit_that_holds_again_holds_and_the_worker_is_told_behind_what_was_refused() -> None:
    world = opened(Limit(rate(10, burst=1), mode="reject"))
    quota_server = world.workers[0].quota_server
    quota_server.take()
    for _ in range(2):
        quota_server.offered(5, 1, 100, (0, 0))
    turn(world, Limit(rate(10, burst=1)))
    quota_server.offered(5, 1, 100, (0, 0))
    released, rejected, wired, *_ = quota_server.take()
    assert [released, rejected] == [Released(5, 1), Rejected(5, 2, REASON)]
    assert isinstance(wired, Wired)
    assert not wired.is_rejected
    stream = quota_server.stream(5)
    assert stream is not None
    assert (stream.usage.held_messages, stream.usage.rejected_messages) == (1, 1)
