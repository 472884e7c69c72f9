"""Lines without a scheduler: streams stand in them and alarms are set, and nothing passes."""

from limiter.activity import ActivityJournal
from limiter.limiter import Entry, Limiter, Stream
from limiter.scheduler import LEAST_SLEEP_NS, WaitLists
from tests.limiter.standing import stated
from tests.limiter.world import World, limiter

SECOND = 1_000_000_000


class Standing:
    """Wait lists, their wake-ups, and streams that hold entries."""

    def __init__(self) -> None:
        self.asked: list[tuple[Limiter, int]] = []
        self.journal = ActivityJournal()
        self.lines = WaitLists(lambda limiter, at: self.asked.append((limiter, at)), self.journal)
        self._world = World()

    def stream(self, *chain: Limiter, sizes: tuple[int, ...] = (1,)) -> Stream:
        stream = self._world.stream(*chain)
        stream.held.extend([Entry(b"", size, size, size, 0) for size in sizes])
        return stream


def used_up(rate: int, name: str = "x") -> Limiter:
    """A limiter without a token, until one `rate`th of a second has gone by."""
    limit = limiter(rate, burst=1, name=name)
    limit.charge(1, 1, 0)
    return limit


def test_a_waiting_stream_is_noted_and_sets_an_alarm() -> None:
    standing, limit = Standing(), used_up(10)
    stream = standing.stream(limit)
    standing.lines.join(stream, limit, 0)
    assert limit.waiters.first() is stream
    assert (stream.waits_on, stream.last_reason) == (limit, limit.scope.level)
    assert list(standing.journal.streams) == [stream]
    assert standing.asked == [(limit, SECOND // 10)]


def test_one_alarm_of_a_limiter_serves_all_who_wait_there() -> None:
    standing, limit = Standing(), used_up(10)
    for _ in range(3):
        standing.lines.join(standing.stream(limit), limit, 0)
    assert len(limit.waiters) == 3
    assert len(standing.asked) == 1


def test_a_stream_waits_on_the_limiter_that_refuses_its_entry() -> None:
    standing, fast, slow = Standing(), used_up(100, "fast"), used_up(1, "slow")
    stream = standing.stream(fast, slow)
    standing.lines.join(stream, fast, 0)
    assert stream.waits_on is slow
    assert not fast.waiters


def test_who_goes_elsewhere_keeps_its_places() -> None:
    standing, empty, other = Standing(), used_up(10, "one"), limiter(10, name="other")
    stream = standing.stream(empty, other)
    standing.lines.join(stream, empty, 0)
    places = stated(stream)
    standing.lines.go(stream, other, 0)
    assert (stream.waits_on, len(empty.waiters), len(other.waiters)) == (other, 0, 1)
    assert stated(stream) == places
    assert [at.usage.throttled.is_running for at in (empty, other)] == [False, True]


def test_the_entry_after_a_large_one_goes_after_another_stream() -> None:
    standing, limit = Standing(), used_up(10)
    first, second = standing.stream(limit, sizes=(1, 5)), standing.stream(limit, sizes=(2,))
    for stream in (first, second):
        standing.lines.join(stream, limit, 0)
    assert limit.waiters.first() is first
    standing.lines.went(first)
    first.held.popleft()
    standing.lines.follow(first, limit)
    assert len(limit.waiters) == 2
    assert limit.waiters.first() is second
    assert limit.waiters.virtual_time == SECOND // 10


def test_who_leaves_frees_the_room_that_it_claimed_at_once() -> None:
    """A stream waits at an open limiter only because another has a claim there: the alarm is set again."""
    standing, wide, narrow = Standing(), used_up(1000, "wide"), used_up(1, "narrow")
    waits, claims = standing.stream(wide), standing.stream(wide, narrow)
    standing.lines.join(claims, wide, 0)
    standing.lines.join(waits, wide, 0)
    standing.lines.claim(claims, narrow)
    later = SECOND // 2
    standing.lines.rest(wide, later, is_due=False)
    assert standing.asked[-1] == (wide, SECOND), "while it has a claim, its tokens are waited for"
    standing.lines.leave(claims, later)
    assert [claims.waits_on, claims.tags, wide.claimant] == [None, (), None]
    assert standing.asked[-1] == (wide, later + LEAST_SLEEP_NS)


def test_a_leaving_stream_frees_its_room_even_without_tokens() -> None:
    """The alarm is set for the end of a claim, a second ahead; the claim ends while no token is there."""
    standing, wide, narrow = Standing(), used_up(1000, "wide"), used_up(1, "narrow")
    waits, claims = standing.stream(wide), standing.stream(wide, narrow)
    standing.lines.join(claims, wide, 0)
    standing.lines.join(waits, wide, 0)
    standing.lines.claim(claims, narrow)
    later = SECOND // 2
    standing.lines.rest(wide, later, is_due=False)
    tokens = wide.limit.messages.burst if wide.limit.messages else 0
    wide.charge(tokens, 0, later)
    assert not wide.is_open(later)
    standing.lines.leave(claims, later)
    assert standing.asked[-1] == (wide, later + SECOND // 1000)


def test_after_a_limiter_was_served_the_rest_is_woken_for() -> None:
    standing, limit = Standing(), used_up(10)
    standing.lines.join(standing.stream(limit), limit, 0)
    standing.lines.rest(limit, 0, is_due=False)
    standing.lines.rest(limit, 0, is_due=True)
    assert standing.asked[1:] == [(limit, SECOND // 10), (limit, 0)]


def test_where_nobody_waits_nobody_is_woken() -> None:
    standing, limit = Standing(), used_up(10)
    standing.lines.rest(limit, 0, is_due=True)
    assert (standing.asked, limit.wakes_at) == ([], None)
