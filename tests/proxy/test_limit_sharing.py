"""The end of both processes of a takeover: one of them has the whole of each limit, and leaves it to the next run."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from limiter.levels import Setting
from limiter.restart import FirstBalances
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from proxy.limit_sharing import Holding, LimitSharing
from proxy.takeover import ENDS, GONE, SocketLink
from tests.limiter.world import Governed

BURST, PASSED = 100, 30


class File:
    """Stands for the file of balances."""

    def __init__(self) -> None:
        self.is_written = self.is_awaited = False

    def leave_balances(self, _limiters: Iterable[object], *, is_awaited: bool = False) -> None:
        self.is_written, self.is_awaited = True, is_awaited

    async def take_back_balances(self) -> None:
        self.is_written = False


class Process:
    """One of the two processes: its limits, and its end of the connection."""

    def __init__(self, end: socket.socket, *, has_all: bool) -> None:
        end.setblocking(False)
        self.link = SocketLink(end)
        self.run = _governed()
        self.run.clock.now = time.monotonic_ns()
        engine = SimpleNamespace(registry=self.run.registry, clock=time.monotonic_ns, slices=self)
        self.file = File()
        self._sharing = LimitSharing(cast("Any", engine), lambda *_: None)
        self.limits = Holding(cast("Any", engine), self._sharing, cast("Any", self.file))
        self._has_all = has_all
        self.keeps_limits = False

    async def done(self, _work: object, units: Iterator[object]) -> None:
        """Do the work of a slice."""
        for _ in units:
            pass

    async def begin(self) -> None:
        await self.link.open()
        if self._has_all:
            self.limits.await_word()
            await self.limits.give_away(self.link, lambda: None)
        else:
            self._sharing.begin(self.link, has_all=False)

    async def hears(self) -> None:
        """Do with each word what a process does, and close the connection at the end of the other one."""
        while (word := await self.link.hear(60)) != GONE and not (word == ENDS and self._has_all):
            pass
        await (self.limits.become_whole() if self._has_all else self.limits.take_over())
        self.link.close()

    async def ends(self) -> None:
        await self.limits.leave()
        self.keeps_limits = self.file.is_written


def _passed(run: Governed) -> int:
    """Return how many messages a producer has passed at once."""
    stream = run.open("a")
    return sum(run.offer(stream, 1, 1) for _ in range(BURST))


def _governed(first: FirstBalances | None = None) -> Governed:
    made = Governed(first=first)
    made.put((Setting.NAMESPACE, "t/n"), Limit(rate(1, 3600 * NANOS_PER_SECOND, burst=BURST), None))
    return made


@pytest.fixture
async def both() -> AsyncIterator[tuple[Process, Process]]:
    ours, theirs = socket.socketpair()
    processes = Process(ours, has_all=True), Process(theirs, has_all=False)
    yield processes
    for each in processes:
        each.link.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["before", "after", "both"])
async def test_balances_of_two_that_end_are_with_one(both: tuple[Process, Process], first: str) -> None:
    before, after = both
    stream = before.run.open("a")
    assert all(before.run.offer(stream, 1, 1) for _ in range(PASSED))
    for each in both:
        await each.begin()
    stream = after.run.open("a")
    leaving = {"before": before, "after": after}.get(first)
    hearing = [asyncio.get_running_loop().create_task(each.hears()) for each in both]
    while not stream.chain[0].shares[0]:  # noqa: ASYNC110 - each has a part then
        await asyncio.sleep(0)
    if leaving is not None:
        await leaving.ends()
    await asyncio.gather(*(each.ends() for each in both if each is not leaving))
    before.link.close()  # it has ended
    await asyncio.gather(*hearing)
    kept = [each for each in both if each.keeps_limits]
    assert len(kept) == 1
    now, registry = time.monotonic_ns(), kept[0].run.registry
    left = dict(registry.first.left(registry.limiters.values(), now))
    following = _governed(FirstBalances(left, now))
    following.clock.now = now
    assert _passed(following) == BURST - PASSED


async def test_limits_that_are_awaited_are_left_in_the_file(both: tuple[Process, Process]) -> None:
    before, _ = both
    before.limits.await_word()
    assert await before.limits.leave()
    assert (before.file.is_written, before.file.is_awaited) == (True, True)


async def test_limits_that_are_left_are_not_given_away(both: tuple[Process, Process]) -> None:
    before, _ = both
    assert not await before.limits.leave()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(before.begin(), 0.05)
    assert before.file.is_written
