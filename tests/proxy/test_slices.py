"""Large work is done in slices: a bounded number of units in a turn of the loop, of whatever kind and by whomever."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest

from proxy.counters import Counters
from proxy.slices import AT_ONCE, ByTurns, CallsInSlices, OneInTurn, Slices, Work, letting_go
from proxy.timers import BEAT_S, READS_AT_REST, Heartbeat
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop

LINES = AT_ONCE[Work.LINES]


class Desk:
    """Slices on a loop that turns when a test says so, and what was done in each turn."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.counters = Counters()
        self.slices = Slices(self.counters, self.clock)
        self.did: list[str] = []
        self.turns: list[int] = []
        self.turned = 0

    def units(self, name: str, count: int, takes_ns: int = 0) -> Iterator[None]:
        for _ in range(count):
            self.clock.now += takes_ns
            self.did.append(name)
            yield

    def begin(self, work: Work, name: str, count: int, takes_ns: int = 0) -> None:
        self.slices.run(work, self.units(name, count, takes_ns), lambda: self.did.append(f"{name} over"))

    def run(self, *begun: tuple[Work, str, int]) -> list[list[str]]:
        """Begin pieces of work in one turn; return what is done in it and in each later one."""

        def begin() -> None:
            for each in begun:
                self.begin(*each)

        self.loop.call_soon(begin)
        turns = list[list[str]]()
        while self.loop.__dict__["_ready"]:
            self.did.clear()
            self.loop.stop()
            self.loop.run_forever()
            turns.append(list(self.did))
        return turns


def all_of(turns: list[list[str]]) -> list[str]:
    return [each for turn in turns for each in turn]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.loop.close()


def test_little_work_is_done_in_the_turn_of_its_caller(desk: Desk) -> None:
    first, *later = desk.run((Work.LINES, "a", 3))
    assert first == ["a", "a", "a", "a over"]
    assert not any(later)


def test_much_work_is_done_in_slices(desk: Desk) -> None:
    turns = desk.run((Work.LINES, "a", 10 * LINES))
    assert max(map(len, turns)) == LINES
    assert all_of(turns).count("a") == 10 * LINES
    assert all_of(turns)[-1] == "a over"


def test_many_small_pieces_fill_a_turn_as_one_large_does(desk: Desk) -> None:
    turns = desk.run(*[(Work.LINES, "a", 1)] * 10 * LINES)
    assert max(turn.count("a") for turn in turns) <= LINES
    assert all_of(turns).count("a over") == 10 * LINES


def test_woken_work_has_one_budget_in_the_next_turn(desk: Desk) -> None:
    def wake_up() -> None:
        desk.loop.call_soon(desk.begin, Work.LINES, "b", 3 * LINES)

    for before in (LINES - 1, 0):  # what wakes it up is done in a later turn, or in that of its caller
        desk.loop.call_soon(desk.begin, Work.LINES, "a", before)
        desk.loop.call_soon(desk.slices.run, Work.LINES, desk.units("woken", 1), wake_up)
        turns = desk.run()
        assert max(turn.count("b") for turn in turns) <= LINES
        assert all_of(turns).count("b") == 3 * LINES


def test_kinds_share_the_units_of_a_turn(desk: Desk) -> None:
    turns = desk.run((Work.LINES, "a", 10 * LINES), (Work.ENDINGS, "b", 10 * LINES))
    parts = [turn.count("a") / LINES + turn.count("b") / AT_ONCE[Work.ENDINGS] for turn in turns]
    assert max(parts) <= 1.05
    assert min(turn.count("b") for turn in turns[1:6]) > 0, "the second kind waits for no end of the first"


def test_a_small_piece_ends_before_a_large_one_that_came_first(desk: Desk) -> None:
    turns = desk.run((Work.ENDINGS, "a", 1000), (Work.ENDINGS, "b", 3))
    assert "b over" in all_of(turns[:3])
    assert "a over" in turns[-2]


def test_a_unit_that_fails_ends_its_piece_alone(desk: Desk) -> None:
    def failing() -> Iterator[None]:
        yield
        raise ValueError("broken")

    desk.loop.call_soon(desk.slices.run, Work.LINES, failing(), lambda: desk.did.append("failing over"))
    turns = desk.run((Work.LINES, "a", 2 * LINES))
    assert "a over" in all_of(turns)
    assert "broken" in desk.loop.trouble[0]
    assert all_of(turns).count("failing over") == 1, "else who began it would wait for ever"


def test_what_follows_a_piece_may_fail(desk: Desk) -> None:
    def fail() -> None:
        raise ValueError("broken")

    desk.loop.call_soon(desk.slices.run, Work.LINES, iter(()), fail)
    turns = desk.run((Work.LINES, "a", 2 * LINES))
    assert "a over" in all_of(turns)
    assert desk.slices.waiting(Work.LINES) == 0
    (trouble,) = desk.loop.trouble
    assert "broken" in trouble


def test_what_follows_a_piece_may_begin_pieces_of_its_kind(desk: Desk) -> None:
    def follow() -> None:
        desk.begin(Work.LINES, "a", 1)
        desk.begin(Work.LINES, "b", 2 * LINES)

    desk.loop.call_soon(desk.slices.run, Work.LINES, iter(()), follow)
    turns = desk.run()
    assert {"a over", "b over"} <= {*all_of(turns)}
    assert desk.slices.waiting(Work.LINES) == 0


def test_what_is_left_is_done_at_once_when_the_process_ends(desk: Desk) -> None:
    def begin_and_end() -> None:
        for name in "abc":
            desk.begin(Work.LINES, name, 3 * LINES)
        assert desk.slices.waiting(Work.LINES) == 3
        desk.slices.finish(Work.LINES)

    desk.loop.run(begin_and_end)
    assert len(desk.did) == 3 * (3 * LINES + 1)
    assert desk.slices.waiting(Work.LINES) == 0


def test_a_caller_awaits_the_last_unit_and_gets_its_error(desk: Desk) -> None:
    async def ask() -> None:
        await desk.slices.done(Work.SCRAPES, desk.units("a", 500))
        assert desk.did.count("a") == 500
        with pytest.raises(ZeroDivisionError):
            await desk.slices.done(Work.SCRAPES, (1 / part for part in (1, 0)))

    asked = desk.loop.create_task(ask())
    desk.loop.settle()
    asked.result()


def test_no_unit_is_done_for_a_caller_that_is_gone(desk: Desk) -> None:
    asked = desk.loop.create_task(desk.slices.done(Work.SCRAPES, desk.units("a", 10_000)))
    desk.loop.call_soon(asked.cancel)
    desk.loop.settle()
    assert len(desk.did) <= 3 * AT_ONCE[Work.SCRAPES]
    assert desk.slices.waiting(Work.SCRAPES) == 0


def test_nothing_is_scheduled_when_all_is_done(desk: Desk) -> None:
    desk.run((Work.LINES, "a", 10 * LINES))
    assert not desk.loop.timers
    assert not desk.loop.__dict__["_ready"]


def test_calls_are_made_in_slices_and_in_order(desk: Desk) -> None:
    calls, made, turns = CallsInSlices(desk.slices, Work.ENDINGS), list[int](), list[int]()

    def call(number: int) -> None:
        made.append(number)
        if number == 7:
            raise ValueError("broken")

    def add() -> None:
        for number in range(10 * AT_ONCE[Work.ENDINGS]):
            calls.add(partial(call, number))

    desk.loop.turned = lambda: turns.append(len(made))
    desk.loop.call_soon(add)
    desk.loop.settle()
    assert made == list(range(10 * AT_ONCE[Work.ENDINGS]))
    assert max(after - before for before, after in pairwise([0, *turns])) <= AT_ONCE[Work.ENDINGS]
    assert "broken" in desk.loop.trouble[0]


def test_a_call_that_comes_alone_is_made_at_once(desk: Desk) -> None:
    calls, made = CallsInSlices(desk.slices, Work.ENDINGS), list[int]()

    def add() -> None:
        calls.add(partial(made.append, 1))
        assert made == [1]

    desk.loop.run(add)


def test_calls_of_several_keys_are_made_by_turns(desk: Desk) -> None:
    calls, made = CallsInSlices(desk.slices, Work.HANDSHAKES), list[str]()

    def add() -> None:
        for number in range(100):
            calls.add(partial(made.append, f"crowd {number}"), "10.0.0.66")
        calls.add(partial(made.append, "neighbour"), "10.0.0.1")

    desk.loop.run(add)
    assert made.index("neighbour") <= AT_ONCE[Work.HANDSHAKES] + 1
    assert [each for each in made if each != "neighbour"] == [f"crowd {number}" for number in range(100)]


def test_keys_have_turns_and_items_of_one_key_their_order() -> None:
    queue = ByTurns[str]()
    for item in ("a1", "a2", "b1", "a3", "c1", "c2"):
        queue.add(item[0], item)
    queue.add("c", "c0", goes_first=True)
    assert [queue.pop() for _ in range(7)] == ["a1", "b1", "c0", "a2", "c1", "a3", "c2"]
    assert not queue


def test_tables_are_emptied_in_slices(desk: Desk) -> None:
    table, left = dict.fromkeys(range(10_000)), list[int]()
    desk.loop.turned = lambda: left.append(len(table))
    desk.loop.call_soon(desk.slices.run, Work.MEMORY, letting_go({}, table))
    desk.loop.settle()
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise([10_000, *left])) == 100 * AT_ONCE[Work.MEMORY]


def test_work_is_measured_by_kind_and_its_longest_turn_kept(desk: Desk) -> None:
    desk.loop.call_soon(desk.begin, Work.LINES, "a", 2 * LINES, 1000)
    desk.loop.settle()
    assert desk.counters.work_ns == {Work.LINES: 2 * LINES * 1000}
    assert desk.slices.longest_ns == {Work.LINES: LINES * 1000}


def test_work_inside_other_work_counts_once(desk: Desk) -> None:
    def outer() -> None:
        with desk.slices.measure(Work.COMMANDS):
            desk.clock.now += 5
            with desk.slices.measure(Work.ENDINGS):
                desk.clock.now += 70
            desk.clock.now += 2

    desk.loop.run(outer)
    assert desk.counters.work_ns == {Work.COMMANDS: 7, Work.ENDINGS: 70}


@pytest.mark.parametrize(("late_ms", "work"), [(20, "requests"), (90, "unnamed")])
def test_a_late_timer_names_the_work_that_held_the_loop(desk: Desk, late_ms: int, work: str) -> None:
    def hold() -> None:
        with desk.slices.measure(Work.REQUESTS):
            desk.clock.now += 20_000_000

    desk.loop.call_soon(hold)
    desk.loop.call_soon(desk.slices.lateness.timer_fired, late_ms * 1_000_000)
    desk.loop.settle()
    assert desk.counters.late_timers == {work: 1}


def is_read(heartbeat: Heartbeat, times: int = READS_AT_REST) -> None:
    """As connections do; that they do is tested in `test_kinds_of_work.py`."""
    for _ in range(times):
        heartbeat.reads_left -= 1
        if heartbeat.reads_left == 0:
            heartbeat.note()


@pytest.fixture
def heartbeat(desk: Desk) -> Heartbeat:
    desk.slices.heartbeat.start()
    return desk.slices.heartbeat


def test_a_heart_beats_while_there_is_work_and_rests_after_it(desk: Desk) -> None:
    beats = list[int]()
    heartbeat = Heartbeat(beats.append, desk.clock)
    desk.loop.run(is_read, heartbeat)
    desk.loop.advance(1)
    assert not beats, "it has not been started"
    heartbeat.start()
    desk.loop.run(is_read, heartbeat)
    for _ in range(10):
        desk.loop.run(is_read, heartbeat, 1)
        desk.loop.advance(BEAT_S)
    assert beats == [0] * 10
    desk.loop.advance(1)
    assert beats == [0] * 11
    assert not desk.loop.timers


def test_few_reads_set_no_timer(desk: Desk, heartbeat: Heartbeat) -> None:
    for _ in range(READS_AT_REST - 1):
        desk.loop.run(is_read, heartbeat, 1)
        assert not desk.loop.timers
    desk.loop.run(is_read, heartbeat, 1)
    assert desk.loop.timers == ["Heartbeat._beat"]


def test_a_heart_that_is_stopped_beats_no_more(desk: Desk, heartbeat: Heartbeat) -> None:
    desk.loop.run(is_read, heartbeat)
    assert desk.loop.timers == ["Heartbeat._beat"]
    heartbeat.stop()
    desk.loop.run(is_read, heartbeat)
    assert not desk.loop.timers


@pytest.mark.parametrize(("named", "work"), [(True, "requests"), (False, "unnamed")])
def test_a_long_turn_is_noted_and_named_though_no_timer_was_due(
    desk: Desk, heartbeat: Heartbeat, *, named: bool, work: str
) -> None:
    def hold() -> None:
        is_read(heartbeat)
        if named:
            with desk.slices.measure(Work.REQUESTS):
                desk.clock.now += 30_000_000
        else:
            desk.clock.now += 30_000_000

    desk.loop.run(hold)
    assert desk.counters.loop_lag_max_ns == 25_000_000
    assert desk.counters.late_timers == {work: 1}
    assert desk.counters.timers_fired == 0, "lateness of limits is counted apart"
    desk.loop.advance(1)


@pytest.mark.parametrize(("reads", "work"), [(3000, "connections"), (2000, "unnamed")])
def test_a_long_turn_of_many_short_reads_is_named(desk: Desk, heartbeat: Heartbeat, reads: int, work: str) -> None:
    def read_all() -> None:
        is_read(heartbeat, reads)
        desk.clock.now += 30_000_000

    desk.loop.run(read_all)
    assert desk.counters.late_timers == {work: 1}
    desk.loop.advance(1)


def test_named_work_makes_the_heart_beat(desk: Desk, heartbeat: Heartbeat) -> None:
    assert not desk.loop.timers
    desk.run((Work.LINES, "a", 3))
    assert desk.loop.timers == ["Heartbeat._beat"]
    desk.loop.advance(1)
    assert not desk.loop.timers


def test_call_that_waits_for_its_turn_is_asked_for_once() -> None:
    queued, made = list[Callable[[], int | None]](), list[str]()

    def call() -> int:
        made.append("made")
        if len(made) == 1:
            call_in_turn.ask()
        return 3

    call_in_turn = OneInTurn(lambda each, _key: queued.append(each), call, "key")
    call_in_turn.ask()
    call_in_turn.ask()
    assert len(queued) == 1
    assert queued.pop()() == 3
    assert len(queued) == 1, "it may ask for itself again"
    queued.pop()()
    assert (queued, made) == ([], ["made", "made"])
