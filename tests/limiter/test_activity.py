from collections.abc import Callable

import pytest

from limiter.activity import MOST_ENDED, ActivityJournal, ActivityReader
from limiter.limiter import Entry, Limiter, Stream
from limiter.scheduler import Scheduler
from tests.limiter.emptied import emptied
from tests.limiter.world import World, limiter


def test_the_first_to_report_wakes_the_reader_and_the_others_do_not() -> None:
    calls: list[int] = []
    journal, world = ActivityJournal(), World()
    journal.read_by(ActivityReader(on_first=lambda: calls.append(1)))
    first, second = world.stream(), world.stream()
    for stream in (first, second, first):
        journal.note(stream)
    assert len(calls) == 1
    assert emptied(journal) == ([first, second], [])
    journal.note(second)
    assert len(calls) == 2


def test_a_stream_reports_its_limiters_with_it_once() -> None:
    journal, world, total = ActivityJournal(), World(), limiter(10)
    own = limiter(5, name="own")
    journal.note(world.stream(total, own))
    journal.note(world.stream(total))
    assert emptied(journal)[1] == [total, own]


def test_who_did_nothing_since_the_last_time_is_not_there() -> None:
    journal, world = ActivityJournal(), World()
    journal.note(world.stream(limiter(10)))
    emptied(journal)
    assert emptied(journal) == ([], [])


def test_who_still_waits_stays_until_it_has_gone() -> None:
    world, total = World(), limiter(1)
    stream: Stream = world.stream(total)
    world.offer(stream, 1, 1)
    world.offer(stream, 1, 1)
    for _ in range(3):
        assert emptied(world.journal) == ([stream], [total])
    world.run(1)
    assert emptied(world.journal) == ([stream], [total])
    assert emptied(world.journal) == ([], [])


def test_the_end_of_a_period_looks_at_no_stream() -> None:
    world, total = World(), limiter(1)
    streams = [world.stream(total) for _ in range(3)]
    for stream in streams * 2:
        world.offer(stream, 1, 1)
    world.journal.end_period()
    assert not world.journal.streams
    world.journal.taken(streams[1])
    assert list(world.journal.streams) == [streams[1]]
    assert not any(stream.noted_in.is_open for stream in streams)


def test_a_stream_that_holds_but_waits_nowhere_yet_stays_too() -> None:
    journal, stream = ActivityJournal(), World().stream()
    stream.held.append(Entry(b"", 1, 1, 1, 0))
    journal.note(stream)
    emptied(journal)
    assert list(journal.streams) == [stream]


def test_a_stream_that_gets_other_limiters_reports_them_too() -> None:
    world, total, own = World(), limiter(10), limiter(5, name="own")
    stream: Stream = world.stream(total)
    world.offer(stream, 1, 1)
    world.scheduler.rewire(stream, (own,), world.clock.now)
    world.offer(stream, 1, 1)
    assert emptied(world.journal) == ([stream], [total, own])


def test_after_a_look_a_stream_reports_all_its_limiters_again() -> None:
    world, total = World(), limiter(10)
    stream: Stream = world.stream(total)
    for _ in range(2):
        world.offer(stream, 1, 1)
        assert emptied(world.journal) == ([stream], [total])


def test_of_streams_that_are_over_only_so_many_wait_for_the_reader() -> None:
    journal, world, reported = ActivityJournal(), World(), list[object]()
    journal.read_by(ActivityReader(on_early=reported.append))
    stays = world.stream()
    journal.note(stays)
    over = [world.stream() for _ in range(MOST_ENDED + 5)]
    for stream in over:
        journal.note(stream)
        journal.ended(stream)
    assert reported == over[MOST_ENDED:]
    assert emptied(journal)[0] == [stays, *over[:MOST_ENDED]]
    journal.ended(over[0])
    assert len(reported) == 5, "who has nothing to report does not report it"


def test_forgotten_limiter_is_reported_at_once() -> None:
    journal, world, total, reported = ActivityJournal(), World(), limiter(10), list[object]()
    journal.read_by(ActivityReader(on_early=reported.append))
    journal.note(world.stream(total))
    for _ in range(2):
        journal.forgotten(total)
    assert reported == [total]
    assert emptied(journal)[1] == []


def serve_it(scheduler: Scheduler, total: Limiter, _stream: Stream) -> None:
    scheduler.serve(total, 2 * 10**9)


def take_the_stream_out(scheduler: Scheduler, _total: Limiter, stream: Stream) -> None:
    scheduler.rewire(stream, (), 2 * 10**9)


@pytest.mark.parametrize("act", [serve_it, take_the_stream_out])
def test_a_limiter_is_taken_before_its_counts_change(act: Callable[[Scheduler, Limiter, Stream], None]) -> None:
    """An alarm and another policy concern a limiter without a note of any of its streams."""
    seen = list[tuple[int | None, int]]()

    def state() -> tuple[int | None, int]:
        return total.wakes_at, total.usage.throttled.running_ns(2 * 10**9)

    def take(subject: Stream | Limiter) -> None:
        if subject is total:
            seen.append(state())

    world, total = World(), limiter(1)
    journal = world.journal = ActivityJournal()
    journal.read_by(ActivityReader(on_take=take))
    world.scheduler = Scheduler(world.alarms.wake_at, journal)
    stream: Stream = world.stream(total)
    world.scheduler.join(stream)
    for _ in range(3):
        world.offer(stream, 1, 1)
    journal.end_period()
    journal.is_taking = True
    before = state()
    act(world.scheduler, total, stream)
    assert seen[0] == before != state()
