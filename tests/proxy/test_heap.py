"""Memory that came free goes back to the system."""

from collections.abc import Iterator

import pytest

from limiter.testing import ManualClock
from proxy.heap import WHILE_S, Heap
from tests.proxy.manual_loop import ManualLoop


@pytest.fixture
def loop() -> Iterator[ManualLoop]:
    loop = ManualLoop(ManualClock())
    yield loop
    loop.close()


def test_a_while_after_the_first_came_free_all_is_given_back_once(loop: ManualLoop) -> None:
    given: list[float] = []
    heap = Heap(lambda: given.append(loop.time()))
    loop.run(heap.freed)
    loop.advance(WHILE_S - 1)
    loop.run(heap.freed)
    assert given == []
    loop.advance(10 * WHILE_S)
    assert given == [WHILE_S]
    assert loop.timers == []


def test_what_comes_free_later_is_given_back_too(loop: ManualLoop) -> None:
    given: list[float] = []
    heap = Heap(lambda: given.append(loop.time()))
    loop.run(heap.freed)
    loop.advance(2 * WHILE_S)
    loop.run(heap.freed)
    loop.advance(2 * WHILE_S)
    assert given == [WHILE_S, 3 * WHILE_S]


def test_what_cannot_be_given_back_once_may_be_the_next_time(loop: ManualLoop) -> None:
    given: list[float] = []

    def give_back() -> None:
        given.append(loop.time())
        raise OSError

    heap = Heap(give_back)
    for _ in range(2):
        loop.run(heap.freed)
        loop.advance(WHILE_S)
    assert given == [WHILE_S, 2 * WHILE_S]
