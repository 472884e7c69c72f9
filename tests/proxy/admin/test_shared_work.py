"""Slow work is done once for all who ask meanwhile."""

import asyncio
from collections.abc import Iterator

import pytest

from proxy.admin.shared_work import MOST_WAITING, SharedWork, TooManyWaitError
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop


class Desk:
    """Work that ends when a test says so."""

    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock())
        self.begun: list[asyncio.Future[int]] = []
        self.shared = SharedWork(self._work, float)

    async def _work(self) -> int:
        self.begun.append(self.loop.create_future())
        return await self.begun[-1]

    def ask(self, times: int = 1, *, has_place: bool = False) -> list["asyncio.Task[int]"]:
        return [self.loop.run(self.loop.create_task, self.shared.get(has_place=has_place)) for _ in range(times)]

    def end(self, result: int) -> None:
        self.loop.run(self.begun[-1].set_result, result)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.loop.close()


def test_all_who_ask_meanwhile_share_one_result(desk: Desk) -> None:
    asked = desk.ask(MOST_WAITING)
    desk.end(7)
    assert [each.result() for each in asked] == [7] * MOST_WAITING
    assert len(desk.begun) == 1
    assert desk.shared.waiting == 0


def test_result_is_handed_out_while_it_is_kept(desk: Desk) -> None:
    desk.ask()
    desk.end(7)
    desk.loop.advance(6.9)
    assert desk.ask()[0].result() == 7
    assert len(desk.begun) == 1
    desk.loop.advance(0.2)
    assert not desk.ask()[0].done()
    assert len(desk.begun) == 2


def test_result_that_is_not_kept_is_made_for_each(desk: Desk) -> None:
    for number in (1, 2):
        (asked,) = desk.ask()
        desk.end(0)
        assert asked.result() == 0
        assert len(desk.begun) == number


def test_more_than_may_wait_are_refused_at_once(desk: Desk) -> None:
    asked = desk.ask(MOST_WAITING + 3)
    assert [isinstance(each.exception(), TooManyWaitError) for each in asked[MOST_WAITING:]] == [True] * 3
    desk.end(1)
    assert asked[0].result() == 1


def test_strangers_keep_no_caller_with_a_place_out(desk: Desk) -> None:
    strangers, (own,) = desk.ask(MOST_WAITING), desk.ask(has_place=True)
    desk.ask(2 * MOST_WAITING, has_place=True)
    assert desk.shared.waiting == MOST_WAITING
    desk.end(1)
    assert [each.result() for each in (*strangers, own)] == [1] * (MOST_WAITING + 1)
    assert desk.shared.waiting == 0


def test_caller_that_leaves_ends_no_work_of_others(desk: Desk) -> None:
    first, second = desk.ask(2)
    desk.loop.run(first.cancel)
    assert desk.shared.waiting == 1
    desk.end(3)
    assert second.result() == 3


def test_work_that_fails_is_done_again_for_the_next(desk: Desk) -> None:
    (asked,) = desk.ask()
    desk.loop.run(desk.begun[-1].set_exception, OSError("gone"))
    assert isinstance(asked.exception(), OSError)
    (asked,) = desk.ask()
    desk.end(5)
    assert asked.result() == 5
