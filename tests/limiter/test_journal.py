from limiter.journal import Journal
from limiter.stream import Entry, Stream
from tests.limiter.world import World, limiter


def test_the_first_to_report_wakes_the_reader_and_the_others_do_not() -> None:
    calls: list[int] = []
    journal, world = Journal(lambda: calls.append(1)), World()
    first, second = world.stream(), world.stream()
    for stream in (first, second, first):
        journal.note(stream)
    assert len(calls) == 1
    assert journal.empty() == ([first, second], [])
    journal.note(second)
    assert len(calls) == 2


def test_a_stream_reports_its_limiters_with_it_once() -> None:
    journal, world, total = Journal(lambda: None), World(), limiter(10)
    own = limiter(5, name="own")
    journal.note(world.stream(total, own))
    journal.note(world.stream(total))
    assert journal.empty()[1] == [total, own]


def test_who_did_nothing_since_the_last_time_is_not_there() -> None:
    journal, world = Journal(lambda: None), World()
    journal.note(world.stream(limiter(10)))
    journal.empty()
    assert journal.empty() == ([], [])


def test_who_still_waits_stays_until_it_has_gone() -> None:
    world, total = World(), limiter(1)
    stream: Stream = world.stream(total)
    world.offer(stream, 1, 1)
    world.offer(stream, 1, 1)
    for _ in range(3):
        assert world.journal.empty() == ([stream], [total])
    world.run(1)
    assert world.journal.empty() == ([stream], [total])
    assert world.journal.empty() == ([], [])


def test_a_stream_that_holds_but_waits_nowhere_yet_stays_too() -> None:
    journal, stream = Journal(lambda: None), World().stream()
    stream.held.append(Entry(b"", 1, 1, 1, 0))
    journal.note(stream)
    journal.empty()
    assert list(journal.streams) == [stream]


def test_a_stream_that_gets_other_limiters_reports_them_too() -> None:
    world, total, own = World(), limiter(10), limiter(5, name="own")
    stream: Stream = world.stream(total)
    world.offer(stream, 1, 1)
    world.gate.rewire(stream, (own,), world.clock.now)
    world.offer(stream, 1, 1)
    assert world.journal.empty() == ([stream], [total, own])


def test_after_a_look_a_stream_reports_all_its_limiters_again() -> None:
    world, total = World(), limiter(10)
    stream: Stream = world.stream(total)
    for _ in range(2):
        world.offer(stream, 1, 1)
        assert world.journal.empty() == ([stream], [total])
