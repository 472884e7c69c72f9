"""A coroutine that is run to its end without a task."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from proxy.session.broker_connector import ConnectAttempt
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop

Tried = Callable[["asyncio.Future[None]"], Awaitable[object]]


class Rig:
    """One attempt, and a future that it may wait for."""

    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock())
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.heard: list[str] = []
        self.ends: list[Exception | None] = []

    def begin(self, tried: Tried) -> ConnectAttempt:
        async def coroutine() -> None:
            try:
                await tried(self.future)
                self.heard.append("went on")
            except asyncio.CancelledError:
                self.heard.append("cancelled")
                raise

        attempt = ConnectAttempt(coroutine(), lambda caller, error: self._ended(caller is attempt, error), (OSError,))
        self.loop.run(attempt.start)
        return attempt

    def _ended(self, is_it: bool, error: Exception | None) -> None:  # noqa: FBT001 - what a test asserts
        assert is_it
        self.ends.append(error)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.loop.close()


async def _waits(future: "asyncio.Future[None]") -> None:
    await future


async def _waits_twice(future: "asyncio.Future[None]") -> None:
    await future
    await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 1)
    await asyncio.shield(future)


async def _does_not_wait(_future: object) -> None:
    pass


@pytest.mark.parametrize("tried", [_waits, _waits_twice, asyncio.shield])
def test_it_goes_on_when_what_it_waits_for_is_there(rig: Rig, tried: Tried) -> None:
    rig.begin(tried)
    assert not rig.ends
    rig.loop.run(rig.future.set_result, None)
    assert (rig.heard, rig.ends, rig.loop.trouble) == (["went on"], [None], [])


def test_who_need_not_wait_ends_at_once(rig: Rig) -> None:
    rig.begin(_does_not_wait)
    assert (rig.heard, rig.ends) == (["went on"], [None])


def test_how_it_may_fail_is_told(rig: Rig) -> None:
    rig.begin(_waits)
    error = ConnectionRefusedError("nobody there")
    rig.loop.run(rig.future.set_exception, error)
    assert (rig.heard, rig.ends, rig.loop.trouble) == ([], [error], [])


def test_another_error_is_the_loops(rig: Rig) -> None:
    rig.begin(_waits)
    rig.loop.run(rig.future.set_exception, KeyError("a mistake"))
    assert not rig.ends
    assert len(rig.loop.trouble) == 1
    assert "a mistake" in rig.loop.trouble[0]


def test_who_leaves_it_hears_no_more_and_the_coroutine_hears_that(rig: Rig) -> None:
    attempt = rig.begin(_waits)
    rig.loop.run(attempt.cancel)
    assert (rig.heard, rig.ends, rig.loop.trouble) == (["cancelled"], [], [])
    rig.loop.run(attempt.cancel)  # once more changes nothing
    assert (rig.heard, rig.ends, rig.loop.trouble) == (["cancelled"], [], [])
