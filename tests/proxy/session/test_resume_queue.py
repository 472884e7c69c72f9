"""Connections that are read again when many may be at the same moment."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from proxy.counters import Counters
from proxy.read_scheduler import AddressGroup, ReadScheduler, ResumeQueue
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop

ADDRESSES = ReadScheduler(Counters())


class Somebody:
    """Notes its turns; may be stopped meanwhile."""

    def __init__(self, name: str, turns: list[str], address: str = "10.0.0.1") -> None:
        self.name = name
        self.group: AddressGroup | None = ADDRESSES.group(address)
        self.is_stopped = False
        self._turns = turns

    def turn_came(self) -> bool:
        if not self.is_stopped:
            self._turns.append(self.name)
        return not self.is_stopped


class Scene:
    """Three readers a, b and c, and the turns that they had."""

    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock())
        self.turns: list[str] = []
        self.line = ResumeQueue()
        self.a, self.b, self.c = (Somebody(name, self.turns) for name in "abc")


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.loop.run(lambda: None)
    assert not scene.loop.trouble
    scene.loop.close()


def test_who_comes_alone_goes_at_once(scene: Scene) -> None:
    assert scene.loop.run(scene.line.goes_first, scene.a)
    assert scene.loop.run(scene.line.goes_first, scene.b)


def test_of_many_one_goes_at_once_and_one_more_each_turn_of_the_loop(scene: Scene) -> None:
    def room() -> None:
        scene.loop.call_soon(lambda: scene.loop.call_soon(scene.turns.append, "|"))
        assert scene.line.goes_first(scene.a)
        assert not scene.line.goes_first(scene.b)
        assert not scene.line.goes_first(scene.c)

    scene.loop.run(room)
    assert scene.turns == ["b", "|", "c"]


def test_who_has_had_its_turn_goes_behind_all_others(scene: Scene) -> None:
    def all_of_them() -> None:
        for reader in (scene.a, scene.b, scene.a, scene.c):
            scene.line.join(reader)

    scene.loop.run(all_of_them)
    assert scene.turns == ["a", "b", "c"]
    scene.loop.run(all_of_them)
    assert scene.turns[3:] == ["a", "b", "c"]


def test_who_is_stopped_again_keeps_its_place_and_costs_nobody_a_turn(scene: Scene) -> None:
    def room() -> None:
        for reader in (scene.a, scene.b, scene.c):
            scene.line.join(reader)

    scene.b.is_stopped = scene.c.is_stopped = True
    scene.loop.run(room)
    assert scene.turns == ["a"]
    scene.b.is_stopped = scene.c.is_stopped = False

    def room_again() -> None:
        assert not scene.line.goes_first(scene.a)
        scene.line.join(scene.c)
        scene.line.join(scene.b)

    scene.loop.run(room_again)
    assert scene.turns == ["a", "c", "b", "a"]


def test_addresses_have_turns_whichever_has_more_connections(scene: Scene) -> None:
    def room() -> None:
        for number in range(400):
            scene.line.join(Somebody(f"crowd {number}", scene.turns, "10.0.0.66"))
        scene.line.join(scene.a)
        scene.line.join(scene.b)

    scene.loop.run(room)
    assert scene.turns[:4] == ["crowd 0", "a", "crowd 1", "b"]
    assert scene.turns[4:] == [f"crowd {number}" for number in range(2, 400)]


def test_a_neighbour_comes_before_those_that_were_stopped_again(scene: Scene) -> None:
    crowd = [Somebody(f"crowd {number}", scene.turns, "10.0.0.66") for number in range(400)]

    def all_join() -> None:
        for each in crowd:
            each.is_stopped = not each.is_stopped
            scene.line.join(each)

    scene.loop.run(all_join)
    assert not scene.turns

    def all_join_and_a_neighbour() -> None:
        all_join()
        scene.line.join(scene.a)

    scene.loop.run(all_join_and_a_neighbour)
    assert scene.turns.index("a") == 1
    assert len(scene.turns) == 401


def test_a_turn_looks_at_few_that_were_stopped_again(scene: Scene) -> None:
    looked_at, turns = list[str](), list[int]()

    class Stopped(Somebody):
        def turn_came(self) -> bool:
            looked_at.append(self.name)
            return False

    def room() -> None:
        for number in range(1000):
            scene.line.join(Stopped(str(number), scene.turns))

    scene.loop.turned = lambda: turns.append(len(looked_at))
    scene.loop.run(room)
    assert looked_at == [str(number) for number in range(1000)]
    assert max(after - before for before, after in pairwise([0, *turns])) == 32


def test_who_leaves_is_not_waited_for(scene: Scene) -> None:
    def room() -> None:
        scene.line.join(scene.a)
        scene.line.join(scene.b)
        scene.line.leave(scene.a)

    scene.loop.run(room)
    assert scene.turns == ["b"]
    assert scene.loop.run(scene.line.goes_first, scene.c)


def test_a_turn_that_fails_ends_nobody_elses(scene: Scene) -> None:
    class Broken(Somebody):
        def turn_came(self) -> bool:
            raise ValueError(self.name)

    def room() -> None:
        scene.line.join(Broken("broken", scene.turns))
        scene.line.join(scene.b)

    scene.loop.run(room)
    assert scene.turns == ["b"]
    assert len(scene.loop.trouble) == 1
    scene.loop.trouble.clear()
