"""In which order a session ends whose client has left; that nothing is lost thereby, test_supervisor.py shows."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from proxy.runtime import Tasks
from proxy.session.events import CloseReason, SessionEnd
from proxy.session.session import GracefulClose
from proxy.session.streams import Streams
from tests.waiting import PATIENCE_S

_RESET = SessionEnd(CloseReason.CLIENT_RESET, "by peer")


class Scene:
    """Streams of which nothing is decided before `decide`, a broker, and what was done."""

    def __init__(self, patience: float = 60) -> None:
        self.done: list[object] = []
        self.tasks = Tasks()
        self.decide: list[Callable[[], None]] = []
        self.departing = GracefulClose(cast("Streams", self), self.write_eof, self.tasks, patience, self.done.append)

    def when_decided(self, then: Callable[[], None]) -> None:
        self.decide.append(then)

    def close_all(self, then: Callable[[], None]) -> None:
        self.done.append("streams closed")
        then()

    def write_eof(self) -> None:
        self.done.append("broker told")


async def test_a_client_that_still_reads_is_waited_for_and_the_broker_told_behind_what_passed() -> None:
    scene = Scene()
    scene.departing.half_closed()
    assert scene.done == []
    scene.decide[0]()
    assert scene.done == ["streams closed", "broker told"]
    scene.tasks.cancel()


async def test_a_lost_one_ends_the_session_behind_what_passed() -> None:
    scene = Scene()
    scene.departing.lost(_RESET)
    assert scene.done == []
    scene.decide[0]()
    assert scene.done == [_RESET]
    scene.tasks.cancel()


async def test_the_first_end_is_the_one_that_is_told() -> None:
    scene = Scene()
    scene.departing.half_closed()
    scene.departing.lost(_RESET)
    assert scene.departing.end == SessionEnd(CloseReason.CLIENT_CLOSED)
    scene.tasks.cancel()


@pytest.mark.parametrize("is_lost", [False, True])
async def test_nobody_waits_for_ever(*, is_lost: bool) -> None:
    scene = Scene(patience=0)
    if is_lost:
        scene.departing.lost(_RESET)
    else:
        scene.departing.half_closed()
    async with asyncio.timeout(PATIENCE_S):
        while not scene.done:  # noqa: ASYNC110 - the loop's own time
            await asyncio.sleep(0)
    assert scene.done == [scene.departing.end]
