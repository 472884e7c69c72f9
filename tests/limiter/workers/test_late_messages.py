"""What workers passed before they heard of a limit: nobody waits for it, and the books say so."""

from limiter.levels import Setting
from limiter.limiter import Stream
from limiter.token_bucket import Limit, rate
from tests.limiter.workers.together import Worker, Workers

MS = 1_000_000
PLACE = Setting.TOPIC, "persistent://t/n/x"


def passing(world: Workers, messages: int, size: int) -> tuple[Worker, Stream]:
    """A worker that passes by what it was lent, and has not told it yet."""
    worker = world.workers[0]
    stream = worker.open("x", lambda _stream, _entry: None)
    world.deliver_all()
    world.offer(worker, stream, 1, 10)
    world.deliver_all()
    for _ in range(messages):
        assert world.offer(worker, stream, 1, size)
    return worker, stream


def changed(before: Limit, after: Limit) -> tuple[Workers, Worker, Stream]:
    """A limit is another one while messages are under way, which arrive then."""
    world = Workers(1)
    world.limit(*PLACE, before)
    worker, stream = passing(world, 200, 1000)
    world.limit(*PLACE, after)
    world.apply()
    world.deliver_all()
    return world, worker, stream


def test_bytes_that_nobody_knew_to_be_limited_are_no_debt() -> None:
    world, *_ = changed(Limit(rate(10_000, burst=1000)), Limit(rate(10_000, burst=1000), rate(19, burst=40)))
    (limiter,) = [one for one in world.registry.limiters.values() if one.scope.direction == "publish"]
    _, _, size, _ = limiter.balances(world.clock.now)
    assert size == (40, 0, 0, 200_000)


def test_what_was_lent_at_a_higher_rate_is_no_debt_at_a_lower_one() -> None:
    world, worker, stream = changed(Limit(rate(10_000, burst=1000)), Limit(rate(7, burst=3)))
    (limiter,) = [one for one in world.registry.limiters.values() if one.scope.direction == "publish"]
    messages, *_ = limiter.balances(world.clock.now)
    assert messages is not None
    tokens, _, lost, unforeseen = messages
    assert (tokens, lost, unforeseen) == (0, 0, 197)
    assert not world.offer(worker, stream, 1, 10)
    world.run_until(world.clock.now + 200 * MS)
    world.deliver_all()
    assert not stream.held
