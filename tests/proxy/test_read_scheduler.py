"""Fair reading among client addresses: real sockets in a real loop, and a clock that only reading moves on."""

import asyncio
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from proxy.counters import Counters
from proxy.read_scheduler import CALM_S, MANY, SLICE_NS, ReadScheduler
from tests.manual_clock import ManualClock

COST = SLICE_NS // 10
"""Nanoseconds that one read takes: ten fill the slice."""


class Loop(asyncio.SelectorEventLoop):
    """The network is real, the time is a test's."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._manual = clock

    def time(self) -> float:
        return self._manual.now / 1e9


class Line:
    """One connection, read as the loop reads a peer."""

    def __init__(self, world: "World", name: str, address: str, cost: int) -> None:
        self.name = name
        self.is_throttled = False
        self.is_read = False
        self._world = world
        self.cost = cost
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self.start_reading()
        self.group = world.scheduler.group(address)
        self.group.join(self)

    def say(self) -> None:
        self._there.send(b"x")

    def descriptor(self) -> int:
        return self._here.fileno()

    def may_be_read(self) -> bool:
        return not self.is_throttled and self._here.fileno() >= 0

    def start_reading(self) -> None:
        self.is_read = True
        self._world.loop.add_reader(self._here, self._readable)

    def stop_reading(self) -> None:
        self.is_read = False
        self._world.loop.remove_reader(self._here)

    def close(self) -> None:
        self.stop_reading()
        self.group.leave(self)
        self._here.close()
        self._there.close()

    def _readable(self) -> None:
        assert self.is_read
        began = self.group.begin(self) if self.group.is_crowded else 0
        self._here.recv(1)
        self._world.clock.now += self.cost
        self._world.order.append(self.name)
        if self.group.is_crowded:
            self.group.end(self, began)


class World:
    """A crowd of one address, and neighbours of others.

    Attributes:
        order: Who was read, one after the other; `|` between turns of the loop.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop(self.clock)
        self.trouble: list[str] = []
        self.loop.set_exception_handler(lambda _loop, context: self.trouble.append(str(context["exception"])))
        self.order: list[str] = []
        self.counters = Counters()
        self.scheduler = ReadScheduler(self.counters, lambda: self.clock.now)
        self._lines: list[Line] = []

    def line(self, name: str, address: str, cost: int = COST) -> Line:
        line = Line(self, name, address, cost)
        self._lines.append(line)
        return line

    def crowd(self, size: int = 3 * MANY, address: str = "10.0.0.66", cost: int = COST) -> list[Line]:
        return [self.line(f"c{number}", address, cost) for number in range(size)]

    def turns(self, number: int) -> list[str]:
        """Let so many turns pass; who was read in them."""
        self.order = order = []
        for _ in range(number):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
            order.append("|")
        return order

    def close(self, lines: list[Line]) -> None:
        """They close at once, inside the loop."""
        for line in lines:
            self.loop.call_soon(line.close)
        self.turns(1)

    def end(self) -> None:
        self.close([line for line in self._lines if line.descriptor() >= 0])
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        assert not self.scheduler.in_turns
        assert not self.trouble


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.end()


def _all_say(*lines: Line) -> None:
    for line in lines:
        line.say()


def _read(order: list[str]) -> list[str]:
    return [name for name in order if name != "|"]


def _largest_turn(order: list[str], first: str) -> int:
    """Of those whose names begin so, how many were read in one turn at most."""
    most = count = 0
    for name in order:
        count = 0 if name == "|" else count + name.startswith(first)
        most = max(most, count)
    return most


def test_a_neighbour_is_read_before_most_of_a_crowd_that_spoke_before_it(world: World) -> None:
    crowd, neighbour = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd, neighbour)
    order = _read(world.turns(100))
    assert order.index("n") <= 10
    assert sorted(order) == sorted(["n", *(line.name for line in crowd)])


def test_crowd_read_in_turns_keeps_to_the_slice_and_none_starves(world: World) -> None:
    crowd, _ = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    world.turns(200)
    _all_say(*crowd, *crowd)
    order = world.turns(400)
    assert _largest_turn(order, "c") <= 10
    read = _read(order)
    assert {read.count(line.name) for line in crowd} == {2}
    assert set(read[: len(crowd)]) == {line.name for line in crowd}
    assert world.scheduler.in_turns == world.counters.address_overruns == 1


def test_turn_filled_by_connections_left_over_admits_no_others(world: World) -> None:
    """Two fill the next turn: the first two took a slice, and so did four more, before others were looked at."""
    crowd, _ = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    world.turns(200)
    for line, part in zip(crowd, (2, 2, 4, 4, 4, 4), strict=False):
        line.cost = SLICE_NS // part
    _all_say(*crowd[:8])
    assert _read(world.turns(3)) == ["c0", "c1"]
    _all_say(*crowd[8:11])
    assert _read(world.turns(1)) == ["c2", "c3", "c4", "c5"]
    assert not any(line.is_read for line in crowd[8:11])
    assert _read(world.turns(20)) == ["c6", "c7", "c8", "c9", "c10"]


def test_a_neighbour_is_read_in_the_turn_in_which_it_speaks(world: World) -> None:
    crowd, neighbour = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    world.turns(200)
    _all_say(*crowd)
    world.turns(3)
    neighbour.say()
    assert "n" in world.turns(2)


@pytest.mark.parametrize(
    ("size", "others", "cost"), [(3 * MANY, 0, COST), (MANY, 1, COST), (3 * MANY, 1, SLICE_NS // (4 * MANY))]
)
def test_alone_or_few_or_within_the_slice_they_are_read_by_the_loop_itself(
    world: World, size: int, others: int, cost: int
) -> None:
    crowd = world.crowd(size, cost=cost)
    for number in range(others):
        world.line(f"n{number}", f"10.0.0.{number + 1}")
    _all_say(*crowd)
    assert sorted(_read(world.turns(2))) == sorted(line.name for line in crowd)
    assert all(line.is_read for line in crowd)
    assert not world.counters.address_overruns


def test_after_a_second_of_calm_the_loop_reads_all_of_them_itself_again(world: World) -> None:
    crowd, _ = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    world.turns(200)
    assert world.scheduler.in_turns == 1
    for _ in range(3):
        world.clock.now += round(CALM_S * 1e9)
        world.turns(2)
    assert not world.scheduler.in_turns
    assert all(line.is_read for line in crowd)
    crowd[0].say()
    assert _read(world.turns(2)) == ["c0"]


def test_as_long_as_it_overruns_its_slice_it_is_read_in_turns(world: World) -> None:
    crowd, _ = world.crowd(), world.line("n", "10.0.0.1")
    for _ in range(5):
        _all_say(*crowd)
        world.turns(200)
        world.clock.now += round(CALM_S * 1e9)
    assert world.scheduler.in_turns == world.counters.address_overruns == 1


def test_connections_join_and_leave_the_turns_of_their_address(
    world: World,
) -> None:
    crowd, _ = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    world.turns(200)
    new = world.line("cnew", "10.0.0.66")
    assert not new.is_read
    _all_say(*crowd, new)
    world.close(crowd[::2])
    assert sorted(_read([*world.order, *world.turns(200)])) == sorted(["cnew", *(line.name for line in crowd[1::2])])


def test_sessions_of_returning_brokers_go_on_within_the_slice(world: World) -> None:
    crowd, _ = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    world.turns(200)

    def go_on(number: int) -> None:
        world.clock.now += COST
        world.order.append(f"s{number}")
        if number == 5:
            raise ValueError("the others go on nevertheless")

    world.loop.set_exception_handler(lambda _loop, context: world.order.append(str(context["exception"])))
    for number in range(50):
        world.loop.call_soon(crowd[0].group.go_on_later, partial(go_on, number))
    order = world.turns(10)
    assert _largest_turn(order, "s") <= 10
    assert [name for name in order if name.startswith("s")] == [f"s{number}" for number in range(50)]
    assert "the others go on nevertheless" in order


def test_when_all_of_them_have_gone_nothing_is_left(world: World) -> None:
    crowd, neighbour = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    world.turns(3)
    world.close(crowd)
    assert not world.scheduler.in_turns
    neighbour.say()
    assert _read(world.turns(2)) == ["n"]
    assert not world.scheduler.has_others


def test_who_is_stopped_for_another_reason_is_read_when_that_is_gone(world: World) -> None:
    crowd, _ = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    world.turns(200)
    stopped = crowd[5]
    stopped.is_throttled = True
    stopped.say()
    assert _read(world.turns(20)) == []
    stopped.is_throttled = False
    assert stopped.group.resume(stopped)
    assert _read(world.turns(3)) == ["c5"]


def test_two_crowds_share_the_slice(world: World) -> None:
    crowd, other = world.crowd(), [world.line(f"d{number}", "10.0.0.67") for number in range(3 * MANY)]
    _all_say(*crowd, *other)
    world.turns(300)
    _all_say(*crowd, *other)
    order = world.turns(500)
    assert world.scheduler.in_turns == 2
    assert max(_largest_turn(order, "c"), _largest_turn(order, "d")) <= 5
    assert len(_read(order)) == 6 * MANY


def test_without_a_descriptor_left_they_are_read_by_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError

    monkeypatch.setattr("select.epoll", none_left)
    crowd, _ = world.crowd(), world.line("n", "10.0.0.1")
    _all_say(*crowd)
    assert len(_read(world.turns(2))) == len(crowd)
    assert not world.scheduler.in_turns
